//! Why a run failed, in words for the person who has to put it right.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use titan_trainer::failure::FailureClass;
use titan_trainer::ledger;

use super::run::Session;
use super::supervisor::{ExitStatus, HostFailure, How, RankFailure, describe};
use crate::exit::Exit;
use crate::failure::Failure;

/// Lines of a worker's log that a failure quotes.
const QUOTED_LINES: usize = 12;

impl Session<'_, '_> {
    /// A host that ends by itself before there are ranks has met a fault of the Python environment.
    pub(super) fn explain_host(&self, failure: &HostFailure) -> Failure {
        let log = self.run.run_dir.path().join("logs").join("host.log");
        let (exit, text) = match failure {
            HostFailure::Said(message) => (Exit::WorkersFailed, message.clone()),
            HostFailure::Exited(status) => {
                let exit = match status {
                    ExitStatus::Code(_) => Exit::Environment,
                    ExitStatus::Signal(_) => Exit::WorkersFailed,
                };
                (
                    exit,
                    format!("the worker host {} before all ranks were started", describe(*status)),
                )
            }
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

    pub(super) fn explain(&mut self, failures: &[RankFailure], cause: usize) -> Failure {
        for (index, failure) in failures.iter().enumerate() {
            let reason = reason(failure);
            let event = ledger::Event::WorkerFailed {
                rank: failure.rank as u64,
                reason,
                cause: index == cause,
            };
            // The failure itself matters more than a ledger that cannot be written.
            let _ = self.recorder.event(&event);
        }
        let cause = &failures[cause];
        let (exit, text) = match &cause.how {
            How::Reported(step, failure) => {
                let place = if *step == 0 {
                    "before its first step".to_owned()
                } else {
                    format!("in step {step}")
                };
                (
                    Exit::of_failure(failure.class),
                    format!("rank {} failed {place}: {}", cause.rank, failure.message),
                )
            }
            How::Died(status) => {
                let place = match self.reached.step {
                    0 => "before step 1 was done".to_owned(),
                    step => format!("after step {step}"),
                };
                (Exit::WorkersFailed, format!("rank {} {} {place}", cause.rank, describe(*status)))
            }
        };
        let log = self.run.log(cause.rank);
        let quoted = match &cause.how {
            // What these say is all there is to say.
            How::Reported(_, f)
                if !matches!(
                    f.class,
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
        if let How::Reported(_, said) = &cause.how
            && matches!(said.class, FailureClass::NoSpace | FailureClass::Storage)
            && let Some(keeping) = &self.run.keeping
        {
            failure = keeping.advise(failure);
        }
        if let How::Died(ExitStatus::Signal(9)) = cause.how {
            failure =
                failure.help("if nobody killed it, the kernel did for want of memory: see dmesg");
        }
        failure.help(format!("the whole log of rank {} is {}", cause.rank, log.display()))
    }
}

fn reason(failure: &RankFailure) -> String {
    match &failure.how {
        How::Reported(_, failure) => failure.message.clone(),
        How::Died(status) => describe(*status),
    }
}

/// The lines of a log that say most: from a crash report of Python on, or else the last ones.
fn last_lines(log: &Path) -> Vec<String> {
    const CRASH: &str = "Fatal Python error";
    let text = tail(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
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
