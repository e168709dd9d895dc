//! What a run leaves behind: `recipe.toml`, `metrics.jsonl`, `ledger.jsonl` and TensorBoard files.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use titan_trainer::ledger::{Event, Ledger, append_line};
use titan_trainer::metrics::{StepRecord, ValidationRecord};
use titan_trainer::tensorboard::{Lost, TensorBoard};

use super::history::{self, History};
use super::run_dir::{LEDGER, RECIPE, RunDir};
use crate::exit::Exit;
use crate::failure::Failure;

/// Writes the files of one run.
pub(crate) struct Recorder {
    metrics: File,
    validation: PathBuf,
    ledger: Ledger,
    tensorboard: Option<TensorBoard>,
    start: Instant,
}

impl Recorder {
    /// Opens the files of a run that began at `start`.
    pub(crate) fn create(
        run: &RunDir,
        recipe: &str,
        tensorboard: bool,
        start: Instant,
        steps_done: u64,
    ) -> Result<(Self, Option<Lost>), Failure> {
        let path = |name: &str| run.path().join(name);
        write_file(&path(RECIPE), recipe)?;
        let history = history::rewind(run.path(), steps_done).map_err(|error| {
            Failure::io(Exit::WorkersFailed, "cannot rewrite the metrics of the run", &error)
        })?;
        let metrics = File::options().create(true).append(true).open(path("metrics.jsonl"));
        let metrics = metrics.map_err(|error| {
            Failure::io(Exit::WorkersFailed, "cannot write metrics.jsonl", &error)
        })?;
        let ledger = Ledger::open(&path(LEDGER), run.id(), run.attempt(), start);
        let ledger = ledger.map_err(|error| {
            Failure::io(Exit::WorkersFailed, "cannot write ledger.jsonl", &error)
        })?;
        let (tensorboard, lost) = match tensorboard.then(|| charts(&path("tensorboard"), &history))
        {
            Some(Ok(tensorboard)) => (Some(tensorboard), None),
            Some(Err(lost)) => (None, Some(lost)),
            None => (None, None),
        };
        let validation = path("validation.jsonl");
        Ok((Self { metrics, validation, ledger, tensorboard, start }, lost))
    }

    /// Brings all files to step `steps_done`, from which the run goes on in its next start.
    pub(crate) fn start_again(
        &mut self,
        run: &RunDir,
        steps_done: u64,
    ) -> Result<Option<Lost>, Failure> {
        let recipe = std::fs::read_to_string(run.path().join(RECIPE)).map_err(|error| {
            Failure::io(Exit::WorkersFailed, "cannot read the recipe of the run", &error)
        })?;
        let has_charts = self.tensorboard.is_some();
        // Its file is written anew, without the steps that are done again.
        let before = self.tensorboard.take().and_then(|charts| charts.finish().err());
        let (again, lost) = Self::create(run, &recipe, has_charts, self.start, steps_done)?;
        *self = again;
        Ok(before.or(lost))
    }

    /// Appends an event to the ledger.
    pub(crate) fn event(&mut self, event: &Event) -> Result<(), Failure> {
        self.ledger
            .append(event)
            .map_err(|error| Failure::io(Exit::WorkersFailed, "cannot write ledger.jsonl", &error))
    }

    /// Records one step everywhere. Losing the charts is not a failure, and is said once.
    pub(crate) fn step(&mut self, record: &StepRecord) -> Result<Option<Lost>, Failure> {
        append_line(&mut self.metrics, record).map_err(|error| {
            Failure::io(Exit::WorkersFailed, "cannot write metrics.jsonl", &error)
        })?;
        let &StepRecord { step, step_seconds, data_seconds, .. } = record;
        self.event(&Event::Step { step, step_seconds, data_seconds })?;
        Ok(self.tensorboard.as_mut().and_then(|tensorboard| tensorboard.add(record).err()))
    }

    /// Records a validation everywhere; its file is made by the first.
    pub(crate) fn validation(
        &mut self,
        record: &ValidationRecord,
    ) -> Result<Option<Lost>, Failure> {
        let file = File::options().create(true).append(true).open(&self.validation);
        file.and_then(|mut file| append_line(&mut file, record)).map_err(|error| {
            Failure::io(Exit::WorkersFailed, "cannot write validation.jsonl", &error)
        })?;
        let &ValidationRecord { step, seconds, .. } = record;
        self.event(&Event::Validation { step, seconds })?;
        let tensorboard = self.tensorboard.as_mut();
        Ok(tensorboard.and_then(|tensorboard| tensorboard.add_validation(record).err()))
    }

    /// Closes the files.
    pub(crate) fn finish(self) -> Option<Lost> {
        self.tensorboard.and_then(|tensorboard| tensorboard.finish().err())
    }
}

/// New charts, with what is kept of earlier starts of the run: TensorBoard would show both values of a step that was
/// done twice.
fn charts(folder: &Path, history: &History) -> Result<TensorBoard, Lost> {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("events.out.tfevents.") {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    let mut tensorboard = TensorBoard::create(folder)?;
    history.steps.iter().try_for_each(|record| tensorboard.add(record))?;
    history.validations.iter().try_for_each(|record| tensorboard.add_validation(record))?;
    Ok(tensorboard)
}

fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| {
        Failure::io(Exit::WorkersFailed, format!("cannot write {}", path.display()), &error)
    })
}
