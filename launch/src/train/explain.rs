//! Why a run failed, in words for the person who has to put it right.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use titan_control::{self as control, Class, ExitStatus, How, cause_of};
use titan_trainer::failure::FailureClass;
use titan_trainer::ledger;

use super::session::Session;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::words;

/// Lines of a worker's log that a failure quotes.
const QUOTED_LINES: usize = 12;

impl Session<'_, '_> {
    /// A host that ends by itself before there are ranks has met a fault of the Python environment.
    pub(super) fn explain_host(&self, class: Class, text: String) -> Failure {
        let log = self.run.run_dir.path().join("logs").join("host.log");
        let exit = match class {
            Class::Configuration => Exit::Environment,
            _ => Exit::WorkersFailed,
        };
        let failure = Failure::new(exit, text).quoting(last_lines(&log));
        let failure = match exit {
            Exit::Environment => {
                failure.help("titan-tpu doctor --deep checks the Python environment")
            }
            _ => failure,
        };
        failure.help(format!("the whole log of the worker host is {}", log.display()))
    }

    /// This host has no ranks, and will not have some.
    pub(super) fn explain_absence(&self, waited: Duration) -> Failure {
        let time = words::seconds(waited.as_secs_f64());
        let text = match self.awaits_host {
            true => format!("the worker host was not ready after {time}"),
            false => format!("ranks that were killed are still there after {time}"),
        };
        self.explain_host(Class::Infrastructure, text)
            .help("elastic.start_timeout_seconds says how long is waited")
    }

    /// Writes down what failed in this start, and which failure is the cause of the others.
    pub(super) fn note_failures(&mut self) -> Result<(), Failure> {
        let cause = cause_of(&self.noticed);
        for (index, failure) in std::mem::take(&mut self.noticed).iter().enumerate() {
            self.recorder.event(&ledger::Event::WorkerFailed {
                rank: failure.rank,
                reason: self.reason(failure),
                cause: cause == Some(index),
            })?;
        }
        Ok(())
    }

    /// What a failure was, without who failed.
    fn reason(&self, failure: &control::Failure) -> String {
        match &failure.how {
            How::Reported { text, .. }
            | How::Stuck { text, .. }
            | How::HostLost { text }
            | How::NotStarted { text, .. } => text.clone(),
            How::Died { status } => status.to_string(),
        }
    }

    pub(super) fn explain(
        &mut self,
        failures: &[control::Failure],
        cause: usize,
        why: &str,
    ) -> Failure {
        // The failure itself matters more than a ledger that cannot be written.
        let _ = self.note_failures();
        let cause = &failures[cause];
        let failure = match (&cause.how, cause.rank) {
            (How::NotStarted { class, text }, _) => self.explain_host(*class, text.clone()),
            (_, Some(rank)) => self.explain_rank(cause, rank),
            (_, None) => self
                .not_committed
                .take()
                .unwrap_or_else(|| Failure::new(Exit::WorkersFailed, cause.to_string())),
        };
        let was_tried = cause.class().can_be_retried() && *self.run.recipe.elastic.max_restarts > 0;
        if was_tried {
            failure.help(format!("the run was not started again: {why}"))
        } else {
            failure
        }
    }

    fn explain_rank(&self, cause: &control::Failure, rank: u64) -> Failure {
        let said = self.reports.get(&rank).map(|(step, said)| (*step, said));
        let (exit, text) = match (&cause.how, said) {
            (How::Reported { .. }, Some((step, said))) => {
                let place = match step {
                    0 => "before its first step".to_owned(),
                    step => format!("in step {step}"),
                };
                let text = format!("rank {rank} failed {place}: {}", said.message);
                (Exit::of_failure(said.class), text)
            }
            (How::Died { status }, _) => {
                let place = match self.reached.step {
                    0 => "before step 1 was done".to_owned(),
                    step => format!("after step {step}"),
                };
                (Exit::WorkersFailed, format!("rank {rank} {status} {place}"))
            }
            _ => (Exit::WorkersFailed, cause.to_string()),
        };
        let log = self.run.log(rank as usize);
        let class = said.map(|(_, said)| said.class);
        let quoted = match class {
            // What these say is all there is to say.
            Some(class)
                if !matches!(
                    class,
                    FailureClass::Engine | FailureClass::PeerLost | FailureClass::Internal
                ) =>
            {
                Vec::new()
            }
            _ => last_lines(&log),
        };
        let mut failure = Failure::new(exit, text).quoting(quoted);
        if matches!(exit, Exit::NonFiniteLoss) {
            failure =
                failure.help("lower optimizer.learning_rate, or lengthen schedule.warmup_steps");
        }
        if matches!(class, Some(FailureClass::NoSpace | FailureClass::Storage))
            && let Some(keeping) = &self.run.keeping
        {
            failure = keeping.advise(failure);
        }
        if let How::Died { status: ExitStatus::Signal(9) } = cause.how {
            failure =
                failure.help("if nobody killed it, the kernel did for want of memory: see dmesg");
        }
        failure.help(format!("the whole log of rank {rank} is {}", log.display()))
    }
}

/// The lines of a log that say most: from a crash report of Python on, or else the last ones.
fn last_lines(log: &Path) -> Vec<String> {
    const CRASH: &str = "Fatal Python error";
    let text = tail(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    // Of this start alone.
    let text = text.rsplit("\n---- start ").next().unwrap_or(&text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines.len().saturating_sub(QUOTED_LINES);
    let start = lines.iter().rposition(|line| line.starts_with(CRASH)).unwrap_or(last);
    lines[start..].iter().take(QUOTED_LINES).map(|line| (*line).to_owned()).collect()
}

/// The end of a file, however long it is.
fn tail(path: &Path) -> io::Result<Vec<u8>> {
    const TAIL: u64 = 64 * 1024;
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(file.metadata()?.len().saturating_sub(TAIL)))?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes)?;
    Ok(bytes)
}
