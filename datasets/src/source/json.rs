//! A line of JSON, and the fields that are wanted of it.

use std::borrow::Cow;
use std::fmt;

use memchr::memchr;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::Fields;
use super::document::{BadRecord, Content, Document, Place, Reason};
use super::names::{did_you_mean, list};

/// The document of a line; none if the line is blank.
pub(super) fn document<'a>(
    line: &'a [u8],
    place: Place,
    fields: &Fields,
) -> Option<Result<Document<'a>, BadRecord>> {
    // Not `trim_ascii`: that also takes form feeds, which JSON does not allow.
    let is_json_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    line.iter().find(|byte| !is_json_space(byte))?;
    let content = match std::str::from_utf8(line) {
        Ok(line) => content(line, place, fields),
        Err(error) => {
            let at = error.valid_up_to();
            let detail = format!("byte {:#04x} in column {} is not valid UTF-8", line[at], at + 1);
            Err(BadRecord::new(moved(place, at), Reason::InvalidUtf8, detail))
        }
    };
    Some(content.map(|content| Document { content, place }))
}

fn moved(place: Place, bytes: usize) -> Place {
    Place { offset: place.offset + bytes as u64, ..place }
}

fn content<'a>(line: &'a str, place: Place, fields: &Fields) -> Result<Content<'a>, BadRecord> {
    let first = line.trim_start().as_bytes().first().copied().unwrap_or_default();
    if first != b'{' {
        return Err(not_an_object(line, first, place));
    }
    let mut record = Record {
        names: fields.names(),
        keep_rest: matches!(fields, Fields::Prompt { .. }),
        values: [None, None],
        rest: String::new(),
    };
    let mut json = serde_json::Deserializer::from_str(line);
    let read = (&mut record).deserialize(&mut json).and_then(|()| json.end());
    read.map_err(|error| broken(line, &error, place))?;

    let Record { values: [one, two], mut rest, .. } = record;
    let text = |value, name| text(value, name, line, place);
    Ok(match fields {
        Fields::Text { text: name } => Content::Text(text(one, name)?),
        Fields::Exchange { prompt, response } => {
            Content::Exchange { prompt: text(one, prompt)?, response: text(two, response)? }
        }
        Fields::Prompt { prompt } => {
            let prompt = text(one, prompt)?;
            rest.push_str(if rest.is_empty() { "{}" } else { "}" });
            Content::Prompt { prompt, rest }
        }
    })
}

/// The text of a field, or what is wrong with it.
fn text<'a>(
    value: Option<Found<'a>>,
    name: &str,
    line: &str,
    place: Place,
) -> Result<Cow<'a, str>, BadRecord> {
    let (reason, detail) = match value {
        Some(Found::Text(text)) => {
            if memchr(0, text.as_bytes()).is_none() {
                return Ok(text);
            }
            (Reason::NulCharacter, format!("field {name:?} has a U+0000"))
        }
        Some(Found::Null) => (Reason::Null, format!("field {name:?} is null; it must be a string")),
        Some(Found::Other(kind)) => {
            (Reason::WrongType, format!("field {name:?} is {kind}; it must be a string"))
        }
        None => (Reason::MissingField, missing(line, name)),
    };
    Err(BadRecord::new(place, reason, detail))
}

/// That a field is missing, and which there are. Parses once more, for the names.
fn missing(line: &str, name: &str) -> String {
    let Names(names) = serde_json::from_str(line).unwrap_or(Names(Vec::new()));
    if names.is_empty() {
        return format!("there is no field {name:?}: the record has no fields");
    }
    let suggestion = did_you_mean(name, names.iter().map(String::as_str));
    format!("there is no field {name:?}{suggestion}; the record has {}", list(&names))
}

fn not_an_object(line: &str, first: u8, place: Place) -> BadRecord {
    if let Err(error) = serde_json::from_str::<IgnoredAny>(line) {
        let mut bad = broken(line, &error, place);
        if first == b'[' && place.record == 1 {
            bad.detail.push_str("; a file that is one array has to be split: jq -c '.[]'");
        }
        return bad;
    }
    let kind = match first {
        b'[' => "an array",
        b'"' => "a string",
        b't' | b'f' => "a boolean",
        b'n' => "null",
        _ => "a number",
    };
    let detail =
        format!("the line is {kind}; each line must be an object, like {{\"text\": \"…\"}}");
    BadRecord::new(place, Reason::NotAnObject, detail)
}

fn broken(line: &str, error: &serde_json::Error, place: Place) -> BadRecord {
    // Columns count bytes, from 1. That of the end of the line is the number of bytes.
    let at = if error.is_eof() { line.len() } else { error.column().saturating_sub(1) };
    let mut detail = error.to_string();
    // It always says line 1.
    if let Some(end) = detail.rfind(" at line ") {
        detail.truncate(end);
    }
    let detail = format!("{detail} in column {}", at + 1);
    BadRecord::new(moved(place, at), Reason::BrokenJson, detail)
}

/// What is read of a record, and what has been found of it.
struct Record<'f, 'de> {
    names: Vec<&'f str>,
    keep_rest: bool,
    values: [Option<Found<'de>>; 2],
    /// The other fields, without the closing brace.
    rest: String,
}

impl<'de> DeserializeSeed<'de> for &mut Record<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Record<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key_seed(KeyOf(self))? {
            match key {
                Key::Wanted(index) => self.values[index] = Some(map.next_value()?),
                Key::Ignored => {
                    map.next_value::<IgnoredAny>()?;
                }
                Key::Kept(name) => {
                    let value: &RawValue = map.next_value()?;
                    self.rest.push(if self.rest.is_empty() { '{' } else { ',' });
                    self.rest.push_str(&name);
                    self.rest.push(':');
                    self.rest.push_str(value.get());
                }
            }
        }
        Ok(())
    }
}

/// The name of a field.
enum Key {
    Wanted(usize),
    Ignored,
    /// As JSON.
    Kept(String),
}

struct KeyOf<'r, 'f, 'de>(&'r Record<'f, 'de>);

impl<'de> DeserializeSeed<'de> for KeyOf<'_, '_, '_> {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Key, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeyOf<'_, '_, '_> {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Key, E> {
        Ok(match self.0.names.iter().position(|wanted| *wanted == name) {
            Some(index) => Key::Wanted(index),
            None if self.0.keep_rest => Key::Kept(serde_json::to_string(name).map_err(E::custom)?),
            None => Key::Ignored,
        })
    }
}

/// What was found in a field that is wanted.
enum Found<'de> {
    Text(Cow<'de, str>),
    Null,
    Other(&'static str),
}

impl<'de> serde::Deserialize<'de> for Found<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FoundVisitor)
    }
}

struct FoundVisitor;

impl<'de> Visitor<'de> for FoundVisitor {
    type Value = Found<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Found::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Found::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Found::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Found::Other("a boolean"))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Found::Other("a number"))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Found::Other("a number"))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Found::Other("a number"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Found::Other("an array"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Found::Other("an object"))
    }
}

/// The names of all fields.
struct Names(Vec<String>);

impl<'de> serde::Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(NamesVisitor)
    }
}

struct NamesVisitor;

impl<'de> Visitor<'de> for NamesVisitor {
    type Value = Names;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Names, A::Error> {
        let mut names = Vec::new();
        while let Some((name, _)) = map.next_entry::<String, IgnoredAny>()? {
            names.push(name);
        }
        Ok(Names(names))
    }
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
