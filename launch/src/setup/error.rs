//! What can go wrong with the Python environment, and what to do about it.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::interpreter::Rejected;
use super::requirements::TORCH_VERSION;
use crate::words;

/// What an error means for the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// The user gave a setting that cannot be followed.
    Usage,
    /// The disk is full, or would be.
    NoSpace,
    /// The user or the system asked to stop.
    Cancelled,
    /// This machine lacks something: Python, an index, permission.
    Environment,
}

/// Why no Python environment or engine could be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetupError {
    /// The interpreter named by the user cannot be used.
    #[error("TITAN_PYTHON is `{value}`, {problem}")]
    TitanPython { value: String, problem: String, hint: String },
    /// The setting for the package index is not understood.
    #[error(
        "TITAN_TORCH_INDEX is `{value}`, expected `cpu`, `plain` or the URL of a package index"
    )]
    TorchIndex { value: String },
    /// There is no place to keep the environment.
    #[error(
        "no folder for the cache: TITAN_CACHE_DIR, XDG_CACHE_HOME and HOME are not set to absolute paths"
    )]
    NoCacheFolder,
    /// No interpreter on this machine can carry the environment.
    #[error("no Python found that torch {TORCH_VERSION} can be installed for{}", list(.rejected))]
    NoInterpreter { rejected: Vec<Rejected> },
    /// The disk is full, or would be.
    #[error("not enough space in {}: {}", .path.display(), .space)]
    NoSpace { path: PathBuf, space: Space },
    /// The user or the system asked to stop.
    #[error("cancelled while {step}")]
    Cancelled { step: String },
    /// A step of the installation failed.
    #[error("{}", .0.text())]
    Step(Box<StepFailure>),
    /// The operating system refused something.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

/// How much space there is against how much is needed, as far as known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Space {
    /// Found out beforehand.
    Short { needed: u64, free: u64 },
    /// Found out by a failed write.
    Exhausted,
}

impl std::fmt::Display for Space {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Short { needed, free } => {
                write!(formatter, "{} needed, {} free", words::bytes(*needed), words::bytes(*free))
            }
            Self::Exhausted => formatter.write_str("the disk or the quota is full"),
        }
    }
}

/// The name of the step that takes torch from an index of its own.
pub(super) const TORCH_STEP: &str = "installing torch";

/// A step that ran a program which did not do its work.
#[derive(Debug)]
pub(crate) struct StepFailure {
    /// What was being done: `installing packages`.
    pub(crate) step: String,
    /// How it ended: `exit status: 1`.
    pub(crate) ending: String,
    /// What the output says about the reason.
    pub(crate) cause: Cause,
    /// The whole output, if it could be kept.
    pub(crate) log: Option<PathBuf>,
    /// The last lines of the output.
    pub(crate) tail: Vec<String>,
}

/// The reason of a failed step, recognised from its output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The package index could not be reached.
    Offline,
    /// The index was reached, but its certificate was not accepted.
    Certificate,
    /// The index has no suitable wheel of a package.
    Missing { requirement: String },
    /// The disk or the quota is full.
    NoSpace,
    /// Killed from outside, on Linux mostly for lack of memory.
    Killed,
    /// Took longer than it may.
    TooLong { limit: Duration },
    /// None of the above.
    Unknown,
}

impl StepFailure {
    fn text(&self) -> String {
        let why = match &self.cause {
            Cause::Offline => "the package index cannot be reached".to_owned(),
            Cause::Certificate => "the certificate of the package index is not trusted".to_owned(),
            Cause::Missing { requirement } => {
                format!("the package index has no wheel for {requirement}")
            }
            Cause::NoSpace => "the disk or the quota is full".to_owned(),
            Cause::Killed => format!("killed from outside ({})", self.ending),
            Cause::TooLong { limit } => format!("not done after {} s", limit.as_secs()),
            Cause::Unknown => self.ending.clone(),
        };
        let mut text = format!("{} failed: {why}", self.step);
        if let Some(log) = &self.log {
            let _ = write!(text, "\n  log: {}", log.display());
        }
        for line in &self.tail {
            let _ = write!(text, "\n  | {line}");
        }
        text
    }

    fn hint(&self) -> String {
        match &self.cause {
            Cause::Offline | Cause::Missing { .. } if self.step == TORCH_STEP => {
                "check TITAN_TORCH_INDEX; `plain` takes torch from the ordinary index, where it is larger"
            }
            Cause::Offline => {
                "check the network, set PIP_INDEX_URL to a mirror or HTTPS_PROXY to a proxy, or set \
                 TITAN_PYTHON to a Python that has torch"
            }
            Cause::Certificate => "set PIP_CERT to the certificates of your proxy or mirror (a .pem file)",
            Cause::Missing { .. } => {
                "check the index settings of pip (`pip config list`), or set TITAN_PYTHON to a Python \
                 that has torch"
            }
            Cause::NoSpace => NO_SPACE_HINT,
            Cause::Killed => "look for `out of memory` in the kernel log, then run `titan-tpu setup` again",
            Cause::TooLong { .. } => {
                "is the cache on a slow network file system? set TITAN_CACHE_DIR to a folder on a local disk"
            }
            Cause::Unknown => {
                "see the log; `titan-tpu doctor` checks the rest; TITAN_PYTHON uses a Python of your own \
                 that has torch"
            }
        }
        .to_owned()
    }
}

const NO_SPACE_HINT: &str = "free some space, or set TITAN_CACHE_DIR to a folder on a larger disk";

impl SetupError {
    /// A refusal of the operating system; a full disk is recognised.
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::NoSpace { path, space: Space::Exhausted }
            }
            _ => Self::Io { action, path, source },
        }
    }

    /// Which exit code fits.
    pub(crate) fn class(&self) -> Class {
        match self {
            Self::TitanPython { .. } | Self::TorchIndex { .. } => Class::Usage,
            Self::NoSpace { .. } => Class::NoSpace,
            Self::Cancelled { .. } => Class::Cancelled,
            Self::Step(failure) if failure.cause == Cause::NoSpace => Class::NoSpace,
            Self::NoCacheFolder | Self::NoInterpreter { .. } | Self::Step(_) | Self::Io { .. } => {
                Class::Environment
            }
        }
    }

    /// What the user can do.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::TitanPython { hint, .. } => Some(hint.clone()),
            Self::TorchIndex { .. } => {
                Some("unset it to have the smaller CPU wheels wherever their index can be reached".to_owned())
            }
            Self::NoCacheFolder => Some("set TITAN_CACHE_DIR to a folder you can write to".to_owned()),
            Self::NoInterpreter { rejected } => Some(interpreter_hint(rejected)),
            Self::NoSpace { .. } => Some(NO_SPACE_HINT.to_owned()),
            Self::Cancelled { .. } => None,
            Self::Step(failure) => Some(failure.hint()),
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    Some("set TITAN_CACHE_DIR to a folder you can write to".to_owned())
                }
                io::ErrorKind::Unsupported => Some(
                    "the file system lacks file locks or links; set TITAN_CACHE_DIR to a folder on a local disk"
                        .to_owned(),
                ),
                _ => None,
            },
        }
    }
}

/// The candidate that needs least decides the advice: a package of the system beats a new Python.
fn interpreter_hint(rejected: &[Rejected]) -> String {
    let fix = rejected.iter().find_map(|candidate| candidate.unfit.fix());
    let own = "or set TITAN_PYTHON to a Python that has torch";
    match fix {
        Some(fix) => format!("{fix}, {own}"),
        None => format!("install Python 3.11 to 3.14 with venv and pip, {own}"),
    }
}

fn list(rejected: &[Rejected]) -> String {
    if rejected.is_empty() {
        return ": there is no python3 in PATH".to_owned();
    }
    rejected.iter().fold(String::new(), |mut text, candidate| {
        let _ = write!(text, "\n  {}: {}", candidate.path.display(), candidate.unfit);
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_recognised_whatever_failed() {
        let full = io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error());
        let error = SetupError::io("write", Path::new("/cache/x"), full);
        assert_eq!(error.class(), Class::NoSpace);
        assert_eq!(
            error.to_string(),
            "not enough space in /cache/x: the disk or the quota is full"
        );
    }

    #[test]
    fn a_failed_step_names_its_log_and_quotes_it() {
        let failure = StepFailure {
            step: "installing packages".to_owned(),
            ending: "exit status: 1".to_owned(),
            cause: Cause::Missing { requirement: "torch==2.15.0".to_owned() },
            log: Some("/cache/venvs/1.failed.log".into()),
            tail: vec!["ERROR: No matching distribution found for torch==2.15.0".to_owned()],
        };
        let error = SetupError::Step(Box::new(failure));
        assert_eq!(
            error.to_string(),
            "installing packages failed: the package index has no wheel for torch==2.15.0\n  \
             log: /cache/venvs/1.failed.log\n  \
             | ERROR: No matching distribution found for torch==2.15.0"
        );
        assert_eq!(error.class(), Class::Environment);
        assert!(error.hint().unwrap().contains("TITAN_PYTHON"));
    }
}
