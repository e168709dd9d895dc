//! Rules about the documents that sequences are cut from.

use super::{Rule, shown};
use crate::diagnostic::Diagnostic;
use crate::recipe::Recipe;
use crate::source::Item;
use crate::tables::data::{DocumentToken, TokenName, Tokenizer};

pub(super) const RULES: &[Rule] = &[
    Rule {
        reads: &["training.document_mask", "data.document_end", "data.tokenizer"],
        check: a_mask_needs_an_end,
    },
    Rule {
        reads: &["model.vocab_size", "data.document_start"],
        check: |r| in_the_vocabulary(r, "document_start", r.data.document_start.as_ref()?),
    },
    Rule {
        reads: &["model.vocab_size", "data.document_end"],
        check: |r| in_the_vocabulary(r, "document_end", r.data.document_end.as_ref()?),
    },
    Rule {
        reads: &["data.document_start", "data.tokenizer"],
        check: |r| of_the_tokenizer(r, "document_start", r.data.document_start.as_ref()?),
    },
    Rule {
        reads: &["data.document_end", "data.tokenizer"],
        check: |r| of_the_tokenizer(r, "document_end", r.data.document_end.as_ref()?),
    },
    Rule { reads: &["data.document_end", "data.tokenizer"], check: documents_are_separated },
    Rule { reads: &["validation.fraction"], check: prompts_are_not_split },
];

/// Whether the tokenizer was asked for this token and has none. A tokenizer that could not be read may have one.
fn is_missing(r: &Recipe, token: &DocumentToken) -> bool {
    token.id.is_none()
        && (r.data.tokenizer.largest_id().is_some() || !token.name.needs_a_tokenizer())
}

fn a_mask_needs_an_end(r: &Recipe) -> Option<Diagnostic> {
    let mask = &r.training.language.as_ref()?.document_mask;
    let end = r.data.document_end.as_ref()?;
    if !**mask || !is_missing(r, end) {
        return None;
    }
    let without = match (&end.name, &*r.data.tokenizer) {
        (TokenName::Nothing, _) => "with `data.document_end` = \"none\"",
        (_, Tokenizer::Bytes) => "without `data.document_end`",
        (_, Tokenizer::File { .. }) => "without `data.document_end`, and the tokenizer names none",
    };
    let help = match *r.data.tokenizer {
        Tokenizer::Bytes => {
            "write in [data] the byte that ends a document, such as document_end = 0"
        }
        Tokenizer::File { .. } => {
            "write in [data] the token that ends a document, such as document_end = \"<|endoftext|>\""
        }
    };
    Some(
        Diagnostic::error(format!("`training.document_mask` = true {without}"))
            .at(mask.at.clone())
            .label("nothing says which token ends a document")
            .context(end.at.clone(), "no token")
            .help(help),
    )
}

fn in_the_vocabulary(r: &Recipe, key: &str, token: &Item<DocumentToken>) -> Option<Diagnostic> {
    let (vocab_size, id) = (&r.model.decoder()?.vocab_size, token.id?);
    if id < **vocab_size {
        return None;
    }
    let last = r.data.tokenizer.largest_id().unwrap_or(u64::MAX).min(**vocab_size - 1);
    Some(
        Diagnostic::error(format!(
            "`data.{key}` = {id} is not below `model.vocab_size` = {}",
            shown(r, vocab_size)
        ))
        .at(token.at.clone())
        .label("no token of this vocabulary")
        .context(vocab_size.at.clone(), "the token ids end here")
        .help(format!("allowed: 0 to {last}")),
    )
}

/// A vocabulary may be larger than its tokenizer, and an id beyond the tokenizer is a mistake all the same.
fn of_the_tokenizer(r: &Recipe, key: &str, token: &Item<DocumentToken>) -> Option<Diagnostic> {
    let (id, largest) = (token.id?, r.data.tokenizer.largest_id()?);
    if id <= largest {
        return None;
    }
    Some(
        Diagnostic::error(format!(
            "`data.{key}` = {id} is beyond {largest}, the largest id of the tokenizer"
        ))
        .at(token.at.clone())
        .label("no token of this tokenizer")
        .context(r.data.tokenizer.at.clone(), "this tokenizer")
        .help(format!("allowed: 0 to {largest}")),
    )
}

/// Prompts are apart whatever their last token is.
fn documents_are_separated(r: &Recipe) -> Option<Diagnostic> {
    let end = r.data.document_end.as_ref()?;
    let is_asked =
        end.name == TokenName::Auto && matches!(*r.data.tokenizer, Tokenizer::File { .. });
    if !is_asked || !is_missing(r, end) || r.rl.is_some() {
        return None;
    }
    Some(
        Diagnostic::warning("the tokenizer names no token that ends a document")
            .at(r.data.tokenizer.at.clone())
            .label("documents will not be separated")
            .context(end.at.clone(), "what the tokenizer says")
            .help("write document_end: the text or id of a token, or \"none\" if this is meant"),
    )
}

fn prompts_are_not_split(r: &Recipe) -> Option<Diagnostic> {
    let fraction = r.validation.as_ref()?.fraction()?;
    let rl = r.rl.as_ref()?;
    Some(
        Diagnostic::error("`validation.fraction` in a recipe with [rl]")
            .at(fraction.at.clone())
            .label("prompts are not split")
            .context(rl.at.clone(), "its sources are prompts")
            .help("write sources = [{ path = \"validation.jsonl\" }], with prompts of its own"),
    )
}
