//! Where data lies: a path of this machine, or an object store.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use crate::secrets::without_url_secrets;

/// Object stores that a recipe can name.
pub(crate) const SCHEMES: [&str; 2] = ["gs", "s3"];

/// A path of this machine or the address of an object store.
#[derive(Clone, PartialEq, Eq)]
pub enum Location {
    /// A path.
    Local(PathBuf),
    /// `gs://bucket/..` or `s3://bucket/..`; may carry a password, which is not shown.
    Remote(Url),
}

/// An address that does not show its password.
#[derive(Clone, PartialEq, Eq)]
pub struct Url(pub(crate) String);

impl Url {
    /// The address with its password, for who opens it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl Location {
    /// The path, if it is one of this machine.
    pub fn local(&self) -> Option<&Path> {
        match self {
            Self::Local(path) => Some(path),
            Self::Remote(_) => None,
        }
    }

    /// As it may be shown and written.
    fn shown(&self) -> Cow<'_, str> {
        match self {
            Self::Local(path) => path.to_string_lossy(),
            Self::Remote(url) => without_url_secrets(&url.0),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Location {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.shown())
    }
}
