//! Whether shards that someone has made suit a recipe.

use std::path::Path;

use titan_datasets::shards::{ShardIndex, TokenizerFacts, VALIDATION};
use titan_recipes::Recipe;

use crate::exit::Exit;
use crate::failure::Failure;

/// Refuses shards that the recipe would misread.
pub(super) fn suits(
    recipe: &Recipe,
    tokenizer: &TokenizerFacts,
    folder: &Path,
    index: &ShardIndex,
    fraction: f64,
) -> Result<(), Failure> {
    let refuse = |what: String, help: &str| {
        Err(Failure::new(Exit::Usage, format!("{}: {what}", folder.display())).help(help))
    };
    if index.tokenizer.fingerprint != tokenizer.fingerprint {
        let what = format!(
            "these shards were made with the tokenizer {}, the recipe has {}{}",
            index.tokenizer.name,
            tokenizer.name,
            if index.tokenizer.name == tokenizer.name { " of other content" } else { "" }
        );
        return refuse(what, "name in data.tokenizer the tokenizer that made the shards");
    }
    let largest = index.splits.values().filter_map(|split| split.largest_id).max();
    let vocabulary = recipe.model.decoder().map(|decoder| *decoder.vocab_size);
    if let (Some(largest), Some(vocabulary)) = (largest, vocabulary)
        && u64::from(largest) >= vocabulary
    {
        let what =
            format!("these shards have the token {largest}, but model.vocab_size is {vocabulary}");
        return refuse(what, "the vocabulary must be larger than the largest token");
    }
    let ends = |id: Option<u32>| id.map_or_else(|| "nothing".to_owned(), |id| id.to_string());
    let end = recipe.data.end_id().map(|id| id as u32);
    if recipe.training.language.as_ref().is_some_and(|language| *language.document_mask)
        && end != index.document_end
    {
        let what = format!(
            "documents of these shards end with {}, the recipe says {}",
            ends(index.document_end),
            ends(end)
        );
        return refuse(
            what,
            "with document_mask, data.document_end must be what ends the documents",
        );
    }
    if fraction > 0.0
        && (!index.splits.contains_key(VALIDATION) || index.validation_fraction != fraction)
    {
        let what = if index.splits.contains_key(VALIDATION) {
            format!(
                "these shards hold out {} of the documents, the recipe {fraction}",
                index.validation_fraction
            )
        } else {
            "these shards hold out no documents for validation".to_owned()
        };
        return refuse(what, "make them with --validation-fraction, as in [validation] fraction");
    }
    Ok(())
}
