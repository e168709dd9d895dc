//! What a recipe must know of a `tokenizer.json` (the format of Hugging Face's `tokenizers`) and of the
//! `tokenizer_config.json` beside it: the largest token id, and the tokens at the edges of a text.

mod config;
mod vocabulary;

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use config::Config;
use vocabulary::{Largest, every_text};

/// What a tokenizer says about its tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenizerFacts {
    /// The largest token id, added tokens included.
    pub largest_id: u64,
    /// The token that the tokenizer puts before a text.
    pub start: Option<u64>,
    /// The token that ends a text.
    pub end: Option<u64>,
    /// Tokens that were added to the vocabulary, such as `<|endoftext|>`, with their ids.
    pub added: Vec<(String, u64)>,
    /// Those texts that were asked for and are tokens of the vocabulary proper, with their ids.
    pub asked: Vec<(String, u64)>,
}

/// What ends a text, where no `tokenizer_config.json` says so: the first that is an added token.
const ENDS: [&str; 6] = ["<|endoftext|>", "<|end_of_text|>", "</s>", "<|eos|>", "<eos>", "[EOS]"];

#[derive(Deserialize)]
struct Tokenizer {
    model: Model,
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    post_processor: Value,
}

#[derive(Deserialize)]
struct Model {
    vocab: Largest,
}

#[derive(Deserialize)]
struct Added {
    id: u64,
    content: String,
}

impl TokenizerFacts {
    /// Reads a `tokenizer.json`, and the `tokenizer_config.json` of the same folder if there is one. Of the
    /// vocabulary proper, only the ids of `texts` are kept.
    ///
    /// # Errors
    /// Why the file is no tokenizer.
    pub fn read(path: &Path, texts: &[&str]) -> Result<Self, String> {
        const NOT_ONE: &str = "it is not a tokenizer.json of Hugging Face's tokenizers";
        let file = fs::read(path).map_err(|error| error.to_string())?;
        let tokenizer: Tokenizer =
            serde_json::from_slice(&file).map_err(|error| format!("{NOT_ONE}: {error}"))?;
        let added: Vec<_> =
            tokenizer.added_tokens.into_iter().map(|token| (token.content, token.id)).collect();
        let largest = added.iter().map(|(_, id)| *id).max().max(tokenizer.model.vocab.0);
        let largest_id = largest.ok_or("it has no tokens")?;
        let config = Config::beside(path)?;
        let mut facts = Self { largest_id, added, ..Self::default() };
        let texts = texts.iter().copied().chain(config.start()).chain(config.end());
        facts.look_up(&file, texts).map_err(|error| format!("{NOT_ONE}: {error}"))?;
        let start = config.start().and_then(|text| facts.id(text));
        let end = config.end().and_then(|text| facts.id(text));
        facts.start = start.or_else(|| before_a_text(&tokenizer.post_processor));
        facts.end = end.or_else(|| ENDS.into_iter().find_map(|text| facts.added_id(text)));
        Ok(facts)
    }

    /// The id of a token: of an added one, or of one that was asked for.
    pub fn id(&self, text: &str) -> Option<u64> {
        let asked = || self.asked.iter().find(|(token, _)| token == text).map(|(_, id)| *id);
        self.added_id(text).or_else(asked)
    }

    fn added_id(&self, text: &str) -> Option<u64> {
        self.added.iter().find(|(token, _)| token == text).map(|(_, id)| *id)
    }

    /// Finds texts in the vocabulary, which is read again only for those that are no added tokens.
    fn look_up<'t>(
        &mut self,
        file: &[u8],
        texts: impl Iterator<Item = &'t str>,
    ) -> serde_json::Result<()> {
        let texts: Vec<&str> = texts.filter(|text| self.id(text).is_none()).collect();
        if texts.is_empty() {
            return Ok(());
        }
        let all = every_text(file)?;
        let found = texts.iter().filter_map(|text| Some((String::from(*text), *all.get(*text)?)));
        self.asked = found.collect();
        Ok(())
    }
}

/// The token that a post-processor puts right before a single text.
fn before_a_text(processor: &Value) -> Option<u64> {
    match processor["type"].as_str()? {
        "Sequence" => processor["processors"].as_array()?.iter().find_map(before_a_text),
        "TemplateProcessing" => {
            let pieces = processor["single"].as_array()?;
            let text = pieces.iter().position(|piece| piece["Sequence"]["id"] == "A")?;
            let token = pieces[..text].last()?["SpecialToken"]["id"].as_str()?;
            match processor["special_tokens"][token]["ids"].as_array()?.as_slice() {
                [id] => id.as_u64(),
                _ => None,
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
