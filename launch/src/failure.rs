//! How a command fails: an exit code, what to print, and what to do about it.

use std::io;

use titan_recipes::Report;

use crate::exit::Exit;

/// A command that cannot go on.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) exit: Exit,
    /// What happened, one line, lower case, without a final stop; or a whole report.
    pub(crate) what: What,
    /// What the user can do.
    pub(crate) help: Vec<String>,
}

/// The text of a failure.
#[derive(Debug)]
pub(crate) enum What {
    /// A sentence, with lines quoted below it.
    Message { text: String, quoted: Vec<String> },
    /// Problems of a recipe, each at its place.
    Recipe(Box<Report>),
}

impl Failure {
    pub(crate) fn new(exit: Exit, text: impl Into<String>) -> Self {
        Self {
            exit,
            what: What::Message { text: text.into(), quoted: Vec::new() },
            help: Vec::new(),
        }
    }

    /// The operating system refused something; a full disk has a code of its own.
    pub(crate) fn io(exit: Exit, what: impl std::fmt::Display, error: &io::Error) -> Self {
        let exit = match error.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => Exit::NoSpace,
            _ => exit,
        };
        Self::new(exit, format!("{what}: {error}"))
    }

    #[must_use]
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help.push(help.into());
        self
    }

    #[must_use]
    pub(crate) fn quoting(mut self, lines: Vec<String>) -> Self {
        if let What::Message { quoted, .. } = &mut self.what {
            *quoted = lines;
        }
        self
    }

    /// The failure in one line, for JSON output and the ledger.
    pub(crate) fn summary(&self) -> String {
        match &self.what {
            What::Message { text, .. } => text.clone(),
            What::Recipe(report) => {
                let errors = report.errors();
                let first = report
                    .diagnostics
                    .iter()
                    .find(|d| d.severity == titan_recipes::Severity::Error);
                let first = first.map_or("", |d| d.message.as_str());
                match errors {
                    0 | 1 => first.to_owned(),
                    _ => format!("{first} (and {} more)", errors - 1),
                }
            }
        }
    }
}

impl From<Report> for Failure {
    fn from(report: Report) -> Self {
        Self { exit: Exit::Usage, what: What::Recipe(Box::new(report)), help: Vec::new() }
    }
}
