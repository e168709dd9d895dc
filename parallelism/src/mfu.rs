//! Model FLOPs utilisation.

use crate::flops::Convention;

/// A utilisation with all that is needed to read it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mfu {
    /// From 0 to 1.
    pub fraction: f64,
    /// How FLOPs were counted.
    pub convention: Convention,
}

/// A utilisation that cannot be true.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MfuError {
    /// What the arithmetic gave.
    pub fraction: f64,
}

impl std::fmt::Display for MfuError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "MFU of {:.1} % is an accounting error: is the peak of the device right?",
            100.0 * self.fraction
        )
    }
}

impl std::error::Error for MfuError {}

/// `tokens per second per device x FLOPs per token / peak FLOP/s per device`.
///
/// # Errors
/// More than the peak cannot be computed: then the FLOPs or the peak are wrong, and no percentage is given.
pub fn mfu(
    tokens_per_second_per_device: f64,
    flops_per_token: u64,
    peak_flops_per_device: f64,
    convention: Convention,
) -> Result<Mfu, MfuError> {
    let fraction = tokens_per_second_per_device * flops_per_token as f64 / peak_flops_per_device;
    if fraction > 1.0 { Err(MfuError { fraction }) } else { Ok(Mfu { fraction, convention }) }
}
