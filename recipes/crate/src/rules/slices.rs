//! Rules about slices and the devices in them.

use super::{Rule, WORLD, either, nearest_values};
use crate::diagnostic::Diagnostic;
use crate::recipe::Recipe;
use crate::shown::count;
use crate::tables::hardware::{MOST_DEVICES, MOST_WORLD};
use crate::tables::parallelism::Replicate;
use crate::words::Auto;

pub(super) const RULES: &[Rule] = &[
    Rule {
        reads: &[
            "hardware.accelerator",
            "hardware.topology",
            "hardware.slices",
            "hardware.devices",
        ],
        check: devices_are_those_of_the_topology,
    },
    Rule { reads: &[WORLD], check: devices_asked_for_exist },
    Rule { reads: &["hardware.slices", "hardware.devices"], check: slices_divide_the_devices },
    Rule {
        reads: &["hardware.slices", "parallelism.replicate"],
        check: only_replicas_cross_slices,
    },
];

fn devices_are_those_of_the_topology(r: &Recipe) -> Option<Diagnostic> {
    let given = r.hardware.topology_devices()?;
    let Auto::Fixed(written) = *r.hardware.devices else { return None };
    if written == given {
        return None;
    }
    let (topology, tpu) = (r.hardware.topology.as_ref()?, r.hardware.accelerator.tpu()?);
    let slices = count(*r.hardware.slices, "slice");
    let per_chip = tpu.devices_per_chip;
    Some(
        Diagnostic::error(format!(
            "`hardware.devices` = {written} is not the {given} devices of {slices} of {}",
            topology.value
        ))
        .at(r.hardware.devices.at.clone())
        .label(format!("{} has {} a chip", *r.hardware.accelerator, count(per_chip, "device")))
        .context(topology.at.clone(), format!("{} chips", topology.chips()))
        .help(format!("leave devices out, or write devices = {given}")),
    )
}

/// Without a number of devices the mesh says how many there are; a slip there must not start a million processes.
fn devices_asked_for_exist(r: &Recipe) -> Option<Diagnostic> {
    let most = if r.hardware.accelerator.is_here() { MOST_DEVICES } else { MOST_WORLD };
    let (world, p) = (r.world(), &r.parallelism);
    if r.hardware.topology_devices().is_some() || world <= most {
        return None;
    }
    let written = [&p.replicate.at, &p.shard.at, &p.expert.at, &p.tensor.at, &p.context.at];
    let at = written.into_iter().flatten().next().cloned();
    Some(
        Diagnostic::error(format!("the axes ask for {world} devices, more than {most}"))
            .at(r.hardware.devices.at.clone().or(at))
            .label("as many as replicate x shard x context x tensor")
            .help("say how many devices there are: devices = 8 in [hardware]"),
    )
}

fn slices_divide_the_devices(r: &Recipe) -> Option<Diagnostic> {
    let slices = *r.hardware.slices;
    let Auto::Fixed(devices) = *r.hardware.devices else { return None };
    if r.hardware.accelerator.tpu().is_some() || devices.is_multiple_of(slices) {
        return None;
    }
    let near = [devices / slices * slices, devices.next_multiple_of(slices)];
    let most = if r.hardware.accelerator.is_here() { MOST_DEVICES } else { MOST_WORLD };
    let near: Vec<u64> = near.into_iter().filter(|n| (1..=most).contains(n)).collect();
    Some(
        Diagnostic::error(format!(
            "`hardware.devices` = {devices} cannot be spread over {slices} slices"
        ))
        .at(r.hardware.devices.at.clone())
        .label("each slice has the same number of devices")
        .context(r.hardware.slices.at.clone(), "the slices")
        .help_if(either(&[nearest_values("devices", &near)])),
    )
}

fn only_replicas_cross_slices(r: &Recipe) -> Option<Diagnostic> {
    let slices = *r.hardware.slices;
    let Replicate::Fixed(replicate) = *r.parallelism.replicate else { return None };
    if replicate.is_multiple_of(slices) {
        return None;
    }
    let at = r.parallelism.replicate.at.clone();
    Some(
        Diagnostic::error(format!("replicate {replicate} does not spread over {slices} slices"))
            .at(at.clone().or(r.hardware.slices.at.clone()))
            .label(
                "every other axis stays inside a slice, so replicate must be a multiple of slices",
            )
            .context(at.and(r.hardware.slices.at.clone()), "the slices")
            .help("write replicate = \"slices\" in [parallelism]"),
    )
}
