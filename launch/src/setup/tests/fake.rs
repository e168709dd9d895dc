//! A cache, a `PATH` with a fake Python in it, and nothing else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::super::{Context, PythonEnv, SetupError, Variables, prepare};
use super::Recorder;

const SCRIPT: &str = include_str!("fake.sh");

/// A machine for one test.
pub(super) struct Machine {
    folder: TempDir,
    variables: Vec<(String, String)>,
    pub(super) recorder: Recorder,
    pub(super) cancelled: AtomicBool,
}

impl Machine {
    /// With a fake `python3` that works.
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let machine = Self {
            folder,
            variables: Vec::new(),
            recorder: Recorder::default(),
            cancelled: false.into(),
        };
        machine.add_python("bin/python3");
        let path = format!("{}:/usr/bin:/bin", machine.path("bin").display());
        let journal = machine.path("journal").display().to_string();
        let cache = machine.path("cache").display().to_string();
        machine
            .with("PATH", &path)
            .with("TITAN_CACHE_DIR", &cache)
            .with("TITAN_TORCH_INDEX", "plain")
            .with("FAKE_JOURNAL", &journal)
            .with("FAKE_FREE_BYTES", "1000000000000")
    }

    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        self.set(name, value);
        self
    }

    /// An empty value counts as not set.
    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    pub(super) fn path(&self, relative: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(relative)
    }

    pub(super) fn variables(&self) -> Variables {
        self.pairs().into_iter().collect()
    }

    pub(super) fn pairs(&self) -> Vec<(String, String)> {
        self.variables.clone()
    }

    /// A fake interpreter at a place of its own.
    pub(super) fn add_python(&self, relative: &str) -> PathBuf {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write_script(&path, SCRIPT);
        path
    }

    pub(super) fn prepare(&self) -> Result<PythonEnv, SetupError> {
        self.prepare_with(false)
    }

    pub(super) fn prepare_with(&self, rebuild: bool) -> Result<PythonEnv, SetupError> {
        let variables = self.variables();
        let context =
            Context { variables: &variables, progress: &self.recorder, cancelled: &self.cancelled };
        prepare(&context, rebuild)
    }

    /// What lies in the folder of the environments, random parts replaced, once the removal of trash is over.
    pub(super) fn store(&self) -> Vec<String> {
        let start = Instant::now();
        loop {
            let names = names(&self.path("cache/venvs"));
            if names.iter().all(|name| name != "TRASH") || start.elapsed() > Duration::from_secs(10)
            {
                return names;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// With nothing else in `PATH` than the fake and the programs that it needs itself.
    pub(super) fn alone(self) -> Self {
        let tools = self.path("tools");
        fs::create_dir(&tools).unwrap();
        for tool in ["readlink", "dirname", "mkdir", "ln", "touch", "env", "grep", "sleep"] {
            let found = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(tool));
            let found = found.iter().find(|path| path.exists()).unwrap();
            std::os::unix::fs::symlink(found, tools.join(tool)).unwrap();
        }
        let path = format!("{}:{}", self.path("bin").display(), tools.display());
        self.with("PATH", &path)
    }

    /// The calls of pip so far, and its variables.
    pub(super) fn journal(&self) -> String {
        fs::read_to_string(self.path("journal")).unwrap_or_default()
    }
}

/// Another process writes the file: if this one had it open for writing while a test in another thread starts a
/// program, that program would inherit it, and Linux refuses to run a file that someone may write to.
pub(super) fn write_script(path: &Path, text: &str) {
    let template = path.with_extension("template");
    fs::write(&template, text).unwrap();
    let status = Command::new("install").args(["-m", "755"]).arg(&template).arg(path).status();
    assert!(status.unwrap().success());
    fs::remove_file(template).unwrap();
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            match name.split_once(['-', '.']) {
                Some(("trash", _)) => "TRASH".to_owned(),
                Some((_, "lock")) => "KEY.lock".to_owned(),
                Some((_, "failed.log")) => "KEY.failed.log".to_owned(),
                Some(_) => "KEY-RANDOM".to_owned(),
                None => "KEY".to_owned(),
            }
        })
        .collect();
    names.sort();
    names
}
