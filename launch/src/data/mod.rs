//! The data of a recipe as token shards: those that are there, and those that have to be made first.

mod failure;
mod shards;
pub(crate) mod special;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use titan_datasets::shards::{ShardIndex, TRAIN, VALIDATION};
use titan_datasets::source::{Fields, SourceSpec, TextDocuments, find, remote};
use titan_datasets::{
    Fingerprint, Job, OnBadRecord, OrderIdentity, Samples, SourceConfig, SplitPath, Tokenizer,
    tokenize,
};
use titan_recipes::tables::data::{self, BadRecord, DataSource};
use titan_recipes::tables::validation::Validation;
use titan_recipes::{Layout, Location, Recipe};

use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::setup::Variables;
use crate::words;
use failure::cache_failure;
pub(crate) use failure::failure;

/// Tokens of a shard unless something else is asked for: 256 MiB to 1 GiB.
pub(crate) const SHARD_TOKENS: u64 = 1 << 28;

/// A source of the recipe that is there as shards.
pub(crate) struct Ready {
    /// As the recipe names it.
    pub(crate) name: String,
    /// The folder of the shards.
    pub(crate) folder: PathBuf,
    /// The split of them that is read.
    pub(crate) split: String,
    pub(crate) index: ShardIndex,
    pub(crate) weight: Option<f64>,
}

/// All data of a recipe.
pub(crate) struct Prepared {
    pub(crate) training: Vec<Ready>,
    pub(crate) validation: Vec<Ready>,
    pub(crate) tokenizer: Arc<Tokenizer>,
    /// Whether a part of the training data is the validation data.
    holds_out: bool,
}

impl Prepared {
    /// What is read as one: each source that has a weight, or all.
    fn streams(&self) -> Vec<&[Ready]> {
        if self.training.iter().any(|ready| ready.weight.is_some()) {
            self.training.chunks(1).collect()
        } else {
            vec![&self.training]
        }
    }

    /// What the training reads.
    pub(crate) fn sources(&self) -> Vec<SourceConfig> {
        let of = |ready: &[Ready]| SourceConfig {
            name: ready.iter().map(|ready| ready.name.as_str()).collect::<Vec<_>>().join(", "),
            splits: splits(ready),
            weight: ready.first().and_then(|ready| ready.weight).unwrap_or(1.0),
        };
        self.streams().into_iter().map(of).collect()
    }

    /// The content of each of [`sources`](Self::sources).
    pub(crate) fn fingerprints(&self) -> Vec<String> {
        let of = |ready: &Ready| Some(ready.index.splits.get(&ready.split)?.fingerprint.clone());
        self.streams().into_iter().map(|all| joined(all.iter().filter_map(of).collect())).collect()
    }

    /// The content of everything that the training reads.
    pub(crate) fn fingerprint(&self) -> String {
        joined(self.fingerprints())
    }

    /// What gave no tokens, a line for each kind and source.
    pub(crate) fn left_out(&self) -> Vec<String> {
        let all = self.training.iter().chain(&self.validation);
        all.flat_map(|ready| {
            let lines = words::left_out(&ready.index.account).into_iter();
            lines.map(|line| format!("{}: {line}", ready.name)).collect::<Vec<_>>()
        })
        .collect()
    }

    /// What a validation reads.
    pub(crate) fn validation_splits(&self) -> Vec<SplitPath> {
        if !self.holds_out {
            return splits(&self.validation);
        }
        let held_out = splits(&self.training).into_iter();
        held_out.map(|split| SplitPath { split: VALIDATION.to_owned(), ..split }).collect()
    }

    /// What `train` or `validation` stands for.
    pub(crate) fn splits_of(&self, name: &str) -> Option<Vec<SplitPath>> {
        match name {
            TRAIN => Some(splits(&self.training)),
            VALIDATION => Some(self.validation_splits()).filter(|splits| !splits.is_empty()),
            _ => None,
        }
    }
}

/// What the order of the samples of a run depends on.
pub(crate) fn identity(
    prepared: &Prepared,
    samples: &Samples,
    recipe: &Recipe,
    layout: &Layout,
) -> OrderIdentity {
    let sources = prepared.fingerprints().into_iter().enumerate();
    OrderIdentity::new(
        *recipe.training.seed,
        layout.sequence_length,
        sources.map(|(n, fingerprint)| (fingerprint, samples.parts_of(n))).collect(),
    )
}

fn splits(ready: &[Ready]) -> Vec<SplitPath> {
    let of = |ready: &Ready| SplitPath { folder: ready.folder.clone(), split: ready.split.clone() };
    ready.iter().map(of).collect()
}

fn joined(mut fingerprints: Vec<String>) -> String {
    match fingerprints.len() {
        1 => fingerprints.remove(0),
        _ => Fingerprint::of(fingerprints.join("\n").as_bytes()).to_string(),
    }
}

/// Makes sure that all data of a recipe is there as shards. A fault in it is found now, before a worker starts, and is
/// named with its place.
///
/// Shards are made once, in the cache, and are found there by everything that they depend on.
pub(crate) fn prepare(
    recipe: &Recipe,
    console: &Console,
    stop: &AtomicBool,
) -> Result<Prepared, Failure> {
    let tokenizer = Arc::new(tokenizer(recipe)?);
    let validation = recipe.validation.as_ref();
    let fraction = validation.and_then(Validation::fraction).map_or(0.0, |fraction| **fraction);
    let preparing = Preparing { recipe, tokenizer: &tokenizer, console, stop };
    let training = preparing.all(&recipe.data.sources, fraction)?;
    let validation = match validation.and_then(Validation::sources) {
        Some(sources) => preparing.all(sources, 0.0)?,
        None => Vec::new(),
    };
    console.clear();
    let holds_out = fraction > 0.0;
    Ok(Prepared { training, validation, tokenizer, holds_out })
}

fn tokenizer(recipe: &Recipe) -> Result<Tokenizer, Failure> {
    match &recipe.data.tokenizer.value {
        data::Tokenizer::Bytes => Ok(Tokenizer::Bytes),
        data::Tokenizer::File { location: Location::Local(path), largest_id } => {
            // Not known only where the file is not on this machine.
            let largest = largest_id.and_then(|id| u32::try_from(id).ok()).unwrap_or(u32::MAX);
            Tokenizer::read(path, largest).map_err(|error| failure(&error))
        }
        data::Tokenizer::File { location, .. } => {
            let text = format!("the tokenizer {location} is not on this machine");
            Err(Failure::new(Exit::Usage, text).help("copy it here and name the file"))
        }
    }
}

struct Preparing<'a> {
    recipe: &'a Recipe,
    tokenizer: &'a Arc<Tokenizer>,
    console: &'a Console,
    stop: &'a AtomicBool,
}

impl Preparing<'_> {
    fn all(&self, sources: &[DataSource], fraction: f64) -> Result<Vec<Ready>, Failure> {
        sources.iter().map(|source| self.one(source, fraction)).collect()
    }

    fn one(&self, source: &DataSource, fraction: f64) -> Result<Ready, Failure> {
        let name = source.path.to_string();
        let weight = source.weight.as_ref().map(|weight| **weight);
        address(&source.path)?;
        if let Some(folder) = shards_at(&source_path(source), self.console, self.stop)? {
            let index = ShardIndex::read(&folder).map_err(|error| failure(&error))?;
            let (recipe, tokenizer) = (self.recipe, self.tokenizer.facts());
            let named = shards::Named {
                recipe,
                tokenizer,
                source,
                folder: &folder,
                index: &index,
                fraction,
            };
            named.check()?;
            return Ok(Ready { name, folder, split: source.split.value.clone(), index, weight });
        }
        let spec = spec(source);
        let inputs = find(&spec).map_err(|error| failure(&error.into()))?;
        let mut job = Job {
            inputs,
            fields: spec.fields,
            documents: spec.documents,
            tokenizer: Arc::clone(self.tokenizer),
            document_start: self.recipe.data.start_id().map(|id| id as u32),
            document_end: self.recipe.data.end_id().map(|id| id as u32),
            validation_fraction: fraction,
            on_bad_record: match *self.recipe.data.on_bad_record {
                BadRecord::Fail => OnBadRecord::Fail,
                BadRecord::Skip => OnBadRecord::Skip,
            },
            shard_tokens: SHARD_TOKENS,
            threads: cores(),
            output: PathBuf::new(),
            waits: true,
        };
        job.output = cache()?.join(job.facts().fingerprint().to_string());
        let mut report = |progress: titan_datasets::Progress| {
            let text =
                format!("tokenizing {name}: {} tokens", words::count(progress.tokens as f64));
            self.console.progress(text, Some(progress.fraction));
        };
        let outcome =
            tokenize(&job, self.stop, &mut report).map_err(|error| cache_failure(&error))?;
        let split = TRAIN.to_owned();
        Ok(Ready { name, folder: job.output, split, index: outcome.index, weight })
    }
}

/// Refuses what cannot be written down: the names of sources are in messages and in the index of their shards.
pub(crate) fn address(location: &Location) -> Result<(), Failure> {
    let (what, help) = match location {
        Location::Local(path) if path.to_str().is_none() => {
            ("the path of data must be UTF-8", "rename the folder or the file")
        }
        // What is masked is a secret. (A `?` alone may be a part of a pattern.)
        Location::Remote(address) if location.to_string() != address.expose() => (
            "the address of data has no user, password or query",
            "give credentials by the variables of the store, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ),
        _ => return Ok(()),
    };
    Err(Failure::new(Exit::Usage, format!("{location}: {what}")).help(help))
}

/// The folder of a source that is token shards already; those of an object store are fetched into the cache and
/// checked.
pub(crate) fn shards_at(
    path: &str,
    console: &Console,
    stop: &AtomicBool,
) -> Result<Option<PathBuf>, Failure> {
    if !remote::is_address(path) {
        return Ok(ShardIndex::is_for(Path::new(path)).then(|| path.into()));
    }
    let found = remote::find_shards(path).map_err(|error| failure(&error))?;
    let Some(fingerprint) = found else { return Ok(None) };
    // Other shards at the same address are other data.
    let key = format!("{path} {fingerprint}");
    let folder = cache()?.join(Fingerprint::of(key.as_bytes()).to_string());
    let mut report = |done: u64, total: u64| {
        let text = format!("fetching {path}: {} of {}", words::bytes(done), words::bytes(total));
        console.progress(text, Some(done as f64 / total.max(1) as f64));
    };
    remote::fetch_shards(path, &folder, stop, &mut report)
        .map_err(|error| cache_failure(&error))?;
    Ok(Some(folder))
}

/// Where the tokens of data are kept.
fn cache() -> Result<PathBuf, Failure> {
    Variables::from_process().data_cache().map_err(|error| {
        Failure::new(Exit::Environment, error.to_string())
            .help("set TITAN_DATA_CACHE to a folder for the tokens of the data")
    })
}

/// Cores that this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Where a source of a recipe is, and what to read of it.
pub(crate) fn spec(source: &DataSource) -> SourceSpec {
    let text = |item: &titan_recipes::Item<String>| item.value.clone();
    let fields = match &source.fields {
        data::Fields::Text { text_field } => Fields::Text { text: text(text_field) },
        data::Fields::Instruction { prompt_field, response_field } => {
            Fields::Exchange { prompt: text(prompt_field), response: text(response_field) }
        }
        data::Fields::Prompt { prompt_field } => Fields::Prompt { prompt: text(prompt_field) },
    };
    let documents = match *source.documents {
        data::Documents::File => TextDocuments::File,
        data::Documents::Lines => TextDocuments::Line,
    };
    SourceSpec { path: source_path(source), fields, documents, split: source.split.value.clone() }
}

fn source_path(source: &DataSource) -> String {
    match &source.path.value {
        Location::Local(path) => path.display().to_string(),
        Location::Remote(address) => address.expose().to_string(),
    }
}
