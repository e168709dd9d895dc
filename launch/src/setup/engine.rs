//! Writing the embedded engine to the cache, where Python can import it.
//!
//! The folder is named by the hash of all that it holds, so two builds of titan-tpu never disturb each other.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use xxhash_rust::xxh3::Xxh3;

use super::disk;
use super::error::SetupError;
use super::store::{self, Lease};

/// One embedded file: its path below the engine's folder, and its contents.
pub(crate) type Embedded<'a> = (&'a str, &'a [u8]);

/// Up to this many bytes every start compares the contents, which takes a few milliseconds. Above, it compares sizes.
const COMPARED: usize = 20_000_000;
/// How long an engine of another build is kept although no process uses it.
const KEPT: Duration = Duration::from_secs(24 * 3600);
const STAGED: &str = "new-";

/// The engine on disk. It is not removed while this value or a clone is alive: keep it as long as workers run.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    /// The folder to import from.
    pub(crate) folder: PathBuf,
    _lease: Option<Lease>,
}

/// Makes sure that the embedded files lie in the cache, as they are in the binary.
pub(crate) fn extract(files: &[Embedded<'_>], cache: &Path) -> Result<Engine, SetupError> {
    let root = cache.join("engine");
    let folder = root.join(identity(files));
    if let Some(engine) = sound(&folder, files) {
        return Ok(engine);
    }
    fs::create_dir_all(&root).map_err(|source| SetupError::io("create", &root, source))?;
    // Two processes must not repair the same folder: the second would remove what the first already uses. Where the
    // file system cannot lock, that is risked.
    let lock = root.join("lock");
    let lock = fs::File::create(&lock).map_err(|source| SetupError::io("create", &lock, source))?;
    let _ = lock.lock();
    if let Some(engine) = sound(&folder, files) {
        return Ok(engine);
    }
    replace(&root, &folder, files)?;
    sweep(&root, &folder);
    sound(&folder, files).ok_or_else(|| {
        let changed = io::Error::other("another program changes it");
        SetupError::io("write", &folder, changed)
    })
}

/// The engine in a folder, if it is whole.
fn sound(folder: &Path, files: &[Embedded<'_>]) -> Option<Engine> {
    // The lease comes before the look, so that a sound folder cannot be removed after it.
    let lease = store::lease(folder).ok()?;
    is_sound(folder, files).then(|| Engine { folder: folder.to_owned(), _lease: lease })
}

/// Where the engine is or will be.
pub(super) fn folder(files: &[Embedded<'_>], cache: &Path) -> PathBuf {
    cache.join("engine").join(identity(files))
}

/// Depends on the names and contents of all files, not on their order.
fn identity(files: &[Embedded<'_>]) -> String {
    let mut sorted: Vec<_> = files.iter().collect();
    sorted.sort();
    let mut hash = Xxh3::new();
    for (path, contents) in sorted {
        hash.update(&(path.len() as u64).to_le_bytes());
        hash.update(path.as_bytes());
        hash.update(&(contents.len() as u64).to_le_bytes());
        hash.update(contents);
    }
    format!("{:032x}", hash.digest128())
}

/// Whether the folder holds every file as it should be. Files that Python adds do not matter.
pub(super) fn is_sound(folder: &Path, files: &[Embedded<'_>]) -> bool {
    let total: usize = files.iter().map(|(_, contents)| contents.len()).sum();
    let mut buffer = vec![0; 256 * 1024];
    files.iter().all(|(path, contents)| {
        let path = folder.join(path);
        let size =
            fs::symlink_metadata(&path).ok().filter(fs::Metadata::is_file).map(|found| found.len());
        size == Some(contents.len() as u64)
            && (total > COMPARED || holds(&path, contents, &mut buffer).unwrap_or(false))
    })
}

/// Compares a file with its contents piece by piece: a small buffer that is used again is several times faster than
/// memory for the whole file.
fn holds(path: &Path, contents: &[u8], buffer: &mut [u8]) -> io::Result<bool> {
    let mut file = fs::File::open(path)?;
    for expected in contents.chunks(buffer.len()) {
        let found = &mut buffer[..expected.len()];
        file.read_exact(found)?;
        if found != expected {
            return Ok(false);
        }
    }
    Ok(true)
}

fn replace(root: &Path, folder: &Path, files: &[Embedded<'_>]) -> Result<(), SetupError> {
    let staged = root.join(format!("{STAGED}{}", disk::random_suffix()));
    let result = write(&staged, files).and_then(|()| {
        if folder.exists() {
            disk::discard(folder);
        }
        fs::rename(&staged, folder)
            .and_then(|()| disk::sync_folder(root))
            .map_err(|source| SetupError::io("write", folder, source))
    });
    if result.is_err() {
        disk::discard(&staged);
    }
    result
}

fn write(staged: &Path, files: &[Embedded<'_>]) -> Result<(), SetupError> {
    for (path, contents) in files {
        let plain = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
        let target = staged.join(path);
        if !plain {
            let error = io::Error::other("an embedded path must stay below the folder");
            return Err(SetupError::io("write", &target, error));
        }
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)
                .map_err(|source| SetupError::io("create", parent, source))?;
        }
        fs::write(&target, contents).map_err(|source| SetupError::io("write", &target, source))?;
    }
    store::make_leasable(staged)?;
    disk::sync_file_system(staged).map_err(|source| SetupError::io("write", staged, source))
}

/// Removes what other builds of titan-tpu have left and nobody uses. Only done when a new engine is written, and only
/// to folders that have not changed for a day: others may be about to be used.
fn sweep(root: &Path, current: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let path = entry.path();
        let age =
            entry.metadata().and_then(|metadata| metadata.modified()).map(|time| time.elapsed());
        let old = age.is_ok_and(|age| age.is_ok_and(|age| age > KEPT));
        if old
            && path != current
            && path.is_dir()
            && let Some(_claim) = store::claim(&path)
        {
            disk::discard(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [Embedded<'static>; 3] =
        [("titan/__init__.py", b"import x"), ("titan/x.py", b""), ("native.so", &[0, 1, 2])];

    fn engines(cache: &Path) -> usize {
        let entries = fs::read_dir(cache.join("engine")).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().path().is_dir()).count()
    }

    #[test]
    fn the_files_are_written_once() {
        let cache = tempfile::tempdir().unwrap();
        let first = extract(&FILES, cache.path()).unwrap();
        for (path, contents) in FILES {
            assert_eq!(fs::read(first.folder.join(path)).unwrap(), contents);
        }
        let written = || fs::metadata(first.folder.join("native.so")).unwrap().modified().unwrap();
        let before = written();
        fs::write(first.folder.join("titan/x.pyc"), "of Python").unwrap();
        assert_eq!(extract(&FILES, cache.path()).unwrap().folder, first.folder);
        assert_eq!(written(), before);
        assert_eq!(engines(cache.path()), 1);
    }

    #[test]
    fn damage_is_repaired() {
        let cache = tempfile::tempdir().unwrap();
        let folder = extract(&FILES, cache.path()).unwrap().folder;
        let damages: [fn(&Path); 4] = [
            |folder| fs::write(folder.join("titan/__init__.py"), "import y").unwrap(),
            |folder| fs::write(folder.join("native.so"), "").unwrap(),
            |folder| fs::remove_file(folder.join("titan/x.py")).unwrap(),
            |folder| fs::remove_dir_all(folder).unwrap(),
        ];
        for damage in damages {
            damage(&folder);
            assert!(!is_sound(&folder, &FILES));
            assert_eq!(extract(&FILES, cache.path()).unwrap().folder, folder);
            assert!(is_sound(&folder, &FILES));
            assert_eq!(engines(cache.path()), 1);
        }
    }

    #[test]
    fn many_at_once_agree() {
        let cache = tempfile::tempdir().unwrap();
        for _ in 0..20 {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        let engine = extract(&FILES, cache.path()).unwrap();
                        assert!(is_sound(&engine.folder, &FILES));
                    });
                }
            });
            assert_eq!(engines(cache.path()), 1);
            fs::write(cache.path().join("engine").join(identity(&FILES)).join("native.so"), "")
                .unwrap();
        }
    }

    #[test]
    fn other_engines_stay_while_they_are_used_or_new() {
        let cache = tempfile::tempdir().unwrap();
        let used = extract(&FILES[..1], cache.path()).unwrap();
        let unused = extract(&FILES[..2], cache.path()).unwrap().folder;
        let old = std::time::SystemTime::now() - 2 * KEPT;
        for folder in [&used.folder, &unused] {
            fs::File::open(folder).unwrap().set_modified(old).unwrap();
        }
        let fresh = extract(&FILES[1..], cache.path()).unwrap().folder;
        extract(&FILES, cache.path()).unwrap();
        assert!(used.folder.exists() && fresh.exists() && !unused.exists());
    }

    #[test]
    fn nothing_is_written_outside() {
        let cache = tempfile::tempdir().unwrap();
        for path in ["../x", "/x", "a/../../x"] {
            assert!(extract(&[(path, b"x")], cache.path()).is_err());
        }
        assert_eq!(engines(cache.path()), 0);
    }

    #[test]
    fn the_identity_does_not_depend_on_the_order() {
        let mut reversed = FILES;
        reversed.reverse();
        assert_eq!(identity(&FILES), identity(&reversed));
        assert_ne!(identity(&[("a", b"bc")]), identity(&[("ab", b"c")]));
    }
}
