//! Secrets of a recipe: values of `[env]`, and passwords and signatures inside URLs. They reach the workers that
//! need them, and nothing else: no message, log, run directory or metadata.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::{Serialize, Serializer};

use crate::recipe::TABLES;
use crate::tree::{Node, Table, Value};
use crate::words::nearest;

/// What is shown in the place of a secret, whatever its length.
pub const MASK: &str = "********";

/// The table whose values are secret.
const ENV: &str = "env";

/// A text that only [`Secret::expose`] shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps a text secret.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself, for the environment of a worker and nothing that is written or shown.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(MASK)
    }
}

/// No address is longer; looking further for its end would take the square of a text of colons.
const LONGEST_URL: usize = 4096;

/// The parts of a text that are passwords of URLs, or signatures and tokens in their queries. A URL ends with the
/// quotes that it is in, or where it has none, with the next space.
fn in_urls(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut past = 0;
    for (at, _) in text.match_indices(":/") {
        if at < past {
            continue;
        }
        let before = text[..at].trim_end_matches(|c: char| c.is_ascii_alphanumeric());
        if before.len() == at {
            continue;
        }
        let start = at + 1 + text[at + 1..].len() - text[at + 1..].trim_start_matches('/').len();
        let url = &text[start..text.ceil_char_boundary(start + LONGEST_URL).min(text.len())];
        let url = match before.chars().next_back() {
            Some(quote @ ('"' | '\'')) => &url[..url.find(quote).unwrap_or(url.len())],
            _ if before.is_empty() => url,
            _ => &url[..url.find(char::is_whitespace).unwrap_or(url.len())],
        };
        if !url.contains(['@', '=']) {
            past = start + url.len();
            continue;
        }
        found.extend(user_secret(url).map(|range| start + range.start..start + range.end));
        found.extend(query_secrets(url).map(|range| start + range.start..start + range.end));
    }
    found.retain(|range| !range.is_empty());
    found.sort_by_key(|range| range.start);
    // A password may have a `?` in it: what overlaps is masked once.
    found.dedup_by(|next, first| {
        let overlaps = next.start < first.end;
        if overlaps {
            first.end = first.end.max(next.end);
        }
        overlaps
    });
    found
}

/// `key:password@host`, whatever is in the password; `token@host` has no user, and all of it is secret. An `@` in a
/// path is none.
fn user_secret(url: &str) -> Option<Range<usize>> {
    let host_end = url.find(['/', '?', '#']).unwrap_or(url.len());
    match url[..host_end].find(':') {
        Some(colon) => url.rfind('@').filter(|at| *at > colon).map(|at| colon + 1..at),
        None => url[..host_end].rfind('@').map(|at| 0..at),
    }
}

/// Values of the parameters of a query or fragment, however they are separated.
fn query_secrets(url: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut from = 0;
    url.split(['?', '&', '#', ';']).filter_map(move |part| {
        let start = from;
        from += part.len() + 1;
        let (key, value) = part.split_once('=')?;
        let end = start + part.len();
        is_secret_key(key).then_some(end - value.len()..end)
    })
}

fn is_secret_key(key: &str) -> bool {
    const SIGNS: [&str; 8] =
        ["token", "sig", "password", "passwd", "secret", "credential", "key", "auth"];
    let key = key.to_lowercase().replace(['-', '_'], "");
    SIGNS.iter().any(|sign| key.contains(sign))
}

/// A text with the secrets of its URLs replaced by [`MASK`].
pub(crate) fn without_url_secrets(text: &str) -> Cow<'_, str> {
    if !text.contains(":/") {
        return text.into();
    }
    let mut masked = text.to_owned();
    for range in in_urls(text).into_iter().rev() {
        masked.replace_range(range, MASK);
    }
    masked.into()
}

/// Whether a secret was replaced by [`MASK`] when the text was written, so that it cannot be used any more.
pub(crate) fn was_masked(text: &str) -> bool {
    text == MASK || in_urls(text).into_iter().any(|range| &text[range] == MASK)
}

/// The text of a recipe without its secrets, of the same length, so that places in it stay right. It goes by
/// lines, because a text that is not TOML must not show its secrets either.
pub fn without_secrets(text: &str) -> String {
    masked_by_lines(text, is_header)
}

/// Like [`without_secrets`], for a text that is not TOML: what looks like a header may be part of a value, so only the
/// tables of a recipe end the table of secrets.
pub(crate) fn without_secrets_of_no_toml(text: &str) -> String {
    masked_by_lines(text, |line| {
        let name = line.trim_start_matches('[').split([']', '.']).next().unwrap_or_default();
        is_header(line) && (TABLES.contains(&name.trim()) || is_env(name))
    })
}

fn masked_by_lines(text: &str, is_header: impl Fn(&str) -> bool) -> String {
    let mut masked = text.to_owned();
    let (mut in_env, mut in_braces, mut start) = (false, false, 0);
    for line in text.split_inclusive('\n') {
        let content = line.trim_end_matches(['\r', '\n']);
        let range = start..start + content.len();
        start += line.len();
        let trimmed = content.trim_start();
        if trimmed.starts_with('[') && !in_braces && is_header(trimmed) {
            in_env = is_env(trimmed.trim_start_matches('['));
            continue;
        }
        let (key, value) = match content.split_once('=') {
            Some((key, value)) => (key, range.end - value.len()..range.end),
            // A `=` that was forgotten does not make it public.
            None if is_env(content) => (content, range.clone()),
            None => ("", range.clone()),
        };
        let sets_env = !in_env && is_env(key.trim_start_matches(['#', ' ', '\t']));
        if sets_env {
            in_braces = content.contains('{') && !content.contains('}');
        }
        if in_env || in_braces || sets_env || names_a_secret(key) {
            blank(&mut masked, value);
        }
        in_braces = in_braces && !content.contains('}');
    }
    for range in in_urls(text) {
        blank(&mut masked, range);
    }
    masked
}

/// Whether a line sets what looks like a secret variable, wherever it stands: it may have missed its table.
fn names_a_secret(key: &str) -> bool {
    const SIGNS: [&str; 5] = ["TOKEN", "SECRET", "PASSWORD", "KEY", "CREDENTIAL"];
    let key = key.rsplit('.').next().unwrap_or_default().trim().trim_matches(['"', '\'']);
    let is_variable = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    key.chars().all(is_variable) && SIGNS.iter().any(|sign| key.contains(sign))
}

fn is_header(line: &str) -> bool {
    let body = line.trim_start_matches('[');
    let name = body.split([']', '\n']).next().unwrap_or_default();
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ' ' | '"' | '\'');
    !name.is_empty() && name.chars().all(plain)
}

/// Whether a key or a header leads into the table of secrets, misspelled or not.
fn is_env(key: &str) -> bool {
    // A `=` may be missing, so that the first word is all there is to go by.
    let end = |c: char| matches!(c, ']' | '=' | '{') || c.is_whitespace();
    let path = key.trim_start().split(end).next().unwrap_or_default();
    path.split('.')
        .map(|part| part.trim().trim_matches(['"', '\'']))
        .any(|part| nearest(part, [ENV]).is_some() || part.to_lowercase().starts_with("environ"))
}

/// Masks what is parsed: the values of the table `env`, in whatever form they are written, and addresses whose
/// secrets are spelled with escapes.
pub(crate) fn blank_parsed(masked: &mut String, root: &Table) {
    for entry in &root.0 {
        match &entry.node.value {
            Value::Table(table) if is_env(&entry.key) => {
                table.0.iter().for_each(|inner| blank_leaves(masked, &inner.node));
            }
            _ if is_env(&entry.key) => blank(masked, entry.node.at.span.clone()),
            _ => blank_addresses(masked, &entry.node),
        }
    }
}

fn blank_addresses(masked: &mut String, node: &Node) {
    match &node.value {
        Value::Table(table) => {
            table.0.iter().for_each(|entry| blank_addresses(masked, &entry.node));
        }
        Value::List(nodes) => nodes.iter().for_each(|node| blank_addresses(masked, node)),
        Value::Text(text) => {
            let is_escaped = || masked.get(node.at.span.clone()).is_some_and(|t| t.contains('\\'));
            if !in_urls(text).is_empty() && is_escaped() {
                blank(masked, node.at.span.clone());
            }
        }
        _ => {}
    }
}

fn blank_leaves(masked: &mut String, node: &Node) {
    match &node.value {
        Value::Table(table) => {
            table.0.iter().for_each(|entry| blank_leaves(masked, &entry.node));
        }
        _ => blank(masked, node.at.span.clone()),
    }
}

/// Replaces a range by the mask and spaces, without changing the number of bytes or of lines.
fn blank(text: &mut String, range: Range<usize>) {
    let Some(old) = text.get(range.clone()) else { return };
    if old.trim().is_empty() {
        return;
    }
    // Few, so that a short secret does not show its length.
    let mut stars = MASK.len() / 2;
    let mut new = String::with_capacity(old.len());
    for c in old.chars() {
        match c {
            '\n' | '\r' => new.push(c),
            ' ' | '\t' if new.trim().is_empty() => new.push(c),
            _ => {
                for _ in 0..c.len_utf8() {
                    new.push(if stars > 0 { '*' } else { ' ' });
                    stars = stars.saturating_sub(1);
                }
            }
        }
    }
    text.replace_range(range, &new);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_lose_their_passwords_and_signatures_and_nothing_else() {
        let cases = [
            ("gs://bucket/a@b", "gs://bucket/a@b"),
            ("s3://key:pa55@bucket/x", "s3://key:********@bucket/x"),
            ("https://tok@host/x", "https://********@host/x"),
            (
                "https://h/x?a=1&X-Amz-Signature=ff&b=2",
                "https://h/x?a=1&X-Amz-Signature=********&b=2",
            ),
            ("s3://key:p/a?5'@bucket/x", "s3://key:********@bucket/x"),
            ("s3:/key:pa55@bucket/x", "s3:/key:********@bucket/x"),
            ("s3:// key:pa 55@bucket/x", "s3:// key:********@bucket/x"),
            ("gs://bucket/run:3@v2", "gs://bucket/run:3@v2"),
            ("no url at all: a@b", "no url at all: a@b"),
        ];
        for (text, expected) in cases {
            assert_eq!(without_url_secrets(text), expected);
        }
        assert!(was_masked("s3://key:********@bucket/x") && was_masked(MASK));
        assert!(!was_masked("s3://key:pa55@bucket/x"));
    }

    #[test]
    fn the_text_of_a_recipe_loses_its_secrets_in_every_form_and_keeps_its_places() {
        for text in [
            "[env]\nTOKEN = \"hush-hush\"\n",
            "[ \"env\" ]\n'TOKEN' = 'hush-hush'\n",
            "[evn]\nTOKEN = \"hush-hush\n",
            "[environment]\nTOKEN = \"hush-hush\n",
            "env.TOKEN = \"hush-hush\"\n",
            "env = { A = \"1\", TOKEN = \"hush-hush\" }\n",
            "env = {\n TOKEN = \"hush-hush\",\n}\nname = \"shown\"\n",
            "[env]\nTOKEN = \"\"\"\nhush-hush\n\"\"\"\n",
            "[env]\n# TOKEN = \"hush-hush\"\nTOKEN: hush-hush\n",
            "[model]\nHF_TOKEN = \"hush-hush\"\n",
            "env.TOKEN=hush-hush",
            "[data]\npath = \"s3://me:hush-hush@bucket\"\n",
        ] {
            let masked = without_secrets(text);
            assert!(!masked.contains("hush"), "{masked}");
            assert_eq!(masked.len(), text.len());
            assert_eq!(masked.matches('\n').count(), text.matches('\n').count());
        }
        for text in [
            "[env]\nTOKEN = \"\"\"\na\n[b]\nhush-hush \\q\n\"\"\"\n",
            "[env]\nTOKEN = [\n[1],\n\"hush-hush\" x\n]\n",
            "env { A = \"hush-hush\" }\n",
            "env\t.A \"hush-hush\"\n",
            "[ env ]\nA \"hush-hush\"\n",
        ] {
            assert!(!without_secrets_of_no_toml(text).contains("hush"), "{text}");
        }
        let shown = "[training]\nsteps = 4\n[env]\nA = \"hush\"\n[data]\ntokenizer = \"bytes\"\n";
        assert!(without_secrets(shown).contains("steps = 4"));
        assert!(without_secrets(shown).contains("tokenizer = \"bytes\""));
    }

    #[test]
    fn a_secret_shows_neither_itself_nor_its_length() {
        let secret = Secret::new("hush".to_owned());
        assert_eq!(format!("{secret} {secret:?}"), "******** ********");
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"********\"");
    }
}
