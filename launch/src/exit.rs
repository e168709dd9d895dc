//! Exit codes: the one place where they are decided.

use titan_trainer::failure::FailureClass;

/// Why titan-tpu ended. The numbers are a public contract, listed in the README and under `titan-tpu --help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Everything that was asked for is done; for `train`, the last step of the recipe.
    Done = 0,
    /// The recipe or the command line is wrong. Nothing was started and nothing created.
    Usage = 2,
    /// The data cannot be trained on.
    BadData = 3,
    /// The loss became NaN or infinite.
    NonFiniteLoss = 4,
    /// No checkpoint can be used although one is needed.
    NoCheckpoint = 5,
    /// Workers failed or could not be started, or the run directory was lost; no restart is left.
    WorkersFailed = 6,
    /// A disk is full.
    NoSpace = 7,
    /// The Python environment cannot be set up or does not work, or a compiler that the run needs is missing.
    Environment = 8,
    /// A bug in titan-tpu.
    Bug = 70,
    /// Stopped by a signal before the last step.
    Stopped = 75,
}

impl Exit {
    /// The code that the process ends with.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    /// The code for a failure of a worker.
    pub(crate) fn of_failure(class: FailureClass) -> Self {
        match class {
            FailureClass::Data => Exit::BadData,
            FailureClass::NonFiniteLoss => Exit::NonFiniteLoss,
            FailureClass::NoSpace => Exit::NoSpace,
            FailureClass::Checkpoint => Exit::NoCheckpoint,
            FailureClass::Engine | FailureClass::PeerLost | FailureClass::Storage => {
                Exit::WorkersFailed
            }
            FailureClass::Internal => Exit::Bug,
        }
    }
}

/// The table under `titan-tpu --help`.
pub(crate) const TABLE: &str = "\
Exit codes:
  0   done (train: the last step of the recipe was reached)
  2   the recipe or the command line is wrong; nothing was started
  3   bad data
  4   the loss is not finite
  5   no usable checkpoint, and --resume asks for one
  6   workers failed or could not be started, or the run directory or a checkpoint could not be written
  7   out of disk space
  8   the Python environment cannot be set up, or a compiler is missing
  70  a bug in titan-tpu
  75  stopped by a signal before the last step";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_lists_every_code_with_its_number() {
        for exit in [
            Exit::Done,
            Exit::Usage,
            Exit::BadData,
            Exit::NonFiniteLoss,
            Exit::WorkersFailed,
            Exit::NoSpace,
            Exit::Environment,
            Exit::Bug,
            Exit::Stopped,
        ] {
            let line = format!("\n  {:<4}", exit.code());
            assert!(TABLE.contains(line.trim_end()), "{exit:?} is not in the table");
        }
    }
}
