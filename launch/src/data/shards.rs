//! Whether shards that someone has made suit a recipe.

use std::path::Path;

use titan_datasets::shards::{DataKind, ShardIndex, TRAIN, TokenizerFacts, VALIDATION};
use titan_recipes::tables::data::{DataSource, DocumentToken, Fields, TokenName};
use titan_recipes::{Item, Recipe};

use crate::exit::Exit;
use crate::failure::Failure;

/// Shards that a recipe names as a source.
pub(super) struct Named<'a> {
    pub(super) recipe: &'a Recipe,
    pub(super) tokenizer: TokenizerFacts,
    pub(super) source: &'a DataSource,
    pub(super) folder: &'a Path,
    pub(super) index: &'a ShardIndex,
    /// The share of the documents that is to be held out.
    pub(super) fraction: f64,
}

/// What does not suit, and what to do about it.
type Problem = (String, &'static str);

impl Named<'_> {
    /// Refuses shards that the recipe would misread.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let rules = [
            Self::tokenizer,
            Self::vocabulary,
            Self::kind,
            Self::settings,
            Self::split,
            Self::held_out,
            Self::edges,
        ];
        match rules.iter().find_map(|rule| rule(self)) {
            None => Ok(()),
            Some((what, help)) => {
                let text = format!("{}: {what}", self.folder.display());
                Err(Failure::new(Exit::Usage, text).help(help))
            }
        }
    }

    fn tokenizer(&self) -> Option<Problem> {
        let (theirs, ours) = (&self.index.tokenizer, &self.tokenizer);
        if theirs.fingerprint == ours.fingerprint {
            return None;
        }
        let content = if theirs.name == ours.name { " of other content" } else { "" };
        let what = format!(
            "these shards were made with the tokenizer {}, the recipe has {}{content}",
            theirs.name, ours.name
        );
        Some((what, "name in data.tokenizer the tokenizer that made the shards"))
    }

    fn vocabulary(&self) -> Option<Problem> {
        let largest = self.index.splits.values().filter_map(|split| split.largest_id).max()?;
        let vocabulary = *self.recipe.model.decoder()?.vocab_size;
        (u64::from(largest) >= vocabulary).then(|| {
            let what = format!(
                "these shards have the token {largest}, but model.vocab_size is {vocabulary}"
            );
            (what, "the vocabulary must be larger than the largest token")
        })
    }

    fn kind(&self) -> Option<Problem> {
        match (self.index.kind, self.recipe.rl.is_some()) {
            (DataKind::Prompts, false) => Some((
                "these shards are prompts, and the recipe learns texts".to_owned(),
                "make shards of texts, or write an [rl] table",
            )),
            (DataKind::Text | DataKind::Instruction, true) => Some((
                "these shards are texts, and a recipe with [rl] needs prompts".to_owned(),
                "make shards with --prompt-field alone",
            )),
            _ => None,
        }
    }

    /// What was settled when the shards were made cannot be asked for now.
    fn settings(&self) -> Option<Problem> {
        let is_written = |item: &Item<String>| item.at.is_some();
        let fields = match &self.source.fields {
            Fields::Text { text_field } => is_written(text_field),
            Fields::Prompt { prompt_field } => is_written(prompt_field),
            Fields::Instruction { .. } => true,
        };
        let what = match (fields, self.source.documents.at.is_some()) {
            (true, _) => "fields",
            (_, true) => "`documents`",
            _ => return None,
        };
        let what = format!("these are token shards, which have no {what}");
        Some((what, "remove that key: how records are read was settled when the shards were made"))
    }

    fn split(&self) -> Option<Problem> {
        let split = self.source.split.value.as_str();
        let there: Vec<&str> = self.index.splits.keys().map(String::as_str).collect();
        (!there.contains(&split)).then(|| {
            let what =
                format!("these shards have no split `{split}`; they have {}", there.join(", "));
            (what, "name one of those, or leave split out")
        })
    }

    fn held_out(&self) -> Option<Problem> {
        if self.fraction == 0.0 {
            return None;
        }
        let has = self.index.splits.contains_key(VALIDATION);
        let what = if self.source.split.value != TRAIN {
            format!(
                "the split `{}` cannot be trained on and hold out a part",
                self.source.split.value
            )
        } else if !has {
            "these shards hold out no documents for validation".to_owned()
        } else if self.index.validation_fraction != self.fraction {
            format!(
                "these shards hold out {} of the documents, the recipe {}",
                self.index.validation_fraction, self.fraction
            )
        } else {
            return None;
        };
        Some((what, "make them with --validation-fraction, as in [validation] fraction"))
    }

    /// The tokens around documents matter if the recipe names them, or masks by them.
    fn edges(&self) -> Option<Problem> {
        let (data, index) = (&self.recipe.data, self.index);
        let is_masked =
            self.recipe.training.language.as_ref().is_some_and(|language| *language.document_mask);
        let edges = [
            ("begin", "document_start", &data.document_start, index.document_start, false),
            ("end", "document_end", &data.document_end, index.document_end, is_masked),
        ];
        edges.into_iter().find_map(|(verb, key, ours, theirs, matters)| {
            let id = ours.as_ref().and_then(|token| token.id);
            if id == theirs.map(u64::from) || !(matters || is_named(ours.as_ref())) {
                return None;
            }
            let token = |id: Option<u64>| id.map_or_else(|| "nothing".to_owned(), |id| id.to_string());
            let what = format!(
                "documents of these shards {verb} with {}, the recipe says {}",
                token(theirs.map(u64::from)),
                token(id)
            );
            Some((what, if key == "document_end" {
                "data.document_end must be what the shards were made with, or auto without a document mask"
            } else {
                "data.document_start must be what the shards were made with, or auto"
            }))
        })
    }
}

fn is_named(token: Option<&Item<DocumentToken>>) -> bool {
    token.is_some_and(|token| token.at.is_some() && token.name != TokenName::Auto)
}
