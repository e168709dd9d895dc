//! The `titan-tpu` binary.
//!
//! Architecture invariants: only this crate prints; it never loads Python itself; exit codes come from
//! [`exit`] alone.

mod checkpoint_command;
mod cli;
mod console;
mod data;
mod data_command;
mod exit;
mod failure;
mod hugging_face;
mod recipe_command;
mod reckon;
mod setup;
mod setup_command;
mod simulate_command;
mod train;
mod words;

use std::panic;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use cli::{Cli, Command};
use exit::Exit;
use failure::Failure;

fn main() -> ExitCode {
    report_panics_as_bugs();
    train::signals::let_large_writes_fail();
    let exit = match panic::catch_unwind(|| run(Cli::parse())) {
        Ok(Ok(exit)) => exit,
        Ok(Err(failure)) => {
            console::print_failure(&failure);
            failure.exit
        }
        Err(_) => Exit::Bug,
    };
    ExitCode::from(exit.code())
}

fn run(cli: Cli) -> Result<Exit, Failure> {
    match cli.command {
        Command::Train(args) => train::command(&args),
        Command::Plan(args) => reckon::plan(&args),
        Command::Mfu(args) => reckon::mfu(&args),
        Command::Simulate(args) => simulate_command::run(&args),
        Command::Recipe(command) => recipe_command::run(&command),
        Command::Data(command) => data_command::run(&command),
        Command::Checkpoint(command) => checkpoint_command::run(&command),
        Command::Setup(args) => setup_command::setup(&args),
        Command::Doctor(args) => setup_command::doctor(&args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "titan-tpu", &mut script);
            console::write_document(&script)
                .map_err(|error| Failure::io(Exit::Usage, "cannot write to stdout", &error))?;
            Ok(Exit::Done)
        }
    }
}

/// A panic is a bug of ours: say so, with the place, instead of Rust's own message. Workers end with this
/// process.
fn report_panics_as_bugs() {
    panic::set_hook(Box::new(|info| {
        if titan_trainer::tensorboard::is_contained(info) || titan_datasets::is_contained() {
            return;
        }
        let place = info.location().map_or_else(String::new, |place| format!(" at {place}"));
        let text = info.payload_as_str().unwrap_or("no message");
        let bug = Failure::new(Exit::Bug, format!("this is a bug in titan-tpu{place}: {text}"))
            .help("please report it, with the recipe and this message");
        console::print_failure(&bug);
    }));
}
