//! `[hardware]`: what the run computes on.

use serde::Serialize;

use crate::reader::{Context, POSITIVE};
use crate::source::Item;
use crate::tree::Table;
use crate::words::{Auto, choice};

choice! {
    /// A kind of device.
    Accelerator {
        /// The processor of this machine; collectives run through gloo.
        Cpu = "cpu",
    }
}

/// Accelerators of the recipe format that this version cannot run on yet.
const LATER: &[&str] = &["tpu-emulated", "cuda", "v4", "v5e", "v5p", "v6e", "tpu7x"];

/// What the run computes on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hardware {
    /// The kind of device.
    pub accelerator: Item<Accelerator>,
    /// Number of devices; each is driven by one worker process. `auto` is 1 on a CPU.
    pub devices: Item<Auto<u64>>,
    /// Threads that one worker computes with. `auto` divides the cores of the host among its workers.
    pub threads_per_device: Item<Auto<u64>>,
    /// Peak of one device in TFLOP/s, which MFU is measured against. Unknown by default: then no MFU is
    /// claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_tflops: Option<Item<f64>>,
}

/// More worker processes than this on one host is a typing error.
pub(crate) const MOST_DEVICES: u64 = 1024;

impl Hardware {
    pub(crate) fn read(cx: &mut Context<'_>, root: &Table) -> Self {
        let mut t = cx.section(root, "hardware");
        let accelerator = t.choice_with::<Accelerator>("accelerator", LATER);
        let accelerator = t.required(accelerator, Accelerator::Cpu, "\"cpu\"");
        let devices = t.auto_or_integer("devices", 1, MOST_DEVICES);
        let devices = t.or(devices, Auto::Auto);
        let threads = t.auto_or_integer("threads_per_device", 1, 4096);
        let threads_per_device = t.or(threads, Auto::Auto);
        let peak_tflops = t.number("peak_tflops", POSITIVE);
        t.later(&["topology", "slices"]);
        t.finish();
        Self { accelerator, devices, threads_per_device, peak_tflops }
    }
}
