//! Names of checkpoints.

use std::ffi::OsStr;
use std::fmt;

/// The name of the checkpoint after a step: `step-00000100`, with at least eight digits. A name that is written in any
/// other way is not a checkpoint's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StepName(pub u64);

impl StepName {
    /// The step of a name, if it is the name of a checkpoint.
    pub fn parse(name: &OsStr) -> Option<Self> {
        let name = name.to_str()?;
        let step = Self(name.strip_prefix("step-")?.parse().ok()?);
        // One spelling for each step: neither `+5` nor further zeros.
        (step.to_string() == name).then_some(step)
    }
}

impl fmt::Display for StepName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step-{:08}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn look_alike_names_are_taken_for_checkpoints() {
        for name in [
            "step-100.backup",
            "foo-step-100",
            "step-0100",
            "step-99999999999999999999",
            "step--1",
            "step-+0000001",
            "step-0000000a",
            "step-",
            "step-000000100",
            "STEP-00000100",
            "step-00000100 ",
            ".step-00000100.writing",
        ] {
            assert_eq!(StepName::parse(OsStr::new(name)), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn a_name_is_read_as_it_was_written(step in any::<u64>()) {
            let name = StepName(step).to_string();
            prop_assert_eq!(StepName::parse(OsStr::new(&name)), Some(StepName(step)));
        }
    }
}
