//! `titan-tpu data`: shards without a run.

mod cursor;
mod output;
mod prompts;
mod show;
mod tokenize;
mod verify;

use titan_datasets::shards::TRAIN;
use titan_datasets::source::{Fields, SourceSpec, TextDocuments};

use crate::cli::{DataCommand, DocumentsArg, SourceArgs};
use crate::exit::Exit;
use crate::failure::Failure;

/// Runs the command.
pub(crate) fn run(command: &DataCommand) -> Result<Exit, Failure> {
    match command {
        DataCommand::Tokenize(args) => tokenize::command(args),
        DataCommand::Show(args) => show::command(args),
        DataCommand::Verify(args) => verify::command(args),
    }
}

/// What to read of a path.
fn spec(path: &str, args: &SourceArgs) -> SourceSpec {
    let text = args.text_field.clone().unwrap_or_else(|| "text".to_owned());
    let fields = match (&args.prompt_field, &args.response_field) {
        (Some(prompt), Some(response)) => {
            Fields::Exchange { prompt: prompt.clone(), response: response.clone() }
        }
        (Some(prompt), None) => Fields::Prompt { prompt: prompt.clone() },
        (None, _) => Fields::Text { text },
    };
    let documents = match args.documents {
        None | Some(DocumentsArg::File) => TextDocuments::File,
        Some(DocumentsArg::Lines) => TextDocuments::Line,
    };
    let split = args.split.clone().unwrap_or_else(|| TRAIN.to_owned());
    SourceSpec { path: path.to_owned(), fields, documents, split }
}
