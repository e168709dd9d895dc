//! What a recipe must know of a `tokenizer.json` (the format of Hugging Face's `tokenizers`): its largest token id.

use std::fmt;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

#[derive(Deserialize)]
struct Tokenizer {
    model: Model,
    #[serde(default)]
    added_tokens: Vec<Added>,
}

#[derive(Deserialize)]
struct Model {
    vocab: Vocabulary,
}

#[derive(Deserialize)]
struct Added {
    id: u64,
}

/// The largest id of a vocabulary; the tokens themselves, megabytes of them, are passed over.
struct Vocabulary(Option<u64>);

impl<'de> Deserialize<'de> for Vocabulary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Largest)
    }
}

struct Largest;

impl<'de> Visitor<'de> for Largest {
    type Value = Vocabulary;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a vocabulary: a map from tokens to ids, or an array of tokens")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocabulary, A::Error> {
        let mut largest = None;
        while let Some((_, id)) = map.next_entry::<IgnoredAny, u64>()? {
            largest = largest.max(Some(id));
        }
        Ok(Vocabulary(largest))
    }

    /// Unigram models list their tokens in the order of their ids.
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vocabulary, A::Error> {
        let mut tokens: u64 = 0;
        while list.next_element::<IgnoredAny>()?.is_some() {
            tokens += 1;
        }
        Ok(Vocabulary(tokens.checked_sub(1)))
    }
}

/// The largest token id of a tokenizer, added tokens included.
///
/// # Errors
/// Why the file is no tokenizer.
pub(crate) fn largest_id(path: &Path) -> Result<u64, String> {
    const NOT_ONE: &str = "it is not a tokenizer.json of Hugging Face's tokenizers";
    let text = fs::read(path).map_err(|error| error.to_string())?;
    let tokenizer: Tokenizer =
        serde_json::from_slice(&text).map_err(|error| format!("{NOT_ONE}: {error}"))?;
    let added = tokenizer.added_tokens.iter().map(|token| token.id).max();
    tokenizer.model.vocab.0.max(added).ok_or_else(|| "it has no tokens".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<u64, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        largest_id(file.path())
    }

    #[test]
    fn the_largest_id_counts_added_tokens_and_holes() {
        let bpe = r#"{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0, "b": 7}, "merges": []}}"#;
        assert_eq!(of(bpe), Ok(7));
        let added =
            r#"{"added_tokens": [{"id": 12, "content": "<s>"}], "model": {"vocab": {"a": 3}}}"#;
        assert_eq!(of(added), Ok(12));
        let unigram = r#"{"added_tokens": [], "model": {"vocab": [["a", -1.5], ["b", -2]]}}"#;
        assert_eq!(of(unigram), Ok(1));
    }

    #[test]
    fn what_is_no_tokenizer_is_refused() {
        for text in
            ["", "[]", "{}", r#"{"model": {"vocab": {}}}"#, r#"{"model": {"vocab": {"a": -1}}}"#]
        {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
