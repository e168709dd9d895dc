//! Names of things in buckets.

use std::fmt;

use object_store::path::Path as ObjectPath;

use crate::{Error, Result};

/// Whether a path is the address of something in an object store.
pub fn is_address(path: &str) -> bool {
    path.split_once("://").is_some_and(|(scheme, _)| Service::of(scheme).is_some())
}

/// Who keeps the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// Google Cloud Storage.
    Google,
    /// Amazon S3, and what speaks as it does.
    S3,
}

impl Service {
    fn of(scheme: &str) -> Option<Self> {
        match scheme {
            "gs" => Some(Self::Google),
            "s3" => Some(Self::S3),
            _ => None,
        }
    }

    fn scheme(self) -> &'static str {
        match self {
            Self::Google => "gs",
            Self::S3 => "s3",
        }
    }
}

/// A bucket of a service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bucket {
    pub(crate) service: Service,
    pub(crate) name: String,
}

impl Bucket {
    /// The address of something in it.
    pub fn address(&self, key: &str) -> String {
        if key.is_empty() { self.to_string() } else { format!("{self}/{key}") }
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.service.scheme(), self.name)
    }
}

/// Something in a bucket: an object, all objects with a common beginning of their names, or a glob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    bucket: Bucket,
    key: String,
    /// It ends in `/`, so it is no object.
    is_folder: bool,
}

impl Address {
    /// Nothing if the path is one of this machine.
    ///
    /// # Errors
    /// It is neither that nor an address that this crate knows.
    pub fn parse(path: &str) -> Result<Option<Self>> {
        let Some((scheme, rest)) = path.split_once("://") else { return Ok(None) };
        let bad = |problem: String, hint: String| {
            Err(Error::Address { address: without_credentials(path), problem, hint })
        };
        let Some(service) = Service::of(scheme) else {
            let hint = match scheme {
                "file" => format!("write the path alone: {rest}"),
                _ => "name a local path, or an address that begins with gs:// or s3://".to_owned(),
            };
            return bad(format!("{scheme}:// is no store that is known here"), hint);
        };
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if bucket.is_empty() || !bucket.chars().all(is_name) {
            return bad(
                "the name of the bucket must be letters, digits, `.`, `-` and `_`".to_owned(),
                format!("write {scheme}://BUCKET/PATH; credentials come from the environment"),
            );
        }
        // What the store would understand, without the `/` at either end.
        let key = match ObjectPath::parse(key) {
            Ok(key) => String::from(key),
            Err(_) => {
                return bad(
                    "no part of the name of an object can be empty, `.` or `..`, or have control characters".to_owned(),
                    "write one `/` between its parts".to_owned(),
                );
            }
        };
        let is_folder = rest.ends_with('/');
        let bucket = Bucket { service, name: bucket.to_owned() };
        Ok(Some(Self { bucket, key, is_folder }))
    }

    /// Where it is.
    pub fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    /// Its name in the bucket, without a `/` at either end.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Whether it was written with a `/` at its end.
    pub fn is_folder(&self) -> bool {
        self.is_folder
    }

    /// Something below it. `name` has no `/` at either end.
    #[must_use]
    pub fn join(&self, name: &str) -> Self {
        let key =
            if self.key.is_empty() { name.to_owned() } else { format!("{}/{name}", self.key) };
        Self { bucket: self.bucket.clone(), key, is_folder: false }
    }
}

impl Address {
    /// What it is below, if it is below anything.
    pub fn parent(&self) -> Option<Self> {
        let key = match self.key.rsplit_once('/') {
            Some((key, _)) => key,
            None if self.key.is_empty() => return None,
            None => "",
        };
        Some(Self { bucket: self.bucket.clone(), key: key.to_owned(), is_folder: false })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.bucket.address(&self.key))
    }
}

/// An address for a message, without what some write before an `@`.
pub fn without_credentials(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
    let (authority, path) = match rest.find('/') {
        Some(slash) => rest.split_at(slash),
        None => (rest, ""),
    };
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://...@{host}{path}"),
        None => address.to_owned(),
    }
}
