//! Data in object stores: `gs://bucket/path` and `s3://bucket/path`.

mod object;
mod shards;
mod tree;

#[cfg(test)]
mod find_tests;
#[cfg(test)]
mod shard_tests;
#[cfg(test)]
mod tests;

pub use object::Object;
pub use shards::{fetch_shards, find_shards};
pub use titan_objects::is_address;
pub(super) use titan_objects::{Address, Store};
pub(super) use tree::RemoteTree;

use titan_objects::{Failure, change, innermost, runtime};

use super::Error;

impl From<titan_objects::Error> for Error {
    fn from(error: titan_objects::Error) -> Self {
        match error {
            titan_objects::Error::Address { address, problem, hint } => {
                Self::BadPath { path: address, problem, hint }
            }
            titan_objects::Error::Store { name, problem, hint } => {
                Self::Store { name, problem, hint }
            }
            other => Self::Store {
                name: "an object store".to_owned(),
                problem: other.to_string(),
                hint: "try again".to_owned(),
            },
        }
    }
}

impl From<titan_objects::Error> for crate::Error {
    fn from(error: titan_objects::Error) -> Self {
        Error::from(error).into()
    }
}
