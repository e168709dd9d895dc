//! Object stores: `gs://bucket/path` and `s3://bucket/path`.
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
//! The rest of the program is not asynchronous: one thread drives all connections of the process.

mod address;
mod error;
mod failure;
pub mod runtime;
mod store;
mod transfer;

#[cfg(any(test, feature = "fake"))]
pub mod fake;
#[cfg(test)]
mod tests;

pub use address::{Address, Bucket, Service, is_address, without_credentials};
pub use error::{Error, Result};
pub use failure::{Failure, change, innermost};
pub use store::{Patience, Store, Variables};
pub use transfer::{Created, Upload};
