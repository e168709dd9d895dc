//! `[hardware]` and `[parallelism]`: TorchTitan's degrees on the devices of the target.

use crate::accelerators::{Accelerator, Topology, Tpu};
use crate::diagnostic::Diagnostic;
use crate::reader::no_choice;
use crate::shown::{Shown, list};
use crate::words::Choice;

use super::Target;
use super::config::{Config, Place, Setting};
use super::draft::{Draft, string};
use super::left_out::{CONTEXT, EXPERT, PIPELINE, TENSOR};
use super::models::Model;

/// The largest degree that is taken seriously; products of three of them fit into 64 bits.
const MOST: i64 = 1 << 20;

/// The largest number of devices that is taken seriously.
const MOST_DEVICES: u64 = 1 << 20;

/// Processes that TorchTitan's launcher starts on a host.
const PROCESSES: u64 = 8;

/// The degrees of parallelism; a shard degree of `None` is worked out from the devices.
struct Degrees {
    replicate: Setting<u64>,
    shard: Setting<Option<u64>>,
    expert: Setting<u64>,
    tensor: Setting<u64>,
    context: Setting<u64>,
    pipeline: u64,
}

/// The devices of the run.
struct World {
    devices: Option<u64>,
    /// Whether the target says so, rather than TorchTitan.
    is_given: bool,
}

impl Degrees {
    /// The product of all degrees but that of the shard axis.
    fn beside_shard(&self) -> u64 {
        self.replicate.value * self.context.value * self.tensor.value
    }

    /// The number that devices must be a multiple of when the shard degree is worked out: experts are spread over
    /// what is not replicated.
    fn unit(&self) -> u64 {
        least_common_multiple(self.beside_shard(), self.replicate.value * self.expert.value)
    }

    /// The first degree that somebody wrote.
    fn written(&self) -> Option<Place> {
        let degrees = [&self.tensor, &self.context, &self.replicate, &self.expert];
        degrees.iter().find_map(|degree| degree.place)
    }
}

/// Writes `[hardware]` and `[parallelism]`. Returns how many devices read data of their own, if that is known.
pub(super) fn hardware_and_parallelism(
    config: &mut Config<'_>,
    draft: &mut Draft,
    target: Option<&Target>,
    model: &Model,
) -> Option<u64> {
    let mut degrees = degrees(config, model);
    // No other axis crosses slices.
    let slices = target.and_then(|target| target.slices).unwrap_or(1);
    if !degrees.replicate.value.is_multiple_of(slices) {
        let text = format!("was {}; now there is a replica on each slice", degrees.replicate.value);
        config.changed(degrees.replicate.place, text);
        degrees.replicate.value = slices;
    }
    check_experts(config, &degrees);
    let world = world(&degrees, target);
    check_size(config, &degrees, &world);
    fit_shard(config, &mut degrees, &world);
    hardware(config, draft, target, &degrees, &world);
    parallelism(draft, &degrees);
    let replicas = world.devices? / (degrees.context.value * degrees.tensor.value);
    (replicas > 0).then_some(replicas)
}

fn degrees(config: &mut Config<'_>, model: &Model) -> Degrees {
    let replicate = degree(config, "parallelism.data_parallel_replicate_degree");
    let tensor = degree(config, "parallelism.tensor_parallel_degree");
    let context = degree(config, "parallelism.context_parallel_degree");
    let pipeline = degree(config, "parallelism.pipeline_parallel_degree");
    let mut expert = degree(config, "parallelism.expert_parallel_degree");
    let parts = [(&tensor, TENSOR), (&context, CONTEXT), (&pipeline, PIPELINE), (&expert, EXPERT)];
    for (_, part) in parts.iter().filter(|(degree, _)| degree.value > 1) {
        config.switch_on(part);
    }
    if pipeline.value > 1 {
        let text =
            "there is no pipeline parallelism; shard, tensor and context can take its devices";
        config.dropped(pipeline.place, text);
    }
    if expert.value > 1 && !model.has_experts() {
        config.dropped(expert.place, "had no effect: the model has no experts");
        expert.value = 1;
    }
    let shard = shard_degree(config);
    Degrees { replicate, shard, expert, tensor, context, pipeline: pipeline.value }
}

fn degree(config: &mut Config<'_>, key: &'static str) -> Setting<u64> {
    let degree = config.integer(key, (1, MOST), 1);
    Setting { value: degree.value.unsigned_abs(), place: degree.place }
}

fn shard_degree(config: &mut Config<'_>) -> Setting<Option<u64>> {
    let shard = config.integer("parallelism.data_parallel_shard_degree", (-1, MOST), -1);
    if let (0, Some(place)) = (shard.value, shard.place) {
        let help = "write 1 to switch it off, -1 for all devices that are left".to_owned();
        config.problem(place, "must be at least 1, or -1", "not a degree", Some(help));
    }
    let value = u64::try_from(shard.value).ok().filter(|degree| *degree > 0);
    Setting { value, place: shard.place }
}

/// TorchTitan refuses this too, when it makes its mesh.
fn check_experts(config: &mut Config<'_>, degrees: &Degrees) {
    let (expert, Some(shard)) = (degrees.expert.value, degrees.shard.value) else { return };
    let spread = shard * degrees.context.value * degrees.tensor.value;
    if let (false, Some(place)) = (spread.is_multiple_of(expert), degrees.expert.place) {
        let what = format!("= {expert} does not divide shard x context x tensor = {spread}");
        let help = format!("experts are spread over these {spread} devices in equal groups");
        config.problem(place, what, format!("must divide {spread}"), Some(help));
    }
}

/// Degrees that multiply to more devices than anyone has are a slip of the keyboard.
fn check_size(config: &mut Config<'_>, degrees: &Degrees, world: &World) {
    let devices = world.devices.filter(|devices| *devices > MOST_DEVICES && !world.is_given);
    if let (Some(devices), Some(place)) = (devices, degrees.written().or(degrees.shard.place)) {
        let what = format!("is one of the degrees that need {devices} devices");
        config.problem(place, what, format!("at most {MOST_DEVICES} devices"), None);
    }
}

fn world(degrees: &Degrees, target: Option<&Target>) -> World {
    let given = target.and_then(|target| match is_tpu(target) {
        true => tpu_devices(target),
        false => target.devices.filter(|devices| *devices > 0),
    });
    if given.is_some() || target.is_some_and(is_tpu) {
        return World { devices: given, is_given: true };
    }
    let devices = match degrees.shard.value {
        Some(shard) => degrees.beside_shard().saturating_mul(shard),
        None => PROCESSES.next_multiple_of(degrees.unit()),
    };
    World { devices: Some(devices), is_given: false }
}

/// Whether the devices are those of a TPU slice.
pub(super) fn is_tpu(target: &Target) -> bool {
    tpu(target).is_some()
}

fn tpu(target: &Target) -> Option<&'static Tpu> {
    let known = Accelerator::WORDS.iter().find(|(word, _)| *word == target.accelerator);
    known.and_then(|(_, accelerator)| accelerator.tpu())
}

/// The devices of the slices of a target.
fn tpu_devices(target: &Target) -> Option<u64> {
    let chips = Topology::parse(target.topology.as_deref()?)?.chips();
    let slices = target.slices.unwrap_or(1);
    chips.checked_mul(tpu(target)?.devices_per_chip)?.checked_mul(slices)
}

/// Some slices of the target's kind.
fn examples(target: &Target) -> Vec<Topology> {
    tpu(target).map_or_else(Vec::new, |tpu| tpu.slices().into_iter().skip(2).take(4).collect())
}

/// What is wrong with a target itself.
pub(super) fn bad_target(target: &Target) -> Option<Diagnostic> {
    let words: Vec<&str> = Accelerator::WORDS.iter().map(|(word, _)| *word).collect();
    if !words.contains(&target.accelerator.as_str()) {
        return Some(no_choice("the target", &target.accelerator, &words));
    }
    let text = target.topology.as_deref()?;
    let Some(tpu) = tpu(target) else {
        let what = format!("a topology means nothing on {}", target.accelerator);
        return Some(Diagnostic::error(what).help("say how many devices there are instead"));
    };
    let shown = Shown(text);
    let near = match Topology::parse(text) {
        Some(topology) if tpu.has(&topology) => return None,
        Some(topology) => tpu.near(&topology),
        None => tpu.slices().into_iter().skip(2).take(6).collect(),
    };
    let what = format!("there is no slice of {} with topology \"{shown}\"", target.accelerator);
    Some(Diagnostic::error(what).help(format!("nearest: {}", list(&near))))
}

/// Fits a fixed shard degree to the devices of the target, where it does not.
fn fit_shard(config: &mut Config<'_>, degrees: &mut Degrees, world: &World) {
    if !world.is_given {
        return;
    }
    let (beside, place) = (degrees.beside_shard(), degrees.shard.place);
    if let Some(shard) = degrees.shard.value
        && world.devices != Some(beside.saturating_mul(shard))
    {
        degrees.shard.value = None;
        let text = format!("was {shard}; now it follows from the devices of the target");
        config.changed(place, text);
    }
    let unit = degrees.unit();
    if let Some(devices) = world.devices
        && !devices.is_multiple_of(unit)
    {
        let text =
            format!("the degrees need a multiple of {unit} devices, the target has {devices}");
        config.changed(degrees.written(), text);
    }
}

fn hardware(
    config: &mut Config<'_>,
    draft: &mut Draft,
    target: Option<&Target>,
    degrees: &Degrees,
    world: &World,
) {
    let accelerator = target.map_or("cuda", |target| &target.accelerator);
    draft.put("hardware", "accelerator", string(accelerator));
    if let Some(target) = target.filter(|target| is_tpu(target)) {
        match &target.topology {
            Some(topology) => draft.put("hardware", "topology", string(topology)),
            None => config.problems.push(
                Diagnostic::error("a TPU target needs the topology of its slice")
                    .help(format!("for example: {}", list(&examples(target)))),
            ),
        }
        if let Some(slices) = target.slices {
            draft.put("hardware", "slices", slices);
        }
        return;
    }
    let why = match (world.is_given, degrees.shard.value) {
        (true, _) => String::new(),
        (false, Some(_)) if degrees.pipeline > 1 => {
            format!("without the pipeline, which took {} times as many", degrees.pipeline)
        }
        (false, Some(_)) => "the product of the degrees".to_owned(),
        (false, None) if world.devices == Some(PROCESSES) => {
            "as many as TorchTitan's launcher starts unless NGPU says otherwise".to_owned()
        }
        (false, None) => format!(
            "the fewest for these degrees; TorchTitan's launcher starts {PROCESSES} unless NGPU says otherwise"
        ),
    };
    if let Some(devices) = world.devices {
        draft.put_why("hardware", "devices", devices, &why);
    }
}

fn parallelism(draft: &mut Draft, degrees: &Degrees) {
    let mut put = |key, value: String| draft.put("parallelism", key, value);
    if degrees.replicate.value > 1 {
        put("replicate", degrees.replicate.value.to_string());
    }
    match degrees.shard.value {
        Some(shard) => put("shard", shard.to_string()),
        None => put("shard", string("auto")),
    }
    for (key, degree) in [
        ("expert", degrees.expert.value),
        ("tensor", degrees.tensor.value),
        ("context", degrees.context.value),
    ] {
        if degree > 1 {
            put(key, degree.to_string());
        }
    }
}

fn least_common_multiple(a: u64, b: u64) -> u64 {
    let (mut divisor, mut rest) = (a, b);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    (a / divisor.max(1)).saturating_mul(b)
}
