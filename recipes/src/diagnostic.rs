//! Problems of a recipe, shown as a compiler shows them: what, where (underlined), the rule, the fix.

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use crate::source::{Loc, Sources};

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
}

/// All problems of a recipe together with the texts they point into.
#[derive(Debug)]
pub struct Report {
    /// The texts.
    pub sources: Sources,
    /// The problems, in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
    /// What the user called the recipe, for problems that have no place of their own.
    pub name: String,
}

impl Report {
    /// How many problems stop the run.
    pub fn errors(&self) -> usize {
        self.diagnostics.iter().filter(|d| d.severity == Severity::Error).count()
    }

    /// Puts the problems in reading order: by source, then by place; problems without a place come first.
    pub fn sort(&mut self) {
        self.diagnostics.sort_by_key(|d| d.at.as_ref().map(|at| (at.source, at.span.start)));
    }

    /// The whole report as text, one block per problem, with terminal colours if `styled`.
    pub fn render(&self, styled: bool) -> String {
        let renderer = if styled { Renderer::styled() } else { Renderer::plain() };
        let renderer = renderer.decor_style(DecorStyle::Ascii);
        let blocks: Vec<String> =
            self.diagnostics.iter().map(|d| renderer.render(&self.groups(d))).collect();
        blocks.join("\n\n")
    }

    fn groups<'a>(&'a self, diagnostic: &'a Diagnostic) -> Vec<Group<'a>> {
        let level = match diagnostic.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let mut group = Group::with_title(level.primary_title(&*diagnostic.message));
        match &diagnostic.at {
            Some(at) => {
                let source = self.sources.get(at.source);
                let mut primary = AnnotationKind::Primary.span(visible(&source.text, at));
                if let Some(label) = &diagnostic.label {
                    primary = primary.label(&**label);
                }
                let mut snippet =
                    Snippet::source(&*source.text).path(&*source.name).annotation(primary);
                for (loc, label) in diagnostic.context.iter().filter(|(l, _)| l.source == at.source)
                {
                    let span = visible(&source.text, loc);
                    snippet =
                        snippet.annotation(AnnotationKind::Context.span(span).label(&**label));
                }
                group = group.element(snippet);
                for (loc, label) in diagnostic.context.iter().filter(|(l, _)| l.source != at.source)
                {
                    let other = self.sources.get(loc.source);
                    let span = visible(&other.text, loc);
                    group = group.element(
                        Snippet::source(&*other.text)
                            .path(&*other.name)
                            .annotation(AnnotationKind::Context.span(span).label(&**label)),
                    );
                }
            }
            None => group = group.element(Origin::path(&*self.name)),
        }
        if let Some(help) = &diagnostic.help {
            group = group.element(Level::HELP.message(&**help));
        }
        vec![group]
    }
}

/// The part of a location that can be underlined: never past the text, and only its first line, because
/// underlining a whole table would fill the screen.
fn visible(text: &str, at: &Loc) -> std::ops::Range<usize> {
    let start = at.span.start.min(text.len());
    let end = at.span.end.clamp(start, text.len());
    let first_line = text[start..end].find('\n').map_or(end, |n| start + n);
    start..first_line
}
