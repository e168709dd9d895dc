//! The vocabulary of a tokenizer: its largest id, or, for who asks for texts, the whole of it.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

const VOCABULARY: &str = "a vocabulary: a map from tokens to ids, or an array of tokens";

/// The largest id of a vocabulary; the tokens themselves, megabytes of them, are passed over.
pub(super) struct Largest(pub(super) Option<u64>);

impl<'de> Deserialize<'de> for Largest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LargestOf)
    }
}

struct LargestOf;

impl<'de> Visitor<'de> for LargestOf {
    type Value = Largest;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(VOCABULARY)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Largest, A::Error> {
        let mut largest = None;
        while let Some((_, id)) = map.next_entry::<IgnoredAny, u64>()? {
            largest = largest.max(Some(id));
        }
        Ok(Largest(largest))
    }

    /// Unigram models list their tokens in the order of their ids.
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Largest, A::Error> {
        let mut tokens: u64 = 0;
        while list.next_element::<IgnoredAny>()?.is_some() {
            tokens += 1;
        }
        Ok(Largest(tokens.checked_sub(1)))
    }
}

/// Every text of a vocabulary with its id.
struct Texts(HashMap<String, u64>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextsOf)
    }
}

struct TextsOf;

impl<'de> Visitor<'de> for TextsOf {
    type Value = Texts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(VOCABULARY)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Texts, A::Error> {
        let mut texts = HashMap::new();
        while let Some((text, id)) = map.next_entry()? {
            texts.insert(text, id);
        }
        Ok(Texts(texts))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Texts, A::Error> {
        let (mut texts, mut ids) = (HashMap::new(), 0..);
        while let Some((text, _)) = list.next_element::<(String, f64)>()? {
            texts.extend(ids.next().map(|id| (text, id)));
        }
        Ok(Texts(texts))
    }
}

#[derive(Deserialize)]
struct Whole {
    model: WholeModel,
}

#[derive(Deserialize)]
struct WholeModel {
    vocab: Texts,
}

/// Every text of the vocabulary of a `tokenizer.json`, with its id.
pub(super) fn every_text(file: &[u8]) -> serde_json::Result<HashMap<String, u64>> {
    serde_json::from_slice(file).map(|whole: Whole| whole.model.vocab.0)
}
