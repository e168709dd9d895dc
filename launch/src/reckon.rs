//! `titan-tpu plan` and `titan-tpu mfu`: what follows from a recipe without running it.

use std::fmt::Write as _;

use serde::Serialize;
use titan_parallelism::{Convention, Plan};
use titan_recipes::{Loaded, Purpose, load};

use crate::cli::{MfuArgs, PlanArgs, TargetArgs};
use crate::console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::recipe_command::{overrides, print_warnings};
use crate::words::{axes, count, grouped, plural, seconds};

/// Runs `plan`.
pub(crate) fn plan(args: &PlanArgs) -> Result<Exit, Failure> {
    let mut overrides = overrides(&args.recipe.set, target_options(&args.target)?);
    if args.target.target.is_some() {
        // The machine of the recipe makes way for the other one as a whole.
        overrides.unset = vec!["hardware.topology", "hardware.devices", "hardware.peak_tflops"];
    }
    if args.target.slices.is_some() {
        // Each slice has a replica, whatever the recipe says of other slices.
        overrides.options.push(("--slices", "parallelism.replicate=\"slices\"".to_owned()));
        overrides.unset.push("elastic.min_slices");
    }
    let loaded = load(&args.recipe.recipe, &overrides, Purpose::Plan)?;
    print_warnings(&loaded);
    let plan = titan_parallelism::plan(&loaded.recipe, &loaded.layout, args.convention);
    let memory = &plan.memory_per_device;
    if let Some(hbm) = memory.hbm_bytes.filter(|hbm| memory.state_bytes > *hbm) {
        console::print_warning(&format!(
            "weights, gradients and optimizer take {} of each device, which has {}: this cannot fit",
            gib(memory.state_bytes),
            gib(hbm)
        ));
    }
    let text = match args.json {
        true => json(&plan)?,
        false => plan_text(&loaded, &plan),
    };
    console::print_document(&text)
}

/// `ACCELERATOR[:TOPOLOGY]`; whether there is such a machine is for the recipe to say.
pub(crate) fn parse_target(text: &str) -> Result<(&str, Option<&str>), Failure> {
    let (accelerator, topology) = match text.split_once(':') {
        Some((accelerator, topology)) => (accelerator, Some(topology)),
        None => (text, None),
    };
    if accelerator.is_empty() || topology.is_some_and(str::is_empty) {
        let text = format!("`--target {text}` names no machine");
        return Err(Failure::new(Exit::Usage, text).help("for example: --target tpu7x:4x4x8"));
    }
    Ok((accelerator, topology))
}

/// `--target` and `--slices` as settings.
pub(crate) fn target_options(target: &TargetArgs) -> Result<Vec<(&'static str, String)>, Failure> {
    let mut options = Vec::new();
    if let Some(text) = &target.target {
        let (accelerator, topology) = parse_target(text)?;
        let quoted = |text: &str| format!("{:?}", text);
        options.push(("--target", format!("hardware.accelerator={}", quoted(accelerator))));
        if let Some(topology) = topology {
            options.push(("--target", format!("hardware.topology={}", quoted(topology))));
        }
    }
    if let Some(slices) = target.slices {
        options.push(("--slices", format!("hardware.slices={slices}")));
    }
    Ok(options)
}

fn json(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(value)
        .map(|text| text + "\n")
        .map_err(|error| Failure::new(Exit::Bug, format!("the result cannot be written: {error}")))
}

/// A row of a report: a name and what there is to say.
fn row(text: &mut String, name: &str, value: impl std::fmt::Display) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{name:>16}  {value}");
}

fn plan_text(loaded: &Loaded, plan: &Plan) -> String {
    let recipe = &loaded.recipe;
    let mut text = String::new();
    let size = recipe.model.size.as_ref().map_or(String::new(), |size| format!(" {}", **size));
    row(&mut text, "run", format_args!("{}: {}{size}", *recipe.name, *recipe.model.family));
    row(&mut text, "hardware", hardware(loaded));
    row(&mut text, "mesh", axes(&plan.mesh));
    let batch = format!(
        "{} sequences x {} tokens = {} tokens a step ({} per data-parallel rank, accumulation {})",
        plan.global_batch,
        plan.sequence_length,
        grouped(plan.tokens_per_step),
        plan.local_batch,
        plan.accumulation
    );
    row(&mut text, "global batch", batch);
    let steps = *recipe.training.steps;
    row(
        &mut text,
        "length",
        format!("{}, {} tokens", plural(steps, "step"), count(plan.tokens as f64)),
    );
    let parameters = &plan.parameters;
    let mut weights = grouped(parameters.total);
    if parameters.active != parameters.total {
        weights += &format!(", {} active", grouped(parameters.active));
    }
    if parameters.embedding > 0 {
        weights += &format!(", {} of them the embedding", grouped(parameters.embedding));
    }
    row(&mut text, "parameters", weights);
    let convention = plan.convention.word();
    row(&mut text, "FLOPs per token", format!("{} ({convention})", grouped(plan.flops_per_token)));
    row(&mut text, "state per device", state(plan));
    row(&mut text, "peak per device", peak(loaded));
    text
}

fn hardware(loaded: &Loaded) -> String {
    let hardware = &loaded.recipe.hardware;
    let devices = plural(loaded.layout.world, "device");
    match &hardware.topology {
        Some(topology) => format!(
            "{} of {} {}: {} chips, {devices}",
            plural(*hardware.slices, "slice"),
            *hardware.accelerator,
            topology.value,
            grouped(topology.chips() * *hardware.slices)
        ),
        None => format!("{devices} on {}", *hardware.accelerator),
    }
}

fn state(plan: &Plan) -> String {
    let memory = &plan.memory_per_device;
    let of = memory.hbm_bytes.map_or(String::new(), |hbm| format!(" of {}", gib(hbm)));
    format!(
        "{}{of}: weights {}, gradients {}, optimizer {}; activations come on top",
        gib(memory.state_bytes),
        gib(memory.parameters_bytes),
        gib(memory.gradients_bytes),
        gib(memory.optimizer_bytes)
    )
}

fn peak(loaded: &Loaded) -> String {
    match loaded.recipe.hardware.peak_flops() {
        Some((peak, source)) => format!("{} TFLOP/s ({source})", peak / 1e12),
        None => format!("not known for {}", *loaded.recipe.hardware.accelerator),
    }
}

/// Bytes in binary units.
fn gib(bytes: u64) -> String {
    let gib = bytes as f64 / (1_u64 << 30) as f64;
    if gib >= 0.1 { format!("{gib:.1} GiB") } else { format!("{:.1} MiB", gib * 1024.0) }
}

/// What `mfu --json` prints.
#[derive(Serialize)]
struct Utilisation {
    mfu: Option<f64>,
    convention: Convention,
    flops_per_token: u64,
    peak_flops_per_device: Option<f64>,
    tokens_per_second_per_device: f64,
    tokens_per_second: f64,
    step_seconds: f64,
    global_batch: u64,
}

/// Runs `mfu`.
pub(crate) fn mfu(args: &MfuArgs) -> Result<Exit, Failure> {
    let loaded =
        load(&args.recipe.recipe, &overrides(&args.recipe.set, Vec::new()), Purpose::Plan)?;
    print_warnings(&loaded);
    let plan = titan_parallelism::plan(&loaded.recipe, &loaded.layout, args.convention);
    let rate = args.tokens_per_second_per_device;
    let fraction = match plan.peak_flops_per_device {
        Some(peak) => {
            let mfu = titan_parallelism::mfu(rate, plan.flops_per_token, peak, args.convention);
            Some(mfu.map_err(|error| impossible(&loaded, &error, rate))?.fraction)
        }
        None => None,
    };
    let tokens_per_second = rate * plan.world as f64;
    let result = Utilisation {
        mfu: fraction,
        convention: args.convention,
        flops_per_token: plan.flops_per_token,
        peak_flops_per_device: plan.peak_flops_per_device,
        tokens_per_second_per_device: rate,
        tokens_per_second,
        step_seconds: plan.tokens_per_step as f64 / tokens_per_second,
        global_batch: plan.global_batch,
    };
    let text = if args.json { json(&result)? } else { mfu_text(&loaded, &plan, &result) };
    console::print_document(&text)
}

/// More than the peak is no success but a mistake somewhere.
fn impossible(loaded: &Loaded, error: &titan_parallelism::MfuError, rate: f64) -> Failure {
    let peak = peak(loaded);
    Failure::new(Exit::Usage, error.to_string()).help(format!(
        "{rate} tokens/s are those of one device, and its peak is {peak}; a chip of v7x is two devices"
    ))
}

fn mfu_text(loaded: &Loaded, plan: &Plan, result: &Utilisation) -> String {
    let mut text = String::new();
    let convention = format!("{} convention", result.convention.word());
    let mfu = match result.mfu {
        Some(fraction) => {
            let percent = 100.0 * fraction;
            format!("{percent:.1} % ({percent:.2}), {convention}")
        }
        None => format!("n/a (the peak of {} is not known)", *loaded.recipe.hardware.accelerator),
    };
    row(&mut text, "MFU", mfu);
    row(&mut text, "run", format!("{} on {}", *loaded.recipe.name, hardware(loaded)));
    let rate = result.tokens_per_second_per_device;
    let total = count(result.tokens_per_second);
    row(&mut text, "throughput", format!("{rate} tokens/s per device, {total} tokens/s in all"));
    let exact = format!(" ({:.2})", result.step_seconds);
    row(&mut text, "step time", seconds(result.step_seconds) + &exact);
    let batch = format!("{} sequences x {} tokens", plan.global_batch, plan.sequence_length);
    row(&mut text, "global batch", batch);
    row(&mut text, "FLOPs per token", grouped(plan.flops_per_token));
    row(&mut text, "peak per device", peak(loaded));
    text
}
