//! A snapshot of the process environment, and what of it the children of a set-up get to see.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use super::error::SetupError;

/// The interpreter to use as it is.
pub(crate) const TITAN_PYTHON: &str = "TITAN_PYTHON";
/// Where everything is kept that can be made again.
pub(crate) const TITAN_CACHE_DIR: &str = "TITAN_CACHE_DIR";
pub(crate) const TITAN_DATA_CACHE: &str = "TITAN_DATA_CACHE";
/// `cpu`, `plain` or the URL of an index with CPU wheels of torch.
pub(crate) const TITAN_TORCH_INDEX: &str = "TITAN_TORCH_INDEX";
/// Set by the activation script of a virtual environment.
pub(crate) const VIRTUAL_ENV: &str = "VIRTUAL_ENV";

/// The settings of pip that say how to reach packages. Every other `PIP_*` variable is kept from the
/// installation: some move it elsewhere (`PIP_TARGET`, `PIP_USER`, `PIP_PYTHON`), some make it fail
/// (`PIP_REQUIRE_HASHES`, `PIP_NO_BINARY`), some change the output that is read for the progress (`PIP_QUIET`).
const PIP_KEPT: [&str; 20] = [
    "PIP_CACHE_DIR",
    "PIP_CERT",
    "PIP_CLIENT_CERT",
    "PIP_CONFIG_FILE",
    "PIP_DEFAULT_TIMEOUT",
    "PIP_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS",
    "PIP_INDEX_URL",
    "PIP_KEYRING_PROVIDER",
    "PIP_NO_CACHE_DIR",
    "PIP_NO_INDEX",
    "PIP_PROXY",
    "PIP_RESUME_RETRIES",
    "PIP_RETRIES",
    "PIP_TIMEOUT",
    "PIP_TRUSTED_HOST",
    "PIP_USE_DEPRECATED",
    "PIP_USE_FEATURE",
    "PIP_UPLOADED_PRIOR_TO",
    "PIP_PREFER_BINARY",
];

/// The environment variables of one process, read once, so that a test can bring its own.
#[derive(Clone, Default)]
pub(crate) struct Variables(BTreeMap<OsString, OsString>);

impl Variables {
    /// Those of this process.
    pub(crate) fn from_process() -> Self {
        std::env::vars_os().collect()
    }

    /// The value of a variable; an empty one counts as not set, as for pip and the XDG rules.
    pub(crate) fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// The value of a variable as text, with replacement characters where it is none.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.get(name).map(|value| value.to_string_lossy().into_owned())
    }

    /// The folders of `PATH`, in order. Relative ones are left out: what they mean depends on the working folder.
    pub(crate) fn search_path(&self) -> Vec<PathBuf> {
        let path = self.get("PATH").unwrap_or_default();
        std::env::split_paths(path).filter(|folder| folder.is_absolute()).collect()
    }

    /// The cache folder of titan-tpu, absolute; it need not exist.
    pub(crate) fn cache_dir(&self) -> Result<PathBuf, SetupError> {
        if let Some(chosen) = self.get(TITAN_CACHE_DIR) {
            return std::path::absolute(chosen)
                .map_err(|source| SetupError::io("find", Path::new(chosen), source));
        }
        self.xdg_cache().map(|folder| folder.join("titan-tpu")).ok_or(SetupError::NoCacheFolder)
    }

    /// Where the tokens of data are kept, absolute; it need not exist.
    pub(crate) fn data_cache(&self) -> Result<PathBuf, SetupError> {
        match self.get(TITAN_DATA_CACHE) {
            Some(chosen) => std::path::absolute(chosen)
                .map_err(|source| SetupError::io("find", Path::new(chosen), source)),
            None => self.cache_dir().map(|folder| folder.join("data")),
        }
    }

    /// `$XDG_CACHE_HOME` or `~/.cache`. The specification says to ignore a relative value.
    fn xdg_cache(&self) -> Option<PathBuf> {
        let absolute = |name| self.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
        absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))
    }

    /// Where pip keeps what it downloaded; `None` if it keeps nothing. A configuration file of pip's may say
    /// otherwise, which is not looked at: this only serves to estimate the space needed.
    pub(crate) fn pip_cache(&self) -> Option<PathBuf> {
        if self.get("PIP_NO_CACHE_DIR").is_some() {
            return None;
        }
        let chosen = self.get("PIP_CACHE_DIR").map(PathBuf::from);
        chosen.or_else(|| self.xdg_cache().map(|folder| folder.join("pip")))
    }

    /// What an isolated interpreter gets: nothing that changes where Python looks for modules or what pip does,
    /// everything about proxies, certificates and indexes, and English messages, since they are read.
    pub(crate) fn for_isolated(&self, temporary: Option<&Path>) -> Vec<(OsString, OsString)> {
        let mut kept: Vec<_> = self
            .0
            .iter()
            .filter(|(name, _)| name.to_str().is_none_or(is_kept))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        kept.push(("LC_ALL".into(), "C.UTF-8".into()));
        // The plug-ins of torch are not wanted in a check whether torch itself works; they cost seconds.
        kept.push(("TORCH_DEVICE_BACKEND_AUTOLOAD".into(), "0".into()));
        if let Some(temporary) = temporary {
            kept.push(("TMPDIR".into(), temporary.into()));
        }
        kept
    }

    /// What an interpreter gets that the user has chosen: all of it.
    pub(crate) fn unchanged(&self) -> Vec<(OsString, OsString)> {
        self.0.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

fn is_kept(name: &str) -> bool {
    if name.starts_with("PIP_") {
        return PIP_KEPT.contains(&name);
    }
    !name.starts_with("PYTHON")
        && !matches!(name, VIRTUAL_ENV | "__PYVENV_LAUNCHER__" | "LC_ALL" | "LANGUAGE" | "TMPDIR")
        && name != "TORCH_DEVICE_BACKEND_AUTOLOAD"
}

impl<Name: Into<OsString>, Value: Into<OsString>> FromIterator<(Name, Value)> for Variables {
    fn from_iter<Pairs: IntoIterator<Item = (Name, Value)>>(pairs: Pairs) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// Only the names: values may hold passwords.
impl fmt::Debug for Variables {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        pairs.iter().copied().collect()
    }

    #[test]
    fn the_cache_folder_follows_the_xdg_rules() {
        let cases: [(&[(&str, &str)], &str); 5] = [
            (&[("HOME", "/h")], "/h/.cache/titan-tpu"),
            (&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")], "/x/titan-tpu"),
            (&[("HOME", "/h"), ("XDG_CACHE_HOME", "x")], "/h/.cache/titan-tpu"),
            (&[("HOME", "/h"), ("XDG_CACHE_HOME", "")], "/h/.cache/titan-tpu"),
            (&[("HOME", "/h"), ("TITAN_CACHE_DIR", "/c")], "/c"),
        ];
        for (pairs, expected) in cases {
            assert_eq!(variables(pairs).cache_dir().unwrap(), Path::new(expected), "{pairs:?}");
        }
        assert!(matches!(variables(&[]).cache_dir(), Err(SetupError::NoCacheFolder)));
        let relative = variables(&[("TITAN_CACHE_DIR", "c")]).cache_dir().unwrap();
        assert!(relative.is_absolute() && relative.ends_with("c"));
    }

    #[test]
    fn a_hostile_environment_does_not_reach_pip() {
        let hostile = variables(&[
            ("PYTHONHOME", "/nowhere"),
            ("PYTHONPATH", "/elsewhere"),
            ("PIP_REQUIRE_VIRTUALENV", "1"),
            ("PIP_USER", "1"),
            ("PIP_TARGET", "/elsewhere"),
            ("PIP_PREFIX", "/elsewhere"),
            ("PIP_PYTHON", "/elsewhere/python"),
            ("VIRTUAL_ENV", "/elsewhere"),
            ("TMPDIR", "/elsewhere"),
            ("PIP_INDEX_URL", "https://mirror"),
            ("PIP_CERT", "/cert.pem"),
            ("https_proxy", "http://proxy"),
            ("SSL_CERT_FILE", "/cert.pem"),
            ("PATH", "/bin"),
        ]);
        let names: Vec<_> = hostile
            .for_isolated(Some(Path::new("/attempt/tmp")))
            .into_iter()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect();
        let expected = [
            "PATH=/bin",
            "PIP_CERT=/cert.pem",
            "PIP_INDEX_URL=https://mirror",
            "SSL_CERT_FILE=/cert.pem",
            "https_proxy=http://proxy",
            "LC_ALL=C.UTF-8",
            "TORCH_DEVICE_BACKEND_AUTOLOAD=0",
            "TMPDIR=/attempt/tmp",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn values_are_not_printed() {
        let shown = format!("{:?}", variables(&[("PIP_INDEX_URL", "https://me:secret@mirror")]));
        assert_eq!(shown, r#"{"PIP_INDEX_URL"}"#);
    }
}
