//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use titan_parallelism::Convention;

use crate::checkpoint_command::args::{ExportArgs, ImportWeightsArgs, PinArgs, PruneArgs};
use crate::exit;
use crate::simulate_command::args::SimulateArgs;
use crate::train::Policy;

const ABOUT: &str = "Train large models on TPUs with PyTorch, from one TOML recipe.";

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "titan-tpu", version, about = ABOUT, after_help = exit::TABLE, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Train the model of a recipe.
    Train(TrainArgs),
    /// Say what is known of a run before it starts: mesh, batch, parameters, FLOPs, memory of the state.
    Plan(PlanArgs),
    /// Turn a measured throughput into model FLOPs utilisation.
    Mfu(MfuArgs),
    /// Say how much of the time a run would make progress on machines that fail.
    Simulate(SimulateArgs),
    /// List, show, check, compare and import recipes.
    #[command(subcommand)]
    Recipe(RecipeCommand),
    /// Make, show and check token shards.
    #[command(subcommand)]
    Data(DataCommand),
    /// List, show, check, keep and remove checkpoints, and exchange them with others.
    #[command(subcommand)]
    Checkpoint(CheckpointCommand),
    /// Install the Python environment of the engine now, instead of at the first run.
    Setup(SetupArgs),
    /// Say what is here and what is missing, without changing anything.
    Doctor(DoctorArgs),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

#[derive(Args, Debug)]
pub(crate) struct TrainArgs {
    #[command(flatten)]
    pub(crate) recipe: RecipeArgs,
    /// Number of devices (short for --set hardware.devices=N).
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) devices: Option<u64>,
    /// Folder for everything the run writes; new or empty, or that of a run with checkpoints, which is continued
    /// [default: runs/NAME-TIME].
    #[arg(long, value_name = "DIR")]
    pub(crate) run_dir: Option<PathBuf>,
    /// Which checkpoint to go on from: auto (the newest that is sound, if there is one), required (the same, but there
    /// must be one), never, or the number of a step.
    #[arg(long, value_name = "auto|required|never|STEP", default_value = "auto")]
    pub(crate) resume: Policy,
    /// Check recipe and data, print what would run; start nothing and create no run directory. Data that is not there as
    /// tokens yet is tokenized into the cache.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON lines on stdout: one object per step, and one with "event" for everything else.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which recipe, and with which changes.
#[derive(Args, Debug)]
pub(crate) struct RecipeArgs {
    /// The recipe: a TOML file, `-` for stdin, or the name of a shipped one.
    pub(crate) recipe: PathBuf,
    /// Override a setting; the value is TOML, a bare word is a string. May be repeated, the last one wins.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

/// The machine that a recipe is for.
#[derive(Args, Debug)]
pub(crate) struct TargetArgs {
    /// The accelerator and, for TPUs, the topology of one slice: tpu7x:8x8x16, cpu.
    #[arg(long, value_name = "ACCELERATOR[:TOPOLOGY]")]
    pub(crate) target: Option<String>,
    /// Number of slices, each with a replica of the model.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) slices: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) recipe: RecipeArgs,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// How FLOPs are counted: causal, palm or 6n.
    #[arg(long, value_name = "WORD", default_value = "causal")]
    pub(crate) convention: Convention,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct MfuArgs {
    #[command(flatten)]
    pub(crate) recipe: RecipeArgs,
    /// The measured throughput of one device, as PyTorch counts devices (a v7x chip has two).
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = positive)]
    pub(crate) tokens_per_second_per_device: f64,
    /// How FLOPs are counted: causal, palm or 6n.
    #[arg(long, value_name = "WORD", default_value = "causal")]
    pub(crate) convention: Convention,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
    let number = number.ok_or_else(|| "must be a number".to_owned())?;
    match number {
        ..=0.0 => Err("must be greater than 0".to_owned()),
        1e-6..=1e12 => Ok(number),
        _ => Err("is no throughput that a device can have".to_owned()),
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum RecipeCommand {
    /// List the recipes that come with titan-tpu.
    Ls {
        /// Print one JSON array on stdout.
        #[arg(long)]
        json: bool,
    },
    /// Print a recipe with every default and every derived value, and where each comes from.
    Show(ShowArgs),
    /// Check recipes; exit code 2 if any of them is bad.
    Check(CheckArgs),
    /// Print the JSON schema of recipes.
    Schema,
    /// Compare two recipes setting by setting, defaults included.
    Diff(DiffArgs),
    /// Turn a TorchTitan configuration (TOML, version 0.2.2 and older) into a recipe.
    Import(ImportArgs),
}

#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub(crate) recipe: RecipeArgs,
    /// Print the text of the file, comments included; only secrets are masked.
    #[arg(long, conflicts_with_all = ["json", "set"])]
    pub(crate) source: bool,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// The recipes: TOML files, or names of shipped ones.
    #[arg(required = true)]
    pub(crate) recipes: Vec<PathBuf>,
    /// Override a setting of each; the value is TOML, a bare word is a string.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Print one JSON object for each recipe on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DiffArgs {
    /// The first recipe.
    pub(crate) left: PathBuf,
    /// The second recipe.
    pub(crate) right: PathBuf,
    /// Print one JSON array on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ImportArgs {
    /// The TorchTitan configuration.
    pub(crate) config: PathBuf,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Number of devices, on CPUs and GPUs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    pub(crate) devices: Option<u64>,
    /// Write the recipe to a file, which must not exist yet, instead of stdout.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    /// Turn text into token shards; a second start goes on where the first one ended.
    Tokenize(TokenizeArgs),
    /// Print decoded documents and batches, of a recipe or of a folder of shards.
    Show(ShowDataArgs),
    /// Read everything and compare it with its hashes (shards), or check every record (a recipe or files).
    Verify(VerifyDataArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum CheckpointCommand {
    /// List checkpoints by step, with what is wrong with those that cannot be used.
    Ls(CheckpointPathArgs),
    /// Show what a checkpoint consists of; of several, the newest.
    Show(CheckpointPathArgs),
    /// Read every byte and compare it with its hash; exit code 5 if one is not what was written.
    Verify(CheckpointPathArgs),
    /// Write a checkpoint in a format that others read: its weights for transformers, or its whole state for
    /// torch.distributed.checkpoint.
    Export(ExportArgs),
    /// Make a checkpoint of what others have written; a run whose checkpoint.directory has it begins with it.
    Import(ImportWeightsArgs),
    /// Keep a checkpoint for good: neither a run nor prune removes it.
    Pin(PinArgs),
    /// Remove old checkpoints, once the newest was read and found sound. Those that are pinned stay.
    Prune(PruneArgs),
}

/// Which checkpoints.
#[derive(Args, Debug)]
pub(crate) struct CheckpointPathArgs {
    /// A checkpoint, a folder of checkpoints, or a run directory.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Print JSON on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Files with text, and where it is in them.
#[derive(Args, Debug)]
pub(crate) struct SourceArgs {
    /// The field or column of a document [default: text].
    #[arg(long, value_name = "NAME", conflicts_with_all = ["prompt_field", "response_field"])]
    pub(crate) text_field: Option<String>,
    /// The field of a prompt; with --response-field the response is learned and the prompt is not, without it the
    /// records are prompts for reinforcement learning.
    #[arg(long, value_name = "NAME")]
    pub(crate) prompt_field: Option<String>,
    /// The field of a response.
    #[arg(long, value_name = "NAME", requires = "prompt_field")]
    pub(crate) response_field: Option<String>,
    /// How plain text files are cut into documents [default: file].
    #[arg(long, value_enum)]
    pub(crate) documents: Option<DocumentsArg>,
    /// The split of a Hugging Face folder [default: train].
    #[arg(long, value_name = "NAME")]
    pub(crate) split: Option<String>,
}

impl SourceArgs {
    /// One of the flags that were given, if any was.
    pub(crate) fn any_given(&self) -> Option<&'static str> {
        let given = [
            ("--text-field", self.text_field.is_some()),
            ("--prompt-field", self.prompt_field.is_some()),
            ("--response-field", self.response_field.is_some()),
            ("--documents", self.documents.is_some()),
            ("--split", self.split.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(flag, _)| flag)
    }
}

/// How plain text files are cut into documents.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum DocumentsArg {
    /// A file is a document.
    File,
    /// A line is a document.
    Lines,
}

/// What happens at a record that cannot be used.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum BadRecordArg {
    /// The command ends with exit code 3 and names it.
    Fail,
    /// It is passed over, counted, and listed in skipped.jsonl.
    Skip,
}

#[derive(Args, Debug)]
pub(crate) struct TokenizeArgs {
    /// Files, folders, globs or addresses: .txt, .jsonl, .json, .parquet, .arrow; also .gz and .zst of text.
    #[arg(required = true, value_name = "SOURCE")]
    pub(crate) sources: Vec<String>,
    /// The folder of the shards.
    #[arg(long, short, value_name = "DIR")]
    pub(crate) output: PathBuf,
    /// `bytes`, or a tokenizer.json of Hugging Face's tokenizers.
    #[arg(long, value_name = "FILE", default_value = "bytes")]
    pub(crate) tokenizer: String,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// The token before each document: an id, its text, `none`, or `auto` (what the tokenizer says).
    #[arg(long, value_name = "TOKEN", default_value = "auto")]
    pub(crate) document_start: String,
    /// The token after each document: an id, its text, `none`, or `auto` (what the tokenizer says).
    #[arg(long, value_name = "TOKEN", default_value = "auto")]
    pub(crate) document_end: String,
    /// The share of the documents that is held out for validation, chosen by the hash of their text.
    #[arg(long, value_name = "X", default_value = "0", value_parser = fraction, allow_negative_numbers = true)]
    pub(crate) validation_fraction: f64,
    /// What happens at a record that cannot be used.
    #[arg(long, value_enum, default_value = "fail")]
    pub(crate) on_bad_record: BadRecordArg,
    /// A shard ends with the document that brings it to this many tokens.
    #[arg(long, value_name = "N", default_value_t = crate::data::SHARD_TOKENS, allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..=1 << 34))]
    pub(crate) shard_tokens: u64,
    /// Threads that tokenize [default: all cores].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) threads: Option<u64>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

fn fraction(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().map_err(|_| "must be a number".to_owned())?;
    if (0.0..=0.5).contains(&number) { Ok(number) } else { Err("must be from 0 to 0.5".to_owned()) }
}

#[derive(Args, Debug)]
pub(crate) struct ShowDataArgs {
    /// A recipe (a file, `-`, or the name of a shipped one), or a folder of shards.
    #[arg(value_name = "RECIPE|SHARDS")]
    pub(crate) what: PathBuf,
    /// Override a setting of the recipe.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Number of devices of the recipe (short for --set hardware.devices=N).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    pub(crate) devices: Option<u64>,
    /// The split of the documents.
    #[arg(long, value_name = "NAME", default_value = "train")]
    pub(crate) split: String,
    /// How many documents.
    #[arg(long, value_name = "N", default_value = "3", allow_negative_numbers = true)]
    pub(crate) documents: u64,
    /// The first document, from 0.
    #[arg(long, value_name = "N", default_value = "0", allow_negative_numbers = true)]
    pub(crate) first: u64,
    /// Steps whose batches are shown, from 1: one (7) or several (7..9) [default: 1].
    #[arg(long, value_name = "STEPS", value_parser = steps, allow_negative_numbers = true)]
    pub(crate) steps: Option<(u64, u64)>,
    /// Go on from a place in the data, as a checkpoint has it: a file that --write-cursor wrote. --steps counts from
    /// there on.
    #[arg(long, value_name = "FILE")]
    pub(crate) cursor: Option<PathBuf>,
    /// Write the place after the last of --steps.
    #[arg(long, value_name = "FILE")]
    pub(crate) write_cursor: Option<PathBuf>,
    /// The tokenizer.json of the shards, to show their text.
    #[arg(long, value_name = "FILE")]
    pub(crate) tokenizer: Option<PathBuf>,
    /// Print JSON lines on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `7` or `7..9`, both ends included.
fn steps(text: &str) -> Result<(u64, u64), String> {
    let wrong = || "write one step (7), or the first and the last (7..9), from 1".to_owned();
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong());
    let (first, last) = match text.split_once("..") {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(text)?, number(text)?),
    };
    if first == 0 || last < first { Err(wrong()) } else { Ok((first, last)) }
}

#[derive(Args, Debug)]
pub(crate) struct VerifyDataArgs {
    /// Folders of shards, recipes (files, or names of shipped ones), or files with text.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Print one JSON object for each on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct SetupArgs {
    /// Make titan-tpu's own environment anew even if it is ready.
    #[arg(long)]
    pub(crate) rebuild: bool,
    /// Print JSON lines on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Also import torch and say how long that takes.
    #[arg(long)]
    pub(crate) deep: bool,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}
