//! The environments in the cache: which are ready, and whether they still are.
//!
//! `venvs/KEY` is a link to `venvs/KEY-RANDOM/`, the folder of an environment, and is made only when that folder is
//! complete and on disk. Environments cannot be moved, so each attempt is built in a folder of its own, where it
//! stays. A folder that no link points to is garbage.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::disk;
use super::error::SetupError;
use super::requirements::Variant;

/// Increased when older markers cannot be understood any more.
const SCHEMA: u32 = 1;
/// The length of a key in hexadecimal digits.
const KEY_DIGITS: usize = 16;
const MARKER: &str = "environment.json";
/// Locked, shared, by each process that uses the environment.
const IN_USE: &str = "in-use";

/// What is known about a finished environment; written as its last file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Marker {
    pub(super) schema: u32,
    pub(super) made_by: String,
    /// A cache may be shared between machines of several kinds.
    pub(super) machine: String,
    pub(super) variant: String,
    pub(super) requirements: String,
    pub(super) torch_version: String,
    pub(super) python_version: String,
    /// The interpreter that the environment was made from.
    pub(super) base: Base,
    /// Relative to the folder of the environment.
    pub(super) site_packages: String,
    /// What lies in `site_packages`, and the libraries of torch: enough to notice that something was deleted.
    pub(super) contents: Vec<String>,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    /// Seconds since 1970, to prefer the newest of several.
    pub(super) created: u64,
}

/// An interpreter and how to notice that it was replaced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Base {
    pub(super) path: String,
    size: u64,
    modified: i64,
}

impl Base {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(Self {
            path: path.to_string_lossy().into_owned(),
            size: metadata.len(),
            modified: metadata
                .mtime()
                .saturating_mul(1_000_000_000)
                .saturating_add(metadata.mtime_nsec()),
        })
    }
}

impl Marker {
    /// The parts that are the same for every environment of this titan-tpu.
    pub(super) fn new(variant: &Variant, base: Base, python_version: String) -> Self {
        Self {
            schema: SCHEMA,
            made_by: concat!("titan-tpu ", env!("CARGO_PKG_VERSION")).to_owned(),
            machine: std::env::consts::ARCH.to_owned(),
            variant: variant.id(),
            requirements: variant.requirements_hash(),
            torch_version: String::new(),
            python_version,
            base,
            site_packages: String::new(),
            contents: Vec::new(),
            bytes: 0,
            seconds: 0.0,
            created: std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs(),
        }
    }

    fn satisfies(&self, variants: &[(String, String)]) -> bool {
        self.schema == SCHEMA
            && self.machine == std::env::consts::ARCH
            && variants.iter().any(|(id, hash)| *id == self.variant && *hash == self.requirements)
    }
}

/// Whether an environment can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// Everything is where it was.
    Sound,
    /// The interpreter below it was replaced, as by an update of the system: it has to be asked.
    Replaced,
    /// Something it needs is gone.
    Damaged { why: String },
}

/// A published environment.
#[derive(Clone, Debug)]
pub(super) struct Environment {
    pub(super) folder: PathBuf,
    pub(super) marker: Marker,
    pub(super) health: Health,
}

impl Environment {
    pub(super) fn python(&self) -> PathBuf {
        self.folder.join("bin/python")
    }
}

/// Keeps an environment from being removed while this process uses it.
pub(super) type Lease = Arc<File>;

/// The folder of all environments; it need not exist.
#[derive(Clone, Debug)]
pub(super) struct Store {
    pub(super) root: PathBuf,
}

impl Store {
    pub(super) fn in_cache(cache: &Path) -> Self {
        Self { root: cache.join("venvs") }
    }

    /// The published environments with the wanted packages, the best first.
    pub(super) fn find(&self, variants: &[Variant]) -> Vec<Environment> {
        let wanted: Vec<_> = variants.iter().map(|v| (v.id(), v.requirements_hash())).collect();
        let mut found: Vec<_> = self
            .all()
            .into_iter()
            .filter(|environment| environment.marker.satisfies(&wanted))
            .collect();
        found.sort_by_key(|environment| {
            let rank = match environment.health {
                Health::Sound => 0,
                Health::Replaced => 1,
                Health::Damaged { .. } => 2,
            };
            (rank, std::cmp::Reverse(environment.marker.created))
        });
        found
    }

    /// Every published environment that has a readable marker, also those of other versions of titan-tpu.
    pub(super) fn all(&self) -> Vec<Environment> {
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        entries
            .filter(|entry| entry.file_name().to_str().is_some_and(is_key))
            .filter_map(|entry| self.published(entry.file_name().to_str()?))
            .collect()
    }

    /// The folder that the link of a key points to, if the link is one of ours.
    pub(super) fn target(&self, key: &str) -> Option<PathBuf> {
        let target = fs::read_link(self.root.join(key)).ok()?;
        let name = target.to_str().filter(|name| key_of_attempt(name) == Some(key))?;
        Some(self.root.join(name))
    }

    fn published(&self, key: &str) -> Option<Environment> {
        let folder = self.target(key)?;
        let text = fs::read(folder.join(MARKER)).ok()?;
        let marker: Marker = serde_json::from_slice(&text).ok()?;
        let health = health(&folder, &marker);
        Some(Environment { folder, marker, health })
    }
}

/// A few hundred microseconds: one look at the interpreter and one at each thing that was installed.
fn health(folder: &Path, marker: &Marker) -> Health {
    let link = folder.join("bin/python");
    let Ok(base) = link.canonicalize() else {
        return Health::Damaged { why: format!("its interpreter {} is gone", marker.base.path) };
    };
    let site_packages = folder.join(&marker.site_packages);
    if let Some(lost) = marker.contents.iter().find(|name| !site_packages.join(name).exists()) {
        return Health::Damaged { why: format!("{lost} is missing from it") };
    }
    match Base::of(&base) {
        Ok(now) if now == marker.base => Health::Sound,
        Ok(_) => Health::Replaced,
        Err(error) => Health::Damaged { why: format!("its interpreter cannot be read: {error}") },
    }
}

/// Writes the marker of a folder so that it is there completely or not at all.
pub(super) fn write_marker(folder: &Path, marker: &Marker) -> Result<(), SetupError> {
    let target = folder.join(MARKER);
    let fail = |source| SetupError::io("write", &target, source);
    let staged = folder.join(format!(".{MARKER}.{}", disk::random_suffix()));
    let text = serde_json::to_vec_pretty(marker).map_err(|error| fail(error.into()))?;
    fs::write(&staged, text).map_err(fail)?;
    File::open(&staged).and_then(|file| file.sync_all()).map_err(fail)?;
    fs::rename(&staged, &target).map_err(fail)?;
    disk::sync_folder(folder).map_err(fail)
}

/// Prepares a folder for [`lease`].
pub(super) fn make_leasable(folder: &Path) -> Result<(), SetupError> {
    let path = folder.join(IN_USE);
    File::create(&path).map(drop).map_err(|source| SetupError::io("create", &path, source))
}

/// The folder was removed, or is about to be.
#[derive(Debug)]
pub(super) struct Gone;

/// Marks a folder as in use until the lease is dropped; there is none where the file system cannot lock. A folder may
/// be removed until then, so this says whether it is still there.
pub(super) fn lease(folder: &Path) -> Result<Option<Lease>, Gone> {
    // A process that asks whether there are leases, or removes the folder, locks it for a moment.
    for _ in 0..20 {
        let Ok(file) = File::open(folder.join(IN_USE)) else { break };
        match file.try_lock_shared() {
            Ok(()) if folder.exists() => return Ok(Some(Arc::new(file))),
            Err(fs::TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
            Ok(()) | Err(fs::TryLockError::Error(_)) => break,
        }
    }
    if folder.exists() { Ok(None) } else { Err(Gone) }
}

/// Keeps others from taking a lease while a folder is removed; `None` if there is a lease.
pub(super) fn claim(folder: &Path) -> Option<Claim> {
    let Ok(file) = File::open(folder.join(IN_USE)) else {
        return Some(Claim(None));
    };
    match file.try_lock() {
        Err(fs::TryLockError::WouldBlock) => None,
        Ok(()) | Err(fs::TryLockError::Error(_)) => Some(Claim(Some(file))),
    }
}

/// See [`claim`].
pub(super) struct Claim(
    #[expect(dead_code, reason = "closing the file ends the claim")] Option<File>,
);

pub(super) fn is_key(name: &str) -> bool {
    name.len() == KEY_DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The key in the name of the folder of an attempt, `KEY-RANDOM`.
pub(super) fn key_of_attempt(name: &str) -> Option<&str> {
    name.split_once('-').map(|(key, _)| key).filter(|key| is_key(key))
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A published environment without packages, made from an interpreter in `cache`.
    pub(in super::super) fn publish(cache: &Path, key: &str, created: u64) -> Environment {
        let store = Store::in_cache(cache);
        let base = cache.join("python3.11");
        if !base.exists() {
            fs::write(&base, "").unwrap();
        }
        let folder = store.root.join(format!("{key}-00000000"));
        fs::create_dir_all(folder.join("bin")).unwrap();
        fs::create_dir_all(folder.join("lib/torch")).unwrap();
        symlink(&base, folder.join("bin/python")).unwrap();
        let base = Base::of(&base.canonicalize().unwrap()).unwrap();
        let marker = Marker {
            site_packages: "lib".to_owned(),
            contents: vec!["torch".to_owned()],
            created,
            ..Marker::new(&Variant::Plain, base, "3.11.2".to_owned())
        };
        make_leasable(&folder).unwrap();
        write_marker(&folder, &marker).unwrap();
        symlink(folder.file_name().unwrap(), store.root.join(key)).unwrap();
        store.published(key).unwrap()
    }

    const ONE: &str = "0000000000000001";
    const TWO: &str = "0000000000000002";

    #[test]
    fn the_newest_sound_environment_is_the_best() {
        let cache = tempfile::tempdir().unwrap();
        let store = Store::in_cache(cache.path());
        assert!(store.find(&[Variant::Plain]).is_empty());
        publish(cache.path(), ONE, 1);
        let newer = publish(cache.path(), TWO, 2);
        let best = |variant| store.find(&[variant]).into_iter().next().map(|found| found.folder);
        assert_eq!(best(Variant::Plain), Some(newer.folder.clone()));
        assert_eq!(best(Variant::Cpu), None);
        fs::remove_dir_all(newer.folder.join("lib/torch")).unwrap();
        assert_eq!(best(Variant::Plain), Some(store.root.join(format!("{ONE}-00000000"))));
    }

    #[test]
    fn damage_is_noticed() {
        let cache = tempfile::tempdir().unwrap();
        let environment = publish(cache.path(), ONE, 1);
        let now = || health(&environment.folder, &environment.marker);
        assert_eq!(now(), Health::Sound);
        fs::write(cache.path().join("python3.11"), "another").unwrap();
        assert_eq!(now(), Health::Replaced);
        fs::remove_dir(environment.folder.join("lib/torch")).unwrap();
        assert!(matches!(now(), Health::Damaged { why } if why == "torch is missing from it"));
        fs::remove_file(cache.path().join("python3.11")).unwrap();
        assert!(matches!(now(), Health::Damaged { why } if why.ends_with("python3.11 is gone")));
    }

    #[test]
    fn what_is_not_ours_or_not_finished_is_not_found() {
        let cache = tempfile::tempdir().unwrap();
        let store = Store::in_cache(cache.path());
        let environment = publish(cache.path(), ONE, 1);
        fs::remove_file(store.root.join(ONE)).unwrap();
        symlink(&environment.folder, store.root.join(ONE)).unwrap();
        assert_eq!(store.all().len(), 0, "an absolute link");
        fs::remove_file(store.root.join(ONE)).unwrap();
        symlink(format!("{TWO}-00000000"), store.root.join(TWO)).unwrap();
        assert_eq!(store.all().len(), 0, "a dangling link");
        symlink(format!("{ONE}-00000000"), store.root.join(ONE)).unwrap();
        assert_eq!(store.all().len(), 1);
        let later = Marker { schema: SCHEMA + 1, ..environment.marker.clone() };
        write_marker(&environment.folder, &later).unwrap();
        assert_eq!(store.find(&[Variant::Plain]).len(), 0, "a marker from the future");
        fs::write(environment.folder.join(MARKER), "{").unwrap();
        assert_eq!(store.all().len(), 0, "a torn marker");
    }

    #[test]
    fn a_lease_is_seen_until_it_is_dropped() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("x");
        assert!(lease(&folder).is_err());
        fs::create_dir(&folder).unwrap();
        assert!(lease(&folder).unwrap().is_none() && claim(&folder).is_some());
        make_leasable(&folder).unwrap();
        let held = lease(&folder).unwrap().unwrap();
        assert!(lease(&folder).unwrap().is_some() && claim(&folder).is_none());
        drop(held);
        let claimed = claim(&folder).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| lease(&folder));
            fs::remove_dir_all(&folder).unwrap();
            drop(claimed);
            assert!(waiting.join().unwrap().is_err());
        });
    }
}
