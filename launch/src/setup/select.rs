//! The interpreters that the user brings: `TITAN_PYTHON`, else an active virtual environment that has torch.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use super::error::SetupError;
use super::interpreter::{self, Probe, Unfit};
use super::requirements::{TORCH_VERSION, public_version};
use super::variables::{TITAN_PYTHON, VIRTUAL_ENV, Variables};
use super::{Kind, PythonEnv};

/// What was found, and what the user should know about it.
#[derive(Default)]
pub(super) struct Selection {
    pub(super) env: Option<PythonEnv>,
    pub(super) notes: Vec<String>,
    /// An active environment that is just not meant for this; only worth a word if someone asks.
    pub(super) without_torch: Option<PathBuf>,
}

/// Looks at what the user brings. A wrong `TITAN_PYTHON` is an error; an active environment without torch is just
/// not meant for this.
pub(super) fn brought_by_user(
    variables: &Variables,
    cancelled: &AtomicBool,
) -> Result<Selection, SetupError> {
    if let Some(value) = variables.get(TITAN_PYTHON) {
        let (python, torch) = named(value, variables, cancelled)?;
        return Ok(taken(python, torch, Kind::Variable));
    }
    let Some(folder) = variables.get(VIRTUAL_ENV) else {
        return Ok(Selection::default());
    };
    let python = Path::new(folder).join("bin/python");
    let found = interpreter::probe(&python, false, true, variables, cancelled)?;
    Ok(match judge(found) {
        Ok((probe, torch)) => taken(executable(&probe, python), torch, Kind::ActiveVenv),
        Err(Problem::NoTorch) => {
            Selection { without_torch: Some(folder.into()), ..Selection::default() }
        }
        Err(Problem::Unfit(unfit)) => {
            let folder = Path::new(folder).display();
            let note =
                format!("the active virtual environment {folder} is not used: its Python {unfit}");
            Selection { notes: vec![note], ..Selection::default() }
        }
    })
}

enum Problem {
    Unfit(Unfit),
    NoTorch,
}

fn judge(found: Result<Probe, Unfit>) -> Result<(Probe, String), Problem> {
    let probe = found.map_err(Problem::Unfit)?;
    if let Some(unfit) = probe.unfit_for_engine() {
        return Err(Problem::Unfit(unfit));
    }
    let torch = probe.torch.clone().ok_or(Problem::NoTorch)?;
    Ok((probe, torch))
}

/// The interpreter that `TITAN_PYTHON` names, and its torch.
fn named(
    value: &OsStr,
    variables: &Variables,
    cancelled: &AtomicBool,
) -> Result<(PathBuf, String), SetupError> {
    let refuse = |problem: String, hint: String| SetupError::TitanPython {
        value: value.to_string_lossy().into_owned(),
        problem,
        hint,
    };
    let unset = "or unset TITAN_PYTHON to have an environment made";
    let path = match value.to_str().filter(|name| !name.contains('/')) {
        Some(name) => interpreter::look_up(name, variables).ok_or_else(|| {
            refuse(
                "there is no such program in PATH".to_owned(),
                format!("give the path of an interpreter, {unset}"),
            )
        })?,
        None => std::path::absolute(value)
            .map_err(|source| SetupError::io("find", Path::new(value), source))?,
    };
    if path.is_dir() {
        let inside = path.join("bin/python");
        let hint = if interpreter::is_executable(&inside) {
            format!("set it to {}", inside.display())
        } else {
            format!("give the path of an interpreter, {unset}")
        };
        return Err(refuse("that is a folder".to_owned(), hint));
    }
    if !interpreter::is_executable(&path) {
        let problem =
            if path.exists() { "that is not executable" } else { "there is no such file" };
        return Err(refuse(
            problem.to_owned(),
            format!("give the path of an interpreter, {unset}"),
        ));
    }
    let found = interpreter::probe(&path, false, true, variables, cancelled)?;
    match judge(found) {
        Ok((probe, torch)) => Ok((executable(&probe, path), torch)),
        Err(Problem::NoTorch) => {
            let install = format!("`{} -m pip install torch=={TORCH_VERSION}`", path.display());
            Err(refuse("that Python has no torch".to_owned(), format!("run {install}, {unset}")))
        }
        Err(Problem::Unfit(unfit)) => Err(refuse(
            format!("but it {unfit}"),
            format!("give a CPython of version 3.11 or newer that has torch, {unset}"),
        )),
    }
}

/// The interpreter itself if a wrapper was run: workers are started often and need its path.
fn executable(probe: &Probe, run: PathBuf) -> PathBuf {
    let own = &probe.executable;
    if own.is_absolute() && interpreter::is_executable(own) { own.clone() } else { run }
}

fn taken(python: PathBuf, torch_version: String, kind: Kind) -> Selection {
    let mut notes = Vec::new();
    if public_version(&torch_version) != TORCH_VERSION {
        let place = python.display();
        notes.push(format!(
            "torch {torch_version} of {place} ({}) is used; titan-tpu is made for torch {TORCH_VERSION}",
            kind.why()
        ));
    }
    let env = Some(PythonEnv::new(python, kind, torch_version, None));
    Selection { env, notes, without_torch: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_torch_is_used_with_a_warning() {
        let notes = |version: &str| taken("/p".into(), version.to_owned(), Kind::Variable).notes;
        assert!(notes(TORCH_VERSION).is_empty());
        assert!(notes(&format!("{TORCH_VERSION}+cpu")).is_empty());
        let expected = format!(
            "torch 2.9.1 of /p (TITAN_PYTHON) is used; titan-tpu is made for torch {TORCH_VERSION}"
        );
        assert_eq!(notes("2.9.1"), [expected]);
    }
}
