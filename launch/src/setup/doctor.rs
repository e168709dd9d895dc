//! Says what this machine has and lacks for titan-tpu. Installs nothing, and imports torch only if asked to.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::child::{Ended, capture};
use super::engine::{self, Embedded};
use super::index::Choice;
use super::interpreter::{self, task};
use super::requirements::{TORCH_VERSION, Variant};
use super::store::{Health, Store};
use super::{PythonEnv, SetupError, Variables, compiler, disk, select, store};
use crate::words;

/// What to look at.
pub(crate) struct Request<'a> {
    /// The environment variables of the user.
    pub(crate) variables: &'a Variables,
    /// The embedded engine.
    pub(crate) files: &'a [Embedded<'a>],
    /// Where runs are written by default.
    pub(crate) working_dir: &'a Path,
    /// Import torch and say how long it takes.
    pub(crate) deep: bool,
    /// Set by the caller to stop.
    pub(crate) cancelled: &'a AtomicBool,
}

/// How a thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// As it should be.
    Ok,
    /// Works, but not well or not for everything.
    Warn,
    /// Training cannot start before it is mended.
    Missing,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Check {
    /// A short stable name.
    pub(crate) name: &'static str,
    /// How it is.
    pub(crate) state: State,
    /// What was found.
    pub(crate) detail: String,
    /// What mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fix: Option<String>,
}

/// All that was found.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DoctorReport {
    /// The version of titan-tpu.
    pub(crate) version: &'static str,
    /// The worst of all checks.
    pub(crate) state: State,
    /// In the order in which to print them.
    pub(crate) checks: Vec<Check>,
}

impl Check {
    fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, state: State::Ok, detail: detail.into(), fix: None }
    }

    fn bad(
        name: &'static str,
        state: State,
        detail: impl Into<String>,
        fix: Option<String>,
    ) -> Self {
        Self { name, state, detail: detail.into(), fix }
    }

    fn failed(name: &'static str, error: &SetupError) -> Self {
        Self::bad(name, State::Missing, error.to_string(), error.hint())
    }
}

/// Looks at everything. Only cancelling makes it fail; whatever else goes wrong is a line of the report.
pub(crate) fn doctor(request: &Request<'_>) -> Result<DoctorReport, SetupError> {
    let mut checks = vec![
        Check::ok("titan-tpu", env!("CARGO_PKG_VERSION")),
        system(),
        memory(),
        shared_memory(),
        open_files(),
        compiler(request.variables),
        space("working folder", request.working_dir, 1_000_000_000),
    ];
    let env = python(request, &mut checks)?;
    match request.variables.cache_dir() {
        Ok(cache) => checks.push(extracted(request.files, &cache)),
        Err(error) => checks.push(Check::failed("cache", &error)),
    }
    if let Some(env) = env.filter(|_| request.deep) {
        checks.push(import(request, &env)?);
    }
    let state = checks.iter().map(|check| check.state).max().unwrap_or(State::Ok);
    Ok(DoctorReport { version: env!("CARGO_PKG_VERSION"), state, checks })
}

fn system() -> Check {
    let kernel = rustix::system::uname();
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let detail = format!(
        "{}, {} {}, {}, {cores} {}",
        name.unwrap_or("Linux").trim_matches('"'),
        kernel.sysname().to_string_lossy(),
        kernel.release().to_string_lossy(),
        std::env::consts::ARCH,
        if cores == 1 { "core" } else { "cores" },
    );
    match std::env::consts::ARCH {
        "x86_64" | "aarch64" => Check::ok("system", detail),
        _ => {
            let fix = "use an x86-64 or aarch64 machine: torch has no wheels for others".to_owned();
            Check::bad("system", State::Missing, detail, Some(fix))
        }
    }
}

fn memory() -> Check {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let (Some(total), Some(available)) =
        (meminfo(&text, "MemTotal:"), meminfo(&text, "MemAvailable:"))
    else {
        return Check::bad("memory", State::Warn, "cannot be read from /proc/meminfo", None);
    };
    let limit = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let limit =
        limit.and_then(|text| text.trim().parse::<u64>().ok()).filter(|limit| *limit < total);
    let mut detail = format!("{} available of {}", words::bytes(available), words::bytes(total));
    if let Some(limit) = limit {
        detail += &format!(", limited to {} for this container", words::bytes(limit));
    }
    if limit.unwrap_or(available).min(available) < 4_000_000_000 {
        let fix = "end other programs or use a larger machine: a worker needs 1 to 4 GB".to_owned();
        return Check::bad("memory", State::Warn, detail, Some(fix));
    }
    Check::ok("memory", detail)
}

/// A value of `/proc/meminfo` in bytes.
fn meminfo(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

fn shared_memory() -> Check {
    let check = space("shared memory", Path::new("/dev/shm"), 1_000_000_000);
    match check.state {
        State::Ok => check,
        _ => {
            let fix = "in a container: start it with --shm-size=8g or more (Kubernetes: an emptyDir with medium Memory)";
            Check { fix: Some(fix.to_owned()), ..check }
        }
    }
}

fn open_files() -> Check {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let detail = limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string());
    match limit {
        Some(low) if low < 4096 => {
            Check::bad("open files", State::Warn, detail, Some("ulimit -n 65536".to_owned()))
        }
        _ => Check::ok("open files", detail),
    }
}

/// Most runs need none, so a machine without one is no obstacle.
fn compiler(variables: &Variables) -> Check {
    const NAME: &str = "C++ compiler";
    match compiler::find(variables) {
        Ok(found) => Check::ok(NAME, found.path.display().to_string()),
        Err(missing) => {
            let detail = format!("{missing}; only needed for [compile]");
            Check::bad(NAME, State::Warn, detail, Some(compiler::REMEDY.to_owned()))
        }
    }
}

fn space(name: &'static str, path: &Path, wanted: u64) -> Check {
    match disk::free_bytes(path) {
        Ok(free) => {
            let detail = format!("{}, {} free", path.display(), words::bytes(free));
            if free >= wanted {
                return Check::ok(name, detail);
            }
            let fix = format!("free some space: {} should be free", words::bytes(wanted));
            Check::bad(name, State::Warn, detail, Some(fix))
        }
        Err(error) => Check::bad(
            name,
            State::Warn,
            format!("{} cannot be read: {error}", path.display()),
            None,
        ),
    }
}

/// The Python that `train` would use, how it was found, and the state of titan-tpu's own environment.
fn python(request: &Request<'_>, checks: &mut Vec<Check>) -> Result<Option<PythonEnv>, SetupError> {
    let selection = match select::brought_by_user(request.variables, request.cancelled) {
        Ok(selection) => selection,
        Err(error @ SetupError::Cancelled { .. }) => return Err(error),
        Err(error) => {
            checks.push(Check::failed("python", &error));
            return Ok(None);
        }
    };
    if let Some(env) = selection.env {
        checks.push(Check::ok("python", format!("{} ({})", env.python.display(), env.kind.why())));
        checks.push(match selection.notes.is_empty() {
            true => Check::ok("torch", env.torch_version.clone()),
            false => {
                let fix = format!("{} -m pip install torch=={TORCH_VERSION}", env.python.display());
                Check::bad("torch", State::Warn, selection.notes.join("; "), Some(fix))
            }
        });
        return Ok(Some(env));
    }
    for note in selection.notes {
        checks.push(Check::bad("active environment", State::Warn, note, None));
    }
    if let Some(folder) = selection.without_torch {
        let detail = format!("{} is not used, it has no torch", folder.display());
        checks.push(Check::ok("active environment", detail));
    }
    managed(request, checks)
}

fn managed(
    request: &Request<'_>,
    checks: &mut Vec<Check>,
) -> Result<Option<PythonEnv>, SetupError> {
    let choice = match Choice::from_variables(request.variables) {
        Ok(choice) => choice,
        Err(error) => {
            checks.push(Check::failed("package index", &error));
            return Ok(None);
        }
    };
    let Ok(cache) = request.variables.cache_dir() else {
        return Ok(None);
    };
    let store = Store::in_cache(&cache);
    let best = store.find(&choice.acceptable()).into_iter().next();
    checks.extend(leftovers(&store, &choice));
    let sound = best.as_ref().filter(|found| !matches!(found.health, Health::Damaged { .. }));
    if let Some((found, env)) = sound.and_then(|found| Some((found, super::ours(found)?))) {
        checks.push(Check::ok("python", format!("{} ({})", env.python.display(), env.kind.why())));
        checks.push(Check::ok("torch", env.torch_version.clone()));
        let size = words::bytes(found.marker.bytes);
        let detail = format!(
            "ready: {}, {size}, made in {:.0} s",
            found.marker.variant, found.marker.seconds
        );
        checks.push(Check::ok("environment", detail));
        checks.push(space("cache", &cache, 1_000_000_000));
        return Ok(Some(env));
    }
    let (base, rejected) = interpreter::find_base(request.variables, request.cancelled)?;
    match base {
        Some(base) => {
            let found =
                format!("{} {} (first suitable in PATH)", base.base.display(), base.version_text());
            checks.push(Check::ok("python", found));
        }
        None => checks.push(Check::failed("python", &SetupError::NoInterpreter { rejected })),
    }
    let detail = match best.as_ref().map(|found| &found.health) {
        Some(Health::Damaged { why }) => format!("damaged: {why}"),
        _ => "not there yet".to_owned(),
    };
    // The first run makes it too, so this is no obstacle.
    let fix = "titan-tpu setup (or just start a run, which does the same)".to_owned();
    checks.push(Check::bad("environment", State::Warn, detail, Some(fix)));
    let needed = match choice {
        Choice::Fixed(variant) => variant.sizes().needed(),
        Choice::Auto => Variant::Plain.sizes().needed(),
    };
    checks.push(writable_space(&cache, needed));
    Ok(None)
}

fn writable_space(cache: &Path, needed: u64) -> Check {
    let existing = cache.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    if rustix::fs::access(existing, rustix::fs::Access::WRITE_OK).is_err() {
        let detail = format!("{} cannot be written to", cache.display());
        let fix = "set TITAN_CACHE_DIR to a folder you can write to".to_owned();
        return Check::bad("cache", State::Missing, detail, Some(fix));
    }
    space("cache", cache, needed)
}

/// Environments of other versions of titan-tpu and damaged ones, which are never removed unasked.
fn leftovers(store: &Store, choice: &Choice) -> Option<Check> {
    let used = store.find(&choice.acceptable()).into_iter().next().map(|found| found.folder);
    let other: Vec<_> =
        store.all().into_iter().filter(|found| Some(&found.folder) != used.as_ref()).collect();
    if other.is_empty() {
        return None;
    }
    let bytes: u64 = other.iter().map(|found| found.marker.bytes).sum();
    let detail = format!("{} of no use to this version, {}", other.len(), words::bytes(bytes));
    let idle: Vec<_> = other.iter().filter(|found| store::claim(&found.folder).is_some()).collect();
    let folders: Vec<_> = idle.iter().map(|found| found.folder.display().to_string()).collect();
    let fix = (!folders.is_empty()).then(|| format!("rm -r {}", folders.join(" ")));
    Some(Check { name: "other environments", state: State::Ok, detail, fix })
}

fn extracted(files: &[Embedded<'_>], cache: &Path) -> Check {
    let folder = engine::folder(files, cache);
    let detail = match (folder.exists(), engine::is_sound(&folder, files)) {
        (_, true) => format!("{}, {} files", folder.display(), files.len()),
        (true, false) => "damaged, the next run writes it again".to_owned(),
        (false, false) => "not written yet, the next run does it".to_owned(),
    };
    Check::ok("engine", detail)
}

fn import(request: &Request<'_>, env: &PythonEnv) -> Result<Check, SetupError> {
    let mut command = Command::new(&env.python);
    let arguments = task("check", &[]);
    command.env_clear();
    if env.isolated {
        command.args(arguments).envs(request.variables.for_isolated(None));
    } else {
        command.args(arguments.iter().filter(|argument| *argument != OsStr::new("-I")));
        command.envs(request.variables.unchanged()).env("TORCH_DEVICE_BACKEND_AUTOLOAD", "0");
    }
    let start = Instant::now();
    let captured = capture(&mut command, Duration::from_secs(600), request.cancelled)
        .map_err(|source| SetupError::io("run", &env.python, source))?;
    Ok(match captured.ended {
        Ended::Cancelled => {
            return Err(SetupError::Cancelled { step: "importing torch".to_owned() });
        }
        Ended::Exited(status) if status.success() => {
            let seconds = start.elapsed().as_secs_f64();
            Check::ok("import torch", format!("works, {seconds:.1} s"))
        }
        _ => {
            let line = captured.stderr.lines().rev().find(|line| !line.trim().is_empty());
            let detail = format!("fails: {}", line.unwrap_or("no reason given"));
            let fix = match env.isolated {
                true => "titan-tpu setup --rebuild".to_owned(),
                false => {
                    format!("mend torch in {}, or unset what selects it", env.python.display())
                }
            };
            Check::bad("import torch", State::Missing, detail, Some(fix))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes() {
        let text = "MemTotal:       24049552 kB\nMemAvailable:   23000000 kB\n";
        assert_eq!(meminfo(text, "MemTotal:"), Some(24_049_552 * 1024));
        assert_eq!(meminfo(text, "MemFree:"), None);
    }

    #[test]
    fn states_are_ordered_from_good_to_bad() {
        assert!(State::Ok < State::Warn && State::Warn < State::Missing);
        assert_eq!(serde_json::to_string(&State::Missing).unwrap(), "\"missing\"");
    }
}
