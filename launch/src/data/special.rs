//! A tokenizer by name, and the tokens that it puts around documents.

use std::path::Path;

use titan_datasets::Tokenizer;
use titan_datasets::source::remote;
use titan_recipes::TokenizerFacts;
use titan_recipes::tables::data::TokenName;

use super::failure;
use crate::exit::Exit;
use crate::failure::Failure;

/// `bytes`, or a `tokenizer.json` with what it says about its tokens.
pub(crate) struct Special {
    pub(crate) tokenizer: Tokenizer,
    /// None of bytes.
    facts: Option<TokenizerFacts>,
}

impl Special {
    /// Reads a tokenizer; `words` are those that will be asked for.
    pub(crate) fn read(name: &str, words: [&str; 2]) -> Result<Self, Failure> {
        if name == "bytes" {
            return Ok(Self { tokenizer: Tokenizer::Bytes, facts: None });
        }
        if remote::is_address(name) {
            let text = format!("--tokenizer {name}: the tokenizer must be a local file");
            return Err(Failure::new(Exit::Usage, text).help("copy it here and name the copy"));
        }
        let path = Path::new(name);
        // Looking a text up takes longer than all the rest.
        let texts: Vec<&str> = words.into_iter().filter(|word| is_text(word)).collect();
        let facts = TokenizerFacts::read(path, &texts).map_err(|why| {
            Failure::new(Exit::Usage, format!("cannot read the tokenizer {name}: {why}")).help(
                "name a tokenizer.json of Hugging Face's tokenizers, or write --tokenizer bytes",
            )
        })?;
        let largest = u32::try_from(facts.largest_id).map_err(|_| {
            Failure::new(
                Exit::Usage,
                format!("{name}: a token id of {} is too large", facts.largest_id),
            )
        })?;
        let tokenizer = Tokenizer::read(path, largest).map_err(|error| failure(&error))?;
        Ok(Self { tokenizer, facts: Some(facts) })
    }

    /// The id before each document, of a word of the command line.
    pub(crate) fn start(&self, word: &str) -> Result<Option<u32>, Failure> {
        self.id("--document-start", word, self.facts.as_ref().and_then(|facts| facts.start))
    }

    /// The id after each document, of a word of the command line.
    pub(crate) fn end(&self, word: &str) -> Result<Option<u32>, Failure> {
        self.id("--document-end", word, self.facts.as_ref().and_then(|facts| facts.end))
    }

    fn id(&self, flag: &str, word: &str, auto: Option<u64>) -> Result<Option<u32>, Failure> {
        let name = token_name(word);
        let bytes = TokenizerFacts { largest_id: 255, ..TokenizerFacts::default() };
        let facts = self.facts.as_ref().unwrap_or(&bytes);
        let wrong = |why: String| Failure::new(Exit::Usage, format!("{flag} {word}: {why}"));
        let id = name.id(auto, facts).map_err(|text| {
            let failure = wrong(format!("`{text}` is no token of the tokenizer"));
            let added: Vec<&str> =
                facts.added.iter().take(5).map(|(text, _)| text.as_str()).collect();
            match added.is_empty() {
                true => failure.help("write the id of the token, auto or none"),
                false => failure.help(format!(
                    "write auto, none, an id, or a token such as {}",
                    added.join(", ")
                )),
            }
        })?;
        match id {
            Some(id) if id > facts.largest_id => {
                Err(wrong(format!("the largest id of the tokenizer is {}", facts.largest_id)))
            }
            // Not above the largest id, which is one of 32 bits.
            id => Ok(id.map(|id| id as u32)),
        }
    }
}

fn token_name(word: &str) -> TokenName {
    match word {
        "auto" => TokenName::Auto,
        "none" => TokenName::Nothing,
        _ => word.parse().map_or_else(|_| TokenName::Text(word.to_owned()), TokenName::Id),
    }
}

fn is_text(word: &str) -> bool {
    matches!(token_name(word), TokenName::Text(_))
}
