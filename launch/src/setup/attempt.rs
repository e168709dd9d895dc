//! Building an environment so that it appears complete or not at all: one builder at a time, each attempt in a folder
//! of its own, published by a link.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::disk::{self, Removal};
use super::error::SetupError;
use super::progress::Progress;
use super::store::{self, Marker, Store};

/// The right to build the environment of one key. The kernel takes it back when this process dies.
pub(super) struct Lock {
    key: String,
    _file: File,
}

/// Waits until no other process builds the environment of this key. By then it may be there: look again.
pub(super) fn lock(
    store: &Store,
    key: &str,
    progress: &dyn Progress,
    cancelled: &AtomicBool,
) -> Result<Lock, SetupError> {
    fs::create_dir_all(&store.root)
        .map_err(|source| SetupError::io("create", &store.root, source))?;
    let path = lock_path(store, key);
    let fail = |source| SetupError::io("lock", &path, source);
    let mut file = open_lock(&path).map_err(fail)?;
    let start = Instant::now();
    let mut told = None;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(fs::TryLockError::Error(error)) => return Err(fail(error)),
            Err(fs::TryLockError::WouldBlock) => {}
        }
        if cancelled.load(Ordering::Relaxed) {
            return Err(SetupError::Cancelled { step: "waiting for another titan-tpu".to_owned() });
        }
        let holder = holder(&mut file);
        if told.as_ref() != Some(&holder) {
            progress
                .note(&format!("{holder} is setting up the Python environment, waiting for it"));
            progress.phase("waiting");
            told = Some(holder.clone());
        }
        progress.update(&format!("for {holder} since {} s", start.elapsed().as_secs()), None);
        std::thread::sleep(Duration::from_millis(250));
    }
    // For the message of those who wait; the lock itself does not depend on it.
    let _ = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
    Ok(Lock { key: key.to_owned(), _file: file })
}

fn open_lock(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).open(path)
}

fn lock_path(store: &Store, key: &str) -> PathBuf {
    store.root.join(format!("{key}.lock"))
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
    let _ = file.rewind();
    match (read, text.trim().parse::<u32>()) {
        (Ok(_), Ok(pid)) => format!("titan-tpu with process number {pid}"),
        _ => "another titan-tpu".to_owned(),
    }
}

/// Removes what no link points to. Folders of another key are left alone while someone builds that key, and so are
/// environments that a running job still uses, although a newer one has replaced them.
pub(super) fn sweep(store: &Store, own: &Lock) -> Removal {
    for entry in fs::read_dir(&store.root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let path = entry.path();
        let name = name.strip_prefix(NEW_LINK).unwrap_or(name);
        let Some(key) = store::key_of_attempt(name) else { continue };
        if store.target(key).is_some_and(|target| target == path) {
            continue;
        }
        let other = (key != own.key).then(|| open_lock(&lock_path(store, key)));
        let free = match &other {
            None => true,
            Some(Ok(file)) => file.try_lock().is_ok(),
            Some(Err(_)) => false,
        };
        // The link may have been made between the first look and the lock.
        if !free || store.target(key).is_some_and(|target| target == path) {
            continue;
        }
        if path.is_symlink() {
            let _ = fs::remove_file(&path);
        } else if let Some(_claim) = store::claim(&path) {
            disk::to_trash(&path);
        }
    }
    Removal::start(disk::trash_in(&store.root))
}

/// Takes the link away from a damaged environment, so that the next [`sweep`] removes it. Only for the key of the lock.
pub(super) fn unpublish(store: &Store, lock: &Lock, folder: &Path) -> bool {
    store.target(&lock.key).is_some_and(|target| target == folder)
        && fs::remove_file(store.root.join(&lock.key)).is_ok()
}

/// The prefix of a link that is about to replace the one of its key.
const NEW_LINK: &str = "new-";

/// How long the end of a failed attempt waits for its removal.
const PATIENCE: Duration = Duration::from_secs(5);

/// A folder in which an environment is being built; dropping it removes the folder.
pub(super) struct Attempt<'a> {
    store: &'a Store,
    lock: &'a Lock,
    pub(super) folder: PathBuf,
    published: bool,
}

impl<'a> Attempt<'a> {
    pub(super) fn begin(store: &'a Store, lock: &'a Lock) -> Result<Self, SetupError> {
        loop {
            let folder = store.root.join(format!("{}-{}", lock.key, disk::random_suffix()));
            match fs::create_dir(&folder) {
                Ok(()) => {
                    let attempt = Self { store, lock, folder, published: false };
                    let temporary = attempt.temporary();
                    fs::create_dir(&temporary)
                        .map_err(|source| SetupError::io("create", &temporary, source))?;
                    return Ok(attempt);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(SetupError::io("create", &folder, source)),
            }
        }
    }

    /// Where the attempt is made; it stays when the attempt is removed.
    pub(super) fn root(&self) -> &Path {
        &self.store.root
    }

    /// For what is only needed while building: on the same file system, counted, and removed with the attempt.
    pub(super) fn temporary(&self) -> PathBuf {
        self.folder.join("tmp")
    }

    /// The output of all programs of the attempt.
    pub(super) fn log(&self) -> PathBuf {
        self.folder.join("setup.log")
    }

    /// Saves the output of a failed attempt from the removal of its folder.
    pub(super) fn keep_log(&self) -> Option<PathBuf> {
        let kept = self.store.root.join(format!("{}.failed.log", self.lock.key));
        fs::rename(self.log(), &kept).ok().map(|()| kept)
    }

    /// Makes the environment the one of its key.
    pub(super) fn publish(mut self, marker: &Marker) -> Result<PathBuf, SetupError> {
        let folder = self.folder.clone();
        let fail = |source| SetupError::io("publish", &folder, source);
        let _ = fs::remove_dir_all(self.temporary());
        store::make_leasable(&folder)?;
        disk::sync_file_system(&folder).map_err(fail)?;
        store::write_marker(&folder, marker)?;
        let name = folder.file_name().unwrap_or_default();
        let link = self.store.root.join(format!("{NEW_LINK}{}", name.display()));
        symlink(name, &link).map_err(fail)?;
        fs::rename(&link, self.store.root.join(&self.lock.key)).map_err(fail)?;
        // From here on others may use it, so it stays even if the next call fails.
        self.published = true;
        disk::sync_folder(&self.store.root).map_err(fail)?;
        let _ = fs::remove_file(self.store.root.join(format!("{}.failed.log", self.lock.key)));
        Ok(folder)
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.published {
            return;
        }
        if let Some(trash) = disk::to_trash(&self.folder) {
            // Whoever pressed Ctrl-C wants the prompt back, so a slow disk is left to the next start.
            Removal::start(vec![trash]).wait(PATIENCE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::requirements::Variant;
    use super::super::store::{Base, Health};
    use super::super::tests::Recorder;
    use super::*;

    const ONE: &str = "0000000000000001";
    const TWO: &str = "0000000000000002";

    fn never() -> AtomicBool {
        AtomicBool::new(false)
    }

    fn names(store: &Store) -> Vec<String> {
        let entries = fs::read_dir(&store.root).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn build(store: &Store, lock: &Lock, cache: &Path) -> PathBuf {
        let base = cache.join("python3");
        fs::write(&base, "").unwrap();
        let attempt = Attempt::begin(store, lock).unwrap();
        fs::create_dir(attempt.folder.join("bin")).unwrap();
        symlink(&base, attempt.folder.join("bin/python")).unwrap();
        let base = Base::of(&base.canonicalize().unwrap()).unwrap();
        attempt.publish(&Marker::new(&Variant::Plain, base, "3.11.2".to_owned())).unwrap()
    }

    #[test]
    fn an_attempt_is_published_or_leaves_nothing() {
        let cache = tempfile::tempdir().unwrap();
        let store = Store::in_cache(cache.path());
        let held = lock(&store, ONE, &Recorder::default(), &never()).unwrap();
        drop(Attempt::begin(&store, &held).unwrap());
        assert_eq!(names(&store), [format!("{ONE}.lock")]);
        let folder = build(&store, &held, cache.path());
        let found = store.find(&[Variant::Plain]);
        assert_eq!((&found[0].folder, &found[0].health), (&folder, &Health::Sound));
        assert!(!folder.join("tmp").exists());
    }

    #[test]
    fn garbage_goes_and_what_is_used_stays() {
        let cache = tempfile::tempdir().unwrap();
        let store = Store::in_cache(cache.path());
        let held = lock(&store, ONE, &Recorder::default(), &never()).unwrap();
        let replaced = build(&store, &held, cache.path());
        let lease = store::lease(&replaced).unwrap().unwrap();
        let current = build(&store, &held, cache.path());
        assert_ne!(replaced, current);

        // What processes that were killed have left, of this key, of a free one and of one being built.
        std::mem::forget(Attempt::begin(&store, &held).unwrap());
        symlink("x", store.root.join(format!("{NEW_LINK}{ONE}-00000000"))).unwrap();
        fs::create_dir(store.root.join("trash-1")).unwrap();
        fs::create_dir(store.root.join(format!("{TWO}-00000000"))).unwrap();
        let busy = "0000000000000003";
        let builder = lock(&store, busy, &Recorder::default(), &never()).unwrap();
        let building = Attempt::begin(&store, &builder).unwrap();
        fs::write(store.root.join("notes.txt"), "of the user").unwrap();

        assert!(sweep(&store, &held).wait(PATIENCE));
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut expected = vec![
            ONE.to_owned(),
            name(&replaced),
            name(&current),
            format!("{ONE}.lock"),
            format!("{TWO}.lock"),
            name(&building.folder),
            format!("{busy}.lock"),
            "notes.txt".to_owned(),
        ];
        expected.sort();
        assert_eq!(names(&store), expected);

        drop(lease);
        assert!(sweep(&store, &held).wait(PATIENCE));
        assert!(!replaced.exists() && current.exists());
    }

    #[test]
    fn who_waits_is_told_for_whom_and_can_give_up() {
        let cache = tempfile::tempdir().unwrap();
        let store = Store::in_cache(cache.path());
        let _held = lock(&store, ONE, &Recorder::default(), &never()).unwrap();
        let recorder = Recorder::default();
        let cancelled = never();
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                cancelled.store(true, Ordering::Relaxed);
            });
            lock(&store, ONE, &recorder, &cancelled).err().unwrap()
        });
        assert!(matches!(error, SetupError::Cancelled { .. }));
        let pid = std::process::id();
        let note = format!(
            "titan-tpu with process number {pid} is setting up the Python environment, waiting for it"
        );
        assert_eq!(recorder.notes(), [note]);
    }
}
