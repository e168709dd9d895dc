//! One reader for each kind of setting: what it takes, and what it says about anything else.

use crate::diagnostic::Diagnostic;
use crate::shown::{Shown, quoted};
use crate::source::{Item, Loc, Sources};
use crate::tree::{Node, Value};
use crate::words::{Auto, Choice, nearest};

use super::Section;

/// What a key takes, for the schema.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// A whole number, or one of some words.
    Integer {
        least: u64,
        most: u64,
        word: Option<&'static str>,
    },
    /// A number, or a word.
    Number {
        range: Range,
        word: Option<&'static str>,
    },
    /// Exactly so many numbers.
    Numbers {
        range: Range,
        count: usize,
    },
    /// Exactly so many whole numbers.
    Integers {
        least: u64,
        most: u64,
        count: usize,
    },
    Boolean,
    Text,
    /// A whole number, or any text.
    IntegerOrText {
        least: u64,
        most: u64,
    },
    /// One of some words.
    Word(Vec<&'static str>),
    /// An array of tables.
    List,
    /// Tables and values whose names are free.
    Free,
}

/// The end of a range of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    /// The number itself is allowed.
    Inclusive(f64),
    /// The number itself is not allowed.
    Exclusive(f64),
    Open,
}

/// A range of numbers together with the words that describe it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Range {
    pub(crate) least: Bound,
    pub(crate) most: Bound,
    words: &'static str,
}

impl Range {
    fn allows(&self, x: f64) -> bool {
        let above = match self.least {
            Bound::Inclusive(least) => x >= least,
            Bound::Exclusive(least) => x > least,
            Bound::Open => true,
        };
        let below = match self.most {
            Bound::Inclusive(most) => x <= most,
            Bound::Exclusive(most) => x < most,
            Bound::Open => true,
        };
        above && below && !x.is_nan()
    }
}

pub(crate) const POSITIVE: Range =
    Range { least: Bound::Exclusive(0.0), most: Bound::Open, words: "greater than 0" };
pub(crate) const NOT_NEGATIVE: Range =
    Range { least: Bound::Inclusive(0.0), most: Bound::Open, words: "0 or greater" };
pub(crate) const AT_LEAST_ONE: Range =
    Range { least: Bound::Inclusive(1.0), most: Bound::Open, words: "at least 1" };
pub(crate) const FRACTION: Range =
    Range { least: Bound::Inclusive(0.0), most: Bound::Inclusive(1.0), words: "from 0 to 1" };
pub(crate) const ABOVE_ZERO_FRACTION: Range = Range {
    least: Bound::Exclusive(0.0),
    most: Bound::Inclusive(1.0),
    words: "greater than 0 and at most 1",
};
pub(crate) const BELOW_ONE: Range = Range {
    least: Bound::Inclusive(0.0),
    most: Bound::Exclusive(1.0),
    words: "at least 0 and below 1",
};

pub(crate) const HELD_OUT_FRACTION: Range = Range {
    least: Bound::Exclusive(0.0),
    most: Bound::Inclusive(0.5),
    words: "greater than 0 and at most 0.5",
};

/// What is named by a number or by a text.
pub(crate) enum IntegerOrText {
    Integer(u64),
    Text(String),
}

/// A value with the key it belongs to; numbers of an array have an index too.
#[derive(Clone, Copy)]
struct Place<'n> {
    key: &'static str,
    index: Option<usize>,
    node: &'n Node,
}

impl Place<'_> {
    /// How the recipe would say it with another value.
    fn with(&self, value: impl std::fmt::Display) -> String {
        match self.index {
            Some(_) => value.to_string(),
            None => format!("{} = {value}", self.key),
        }
    }
}

impl<'s> Section<'s, '_> {
    fn place(&mut self, key: &'static str, kind: Kind) -> Option<Place<'s>> {
        self.note(key, kind);
        self.node(key).map(|node| Place { key, index: None, node })
    }

    /// The one form that all messages about a single value have.
    fn refuse(
        &mut self,
        place: Place<'_>,
        rule: &str,
        found: &str,
        help: impl Into<Option<String>>,
    ) {
        let Place { key, index, node } = place;
        let index = index.map_or_else(String::new, |index| format!("[{index}]"));
        let what = format!("`{}{key}{index}` must be {rule}, found {found}", self.prefix);
        let mut diagnostic =
            Diagnostic::error(what).at(node.at.clone()).label(format!("must be {rule}"));
        diagnostic.help = help.into();
        self.reject(key, diagnostic);
    }

    fn wrong_kind(&mut self, place: Place<'_>, rule: &str, help: impl Into<Option<String>>) {
        self.refuse(place, rule, place.node.value.kind(), help);
    }

    fn out_of_range(&mut self, place: Place<'_>, rule: &str, help: impl Into<Option<String>>) {
        let found = Shown(written(self.cx.sources, &place.node.at)).to_string();
        self.refuse(place, rule, &found, help);
    }

    /// "remove the quotes: steps = 400", or without the first part when there are none (a word in `--set`).
    fn unquoted(&self, place: Place<'_>, value: impl std::fmt::Display) -> String {
        let has_quotes = written(self.cx.sources, &place.node.at).starts_with(['"', '\'']);
        let verb = if has_quotes { "remove the quotes:" } else { "write" };
        format!("{verb} {}", place.with(value))
    }

    /// The whole number at `key`, where something else belongs.
    pub(crate) fn is_integer(&mut self, key: &'static str) -> Option<(i128, Loc)> {
        match self.peek(key)? {
            Node { value: Value::Integer(number), at } => {
                // Known all the same.
                self.node(key);
                Some((*number, at.clone()))
            }
            _ => None,
        }
    }

    /// A whole number from `least` to `most`.
    pub(crate) fn integer(
        &mut self,
        key: &'static str,
        least: u64,
        most: u64,
    ) -> Option<Item<u64>> {
        let place = self.place(key, Kind::Integer { least, most, word: None })?;
        self.integer_at(place, least, most, None)
    }

    /// A whole number, or the word `auto`.
    pub(crate) fn auto_or_integer(
        &mut self,
        key: &'static str,
        least: u64,
        most: u64,
    ) -> Option<Item<Auto<u64>>> {
        let item = self.word_or_integer(key, "auto", least, most)?;
        Some(Item { value: item.value.map_or(Auto::Auto, Auto::Fixed), at: item.at })
    }

    /// A whole number, or a word, which reads as no number.
    pub(crate) fn word_or_integer(
        &mut self,
        key: &'static str,
        word: &'static str,
        least: u64,
        most: u64,
    ) -> Option<Item<Option<u64>>> {
        let place = self.place(key, Kind::Integer { least, most, word: Some(word) })?;
        if is_word(place.node, word) {
            return Some(Item::written(None, place.node.at.clone()));
        }
        let item = self.integer_at(place, least, most, Some(word))?;
        Some(Item { value: Some(item.value), at: item.at })
    }

    /// Exactly `N` whole numbers; `example` is a legal value.
    pub(crate) fn integers<const N: usize>(
        &mut self,
        key: &'static str,
        least: u64,
        most: u64,
        example: &str,
    ) -> Option<Item<[u64; N]>> {
        let place = self.place(key, Kind::Integers { least, most, count: N })?;
        let nodes = self.exactly(place, N, "integers", example)?;
        let mut values = [0; N];
        let mut sound = true;
        for (index, (value, node)) in values.iter_mut().zip(nodes).enumerate() {
            match self.integer_at(Place { key, index: Some(index), node }, least, most, None) {
                Some(item) => *value = item.value,
                None => sound = false,
            }
        }
        sound.then(|| Item::written(values, place.node.at.clone()))
    }

    /// The nodes of an array of `count`.
    fn exactly(
        &mut self,
        place: Place<'s>,
        count: usize,
        things: &str,
        example: &str,
    ) -> Option<&'s [Node]> {
        let rule = format!("an array of {count} {things}");
        let help = format!("for example: {}", place.with(example));
        match &place.node.value {
            Value::List(nodes) if nodes.len() == count => return Some(nodes),
            Value::List(nodes) => {
                self.refuse(place, &rule, &format!("{} of them", nodes.len()), help);
            }
            _ => self.wrong_kind(place, &rule, help),
        }
        None
    }

    fn integer_at(
        &mut self,
        place: Place<'_>,
        least: u64,
        most: u64,
        word: Option<&str>,
    ) -> Option<Item<u64>> {
        let near = |number: i128| number.clamp(least.into(), most.into());
        let (mut rule, mut allowed) =
            ("an integer".to_owned(), format!("allowed: {least} to {most}"));
        if least == most {
            allowed = format!("allowed: {least}");
        }
        if let Some(word) = word {
            rule = format!("{rule} or \"{word}\"");
            allowed = format!("{allowed}, or \"{word}\"");
        }
        match &place.node.value {
            Value::Integer(number) => match u64::try_from(*number) {
                Ok(value) if (least..=most).contains(&value) => {
                    return Some(Item::written(value, place.node.at.clone()));
                }
                _ => {
                    let rule = match *number < least.into() {
                        true => format!("at least {least}"),
                        false => format!("at most {most}"),
                    };
                    let help = match word {
                        Some(word @ "auto") if *number < 0 => {
                            let auto = place.with(format_args!("\"{word}\""));
                            format!("to have it worked out, write {auto}")
                        }
                        _ => allowed,
                    };
                    self.out_of_range(place, &rule, help);
                }
            },
            Value::Float(number) if number.is_finite() => {
                let help = format!("write {}", place.with(near(number.round() as i128)));
                self.wrong_kind(place, &rule, help);
            }
            Value::Text(text) => {
                let help = match (whole_number(text), word) {
                    (Some(number), _) => self.unquoted(place, near(number)),
                    (None, Some(word)) if nearest(text, [word]).is_some() => {
                        format!("did you mean \"{word}\"?")
                    }
                    _ => allowed,
                };
                self.wrong_kind(place, &rule, help);
            }
            _ => self.wrong_kind(place, &rule, allowed),
        }
        None
    }

    /// A number; an integer is taken as one.
    pub(crate) fn number(&mut self, key: &'static str, range: Range) -> Option<Item<f64>> {
        let place = self.place(key, Kind::Number { range, word: None })?;
        self.number_at(place, range, None)
    }

    /// A number, or a word, which reads as no number; `purpose` says what the word is for.
    pub(crate) fn number_or_word(
        &mut self,
        key: &'static str,
        word: &'static str,
        purpose: &str,
        range: Range,
    ) -> Option<Item<Option<f64>>> {
        let place = self.place(key, Kind::Number { range, word: Some(word) })?;
        if is_word(place.node, word) {
            return Some(Item::written(None, place.node.at.clone()));
        }
        let written = place.with(format_args!("\"{word}\""));
        let item = self.number_at(place, range, Some(format!("{purpose}, write {written}")))?;
        Some(Item { value: Some(item.value), at: item.at })
    }

    /// Exactly `N` numbers; `example` is a legal value.
    pub(crate) fn numbers<const N: usize>(
        &mut self,
        key: &'static str,
        range: Range,
        example: &str,
    ) -> Option<Item<[f64; N]>> {
        let place = self.place(key, Kind::Numbers { range, count: N })?;
        let nodes = self.exactly(place, N, "numbers", example)?;
        let mut values = [0.0; N];
        let mut sound = true;
        for (index, (value, node)) in values.iter_mut().zip(nodes).enumerate() {
            match self.number_at(Place { key, index: Some(index), node }, range, None) {
                Some(item) => *value = item.value,
                None => sound = false,
            }
        }
        sound.then(|| Item::written(values, place.node.at.clone()))
    }

    fn number_at(
        &mut self,
        place: Place<'_>,
        range: Range,
        help: Option<String>,
    ) -> Option<Item<f64>> {
        let number = match &place.node.value {
            Value::Float(number) => *number,
            Value::Integer(number) => *number as f64,
            Value::Text(text) => {
                let number = text.trim().parse::<f64>().ok().filter(|x| range.allows(*x));
                let help = number.map(|x| self.unquoted(place, format_args!("{x:?}"))).or(help);
                self.wrong_kind(place, "a number", help);
                return None;
            }
            _ => {
                self.wrong_kind(place, "a number", help);
                return None;
            }
        };
        if !range.allows(number) {
            self.out_of_range(place, range.words, help);
            return None;
        }
        // The engine computes in float32: there, a larger number is infinite and a smaller one is 0.
        let single = number as f32;
        if !single.is_finite() || (single == 0.0) != (number == 0.0) {
            self.out_of_range(place, "a number that float32 can hold", help);
            return None;
        }
        Some(Item::written(number, place.node.at.clone()))
    }

    /// `true` or `false`.
    pub(crate) fn boolean(&mut self, key: &'static str) -> Option<Item<bool>> {
        let place = self.place(key, Kind::Boolean)?;
        let help = match &place.node.value {
            Value::Boolean(value) => return Some(Item::written(*value, place.node.at.clone())),
            Value::Text(text) => match text.trim().to_lowercase().as_str() {
                word @ ("true" | "false") => self.unquoted(place, word),
                "yes" | "on" => format!("write {}", place.with(true)),
                "no" | "off" | "none" => format!("write {}", place.with(false)),
                _ => "allowed: true, false".to_owned(),
            },
            Value::Integer(number @ (0 | 1)) => format!("write {}", place.with(*number == 1)),
            _ => "allowed: true, false".to_owned(),
        };
        self.wrong_kind(place, "true or false", help);
        None
    }

    /// Any text.
    pub(crate) fn text(&mut self, key: &'static str) -> Option<Item<String>> {
        let place = self.place(key, Kind::Text)?;
        let written = match &place.node.value {
            Value::Text(text) => return Some(Item::written(text.clone(), place.node.at.clone())),
            Value::List(_) | Value::Table(_) => "...".to_owned(),
            _ => Shown(written(self.cx.sources, &place.node.at)).to_string(),
        };
        let help = format!("put it in quotes: {}", place.with(format_args!("\"{written}\"")));
        self.wrong_kind(place, "a string", help);
        None
    }

    /// A whole number from `least` to `most`, or any text.
    pub(crate) fn integer_or_text(
        &mut self,
        key: &'static str,
        least: u64,
        most: u64,
    ) -> Option<Item<IntegerOrText>> {
        let place = self.place(key, Kind::IntegerOrText { least, most })?;
        let at = place.node.at.clone();
        match &place.node.value {
            Value::Text(text) => Some(Item::written(IntegerOrText::Text(text.clone()), at)),
            Value::Integer(_) => {
                let item = self.integer_at(place, least, most, None)?;
                Some(Item::written(IntegerOrText::Integer(item.value), at))
            }
            _ => {
                let help = format!("allowed: {least} to {most}, or a string");
                self.wrong_kind(place, "an integer or a string", help);
                None
            }
        }
    }

    /// One of the words of `T`.
    pub(crate) fn choice<T: Choice>(&mut self, key: &'static str) -> Option<Item<T>> {
        let words: Vec<&str> = T::WORDS.iter().map(|(word, _)| *word).collect();
        let place = self.place(key, Kind::Word(words.clone()))?;
        let Value::Text(text) = &place.node.value else {
            self.wrong_kind(place, "a string", format!("allowed: {}", quoted(&words)));
            return None;
        };
        if let Some((_, value)) = T::WORDS.iter().find(|(word, _)| word == text) {
            return Some(Item::written(*value, place.node.at.clone()));
        }
        let diagnostic = no_choice(&format!("{}{key}", self.prefix), text, &words);
        self.reject(key, diagnostic.at(place.node.at.clone()));
        None
    }

    /// The nodes of an array; each is read by the caller. `example` is a legal value.
    pub(crate) fn list(&mut self, key: &'static str, example: &str) -> Option<(&'s [Node], Loc)> {
        let place = self.place(key, Kind::List)?;
        match &place.node.value {
            Value::List(nodes) => Some((nodes, place.node.at.clone())),
            _ => {
                let help = format!("for example: {}", place.with(example));
                self.wrong_kind(place, "an array", help);
                None
            }
        }
    }
}

/// A word that is none of those allowed.
pub(crate) fn no_choice(path: &str, text: &str, words: &[&str]) -> Diagnostic {
    let allowed = format!("allowed: {}", quoted(words));
    let help = match nearest(text, words.iter().copied()) {
        Some(word) if words.len() > 1 => format!("did you mean \"{word}\"? {allowed}"),
        _ => allowed,
    };
    Diagnostic::error(format!("`{path}` has no choice \"{}\"", Shown(text)))
        .label("unknown choice")
        .help(help)
}

fn is_word(node: &Node, word: &str) -> bool {
    matches!(&node.value, Value::Text(text) if text == word)
}

/// The whole number that a text spells, as in `400`, `10_000` or `1e3`.
fn whole_number(text: &str) -> Option<i128> {
    let digits = text.trim().replace('_', "");
    let float = || digits.parse::<f64>().ok().filter(|x| x.fract() == 0.0);
    digits.parse().ok().or_else(|| float().map(|x| x as i128))
}

/// The text of a location, as the user wrote it.
fn written<'t>(sources: &'t Sources, at: &Loc) -> &'t str {
    sources.get(at.source).text.get(at.span.clone()).unwrap_or_default().trim()
}
