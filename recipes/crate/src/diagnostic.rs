//! One problem of a recipe, as a compiler would tell it: what, where (underlined), the rule, the fix.

use crate::source::Loc;

/// Whether a problem stops the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Nothing is started.
    Error,
    /// The run goes on; the user should know.
    Warning,
}

/// One problem.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    /// Whether it stops the run.
    pub severity: Severity,
    /// What is wrong: a lower-case sentence without a final stop.
    pub message: String,
    /// The text to underline.
    pub at: Option<Loc>,
    /// The words beside the underline: the rule.
    pub label: Option<String>,
    /// Other places that take part in the problem, each with its own words.
    pub context: Vec<(Loc, String)>,
    /// What to change.
    pub help: Option<String>,
}

impl Diagnostic {
    /// An error with nothing but its message; the builder methods add the rest.
    pub fn error(message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            message: message.into(),
            at: None,
            label: None,
            context: Vec::new(),
            help: None,
        }
    }

    /// A warning.
    pub fn warning(message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(message) }
    }

    /// Underlines `at`.
    #[must_use]
    pub fn at(mut self, at: impl Into<Option<Loc>>) -> Self {
        self.at = at.into();
        self
    }

    /// Writes `label` beside the underline.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Points at a second place, when that value was written by the user at all.
    #[must_use]
    pub fn context(mut self, at: Option<Loc>, label: impl Into<String>) -> Self {
        if let Some(at) = at {
            self.context.push((at, label.into()));
        }
        self
    }

    /// Says what to change.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Says what to change, if that is known.
    #[must_use]
    pub fn help_if(mut self, help: Option<String>) -> Self {
        self.help = help;
        self
    }
}
