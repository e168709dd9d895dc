//! All problems of a recipe, in reading order, as text.

use std::borrow::Cow;
use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use crate::diagnostic::{Diagnostic, Severity};
use crate::shown::{ShownPath, count, is_treacherous};
use crate::source::{Loc, Source, Sources};

/// Problems that a report shows. Whoever has more of them has one mistake that causes the rest, or no recipe.
pub(crate) const SHOWN: usize = 20;

/// All problems of a recipe together with the texts they point into.
#[derive(Debug)]
pub struct Report {
    /// The texts.
    pub sources: Sources,
    /// The problems in the order of the text; those without a place come first.
    pub diagnostics: Vec<Diagnostic>,
    /// Errors beyond those in `diagnostics`: they are only counted.
    pub hidden: usize,
    /// What the user called the recipe, for problems that have no place of their own.
    pub name: String,
}

impl Report {
    pub(crate) fn new(
        sources: Sources,
        mut diagnostics: Vec<Diagnostic>,
        mut hidden: usize,
        name: &str,
    ) -> Self {
        if diagnostics.len() > SHOWN {
            diagnostics.sort_by_key(|d| d.severity == Severity::Warning);
            let errors = diagnostics.iter().filter(|d| d.severity == Severity::Error).count();
            hidden += errors.saturating_sub(SHOWN);
            // In reading order, so that the errors that are shown are the first ones.
            diagnostics[..errors].sort_by_key(|d| d.at.as_ref().map(Loc::start));
            diagnostics.truncate(SHOWN);
        }
        diagnostics.sort_by_key(|d| d.at.as_ref().map(Loc::start));
        Self { sources, diagnostics, hidden, name: ShownPath(name).to_string() }
    }

    /// How many problems stop the run.
    pub fn errors(&self) -> usize {
        let shown = self.diagnostics.iter().filter(|d| d.severity == Severity::Error).count();
        shown + self.hidden
    }

    /// The whole report as text, one block per problem, with terminal colours if `styled`.
    pub fn render(&self, styled: bool) -> String {
        let renderer = if styled { Renderer::styled() } else { Renderer::plain() };
        let renderer = renderer.decor_style(DecorStyle::Ascii);
        let mut blocks: Vec<String> =
            self.diagnostics.iter().map(|d| renderer.render(&[self.group(d)])).collect();
        if self.hidden > 0 {
            let more = count(self.hidden as u64, "more problem");
            let title = Level::NOTE.primary_title(format!("{more}, shown when these are solved"));
            blocks.push(renderer.render(&[Group::with_title(title)]));
        }
        blocks.join("\n\n")
    }

    fn group<'a>(&'a self, diagnostic: &'a Diagnostic) -> Group<'a> {
        let level = match diagnostic.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let mut group = Group::with_title(level.primary_title(&*diagnostic.message));
        match &diagnostic.at {
            Some(at) => {
                let places = || {
                    let label = diagnostic.label.as_deref().unwrap_or_default();
                    let first = (at, label, AnnotationKind::Primary);
                    let rest = diagnostic.context.iter();
                    let rest = rest.map(|(at, label)| (at, &**label, AnnotationKind::Context));
                    std::iter::once(first).chain(rest)
                };
                let here: Vec<Place<'_>> =
                    places().filter(|place| place.0.source == at.source).collect();
                group = group.element(snippet(self.sources.get(at.source), &here));
                for place in places().filter(|place| place.0.source != at.source) {
                    group = group.element(snippet(self.sources.get(place.0.source), &[place]));
                }
            }
            None if self.name.is_empty() => {}
            None => group = group.element(Origin::path(&*self.name)),
        }
        match &diagnostic.help {
            Some(help) => group.element(Level::HELP.message(&**help)),
            None => group,
        }
    }
}

const LINE_END: [char; 2] = ['\r', '\n'];

/// A text to underline, the words beside it, and how it is underlined.
type Place<'a> = (&'a Loc, &'a str, AnnotationKind);

/// The lines of a source from the first place to the last, with the places underlined. Only these lines: the
/// renderer looks at all the text that it is given, once for every problem.
fn snippet<'a>(source: &'a Source, places: &[Place<'a>]) -> Snippet<'a, Annotation<'a>> {
    let text = &*source.text;
    let spans: Vec<Range<usize>> = places.iter().map(|place| visible(text, place.0)).collect();
    let first = spans.iter().map(|span| span.start).min().unwrap_or(0);
    let last = spans.iter().map(|span| span.end).max().unwrap_or(0);
    let start = text[..first].rfind('\n').map_or(0, |n| n + 1);
    let end = text[last..].find(LINE_END).map_or(text.len(), |n| last + n);
    let line = 1 + text[..start].matches('\n').count();
    let annotations = places.iter().zip(spans).map(|((_, label, kind), span)| {
        let annotation = kind.span(span.start - start..span.end - start);
        if label.is_empty() { annotation } else { annotation.label(*label) }
    });
    Snippet::source(printable(&text[start..end]))
        .line_start(line)
        .path(ShownPath(&source.name).to_string())
        .annotations(annotations)
}

/// The part of a location that is underlined: inside the text, on whole characters, and only the beginning of its
/// first line, because a whole table or page would fill the screen.
fn visible(text: &str, at: &Loc) -> Range<usize> {
    const LONGEST: usize = 100;
    let start = text.floor_char_boundary(at.span.start);
    let end = text.ceil_char_boundary(at.span.end).max(start);
    let line = text[start..end].split(LINE_END).next().unwrap_or_default();
    // The spaces behind a masked secret would show its length.
    let line = line.trim_end();
    start..start + line.chars().take(LONGEST).map(char::len_utf8).sum::<usize>()
}

/// Source text without the characters that the renderer would pass on to the terminal as they are. Each is
/// replaced by one of the same length in bytes, so that spans stay right.
fn printable(text: &str) -> Cow<'_, str> {
    let left_alone = |c: char| c.is_ascii() || !is_treacherous(c);
    if text.chars().all(left_alone) {
        return text.into();
    }
    let replaced = |c: char| match c.len_utf8() {
        _ if left_alone(c) => c,
        2 => '\u{b7}',
        _ => '\u{fffd}',
    };
    text.chars().map(replaced).collect::<String>().into()
}
