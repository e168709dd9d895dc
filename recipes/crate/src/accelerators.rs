//! Kinds of devices, and the slices that TPUs come in.
//!
//! Sources: peaks, memory and chips per pod are those of Google's product pages (docs.cloud.google.com/tpu/docs:
//! v4, v5e, v5p-training, v6e, tpu7x); devices per chip as PyTorch sees them, and the peak of one Ironwood device,
//! are those of torch_tpu 0.2.0; slice shapes follow the node pools that GKE offers.

use std::fmt;

use crate::words::choice;

choice! {
    /// A kind of device.
    Accelerator {
        /// The processor of this machine; collectives run through gloo.
        Cpu = "cpu",
        /// A TPU that TorchTPU emulates on the processor of this machine.
        TpuEmulated = "tpu-emulated",
        /// An NVIDIA GPU.
        Cuda = "cuda",
        /// TPU v4.
        V4 = "v4",
        /// TPU v5e.
        V5e = "v5e",
        /// TPU v5p.
        V5p = "v5p",
        /// TPU v6e (Trillium).
        V6e = "v6e",
        /// TPU v7x (Ironwood).
        Tpu7x = "tpu7x",
    }
}

/// One generation of TPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tpu {
    /// Devices that PyTorch sees on one chip; each is driven by one rank.
    pub devices_per_chip: u64,
    /// Chips of one host in a slice of several hosts.
    pub chips_per_host: u64,
    /// Chips of the largest slice.
    pub most_chips: u64,
    /// Peak of one device in bfloat16, TFLOP/s.
    pub peak_tflops: f64,
    /// Memory of one device in bytes. Pages that say GB mean 2^30 bytes, as the limits that XLA reports show.
    pub hbm_bytes: u64,
    /// Dimensions of the torus of chips.
    dims: usize,
    /// Whether the dimensions of a slice are written in ascending order.
    ascending: bool,
}

const GIB: u64 = 1 << 30;

const V4: Tpu = Tpu {
    devices_per_chip: 1,
    chips_per_host: 4,
    most_chips: 4096,
    peak_tflops: 275.0,
    hbm_bytes: 32 * GIB,
    dims: 3,
    ascending: false,
};
const V5E: Tpu = Tpu {
    devices_per_chip: 1,
    chips_per_host: 4,
    most_chips: 256,
    peak_tflops: 197.0,
    hbm_bytes: 16 * GIB,
    dims: 2,
    ascending: true,
};
const V5P: Tpu = Tpu {
    devices_per_chip: 1,
    chips_per_host: 4,
    most_chips: 8960,
    peak_tflops: 459.0,
    hbm_bytes: 95 * GIB,
    dims: 3,
    ascending: true,
};
const V6E: Tpu = Tpu { peak_tflops: 918.0, hbm_bytes: 32 * GIB, ..V5E };
const TPU7X: Tpu = Tpu {
    devices_per_chip: 2,
    chips_per_host: 4,
    most_chips: 9216,
    peak_tflops: 1153.5,
    hbm_bytes: 96 * GIB,
    dims: 3,
    ascending: true,
};

impl Accelerator {
    /// What is known of it, if it is a TPU.
    pub fn tpu(self) -> Option<&'static Tpu> {
        match self {
            Self::Cpu | Self::TpuEmulated | Self::Cuda => None,
            Self::V4 => Some(&V4),
            Self::V5e => Some(&V5E),
            Self::V5p => Some(&V5P),
            Self::V6e => Some(&V6E),
            Self::Tpu7x => Some(&TPU7X),
        }
    }

    /// Whether a run on it is a run on this machine, so that its files must be here too.
    pub fn is_here(self) -> bool {
        matches!(self, Self::Cpu | Self::TpuEmulated)
    }
}

/// The shape of one slice in chips, such as `8x8x16`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology(Vec<u64>);

impl Topology {
    /// Reads `AxB` or `AxBxC`; every dimension is at least 1.
    pub fn parse(text: &str) -> Option<Self> {
        const LARGEST: u64 = 1 << 16;
        let dims = text.split('x').map(|dim| {
            let plain = dim.bytes().all(|b| b.is_ascii_digit());
            let number = dim.parse().ok().filter(|n| plain && (1..=LARGEST).contains(n));
            // A second spelling of one shape would be a second name for one machine.
            number.filter(|_| !dim.starts_with('0'))
        });
        let dims = dims.collect::<Option<Vec<u64>>>()?;
        (2..=3).contains(&dims.len()).then_some(Self(dims))
    }

    /// Chips of the slice.
    pub fn chips(&self) -> u64 {
        self.0.iter().product()
    }

    /// The dimensions.
    pub fn dims(&self) -> &[u64] {
        &self.0
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.0.iter().map(u64::to_string).collect();
        f.write_str(&dims.join("x"))
    }
}

impl serde::Serialize for Topology {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Tpu {
    /// Dimensions of the torus of chips: two or three.
    pub(crate) fn dims(&self) -> usize {
        self.dims
    }

    /// Whether such a slice exists.
    pub fn has(&self, topology: &Topology) -> bool {
        let dims = topology.dims();
        match (self.dims, dims) {
            (2, [a, b]) => FLAT.contains(&(*a, *b)),
            (3, [a, b, c]) => SMALL.contains(&(*a, *b, *c)) || self.is_block(*a, *b, *c),
            _ => false,
        }
    }

    /// Larger three-dimensional slices are made of cubes of 4 x 4 x 4 chips.
    fn is_block(&self, a: u64, b: u64, c: u64) -> bool {
        const LONGEST: u64 = 256;
        let cubes = [a, b, c].iter().all(|dim| dim.is_multiple_of(4) && *dim <= LONGEST);
        cubes && a * b * c <= self.most_chips && (!self.ascending || a <= b && b <= c)
    }

    /// All slices, the smallest first, and the most compact first among those of one size.
    pub fn slices(&self) -> Vec<Topology> {
        let mut all: Vec<Vec<u64>> = match self.dims {
            2 => FLAT.iter().map(|(a, b)| vec![*a, *b]).collect(),
            _ => SMALL.iter().map(|(a, b, c)| vec![*a, *b, *c]).chain(self.blocks()).collect(),
        };
        all.sort_by_key(|dims| (dims.iter().product::<u64>(), dims.iter().sum::<u64>()));
        all.into_iter().map(Topology).collect()
    }

    fn blocks(&self) -> impl Iterator<Item = Vec<u64>> + '_ {
        let side = |from: u64| (from..=256).step_by(4);
        side(4).flat_map(move |a| {
            side(a).flat_map(move |b| {
                let fitting = side(b).filter(move |c| self.is_block(a, b, *c));
                fitting.map(move |c| vec![a, b, c])
            })
        })
    }

    /// The slices that `wanted` may have been meant to be: the same dimensions in the right order, or those with
    /// about as many chips.
    pub(crate) fn near(&self, wanted: &Topology) -> Vec<Topology> {
        let mut sorted = wanted.clone();
        sorted.0.sort_unstable();
        if self.has(&sorted) {
            return vec![sorted];
        }
        let slices = self.slices();
        let chips = wanted.chips();
        let below = slices.iter().rev().find(|slice| slice.chips() <= chips);
        let size = |slice: &Topology| slice.chips();
        // The first of a size is the most compact one.
        let first = |n: u64| slices.iter().find(|slice| slice.chips() == n).cloned();
        let above = slices.iter().find(|slice| slice.chips() > chips);
        let found = [below.map(size).and_then(first), above.map(size).and_then(first)];
        found.into_iter().flatten().collect()
    }
}

/// Slices of v5e and v6e.
const FLAT: [(u64, u64); 8] = [(1, 1), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16)];

/// Slices of the three-dimensional generations that are smaller than one cube.
const SMALL: [(u64, u64, u64); 5] = [(1, 1, 1), (2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4)];

#[cfg(test)]
mod tests {
    use super::*;

    fn topology(text: &str) -> Topology {
        Topology::parse(text).unwrap()
    }

    #[test]
    fn slices_are_as_many_as_gke_offers() {
        // Without the slice of one chip, as counted in the table of node-pool shapes that xpk carries.
        assert_eq!(TPU7X.slices().len() - 1, 432);
        assert_eq!(V5P.slices().len() - 1, 414);
        assert_eq!(V6E.slices().len() - 1, 7);
    }

    #[test]
    fn every_listed_slice_exists_and_others_do_not() {
        for tpu in [&V4, &V5E, &V5P, &V6E, &TPU7X] {
            assert!(tpu.slices().iter().all(|slice| tpu.has(slice)));
            assert!(tpu.slices().iter().all(|slice| slice.chips() <= tpu.most_chips));
        }
        assert!(TPU7X.has(&topology("8x8x16")) && V4.has(&topology("8x4x4")));
        for wrong in ["8x16x8", "8x8", "3x4x4", "4x4x580", "2x4x8"] {
            assert!(!TPU7X.has(&topology(wrong)), "{wrong}");
        }
    }

    #[test]
    fn topologies_have_one_spelling() {
        for wrong in
            ["", "8", "8x", "x8", "0x4x4", "-4x4", "4x4x4x4", "4X4", "08x8", "4 x 4", "+4x4"]
        {
            assert_eq!(Topology::parse(wrong), None, "{wrong}");
        }
        assert_eq!(topology("2x2x1").to_string(), "2x2x1");
    }

    #[test]
    fn the_nearest_slices_are_the_same_one_in_order_or_those_of_about_that_size() {
        assert_eq!(TPU7X.near(&topology("16x8x8")), [topology("8x8x16")]);
        assert_eq!(TPU7X.near(&topology("5x5x5")), [topology("4x4x4"), topology("4x4x8")]);
        assert_eq!(V6E.near(&topology("8x8x8")), [topology("16x16")]);
    }
}
