//! How text of a recipe appears inside a message.

use std::borrow::Cow;
use std::fmt::{Display, Formatter, Result};
use std::path::Path;

use crate::secrets::without_url_secrets;

/// Text that a user wrote, safe to print (passwords in URLs are masked, [`is_treacherous`] characters escaped), and
/// cut where it would fill the screen.
pub(crate) struct Shown<T>(pub(crate) T);

impl<T: AsRef<str>> Display for Shown<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        const LONGEST: usize = 80;
        write_cut(f, self.0.as_ref(), LONGEST)
    }
}

/// A path that a user wrote, safe to print. It is shown whole, unless it is longer than any path can be.
pub(crate) struct ShownPath<T>(pub(crate) T);

impl<T: AsRef<Path>> Display for ShownPath<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        const LONGEST: usize = 4096;
        write_cut(f, &self.0.as_ref().to_string_lossy(), LONGEST)
    }
}

/// A path as messages show it: safe to print.
pub fn shown_path(path: &Path) -> String {
    ShownPath(path).to_string()
}

fn write_cut(f: &mut Formatter<'_>, text: &str, longest: usize) -> Result {
    let text = &*without_url_secrets(text);
    match text.char_indices().nth(longest) {
        Some((end, _)) => write!(f, "{}...", escaped(&text[..end])),
        None => f.write_str(&escaped(text)),
    }
}

fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(is_treacherous) {
        return text.into();
    }
    let push = |mut out: String, c: char| {
        if is_treacherous(c) {
            out.extend(c.escape_default())
        } else {
            out.push(c)
        }
        out
    };
    text.chars().fold(String::new(), push).into()
}

/// Whether a character does something to a terminal (control characters), to the order of the characters around
/// it (bidirectional marks), or cannot be seen although it makes two words differ (zero width).
pub(crate) fn is_treacherous(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// `1 step`, `2 steps`.
pub(crate) fn count(n: u64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// `1, 2, 3`.
pub(crate) fn list<T: Display>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

/// `"a", "b"`: words as a recipe writes them.
pub(crate) fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
}
