//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::exit;

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
    /// The recipe, a TOML file.
    pub(crate) recipe: PathBuf,
    /// Override a setting; the value is TOML, a bare word is a string. May be repeated, the last one wins.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Number of devices (short for --set hardware.devices=N).
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) devices: Option<u64>,
    /// Folder for everything the run writes; must not exist yet, or be empty [default: runs/NAME-TIME].
    #[arg(long, value_name = "DIR")]
    pub(crate) run_dir: Option<PathBuf>,
    /// Check recipe and data, print what would run, start and create nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON lines on stdout: one object per step, and one with "event" for everything else.
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
