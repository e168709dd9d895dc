//! Small questions to the file system, and removing folders that something may still write to.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The bytes that a user may still write where `path` is or would be made.
pub(super) fn free_bytes(path: &Path) -> io::Result<u64> {
    let existing = path.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    let status = rustix::fs::statvfs(existing)?;
    Ok(status.f_bavail.saturating_mul(status.f_frsize))
}

/// Whether both paths lie, or would lie, on the same file system.
pub(super) fn same_file_system(one: &Path, other: &Path) -> bool {
    let device = |path: &Path| {
        let existing = path.ancestors().find(|folder| folder.exists())?;
        rustix::fs::stat(existing).ok().map(|status| status.st_dev)
    };
    device(one) == device(other)
}

/// The bytes of all files below a folder; what vanishes meanwhile does not count.
pub(super) fn bytes_below(folder: &Path) -> u64 {
    bytes_below_with(folder, &|_| true)
}

/// The same for the files whose name passes.
pub(super) fn bytes_below_with(folder: &Path, wanted: &dyn Fn(&[u8]) -> bool) -> u64 {
    let mut bytes = 0;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                folders.push(entry.path());
            } else if wanted(entry.file_name().as_encoded_bytes()) {
                bytes += entry.metadata().map_or(0, |metadata| metadata.len());
            }
        }
    }
    bytes
}

/// A name that no other process uses.
pub(super) fn random_suffix() -> String {
    let mut bytes = [0_u8; 4];
    // Without random numbers of the system the clock and the process must do.
    if rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()).is_err() {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        bytes = (now.subsec_nanos() ^ std::process::id()).to_ne_bytes();
    }
    format!("{:08x}", u32::from_ne_bytes(bytes))
}

/// The prefix of folders that are only waiting to be removed, by whoever comes by.
const TRASH: &str = "trash-";

/// Takes a folder out of the way at once, to a name that nobody uses, and returns that. What a dying process still
/// writes there does no harm.
pub(super) fn to_trash(folder: &Path) -> Option<PathBuf> {
    let trash = folder.parent()?.join(format!("{TRASH}{}", random_suffix()));
    fs::rename(folder, &trash).ok().map(|()| trash)
}

/// What waits in a folder to be removed.
pub(super) fn trash_in(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let trash =
        entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(TRASH.as_bytes()));
    trash.map(|entry| entry.path()).collect()
}

/// Removes a small folder now.
pub(super) fn discard(folder: &Path) {
    if let Some(trash) = to_trash(folder) {
        remove(&trash);
    }
}

fn remove(folder: &Path) {
    for _ in 0..3 {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                std::thread::sleep(Duration::from_millis(20));
            }
            _ => return,
        }
    }
}

/// Folders being removed by a thread. An environment of gigabytes takes minutes on some disks, and nobody should have
/// to wait for that. If the process ends before, the rest is left for the next start.
#[must_use]
pub(super) struct Removal(Option<JoinHandle<()>>);

impl Removal {
    pub(super) fn start(folders: Vec<PathBuf>) -> Self {
        if folders.is_empty() {
            return Self(None);
        }
        let work = move || folders.iter().for_each(|folder| remove(folder));
        Self(std::thread::Builder::new().name("removal".to_owned()).spawn(work).ok())
    }

    pub(super) fn is_finished(&self) -> bool {
        self.0.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Gives it some time. Returns whether it was enough.
    pub(super) fn wait(&self, patience: Duration) -> bool {
        let start = Instant::now();
        while !self.is_finished() && start.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.is_finished()
    }
}

/// Makes the names in a folder survive a crash of the machine.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    fs::File::open(folder)?.sync_all()
}

/// Makes everything written to the file system of a folder survive a crash of the machine. For tens of thousands of
/// files this is much faster than one call for each.
pub(super) fn sync_file_system(folder: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(fs::File::open(folder)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_by_name() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("inner")).unwrap();
        fs::write(folder.path().join("a.whl"), [0; 10]).unwrap();
        fs::write(folder.path().join("inner/b.whl"), [0; 20]).unwrap();
        fs::write(folder.path().join("inner/c"), [0; 40]).unwrap();
        assert_eq!(bytes_below(folder.path()), 70);
        assert_eq!(bytes_below_with(folder.path(), &|name| name.ends_with(b".whl")), 30);
        assert_eq!(bytes_below(&folder.path().join("missing")), 0);
    }

    #[test]
    fn free_space_is_found_for_a_folder_to_come() {
        let folder = tempfile::tempdir().unwrap();
        assert!(free_bytes(&folder.path().join("to/come")).unwrap() > 0);
        assert!(same_file_system(folder.path(), &folder.path().join("to/come")));
        assert!(!same_file_system(folder.path(), Path::new("/proc/self")));
    }

    #[test]
    fn trash_is_removed_in_the_background() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("x");
        fs::create_dir_all(folder.join("y")).unwrap();
        let trash = to_trash(&folder).unwrap();
        assert_eq!(trash_in(root.path()), [trash]);
        assert!(to_trash(&folder).is_none());
        assert!(Removal::start(trash_in(root.path())).wait(Duration::from_secs(10)));
        assert!(trash_in(root.path()).is_empty());
        assert!(Removal::start(Vec::new()).is_finished());
    }

    #[test]
    fn a_discarded_folder_is_gone() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("x");
        fs::create_dir_all(folder.join("y")).unwrap();
        discard(&folder);
        discard(&folder);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
