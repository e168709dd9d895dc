//! Rules about the axes of the mesh.

use super::{Rule, WORLD, divisors_near, either, nearest_values, shown};
use crate::diagnostic::Diagnostic;
use crate::layout::{gcd, mesh};
use crate::recipe::Recipe;
use crate::shown::count;
use crate::tables::hardware::MOST_DEVICES;
use crate::tables::parallelism::Replicate;
use crate::words::Auto;

pub(super) const RULES: &[Rule] = &[
    Rule { reads: &[WORLD], check: axes_multiply_to_the_world },
    Rule { reads: &[WORLD], check: expert_divides_its_carriers },
    Rule { reads: &["model.num_heads", "parallelism.tensor"], check: tensor_divides_heads },
    Rule { reads: &["model.num_kv_heads", "parallelism.tensor"], check: tensor_divides_kv_heads },
    Rule {
        reads: &["model.intermediate_size", "parallelism.tensor"],
        check: tensor_divides_the_feed_forward,
    },
];

/// `replicate 2 x context 4`: the axes that are not shard, as far as they are more than 1.
fn other_axes(r: &Recipe) -> String {
    let degrees = [
        ("replicate", r.replicate()),
        ("context", *r.parallelism.context),
        ("tensor", *r.parallelism.tensor),
    ];
    let parts = degrees.iter().filter(|(_, degree)| *degree > 1);
    let parts: Vec<String> = parts.map(|(name, degree)| format!("{name} {degree}")).collect();
    if parts.is_empty() { "replicate 1".to_owned() } else { parts.join(" x ") }
}

fn axes_multiply_to_the_world(r: &Recipe) -> Option<Diagnostic> {
    let (world, fixed) = (r.world(), r.fixed_axes());
    if mesh(r).is_some() {
        return None;
    }
    let axes = other_axes(r);
    let is_one = !axes.contains(" x ");
    let product = if is_one { String::new() } else { format!(" = {fixed}") };
    let p = &r.parallelism;
    // What there is a suggestion for is underlined.
    let inner = *p.context * *p.tensor;
    let mut written = [&p.tensor.at, &p.context.at, &p.replicate.at];
    if world.is_multiple_of(inner) {
        written.rotate_right(1);
    }
    let at = written.into_iter().flatten().next().cloned();
    let problem = match *p.shard {
        Auto::Auto => Diagnostic::error(format!(
            "cannot work out the shard degree: world {world} is not a multiple of {axes}{product}"
        ))
        .at(at)
        .label(format!("must divide the world of {}", count(world, "device")))
        .help_if(either(&[smaller_replicate(r), more_devices(r, world.next_multiple_of(fixed))])),
        Auto::Fixed(shard) => {
            let all = u128::from(fixed) * u128::from(shard);
            let fitting = match world.is_multiple_of(fixed) {
                true => format!("write shard = {} or shard = \"auto\"", world / fixed),
                false if is_one => format!("write replicate = 1 and shard = {world}"),
                false => "write shard = \"auto\" and smaller degrees of the other axes".to_owned(),
            };
            let devices = u64::try_from(all).ok().and_then(|all| more_devices(r, all));
            Diagnostic::error(format!(
                "{} x shard {shard} = {all} is not the world of {}",
                if fixed == 1 { "replicate 1".to_owned() } else { axes },
                count(world, "device")
            ))
            .at(p.shard.at.clone().or(at))
            .label("the axes must multiply to the number of devices")
            .help_if(either(&[Some(fitting), devices]))
        }
    };
    let (devices, topology) = (&r.hardware.devices.at, &r.hardware.topology);
    let topology_at = topology.as_ref().and_then(|topology| topology.at.clone());
    Some(problem.context(topology_at.or(devices.clone()), "the world"))
}

/// Degrees of replicate with which the other axes divide the world.
fn smaller_replicate(r: &Recipe) -> Option<String> {
    let Replicate::Fixed(replicate) = *r.parallelism.replicate else { return None };
    let inner = *r.parallelism.context * *r.parallelism.tensor;
    let (world, slices) = (r.world(), *r.hardware.slices);
    if !world.is_multiple_of(inner) {
        let near = nearest_values("tensor", &fitting_tensor(r));
        return near.filter(|_| *r.parallelism.context == 1 && replicate == 1);
    }
    let fits = |n: u64| n.is_multiple_of(slices);
    nearest_values("replicate", &divisors_near(world / inner, replicate, fits))
}

/// How many devices would do, where the recipe is what says how many there are.
fn more_devices(r: &Recipe, devices: u64) -> Option<String> {
    let is_free = r.hardware.topology_devices().is_none() && devices <= MOST_DEVICES;
    is_free.then(|| format!("set devices = {devices} in [hardware]"))
}

fn expert_divides_its_carriers(r: &Recipe) -> Option<Diagnostic> {
    let (mesh, expert) = (mesh(r)?, &r.parallelism.expert);
    let carriers = mesh.carriers();
    if carriers.is_multiple_of(**expert) {
        return None;
    }
    let experts = r.model.decoder().and_then(|decoder| decoder.experts());
    let fits = |n: u64| experts.is_none_or(|experts| experts.num_experts.is_multiple_of(n));
    let near = divisors_near(carriers, **expert, fits);
    let what = match (mesh.context, mesh.tensor) {
        (1, 1) => format!("the shard degree {}", mesh.shard),
        _ => format!(
            "shard {} x context {} x tensor {} = {carriers}",
            mesh.shard, mesh.context, mesh.tensor
        ),
    };
    Some(
        Diagnostic::error(format!("`parallelism.expert` = {} does not divide {what}", **expert))
            .at(expert.at.clone())
            .label("experts are spread over the ranks of one copy of the model")
            .context(r.parallelism.shard.at.clone(), "the shard degree")
            .help_if(either(&[nearest_values("expert", &near)])),
    )
}

/// Degrees of tensor that every part of the model can be cut into.
fn fitting_tensor(r: &Recipe) -> Vec<u64> {
    let tensor = *r.parallelism.tensor;
    let parts = match (r.model.decoder(), r.model.flux()) {
        (Some(decoder), _) => {
            let heads = gcd(*decoder.num_heads, *decoder.num_kv_heads);
            decoder.intermediate_size().map_or(heads, |size| gcd(heads, **size))
        }
        (None, Some(flux)) => gcd(*flux.num_heads, *flux.intermediate_size),
        (None, None) => 1,
    };
    // Without a number of devices the world follows from the very degree that is wrong.
    let is_given = r.hardware.topology_devices().is_some() || r.hardware.devices.fixed().is_some();
    let world = r.world();
    divisors_near(parts, tensor, |n| !is_given || world.is_multiple_of(n))
}

/// The one form that messages about a tensor degree that does not fit have.
fn tensor_does_not_fit(
    r: &Recipe,
    key: &str,
    of: &crate::source::Item<u64>,
    why: &str,
) -> Option<Diagnostic> {
    let tensor = &r.parallelism.tensor;
    if of.is_multiple_of(**tensor) {
        return None;
    }
    Some(
        Diagnostic::error(format!(
            "`parallelism.tensor` = {} does not divide `model.{key}` = {}",
            **tensor,
            shown(r, of)
        ))
        .at(tensor.at.clone())
        .label(why)
        .context(of.at.clone(), "this many")
        .help_if(either(&[nearest_values("tensor", &fitting_tensor(r))])),
    )
}

fn tensor_divides_heads(r: &Recipe) -> Option<Diagnostic> {
    let heads = match r.model.flux() {
        Some(flux) => &flux.num_heads,
        None => &r.model.decoder()?.num_heads,
    };
    tensor_does_not_fit(r, "num_heads", heads, "each rank computes the same number of heads")
}

fn tensor_divides_kv_heads(r: &Recipe) -> Option<Diagnostic> {
    let heads = &r.model.decoder()?.num_kv_heads;
    let why = "each rank computes the same number of key/value heads";
    tensor_does_not_fit(r, "num_kv_heads", heads, why)
}

fn tensor_divides_the_feed_forward(r: &Recipe) -> Option<Diagnostic> {
    let size = match r.model.flux() {
        Some(flux) => &flux.intermediate_size,
        None => r.model.decoder()?.intermediate_size()?,
    };
    tensor_does_not_fit(r, "intermediate_size", size, "each rank holds an equal part of it")
}
