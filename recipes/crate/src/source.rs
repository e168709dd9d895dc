//! Where a value came from: a recipe file or a `--set` on the command line.

use std::ops::{Deref, Range};
use std::path::PathBuf;

use serde::{Serialize, Serializer};

/// Index of a [`Source`] in its [`Sources`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceId(usize);

/// A text that settings were read from.
#[derive(Clone, Debug)]
pub struct Source {
    /// How messages call it: the path as the user typed it, or an option such as `--set #2`.
    pub name: String,
    /// The whole text, which spans point into. Once loaded, its secrets are masked.
    pub text: String,
    /// The folder that relative paths written in this source start from.
    pub base: PathBuf,
}

impl Source {
    /// Whether it is an option of the command line and no file.
    pub fn is_override(&self) -> bool {
        self.name.starts_with("--")
    }

    /// Line and column, in characters, where a place of this source starts, both from 1.
    pub fn position(&self, at: &Loc) -> (usize, usize) {
        let before = &self.text[..self.text.floor_char_boundary(at.span.start)];
        let line = before.rsplit('\n').next().unwrap_or_default();
        (1 + before.matches('\n').count(), 1 + line.chars().count())
    }
}

/// All texts of one recipe, in the order they were read.
#[derive(Clone, Debug, Default)]
pub struct Sources(Vec<Source>);

impl Sources {
    /// Adds a source and returns its id.
    pub fn add(&mut self, source: Source) -> SourceId {
        self.0.push(source);
        SourceId(self.0.len() - 1)
    }

    /// The source behind an id, to be changed.
    pub(crate) fn get_mut(&mut self, id: SourceId) -> &mut Source {
        &mut self.0[id.0]
    }

    /// The source behind an id that this collection gave out.
    pub fn get(&self, id: SourceId) -> &Source {
        &self.0[id.0]
    }
}

/// A range of bytes in a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loc {
    /// The text it points into.
    pub source: SourceId,
    /// Byte range in that text.
    pub span: Range<usize>,
}

impl Loc {
    /// Where it starts, in an order that follows reading: by source, then by place.
    pub(crate) fn start(&self) -> (SourceId, usize) {
        (self.source, self.span.start)
    }
}

/// A setting with the place where it was written; `at` is empty for a default.
#[derive(Clone, Debug)]
pub struct Item<T> {
    /// The value itself.
    pub value: T,
    /// Where it was written.
    pub at: Option<Loc>,
}

impl<T> Item<T> {
    /// A value that no one wrote: a default, or one derived from other settings.
    pub fn derived(value: T) -> Self {
        Self { value, at: None }
    }

    /// A value written at `at`.
    pub fn written(value: T, at: Loc) -> Self {
        Self { value, at: Some(at) }
    }
}

impl<T> Deref for Item<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// Two settings are equal when their values are; where they were written does not matter.
impl<T: PartialEq> PartialEq for Item<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Serialize> Serialize for Item<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}
