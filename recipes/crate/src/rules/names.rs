//! Rules about the name of the run.

use super::Rule;
use crate::diagnostic::Diagnostic;
use crate::recipe::Recipe;
use crate::shown::{Shown, count};
use crate::tables::launch::Backend;
use crate::workload::{is_label, longest_run_name, nearest_label};

pub(super) const RULES: &[Rule] = &[Rule {
    reads: &["name", "launch.on", "hardware.accelerator", "hardware.topology", "hardware.slices"],
    check: the_cluster_takes_the_name,
}];

/// A cluster refuses a name late, or hangs; what it derives from the name is longer than the name.
fn the_cluster_takes_the_name(r: &Recipe) -> Option<Diagnostic> {
    let launch = r.launch.as_ref().filter(|launch| *launch.on == Backend::Gke)?;
    let slices = *r.hardware.slices;
    let hosts = hosts_per_slice(r);
    let longest = longest_run_name(slices, hosts);
    let name = &r.name;
    if is_label(name) && name.len() <= longest {
        return None;
    }
    let what = match name.len() > longest {
        true => format!(
            "`name` = \"{}\" has {}; a run on {} may have {longest}, because its pods have longer names",
            Shown(&**name),
            count(name.len() as u64, "character"),
            count(slices, "slice")
        ),
        false => format!("`name` = \"{}\" cannot name a workload on a cluster", Shown(&**name)),
    };
    Some(
        Diagnostic::error(what)
            .at(name.at.clone().or(launch.on.at.clone()))
            .label(format!(
                "up to {longest} lower-case letters, digits and `-`, the first a letter, the last no `-`"
            ))
            .context(name.at.as_ref().and(launch.on.at.clone()), "the cluster")
            .help(format!("for example: name = \"{}\"", nearest_label(name, longest))),
    )
}

fn hosts_per_slice(r: &Recipe) -> u64 {
    match (r.hardware.accelerator.tpu(), &r.hardware.topology) {
        (Some(tpu), Some(topology)) => topology.chips().div_ceil(tpu.chips_per_host),
        _ => 1,
    }
}
