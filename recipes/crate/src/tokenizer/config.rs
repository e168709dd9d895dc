//! What is read of a `tokenizer_config.json`.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

const NAME: &str = "tokenizer_config.json";

/// Any of these may be missing, `null`, or of a kind that says nothing here.
#[derive(Default, Deserialize)]
pub(super) struct Config {
    #[serde(default)]
    add_bos_token: Value,
    #[serde(default)]
    bos_token: Value,
    #[serde(default)]
    eos_token: Value,
}

impl Config {
    /// The configuration in the folder of a tokenizer; an empty one if there is none.
    pub(super) fn beside(tokenizer: &Path) -> Result<Self, String> {
        let path = tokenizer.with_file_name(NAME);
        if !path.is_file() {
            return Ok(Self::default());
        }
        let text = fs::read(&path).map_err(|error| format!("the {NAME} beside it: {error}"))?;
        serde_json::from_slice(&text)
            .map_err(|error| format!("the {NAME} beside it is not one: {error}"))
    }

    /// The token before a text, where one is to be added.
    pub(super) fn start(&self) -> Option<&str> {
        text_of(&self.bos_token).filter(|_| self.add_bos_token == true)
    }

    /// The token after a text.
    pub(super) fn end(&self) -> Option<&str> {
        text_of(&self.eos_token)
    }
}

/// A token is its text, or an object that has it.
fn text_of(token: &Value) -> Option<&str> {
    token.as_str().or_else(|| token["content"].as_str())
}
