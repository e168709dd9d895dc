//! What the commands that take checkpoints in, give them out and thin them out are told.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// A format that others have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A folder with config.json and safetensors, as transformers reads and writes it.
    HuggingFace,
    /// torch.distributed.checkpoint: a folder with .metadata and .distcp files.
    Dcp,
}

/// Number formats of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DtypeArg {
    /// As they are in checkpoints.
    Float32,
    /// Rounded to the nearest.
    Bfloat16,
    /// Rounded to the nearest; a number beyond 65504 is an error.
    Float16,
}

/// How the experts of a mixture are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExpertsArg {
    /// A tensor for each, as on the Hub.
    Separate,
    /// A stack for each block, as in the memory of transformers 5.
    Fused,
}

#[derive(Args, Debug)]
pub(crate) struct ExportArgs {
    /// A checkpoint, a folder of checkpoints, or a run directory; of several, the newest that is sound.
    #[arg(value_name = "CHECKPOINT|RUN")]
    pub(crate) path: PathBuf,
    /// The folder to write, which must not exist yet.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) to: PathBuf,
    /// The format.
    #[arg(long, value_enum, default_value = "hugging-face")]
    pub(crate) format: Format,
    /// The number format of the weights, of hugging-face [default: float32].
    #[arg(long, value_enum)]
    pub(crate) dtype: Option<DtypeArg>,
    /// How experts are written, of hugging-face [default: separate].
    #[arg(long, value_enum)]
    pub(crate) experts: Option<ExpertsArg>,
    /// The largest file, of hugging-face; a tensor that is larger has one of its own [default: 5000000000].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) shard_bytes: Option<u64>,
    /// Print JSON on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

impl ExportArgs {
    /// Whether something is asked for that only Hugging Face's format has.
    pub(crate) fn asks_for_form(&self) -> bool {
        self.dtype.is_some() || self.experts.is_some() || self.shard_bytes.is_some()
    }
}

#[derive(Args, Debug)]
pub(crate) struct ImportWeightsArgs {
    /// The folder with what others have written. The metadata of dcp is a pickle, which can run code: titan-tpu reads no
    /// more of it than tensors and texts, and refuses all else; torch itself does not.
    #[arg(value_name = "FOLDER")]
    pub(crate) path: PathBuf,
    /// The recipe that is to go on from it: a TOML file, `-` for stdin, or the name of a shipped one.
    #[arg(long, value_name = "RECIPE")]
    pub(crate) recipe: PathBuf,
    /// Override a setting of the recipe; the value is TOML, a bare word is a string. May be repeated, the last one wins.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// The folder of checkpoints that gets one more: the checkpoint.directory of the run that is to go on from it.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) to: PathBuf,
    /// The format.
    #[arg(long, value_enum, default_value = "hugging-face")]
    pub(crate) format: Format,
    /// What is before the names of the weights, of dcp, if there is more than one set of them: `ema.`.
    #[arg(long, value_name = "TEXT")]
    pub(crate) prefix: Option<String>,
    /// Print JSON on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PinArgs {
    /// The checkpoint.
    pub(crate) path: PathBuf,
    /// Why it is kept.
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    /// Take the pin away.
    #[arg(long, conflicts_with = "note")]
    pub(crate) remove: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PruneArgs {
    /// A folder of checkpoints, or a run directory.
    pub(crate) path: PathBuf,
    /// The last so many that can be used are kept.
    #[arg(long, value_name = "N", default_value = "3", allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) keep_last: u64,
    /// Those whose step it divides are kept too.
    #[arg(long, value_name = "STEPS", allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) keep_every: Option<u64>,
    /// Say what would be removed, and remove nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}
