//! The run directory: made once, owned by one launcher at a time.

use std::fs::{self, File, TryLockError};
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::exit::Exit;
use crate::failure::Failure;

const LOCK: &str = "lock";

/// The resolved recipe of the run.
pub(crate) const RECIPE: &str = "recipe.toml";

/// Everything that happened to the run.
pub(crate) const LEDGER: &str = "ledger.jsonl";

/// Who writes to a run directory.
#[derive(Debug, Serialize, Deserialize)]
struct Holder {
    pid: u32,
    host: String,
}

/// A directory that this launcher alone writes to, until it ends.
#[derive(Debug)]
pub(crate) struct RunDir {
    path: PathBuf,
    id: String,
    /// Which start of the run this is, from 1.
    attempt: u64,
    /// Holds the operating system's lock, which ends with this process however it ends.
    lock: File,
    /// Who held the lock before and did not live to let go of it.
    left_behind: Option<Holder>,
}

impl RunDir {
    /// Whether `path` is free for a new run; without creating anything.
    pub(crate) fn is_free(path: &Path) -> Result<bool, Failure> {
        if path.to_string_lossy().contains("://") {
            let what = "a run directory is a folder of this machine, not an address";
            return Err(Failure::new(Exit::Usage, what));
        }
        if path.to_str().is_none() {
            let what = format!("the run directory {} is no UTF-8", path.display());
            return Err(Failure::new(Exit::Usage, what).help("choose a name in UTF-8"));
        }
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(true),
            Err(error) => {
                return Err(Failure::io(
                    Exit::Usage,
                    format!("cannot use the run directory {}", path.display()),
                    &error,
                ));
            }
        };
        let mut occupied = false;
        for entry in entries.flatten() {
            if entry.file_name() == LOCK {
                let file = File::open(entry.path()).map_err(|e| unusable(path, &e))?;
                if matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
                    return Err(held(path, file));
                }
            } else {
                occupied = true;
            }
        }
        Ok(!occupied)
    }

    /// The recipe of the run that `path` belongs to, if it belongs to one.
    pub(crate) fn recipe(path: &Path) -> Option<PathBuf> {
        Some(path.join(RECIPE)).filter(|path| path.is_file())
    }

    /// Opens the directory of an earlier run and takes its lock.
    pub(crate) fn reopen(path: &Path) -> Result<Self, Failure> {
        let Some(history) = History::read(path) else { return Err(occupied(path)) };
        let mut run = Self::lock(path, history.id)?;
        run.attempt = history.attempts + 1;
        Ok(run)
    }

    /// Creates the directory and takes its lock. Without a path it is `runs/NAME-TIME-XXXX`.
    pub(crate) fn create(path: Option<&Path>, name: &str) -> Result<Self, Failure> {
        match path {
            Some(path) => {
                if !Self::is_free(path)? {
                    return Err(occupied(path));
                }
                fs::create_dir_all(path).map_err(|error| unusable(path, &error))?;
                let folder = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
                Self::lock(path, run_id(&folder)?)
            }
            None => {
                let id = run_id(name)?;
                let path = Path::new("runs").join(&id);
                fs::create_dir_all("runs").map_err(|error| unusable(&path, &error))?;
                // Not create_dir_all: if the name is taken after all, two runs must not share it.
                fs::create_dir(&path).map_err(|error| unusable(&path, &error))?;
                Self::lock(&path, id)
            }
        }
    }

    fn lock(path: &Path, id: String) -> Result<Self, Failure> {
        let path = std::path::absolute(path).map_err(|error| unusable(path, &error))?;
        let file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path.join(LOCK));
        let mut file = file.map_err(|error| unusable(&path, &error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(held(&path, file)),
            Err(TryLockError::Error(error)) => return Err(unusable(&path, &error)),
        }
        let mut left_behind = String::new();
        let _ = file.read_to_string(&mut left_behind);
        let left_behind = serde_json::from_str(&left_behind).ok();
        let holder = Holder { pid: std::process::id(), host: host_name() };
        let text = serde_json::to_string(&holder).unwrap_or_default();
        let written = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(text.as_bytes()));
        written.map_err(|error| unusable(&path, &error))?;
        let run = Self { path, id, attempt: 1, lock: file, left_behind };
        for folder in ["logs", "tensorboard"] {
            fs::create_dir_all(run.path.join(folder))
                .map_err(|error| unusable(&run.path, &error))?;
        }
        Ok(run)
    }

    /// Who held the lock before and died, in words.
    pub(crate) fn left_behind(&self) -> Option<String> {
        let Holder { pid, host } = self.left_behind.as_ref()?;
        Some(format!("the lock of process {pid} on {host}, which is gone, is taken over"))
    }

    /// The directory, absolute.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Fails if someone has removed or replaced the directory: everything written from now on would be lost.
    pub(crate) fn check_still_there(&self) -> Result<(), Failure> {
        let inode = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let ours = self.lock.metadata().map(inode).ok();
        if ours.is_some() && ours == fs::metadata(self.path.join(LOCK)).map(inode).ok() {
            return Ok(());
        }
        let text = format!(
            "the run directory {} was removed while the run wrote to it",
            self.path.display()
        );
        Err(Failure::new(Exit::WorkersFailed, text))
    }

    /// Which start of the run this is, from 1.
    pub(crate) fn attempt(&self) -> u64 {
        self.attempt
    }

    /// Notes that all ranks are started once more.
    pub(crate) fn begin_attempt(&mut self, attempt: u64) {
        self.attempt = attempt;
    }

    /// The id of the run, different from that of every other run.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }
}

impl Drop for RunDir {
    /// A lock that says who had it is one that somebody has left behind.
    fn drop(&mut self) {
        let _ = self.lock.set_len(0);
    }
}

/// What the ledger of an earlier run says about it.
#[derive(Debug)]
pub(crate) struct History {
    /// The id of the run.
    pub(crate) id: String,
    attempts: u64,
}

impl History {
    /// Reads the ledger in a run directory, if there is one.
    pub(crate) fn read(run: &Path) -> Option<Self> {
        #[derive(Deserialize)]
        struct Line {
            run: String,
            attempt: u64,
        }
        let file = File::open(run.join(LEDGER)).ok()?;
        let lines = BufReader::new(file).lines().map_while(Result::ok);
        // The last line may have been cut off by a kill.
        let lines = lines.filter_map(|line| serde_json::from_str::<Line>(&line).ok());
        let last = lines.last()?;
        Some(Self { id: last.run, attempts: last.attempt })
    }
}

/// A hold on a run directory that no launcher writes to: until it is dropped none begins to. `None` if `path` is none.
///
/// # Errors
/// A launcher writes to it.
pub(crate) fn hold_unused(path: &Path) -> Result<Option<File>, Failure> {
    let file = match File::open(path.join(LOCK)) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(path, &error)),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(held(path, file)),
        Err(TryLockError::Error(error)) => Err(unusable(path, &error)),
    }
}

/// A directory that has something in it is not written to.
pub(crate) fn occupied(path: &Path) -> Failure {
    let text = format!("the run directory {} is not empty", path.display());
    Failure::new(Exit::Usage, text)
        .help("choose another --run-dir, or leave it out: then every run has a folder of its own")
}

fn unusable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::io(Exit::Usage, format!("cannot use the run directory {}", path.display()), error)
}

fn held(path: &Path, mut file: File) -> Failure {
    let mut text = String::new();
    let _ = file.read_to_string(&mut text);
    let by = match serde_json::from_str::<Holder>(&text) {
        Ok(holder) => format!("process {} on {}", holder.pid, holder.host),
        Err(_) => "another process".to_owned(),
    };
    Failure::new(Exit::Usage, format!("{} is in use by {by}", path.display()))
        .help("wait for that run to end, or choose another --run-dir")
}

/// The name of this host.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn run_id(name: &str) -> Result<String, Failure> {
    let time = DateTime::<Utc>::from(SystemTime::now()).format("%Y%m%d-%H%M%S");
    Ok(format!("{name}-{time}-{:04x}", random()?))
}

/// Two runs may start in the same second.
fn random() -> Result<u16, Failure> {
    let mut bytes = [0; 2];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Failure::io(Exit::Usage, "cannot make a run id", &error.into()))?;
    Ok(u16::from_ne_bytes(bytes))
}
