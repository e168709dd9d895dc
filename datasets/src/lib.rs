//! Training data as a pure function of a position.
//!
//! Whatever a run reads becomes *token shards* first (`tokenize`, with the feature `prepare`): flat files of token ids
//! with an index and hashes. The shards of a source are one stream of tokens. It is cut into samples of equal length
//! ([`Packing`]), the samples of an epoch are put in a pseudo-random order ([`Order`]), several sources are mixed by
//! weight ([`Mixture`]), and a step takes the next `global_batch` samples ([`BatchPlan`]). Each of these is arithmetic
//! on (seed, epoch, index): there is no shuffle buffer and no iterator state. So one number is all that a checkpoint
//! has to remember ([`Cursor`]), and any later number of workers continues exactly.
//!
//! The launcher makes or finds the shards; each worker has a [`Loader`], usually behind a [`Prefetcher`].

mod batch;
#[cfg(feature = "prepare")]
mod contained;
mod cursor;
mod error;
mod files;
mod fingerprint;
mod loader;
mod mixture;
mod order;
mod packing;
mod prefetch;
mod prompts;
mod samples;
pub mod shards;
#[cfg(feature = "prepare")]
pub mod source;
mod stream;
#[cfg(test)]
#[cfg(feature = "prepare")]
mod testing;
#[cfg(feature = "prepare")]
mod tokenize;
#[cfg(feature = "prepare")]
mod tokenizer;
mod validation;

pub use batch::BatchPlan;
#[cfg(feature = "prepare")]
pub use contained::is_contained;
pub use cursor::{Cursor, OrderIdentity};
pub use error::{Error, Result};
pub use fingerprint::Fingerprint;
pub use loader::{Loader, LoaderConfig};
pub use mixture::{Mixture, PARTS as MIXTURE_PARTS};
pub use order::{ORDER_VERSION, Order};
pub use packing::{Packing, TokenAccount};
pub use prefetch::{Batch, Prefetcher};
pub use prompts::{PromptId, Prompts};
pub use samples::{SampleId, Samples, SourceConfig};
pub use stream::{SplitPath, TokenStream};
#[cfg(feature = "prepare")]
pub use tokenize::{Job, JobFacts, OnBadRecord, Outcome, Progress, tokenize};
#[cfg(feature = "prepare")]
pub use tokenizer::Tokenizer;
pub use validation::{PADDING, Validation, ValidationConfig};
