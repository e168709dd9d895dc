//! Finding out what a Python interpreter is, and whether an environment can be made from it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Deserialize;

use super::child::{Ended, capture};
use super::error::SetupError;
use super::variables::Variables;

const PROBE: &str = include_str!("probe.py");
/// A cold interpreter on a network file system takes seconds; one that hangs must not stop us.
const PROBE_LIMIT: Duration = Duration::from_secs(30);

/// The oldest Python that the wheels of torch and our native module support.
pub(crate) const OLDEST: [u32; 2] = [3, 11];
/// The newest Python for which all pinned packages have wheels.
const NEWEST: [u32; 2] = [3, 14];
/// The oldest C library that the wheels of torch support.
const OLDEST_GLIBC: [u32; 2] = [2, 28];

/// What an interpreter says about itself.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Probe {
    implementation: String,
    pub(crate) version: [u32; 3],
    release: bool,
    /// The interpreter itself, also if a wrapper was run; in a virtual environment the one there.
    pub(crate) executable: PathBuf,
    /// The interpreter without any virtual environment, links resolved.
    pub(crate) base: PathBuf,
    wide: bool,
    free_threaded: bool,
    musl: bool,
    libc: Option<String>,
    venv: bool,
    ensurepip: bool,
    /// The version of torch, if it was asked for and is there.
    pub(crate) torch: Option<String>,
}

/// Why an interpreter cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// It did not run; such wrappers exist for versions that are not installed.
    DoesNotRun { why: String },
    /// Another implementation, whose binary interface differs.
    NotCPython { implementation: String },
    /// Before the first supported version.
    TooOld { version: String },
    /// After the last supported version.
    TooNew { version: String },
    /// A version that a pinned package refuses.
    Excluded { version: String, package: &'static str },
    /// A build for which there are no wheels.
    Build { what: String },
    /// Debian and others ship this part separately.
    NoEnsurepip { version: String },
}

/// A candidate that was looked at and not taken.
#[derive(Clone, Debug)]
pub(crate) struct Rejected {
    pub(crate) path: PathBuf,
    pub(crate) unfit: Unfit,
}

impl Probe {
    /// Such as `3.11.7`.
    pub(crate) fn version_text(&self) -> String {
        let [major, minor, micro] = self.version;
        format!("{major}.{minor}.{micro}")
    }

    fn minor_version(&self) -> [u32; 2] {
        [self.version[0], self.version[1]]
    }

    /// Whether the engine runs in this interpreter, whoever made it.
    pub(crate) fn unfit_for_engine(&self) -> Option<Unfit> {
        let version = self.version_text();
        if self.implementation != "cpython" {
            return Some(Unfit::NotCPython { implementation: self.implementation.clone() });
        }
        if self.minor_version() < OLDEST {
            return Some(Unfit::TooOld { version });
        }
        if self.free_threaded {
            let what = "is built without the global interpreter lock".to_owned();
            return Some(Unfit::Build { what });
        }
        None
    }

    /// Whether an environment with the pinned packages can be made from this interpreter.
    pub(crate) fn unfit_as_base(&self) -> Option<Unfit> {
        if let Some(unfit) = self.unfit_for_engine() {
            return Some(unfit);
        }
        let version = self.version_text();
        if self.minor_version() > NEWEST {
            return Some(Unfit::TooNew { version });
        }
        if self.version == [3, 14, 1] {
            return Some(Unfit::Excluded { version, package: "networkx" });
        }
        if !self.release {
            return Some(Unfit::Build { what: "is a preview, not a release".to_owned() });
        }
        if !self.wide {
            return Some(Unfit::Build { what: "is a 32-bit build".to_owned() });
        }
        if self.musl {
            return Some(Unfit::Build {
                what: "uses the C library musl, torch needs glibc".to_owned(),
            });
        }
        if let Some(libc) = self.libc.as_deref().filter(|text| glibc_too_old(text)) {
            return Some(Unfit::Build {
                what: format!("runs on {libc}, torch needs glibc 2.28 or newer"),
            });
        }
        if !self.venv || !self.ensurepip {
            let [major, minor, _] = self.version;
            return Some(Unfit::NoEnsurepip { version: format!("{major}.{minor}") });
        }
        None
    }
}

/// `text` is as the C library names itself, `glibc 2.36`; what cannot be read is taken as new enough.
fn glibc_too_old(text: &str) -> bool {
    let parse = |text: &str| -> Option<[u32; 2]> {
        let (major, minor) = text.strip_prefix("glibc ")?.split_once('.')?;
        Some([major.parse().ok()?, minor.split('.').next()?.parse().ok()?])
    };
    parse(text).is_some_and(|version| version < OLDEST_GLIBC)
}

impl fmt::Display for Unfit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DoesNotRun { why } => write!(formatter, "does not run: {why}"),
            Self::NotCPython { implementation } => {
                write!(formatter, "is {implementation}, not CPython")
            }
            Self::TooOld { version } => {
                write!(formatter, "is Python {version}, 3.11 is the oldest supported")
            }
            Self::TooNew { version } => {
                write!(formatter, "is Python {version}, 3.14 is the newest supported")
            }
            Self::Excluded { version, package } => {
                write!(
                    formatter,
                    "is Python {version}, which the package {package} does not support"
                )
            }
            Self::Build { what } => formatter.write_str(what),
            Self::NoEnsurepip { version } => {
                write!(formatter, "is Python {version} without the modules venv and ensurepip")
            }
        }
    }
}

impl Unfit {
    /// The least work that makes this interpreter usable, if it is little.
    pub(crate) fn fix(&self) -> Option<String> {
        match self {
            Self::NoEnsurepip { version } => Some(format!(
                "install the missing part of Python {version} (on Debian and Ubuntu `apt install \
                 python{version}-venv`)"
            )),
            _ => None,
        }
    }
}

/// Runs an interpreter to ask what it is. `isolated` keeps the user's module paths out; `torch` asks for its version,
/// found without importing it, which would take seconds.
pub(crate) fn probe(
    python: &Path,
    isolated: bool,
    torch: bool,
    variables: &Variables,
    cancelled: &AtomicBool,
) -> Result<Result<Probe, Unfit>, SetupError> {
    let mut command = Command::new(python);
    command.env_clear();
    if isolated {
        command.arg("-I").envs(variables.for_isolated(None));
    } else {
        command.envs(variables.unchanged());
    }
    command.args(["-c", PROBE, "probe"]);
    if torch {
        command.arg("torch");
    }
    let captured = match capture(&mut command, PROBE_LIMIT, cancelled) {
        Ok(captured) => captured,
        Err(error) => return Ok(Err(Unfit::DoesNotRun { why: error.to_string() })),
    };
    match captured.ended {
        Ended::Cancelled => Err(SetupError::Cancelled { step: "looking for Python".to_owned() }),
        Ended::TimedOut => {
            let why = format!("no answer within {} s", PROBE_LIMIT.as_secs());
            Ok(Err(Unfit::DoesNotRun { why }))
        }
        Ended::Exited(status) if status.success() => Ok(answer(&captured.stdout)),
        Ended::Exited(status) => {
            let first = captured.stderr.lines().map(str::trim).find(|line| !line.is_empty());
            let why = first.map_or_else(|| status.to_string(), str::to_owned);
            Ok(Err(Unfit::DoesNotRun { why }))
        }
    }
}

/// Start-up files of an installation may print too; the answer is the last line that is an object.
fn answer(stdout: &str) -> Result<Probe, Unfit> {
    let line = stdout.lines().rev().find(|line| line.starts_with('{'));
    let line =
        line.ok_or_else(|| Unfit::DoesNotRun { why: "it is no Python interpreter".to_owned() })?;
    serde_json::from_str(line).map_err(|error| Unfit::DoesNotRun { why: error.to_string() })
}

/// The first interpreter in `PATH` from which an environment can be made, and those passed over.
pub(crate) fn find_base(
    variables: &Variables,
    cancelled: &AtomicBool,
) -> Result<(Option<Probe>, Vec<Rejected>), SetupError> {
    let mut rejected = Vec::new();
    for path in candidates(variables) {
        let unfit = match probe(&path, true, false, variables, cancelled)? {
            Ok(found) => match found.unfit_as_base() {
                None => return Ok((Some(found), rejected)),
                Some(unfit) => unfit,
            },
            Err(unfit) => unfit,
        };
        rejected.push(Rejected { path, unfit });
    }
    Ok((None, rejected))
}

/// `python3` first, since it is what the user sees as "the" Python, then the newest.
fn candidates(variables: &Variables) -> Vec<PathBuf> {
    let folders = variables.search_path();
    let numbered = (OLDEST[1]..=NEWEST[1]).rev().map(|minor| format!("python3.{minor}"));
    let mut seen = BTreeSet::new();
    std::iter::once("python3".to_owned())
        .chain(numbered)
        .flat_map(|name| folders.iter().map(move |folder| folder.join(&name)))
        .filter(|path| is_executable(path))
        // `/bin` and `/usr/bin` are often the same folder, `python3` mostly a link. Only files of that very name are
        // told apart, because a wrapper that serves several names decides by the name.
        .filter(|path| {
            let real = path.canonicalize().unwrap_or_else(|_| path.clone());
            let wrapper = path.is_symlink() && !is_python_name(&real);
            seen.insert(if wrapper { path.clone() } else { real })
        })
        .collect()
}

fn is_python_name(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"python"))
}

/// The first executable of that name in `PATH`.
pub(crate) fn look_up(name: &str, variables: &Variables) -> Option<PathBuf> {
    variables
        .search_path()
        .into_iter()
        .map(|folder| folder.join(name))
        .find(|path| is_executable(path))
}

pub(crate) fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// The arguments that run a task of `tasks.py` in an environment.
pub(super) fn task(name: &str, arguments: &[OsString]) -> Vec<OsString> {
    let mut all: Vec<OsString> =
        ["-I", "-c", include_str!("tasks.py"), name].map(OsString::from).into();
    all.extend_from_slice(arguments);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Probe {
        let text = r#"{"implementation":"cpython","version":[3,11,7],"release":true,"executable":"/v/bin/python",
            "base":"/usr/bin/python3.11","wide":true,"free_threaded":false,"musl":false,"libc":"glibc 2.36",
            "venv":true,"ensurepip":true,"torch":null}"#;
        answer(&text.replace('\n', "")).unwrap()
    }

    fn with(change: impl FnOnce(&mut Probe)) -> Option<String> {
        let mut probe = good();
        change(&mut probe);
        probe.unfit_as_base().map(|unfit| unfit.to_string())
    }

    #[test]
    fn a_base_must_carry_the_pinned_packages() {
        assert_eq!(with(|_| ()), None);
        assert_eq!(with(|p| p.version = [3, 14, 2]), None);
        type Change = fn(&mut Probe);
        let cases: [(Change, &str); 9] = [
            (|p| p.implementation = "pypy".to_owned(), "is pypy, not CPython"),
            (|p| p.version = [3, 10, 13], "is Python 3.10.13, 3.11 is the oldest supported"),
            (|p| p.version = [2, 7, 18], "is Python 2.7.18, 3.11 is the oldest supported"),
            (|p| p.version = [3, 15, 0], "is Python 3.15.0, 3.14 is the newest supported"),
            (
                |p| p.version = [3, 14, 1],
                "is Python 3.14.1, which the package networkx does not support",
            ),
            (|p| p.wide = false, "is a 32-bit build"),
            (|p| p.musl = true, "uses the C library musl, torch needs glibc"),
            (
                |p| p.libc = Some("glibc 2.17".to_owned()),
                "runs on glibc 2.17, torch needs glibc 2.28 or newer",
            ),
            (|p| p.ensurepip = false, "is Python 3.11 without the modules venv and ensurepip"),
        ];
        for (change, text) in cases {
            assert_eq!(with(change).as_deref(), Some(text));
        }
    }

    #[test]
    fn the_engine_also_runs_where_nothing_can_be_installed() {
        let mut probe = good();
        (probe.ensurepip, probe.version, probe.libc) = (false, [3, 16, 0], None);
        assert_eq!(probe.unfit_for_engine(), None);
        probe.free_threaded = true;
        assert!(probe.unfit_for_engine().is_some());
    }

    #[test]
    fn noise_around_the_answer_is_skipped() {
        assert!(matches!(answer("hello\n"), Err(Unfit::DoesNotRun { .. })));
        assert!(matches!(answer("{\"hello\": 1}\n"), Err(Unfit::DoesNotRun { .. })));
    }

    #[test]
    fn versions_of_the_c_library_compare_as_numbers() {
        assert!(glibc_too_old("glibc 2.4"));
        assert!(!glibc_too_old("glibc 2.28"));
        assert!(!glibc_too_old("glibc 2.100"));
        assert!(!glibc_too_old("something else"));
    }
}
