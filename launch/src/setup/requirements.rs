//! The locked lists of packages, embedded in the binary.

use std::path::Path;

use xxhash_rust::xxh3::Xxh3;

/// The version of torch that this titan-tpu is made for; both lists name it.
pub(super) const TORCH_VERSION: &str = "2.15.0";
/// The index of PyTorch that has the CPU wheels.
pub(super) const CPU_INDEX: &str = "https://download.pytorch.org/whl/cpu";

const CPU: &str = include_str!("../../requirements/cpu.txt");
const PLAIN: &str = include_str!("../../requirements/plain.txt");

/// Which torch is installed and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    /// CPU wheels from the index of PyTorch.
    Cpu,
    /// What the ordinary index has: built for CUDA, with its libraries.
    Plain,
    /// CPU wheels from an index that the user named. The URL may hold a password: it is never shown or stored.
    Custom(String),
}

/// One pinned package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pinned {
    pub(super) name: &'static str,
    pub(super) version: &'static str,
}

impl Variant {
    /// Names the variant in keys and markers.
    pub(super) fn id(&self) -> String {
        match self {
            Self::Cpu => "cpu".to_owned(),
            Self::Plain => "plain".to_owned(),
            Self::Custom(url) => {
                format!("index-{:016x}", xxhash_rust::xxh3::xxh3_64(url.as_bytes()))
            }
        }
    }

    /// The packages of this variant.
    pub(super) fn packages(&self) -> Vec<Pinned> {
        parse(self.text())
    }

    /// Where torch alone is taken from; the other packages always come from the ordinary index.
    pub(super) fn torch_index(&self) -> Option<&str> {
        match self {
            Self::Cpu => Some(CPU_INDEX),
            Self::Plain => None,
            Self::Custom(url) => Some(url),
        }
    }

    /// The most that the folder of the environment holds at once while it is made: all wheels, then all that they
    /// unpack to, and what pip keeps aside. Measured on x86-64 for `plain`, estimated from it for the others.
    pub(super) fn sizes(&self) -> Sizes {
        match self {
            Self::Plain => Sizes { download: 3_020_000_000, installed: 5_540_000_000 },
            Self::Cpu | Self::Custom(_) => Sizes { download: 230_000_000, installed: 950_000_000 },
        }
    }

    /// Changes with every change of what would be installed, but not with a comment in the list.
    pub(super) fn requirements_hash(&self) -> String {
        let mut hash = Xxh3::new();
        for package in self.packages() {
            hash.update(package.name.as_bytes());
            hash.update(b"==");
            hash.update(package.version.as_bytes());
            hash.update(b"\n");
        }
        format!("{:016x}", hash.digest())
    }

    /// Names the environment: the same key means the same packages for the same interpreter.
    pub(super) fn key(&self, python_version: &str, interpreter: &Path) -> String {
        let mut hash = Xxh3::new();
        let parts = [&self.requirements_hash(), &self.id(), python_version];
        for part in parts {
            hash.update(part.as_bytes());
            hash.update(&[0]);
        }
        hash.update(interpreter.as_os_str().as_encoded_bytes());
        format!("{:016x}", hash.digest())
    }

    fn text(&self) -> &'static str {
        match self {
            Self::Plain => PLAIN,
            Self::Cpu | Self::Custom(_) => CPU,
        }
    }
}

/// Bytes of an environment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) download: u64,
    pub(super) installed: u64,
}

impl Sizes {
    /// What must be free before anything starts, with some air.
    pub(super) fn needed(self) -> u64 {
        self.download + self.installed + self.download / 10
    }
}

/// The lines of a list; those that are not `name==version` are left out, which a test rules out.
fn parse(text: &'static str) -> Vec<Pinned> {
    text.lines()
        .map(|line| line.split_once('#').map_or(line, |(before, _)| before).trim())
        .filter_map(|line| line.split_once("=="))
        .map(|(name, version)| Pinned { name, version })
        .collect()
}

/// A version without its local part: `2.15.0+cpu` is the same release as `2.15.0`.
pub(super) fn public_version(version: &str) -> &str {
    version.split_once('+').map_or(version, |(public, _)| public)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_lists_is_pinned() {
        for variant in [Variant::Cpu, Variant::Plain] {
            let packages = variant.packages();
            let lines = variant.text().lines().filter(|line| !line.starts_with('#')).count();
            assert_eq!(packages.len(), lines, "{variant:?}");
            assert_eq!(packages[0], Pinned { name: "torch", version: TORCH_VERSION });
            for package in packages {
                assert!(
                    package.version.chars().all(|c| c.is_ascii_digit() || c == '.'),
                    "{package:?}"
                );
                let name = package.name;
                assert!(
                    name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn what_the_lists_share_has_the_same_version() {
        let plain = Variant::Plain.packages();
        for package in Variant::Cpu.packages() {
            assert!(plain.contains(&package), "{package:?}");
        }
    }

    #[test]
    fn the_key_changes_with_each_ingredient() {
        let python = Path::new("/usr/bin/python3.11");
        let keys = [
            Variant::Plain.key("3.11.2", python),
            Variant::Cpu.key("3.11.2", python),
            Variant::Custom("https://mirror".to_owned()).key("3.11.2", python),
            Variant::Plain.key("3.11.3", python),
            Variant::Plain.key("3.11.2", Path::new("/opt/python3.11")),
        ];
        let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
        assert!(keys.iter().all(|key| key.len() == 16));
        assert_eq!(keys[0], Variant::Plain.key("3.11.2", python));
    }

    #[test]
    fn an_identity_of_an_index_does_not_show_its_password() {
        assert!(!Variant::Custom("https://me:secret@mirror".to_owned()).id().contains("secret"));
    }

    #[test]
    fn the_local_part_of_a_version_does_not_matter() {
        assert_eq!(public_version("2.15.0+cpu"), "2.15.0");
        assert_eq!(public_version("2.15.0"), "2.15.0");
    }
}
