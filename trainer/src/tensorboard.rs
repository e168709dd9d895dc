//! TensorBoard event files.
//!
//! The crate `tensorboard-rs` writes them. It meets every I/O error with a panic, on a thread of its own and
//! then in the caller; charts must never end a run, so both are contained here: the caller's panics are caught,
//! and the launcher's panic hook keeps quiet about the crate's ([`is_contained`]).

use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::path::Path;

use tensorboard_rs::summary_writer::SummaryWriter;

use crate::metrics::{StepRecord, ValidationRecord};

/// Writes records as scalars until the first fault, then says so once and writes no more.
pub struct TensorBoard {
    writer: Option<SummaryWriter>,
}

/// The event files can no longer be written. Training goes on; `metrics.jsonl` has all values.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("TensorBoard files cannot be written any more; metrics.jsonl still has every value")]
pub struct Lost;

impl TensorBoard {
    /// Opens a new event file in `folder`.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(folder: &Path) -> Result<Self, Lost> {
        // The crate creates the file on its thread, too late to see an error: try with a file of our own.
        let probe = folder.join(".probe");
        std::fs::create_dir_all(folder).map_err(|_| Lost)?;
        std::fs::File::create(&probe)
            .and_then(|_| std::fs::remove_file(&probe))
            .map_err(|_| Lost)?;
        let writer = contained(|| SummaryWriter::new(folder))?;
        Ok(Self { writer: Some(writer) })
    }

    /// Adds the values of one step.
    ///
    /// # Errors
    /// Once, when the file was lost; later calls do nothing.
    pub fn add(&mut self, record: &StepRecord) -> Result<(), Lost> {
        self.write(record.step, |scalar| {
            scalar("loss", record.loss);
            scalar("grad_norm", record.grad_norm);
            scalar("learning_rate", record.lr);
            scalar("throughput/tokens_per_second", record.tokens_per_second);
            scalar("throughput/tokens_per_second_per_device", record.tokens_per_second_per_device);
            if let Some(mfu) = record.mfu {
                scalar("throughput/mfu", mfu);
            }
            if let Some(experts) = &record.experts {
                scalar("experts/max_load", experts.max_load);
                scalar("experts/min_load", experts.min_load);
                scalar("experts/overflow", experts.overflow as f64);
            }
            scalar("time/step_seconds", record.step_seconds);
            scalar("time/data_seconds", record.data_seconds);
        })
    }

    /// Adds a validation.
    ///
    /// # Errors
    /// As for [`add`](Self::add).
    pub fn add_validation(&mut self, record: &ValidationRecord) -> Result<(), Lost> {
        self.write(record.step, |scalar| {
            scalar("validation/loss", record.loss);
            scalar("time/validation_seconds", record.seconds);
        })
    }

    fn write(
        &mut self,
        step: u64,
        values: impl FnOnce(&mut dyn FnMut(&str, f64)),
    ) -> Result<(), Lost> {
        let Some(mut writer) = self.writer.take() else { return Ok(()) };
        let step = usize::try_from(step).unwrap_or(usize::MAX);
        let written = contained(|| {
            values(&mut |tag, value| writer.add_scalar(tag, value as f32, step));
            writer.flush();
        });
        match written {
            Ok(()) => {
                self.writer = Some(writer);
                Ok(())
            }
            Err(lost) => {
                // Its destructor panics too once its thread is gone.
                let _ = contained(move || drop(writer));
                Err(lost)
            }
        }
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// The file was lost since the last step.
    pub fn finish(mut self) -> Result<(), Lost> {
        self.close()
    }

    fn close(&mut self) -> Result<(), Lost> {
        match self.writer.take() {
            Some(writer) => contained(move || drop(writer)),
            None => Ok(()),
        }
    }
}

impl Drop for TensorBoard {
    fn drop(&mut self) {
        // Only left to do when the run ends in an error that matters more than this one.
        let _ = self.close();
    }
}

fn contained<T>(work: impl FnOnce() -> T) -> Result<T, Lost> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| Lost)
}

/// Whether a panic comes from the crate and is dealt with here, so that the panic hook should not report it.
pub fn is_contained(panic: &PanicHookInfo<'_>) -> bool {
    panic.location().is_some_and(|place| place.file().contains("tensorboard-rs"))
}
