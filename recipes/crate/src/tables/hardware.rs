//! `[hardware]`: what the run computes on.

use serde::Serialize;

use crate::accelerators::Tpu;
pub use crate::accelerators::{Accelerator, Topology};
use crate::diagnostic::Diagnostic;
use crate::reader::{Context, POSITIVE, Section};
use crate::shown::{Shown, list};
use crate::source::Item;
use crate::tree::Table;
use crate::words::Auto;

/// What the run computes on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hardware {
    /// The kind of device.
    pub accelerator: Item<Accelerator>,
    /// Chips of one slice, on TPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<Item<Topology>>,
    /// Slices, which a data-centre network joins.
    pub slices: Item<u64>,
    /// Devices of all slices; each is driven by one worker process. `auto` follows from the topology on TPUs, and from
    /// the mesh elsewhere.
    pub devices: Item<Auto<u64>>,
    /// Threads that one worker computes with. `auto` divides the cores of the host among its workers.
    pub threads_per_device: Item<Auto<u64>>,
    /// Peak of one device in TFLOP/s, which MFU is measured against, where it is not the one that is known of the
    /// accelerator. Where neither is known no MFU is claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_tflops: Option<Item<f64>>,
}

/// More worker processes than this on one host is a typing error.
pub(crate) const MOST_DEVICES: u64 = 1024;

/// More devices than this are in no machine.
pub(crate) const MOST_WORLD: u64 = 1 << 20;

impl Hardware {
    /// Devices that the topology gives, on TPUs.
    pub(crate) fn topology_devices(&self) -> Option<u64> {
        let tpu = self.accelerator.tpu()?;
        let topology = self.topology.as_ref()?;
        Some(topology.chips() * tpu.devices_per_chip * *self.slices)
    }

    /// Peak of one device in FLOP/s, with the words for where that is known from.
    pub fn peak_flops(&self) -> Option<(f64, &'static str)> {
        match &self.peak_tflops {
            Some(peak) => Some((peak.value * 1e12, "hardware.peak_tflops")),
            None => {
                let tpu = self.accelerator.tpu()?;
                Some((tpu.peak_tflops * 1e12, "bfloat16, product page"))
            }
        }
    }

    pub(crate) fn read(cx: &mut Context<'_>, root: &Table) -> Self {
        let mut t = cx.section(root, "hardware");
        let accelerator = t.choice::<Accelerator>("accelerator");
        let accelerator = t.required(accelerator, Accelerator::Cpu, "\"cpu\"");
        let topology = read_topology(&mut t, &accelerator);
        let slices = t.integer("slices", 1, 1024);
        let slices = t.or(slices, 1);
        let most = if accelerator.is_here() { MOST_DEVICES } else { MOST_WORLD };
        let devices = t.auto_or_integer("devices", 1, most);
        let devices = t.or(devices, Auto::Auto);
        let threads = t.auto_or_integer("threads_per_device", 1, 4096);
        let threads_per_device = t.or(threads, Auto::Auto);
        let peak_tflops = t.number("peak_tflops", POSITIVE);
        let peak_tflops = t.optional(peak_tflops);
        t.finish();
        cx.is_here = accelerator.is_here();
        Self { accelerator, topology, slices, devices, threads_per_device, peak_tflops }
    }
}

fn read_topology(
    t: &mut Section<'_, '_>,
    accelerator: &Item<Accelerator>,
) -> Option<Item<Topology>> {
    let text = t.text("topology");
    let tpu = accelerator.tpu();
    let Some(text) = text else {
        if let (Some(tpu), false) = (tpu, t.has("topology")) {
            let example = tpu.slices().into_iter().find(|slice| slice.chips() >= 16);
            let example = example.map_or_else(String::new, |slice| slice.to_string());
            t.lacks("topology", &format!("\"{example}\""));
        }
        return None;
    };
    let read = match tpu {
        Some(tpu) => slice_of(tpu, accelerator.value, &text),
        // Which topologies there are is not known when the accelerator is not.
        None if accelerator.at.is_none() => return None,
        None => {
            let accelerator = accelerator.value;
            let what = format!("`hardware.topology` means nothing on {accelerator}");
            let devices = "say how many devices there are: devices = 4";
            Err(Diagnostic::error(what).label("for TPUs only").help(devices))
        }
    };
    let topology = match read {
        Ok(topology) => Some(Item { value: topology, at: text.at }),
        Err(problem) => {
            t.reject("topology", problem.at(text.at));
            None
        }
    };
    t.optional(topology)
}

fn slice_of(tpu: &Tpu, accelerator: Accelerator, text: &str) -> Result<Topology, Diagnostic> {
    let shown = Shown(text);
    let examples: Vec<String> =
        tpu.slices().iter().skip(2).take(6).map(|slice| format!("\"{slice}\"")).collect();
    let Some(topology) = Topology::parse(text) else {
        let what = format!("`hardware.topology` = \"{shown}\" is not the shape of a slice");
        let plain: String = text.to_lowercase().split_whitespace().collect();
        let help = match Topology::parse(&plain).filter(|topology| tpu.has(topology)) {
            Some(topology) => format!("write topology = \"{topology}\""),
            None => format!("slices of {accelerator} are, for example: {}", list(&examples)),
        };
        let label = match tpu.dims() {
            2 => "chips along two dimensions, as in \"4x8\"",
            _ => "chips along three dimensions, as in \"4x4x8\"",
        };
        return Err(Diagnostic::error(what).label(label).help(help));
    };
    if tpu.has(&topology) {
        return Ok(topology);
    }
    let near: Vec<String> =
        tpu.near(&topology).iter().map(|slice| format!("\"{slice}\"")).collect();
    let what = format!("there is no slice of {accelerator} with topology {topology}");
    let label = match topology.dims().len() == tpu.dims() {
        true => "no such slice".to_owned(),
        false => format!("{accelerator} has {} dimensions", tpu.dims()),
    };
    Err(Diagnostic::error(what).label(label).help(format!("nearest: {}", list(&near))))
}
