//! Data in object stores: `gs://bucket/path` and `s3://bucket/path`.
//!
//! Where the store is and who asks comes from environment variables:
//!
//! - `gs://`: `GOOGLE_APPLICATION_CREDENTIALS`, `GOOGLE_SERVICE_ACCOUNT` (both name a file),
//!   `GOOGLE_SERVICE_ACCOUNT_KEY`, `GOOGLE_BEARER_TOKEN`, `GOOGLE_SKIP_SIGNATURE` (of public buckets),
//!   `GOOGLE_BASE_URL`, and `STORAGE_EMULATOR_HOST` for a store without any check of who asks. With none of them: what
//!   `gcloud auth application-default login` left in the home folder, then the service account of the machine.
//! - `s3://`: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION` (or
//!   `AWS_DEFAULT_REGION`), `AWS_ENDPOINT_URL` (or `AWS_ENDPOINT_URL_S3`), `AWS_ALLOW_HTTP`, `AWS_SKIP_SIGNATURE` (of
//!   public buckets), `AWS_VIRTUAL_HOSTED_STYLE_REQUEST`, `AWS_WEB_IDENTITY_TOKEN_FILE` with `AWS_ROLE_ARN`, and
//!   `AWS_CONTAINER_*`. With none of them: the role of the machine. The files in `~/.aws` are not read.
//!
//! The rest of the crate is not asynchronous: one thread drives all connections of the process.

mod failure;
mod object;
mod runtime;
mod shards;
mod store;
mod tree;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod find_tests;
#[cfg(test)]
mod shard_tests;
#[cfg(test)]
mod tests;

use std::fmt;

use object_store::path::Path as ObjectPath;

pub use object::Object;
pub use shards::{fetch_shards, find_shards};
pub(super) use store::Store;
pub(super) use tree::RemoteTree;

use super::{Error, Result};

/// Whether a path is the address of something in an object store.
pub fn is_address(path: &str) -> bool {
    path.split_once("://").is_some_and(|(scheme, _)| Service::of(scheme).is_some())
}

/// Who keeps the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Service {
    Google,
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
pub(super) struct Bucket {
    service: Service,
    name: String,
}

impl Bucket {
    /// The address of something in it.
    fn address(&self, key: &str) -> String {
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
pub(super) struct Address {
    bucket: Bucket,
    key: String,
    /// It ends in `/`, so it is no object.
    is_folder: bool,
}

impl Address {
    /// Nothing if the path is one of this machine.
    pub(super) fn parse(path: &str) -> Result<Option<Self>> {
        let Some((scheme, rest)) = path.split_once("://") else { return Ok(None) };
        let bad = |problem: String, hint: String| {
            Err(Error::BadPath { path: without_credentials(path), problem, hint })
        };
        let Some(service) = Service::of(scheme) else {
            let hint = match scheme {
                "file" => format!("write the path alone: {rest}"),
                _ => "name a local path, or an address that begins with gs:// or s3://".to_owned(),
            };
            return bad(format!("data cannot be read from {scheme}://"), hint);
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

    pub(super) fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.bucket.address(&self.key))
    }
}

/// An address for a message, without what some write before an `@`.
fn without_credentials(address: &str) -> String {
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
