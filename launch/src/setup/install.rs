//! Building the environment: the steps of one attempt.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::attempt::{Attempt, Lock};
use super::child::{self, Ended, Running};
use super::disk::{self, Removal};
use super::error::{Cause, SetupError, Space, StepFailure, TORCH_STEP};
use super::interpreter::{Probe, task};
use super::pip::{self, Follower};
use super::requirements::Variant;
use super::store::{Base, Marker, Store};
use super::{Context, step_limits as limits};
use crate::words;

/// How many lines of a log an error quotes.
const QUOTED: usize = 6;

/// Builds and publishes the environment of a variant, and returns its folder. The lock is that of its key.
pub(super) fn build(
    context: &Context<'_>,
    store: &Store,
    lock: &Lock,
    base: &Probe,
    variant: &Variant,
    removal: &Removal,
) -> Result<PathBuf, SetupError> {
    let start = Instant::now();
    let keeps_wheels = check_space(context, store, variant, removal)?;
    let attempt = Attempt::begin(store, lock)?;
    let work = Work { context, base, variant, attempt: &attempt, keeps_wheels };
    let result = work.run();
    let mut marker = match result {
        Ok(marker) => marker,
        Err(SetupError::Step(mut failure)) => {
            failure.log = attempt.keep_log();
            return Err(SetupError::Step(failure));
        }
        Err(error) => return Err(error),
    };
    context.progress.phase("writing to disk");
    marker.bytes = disk::bytes_below(&attempt.folder);
    marker.seconds = (start.elapsed().as_secs_f64() * 10.0).round() / 10.0;
    let folder = attempt.publish(&marker)?;
    context.progress.note(&format!(
        "the Python environment is ready: torch {}, {} in {:.0} s, {}",
        marker.torch_version,
        words::bytes(marker.bytes),
        marker.seconds,
        folder.display()
    ));
    Ok(folder)
}

/// Refuses to start what cannot end, once the remains of earlier attempts are gone. Returns whether pip may also keep
/// the wheels in its own cache, which makes a second attempt cheap but takes space that the installation may need.
fn check_space(
    context: &Context<'_>,
    store: &Store,
    variant: &Variant,
    removal: &Removal,
) -> Result<bool, SetupError> {
    let fail = |source| SetupError::io("ask for the free space of", &store.root, source);
    let sizes = variant.sizes();
    let needed = sizes.needed();
    if !removal.is_finished() && free_bytes(context, &store.root).map_err(fail)? < needed {
        context.progress.phase("removing unfinished environments");
    }
    loop {
        // In this order, so that the last look comes after the end of the removal.
        let finished = removal.is_finished();
        let free = free_bytes(context, &store.root).map_err(fail)?;
        if free >= needed {
            break;
        }
        if finished {
            let space = Space::Short { needed, free };
            return Err(SetupError::NoSpace { path: store.root.clone(), space });
        }
        if context.cancelled.load(Ordering::Relaxed) {
            return Err(SetupError::Cancelled { step: "waiting for free space".to_owned() });
        }
        removal.wait(Duration::from_millis(200));
    }
    let Some(cache) = context.variables.pip_cache() else {
        return Ok(false);
    };
    let wanted =
        if disk::same_file_system(&cache, &store.root) { needed } else { 0 } + sizes.download;
    Ok(free_bytes(context, &cache).is_ok_and(|free| free >= wanted))
}

#[cfg(not(test))]
fn free_bytes(_: &Context<'_>, path: &Path) -> io::Result<u64> {
    disk::free_bytes(path)
}

/// Tests say how large their disk is.
#[cfg(test)]
fn free_bytes(context: &Context<'_>, path: &Path) -> io::Result<u64> {
    let chosen = context.variables.text("FAKE_FREE_BYTES").and_then(|text| text.parse().ok());
    chosen.map_or_else(|| disk::free_bytes(path), Ok)
}

struct Work<'a> {
    context: &'a Context<'a>,
    base: &'a Probe,
    variant: &'a Variant,
    attempt: &'a Attempt<'a>,
    keeps_wheels: bool,
}

/// What the check of the finished environment answers.
#[derive(Deserialize)]
struct Checked {
    torch: String,
}

impl Work<'_> {
    fn run(&self) -> Result<Marker, SetupError> {
        let progress = self.context.progress;
        progress.phase("creating the Python environment");
        progress.update(&format!("with {}", self.base.base.display()), None);
        // pip is put in by the next step, which leaves no process behind if it is interrupted.
        let mut venv: Vec<OsString> =
            ["-I", "-m", "venv", "--without-pip"].map(OsString::from).into();
        venv.push(self.attempt.folder.clone().into());
        let name = "creating the Python environment";
        self.step(name, vec![self.command(&self.base.base, &venv)], limits::VENV, &mut || {})?;
        let pip = self.command(&self.python(), &task("ensurepip", &[]));
        self.step("installing pip", vec![pip], limits::VENV, &mut || {})?;

        self.install()?;

        progress.phase("compiling packages");
        let parts = std::thread::available_parallelism().map_or(1, usize::from).min(16);
        let compilers = (0..parts).map(|part| {
            let arguments =
                [self.site_packages().into(), part.to_string().into(), parts.to_string().into()];
            self.command(&self.python(), &task("compile", &arguments))
        });
        self.step("compiling packages", compilers.collect(), limits::COMPILE, &mut || {})?;

        progress.phase("checking that torch works");
        let check = self.command(&self.python(), &task("check", &[]));
        let output = self.step("importing torch", vec![check], limits::CHECK, &mut || {})?;
        let answer =
            output.lines().rev().find_map(|line| serde_json::from_str::<Checked>(line).ok());
        let answer = answer.ok_or_else(|| {
            let ending = "the check gave no answer".to_owned();
            self.failure("importing torch", ending, Cause::Unknown, &output)
        })?;
        self.marker(answer.torch)
    }

    /// Runs pip once, or twice where torch comes from an index of its own: naming both indexes in one run would let
    /// the other packages come from either.
    fn install(&self) -> Result<(), SetupError> {
        let packages = self.variant.packages();
        self.context.progress.phase("downloading packages");
        let log = self.attempt.log();
        let fail = |source| SetupError::io("read", &log, source);
        let mut reader = File::open(&log).map_err(fail)?;
        // What is there already comes from the steps before.
        reader.seek(SeekFrom::End(0)).map_err(fail)?;
        let mut follower = Follower::new(
            self.context.progress,
            reader,
            self.attempt.temporary(),
            self.site_packages(),
            self.variant.sizes(),
            packages.len(),
        );
        let pinned = |package: &super::requirements::Pinned| {
            format!("{}=={}", package.name, package.version)
        };
        let (torch, others): (Vec<_>, Vec<_>) = packages
            .iter()
            .partition(|package| self.variant.torch_index().is_some() && package.name == "torch");
        if let Some(index) = self.variant.torch_index() {
            let requirements: Vec<_> = torch.into_iter().map(pinned).collect();
            let mut command = self.pip(&requirements);
            // Not an argument: other users see those, and the URL may hold a password.
            command.env("PIP_INDEX_URL", index);
            if *self.variant == Variant::Cpu {
                // An index that takes connections and is then silent is given up soon: there is another way.
                command.env("PIP_RETRIES", "2").env("PIP_TIMEOUT", "20");
            }
            self.step(TORCH_STEP, vec![command], limits::PIP, &mut || follower.tick())?;
            follower.next_run();
        }
        let requirements: Vec<_> = others.into_iter().map(pinned).collect();
        let command = self.pip(&requirements);
        self.step("installing packages", vec![command], limits::PIP, &mut || follower.tick())?;
        Ok(())
    }

    fn pip(&self, requirements: &[String]) -> Command {
        let mut command = self.command(&self.python(), &pip::arguments(requirements));
        if !self.keeps_wheels {
            command.env("PIP_NO_CACHE_DIR", "1");
        }
        command
    }

    fn python(&self) -> PathBuf {
        self.attempt.folder.join("bin/python")
    }

    fn site_packages(&self) -> PathBuf {
        self.attempt.folder.join(self.relative_site_packages())
    }

    fn relative_site_packages(&self) -> String {
        let [major, minor, _] = self.base.version;
        format!("lib/python{major}.{minor}/site-packages")
    }

    fn command(&self, python: &Path, arguments: &[OsString]) -> Command {
        let mut command = Command::new(python);
        let temporary = self.attempt.temporary();
        command.args(arguments).env_clear();
        // The working folder is one where no stray module can be found.
        command.envs(self.context.variables.for_isolated(Some(&temporary))).current_dir(&temporary);
        command
    }

    /// Runs the programs of a step at once and returns what they wrote, which also goes to the log.
    fn step(
        &self,
        name: &str,
        commands: Vec<Command>,
        limit: Duration,
        tick: &mut dyn FnMut(),
    ) -> Result<String, SetupError> {
        let path = self.attempt.log();
        let fail = |source| SetupError::io("write", &path, source);
        let mut log =
            File::options().create(true).append(true).read(true).open(&path).map_err(fail)?;
        let before = log.seek(SeekFrom::End(0)).map_err(fail)?;
        let mut children = Vec::new();
        for mut command in commands {
            command.stdout(Stdio::from(log.try_clone().map_err(fail)?));
            command.stderr(Stdio::from(log.try_clone().map_err(fail)?));
            let program = PathBuf::from(command.get_program());
            let child = Running::spawn(&mut command);
            children.push(child.map_err(|source| SetupError::io("run", &program, source))?);
        }
        let ended = child::wait(children, limit, self.context.cancelled, tick).map_err(fail)?;
        let mut bytes = Vec::new();
        log.seek(SeekFrom::Start(before)).map_err(fail)?;
        log.read_to_end(&mut bytes).map_err(fail)?;
        let output = String::from_utf8_lossy(&bytes).into_owned();
        match ended {
            Ended::Exited(status) if status.success() => Ok(output),
            Ended::Exited(status) => {
                let cause = match status.signal() {
                    Some(9) => Cause::Killed,
                    _ => pip::cause(&output),
                };
                Err(self.failure(name, status.to_string(), cause, &output))
            }
            Ended::TimedOut => {
                let cause = Cause::TooLong { limit };
                Err(self.failure(name, "stopped".to_owned(), cause, &output))
            }
            Ended::Cancelled => Err(SetupError::Cancelled { step: name.to_owned() }),
        }
    }

    fn failure(&self, step: &str, ending: String, cause: Cause, output: &str) -> SetupError {
        if cause == Cause::NoSpace {
            let path = self.attempt.root().to_owned();
            return SetupError::NoSpace { path, space: Space::Exhausted };
        }
        SetupError::Step(Box::new(StepFailure {
            step: step.to_owned(),
            ending,
            cause,
            log: None,
            tail: last_lines(output),
        }))
    }

    fn marker(&self, torch_version: String) -> Result<Marker, SetupError> {
        let base = &self.base.base;
        let fail = |source| SetupError::io("read", base, source);
        let site_packages = self.site_packages();
        let mut contents = names(&site_packages, "");
        contents.push("torch/__init__.py".to_owned());
        contents.extend(names(&site_packages, "torch/lib"));
        Ok(Marker {
            torch_version,
            site_packages: self.relative_site_packages(),
            contents,
            ..Marker::new(self.variant, Base::of(base).map_err(fail)?, self.base.version_text())
        })
    }
}

/// The names in a folder below `root`, relative to `root`, sorted.
fn names(root: &Path, folder: &str) -> Vec<String> {
    let entries = fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name != "__pycache__")
        .map(|name| if folder.is_empty() { name } else { format!("{folder}/{name}") })
        .collect();
    names.sort();
    names
}

/// The last lines that say something, shortened to what a terminal shows.
fn last_lines(output: &str) -> Vec<String> {
    let lines: Vec<_> = output.lines().filter(|line| !line.trim().is_empty()).collect();
    let first = lines.len().saturating_sub(QUOTED);
    lines.iter().skip(first).map(|line| line.chars().take(300).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_quoted() {
        let output: String = (0..20).map(|n| format!("line {n}\n\n")).collect();
        let lines = last_lines(&output);
        assert_eq!(lines.len(), QUOTED);
        assert_eq!(lines[QUOTED - 1], "line 19");
        assert!(last_lines("").is_empty());
    }
}
