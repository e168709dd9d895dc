//! Training data as a pure function of a position.
//!
//! A run reads one stream of tokens, made of one or more text files in the order given. The stream
//! is cut into samples of equal length ([`Packing`]), the samples of an epoch are put in a
//! pseudo-random order ([`Order`]), and a step takes the next `global_batch` of them
//! ([`BatchPlan`]). Each of these is arithmetic on (seed, epoch, index): there is no shuffle buffer
//! and no iterator state. So a step number is all that a checkpoint has to remember, and any later
//! number of workers continues exactly.
//!
//! The launcher calls [`verify`] once, before any worker starts; each worker has a [`Loader`],
//! usually behind a [`Prefetcher`].
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
//! # let path = folder.join("shakespeare/shakespeare.txt");
//! use titan_datasets::{BatchPlan, Loader, LoaderConfig, verify};
//!
//! let corpus = verify(&[path])?;
//! let plan =
//!     BatchPlan { global_batch: 16, accumulation: 2, data_parallel_degree: 2, local_batch: 4 };
//! let loader = Loader::open(&LoaderConfig {
//!     files: corpus.sources(),
//!     sequence_length: 128,
//!     seed: 0,
//!     plan,
//! })?;
//! let mut tokens = vec![0; loader.batch_len()];
//! loader.fill(0, 1, &mut tokens)?; // step 0 of rank 1, in shape [2, 4, 129]
//! # Ok(())
//! # }
//! ```

mod batch;
mod error;
mod files;
mod loader;
mod order;
mod packing;
mod prefetch;
mod scan;
mod stream;
#[cfg(test)]
mod testing;
mod tokenizer;
mod verify;

pub use batch::BatchPlan;
pub use error::{BadFiles, Error, Result};
pub use loader::{Loader, LoaderConfig};
pub use order::{ORDER_VERSION, Order};
pub use packing::{Packing, TokenAccount};
pub use prefetch::{Batch, Prefetcher};
pub use stream::{SourceFile, TokenStream};
pub use tokenizer::Tokenizer;
pub use verify::{Corpus, FileReport, Fingerprint, Note, verify};
