//! Rules about the documents that sequences are cut from.

use super::{Rule, shown};
use crate::diagnostic::Diagnostic;
use crate::recipe::Recipe;
use crate::tables::data::Tokenizer;

pub(super) const RULES: &[Rule] = &[
    Rule { reads: &["training.document_mask", "data.document_end"], check: a_mask_needs_an_end },
    Rule {
        reads: &["model.vocab_size", "data.document_end"],
        check: documents_end_with_a_known_token,
    },
    Rule {
        reads: &["training.document_mask", "data.document_end", "data.tokenizer"],
        check: the_end_can_come,
    },
];

fn is_masked(r: &Recipe) -> bool {
    r.training.language.as_ref().is_some_and(|language| *language.document_mask)
}

fn a_mask_needs_an_end(r: &Recipe) -> Option<Diagnostic> {
    let mask = &r.training.language.as_ref()?.document_mask;
    if !**mask || r.data.document_end.is_some() {
        return None;
    }
    let help = match *r.data.tokenizer {
        Tokenizer::Bytes => {
            "add document_end to [data]: the byte that ends a document, such as document_end = 0"
        }
        Tokenizer::File { .. } => {
            "add document_end to [data]: the id of the tokenizer's end-of-text token"
        }
    };
    Some(
        Diagnostic::error("`training.document_mask` = true without `data.document_end`")
            .at(mask.at.clone())
            .label("nothing says which token ends a document")
            .help(help),
    )
}

fn documents_end_with_a_known_token(r: &Recipe) -> Option<Diagnostic> {
    let (vocab_size, end) = (&r.model.decoder()?.vocab_size, r.data.document_end.as_ref()?);
    if **end < **vocab_size {
        return None;
    }
    Some(
        Diagnostic::error(format!(
            "`data.document_end` = {} is not below `model.vocab_size` = {}",
            **end,
            shown(r, vocab_size)
        ))
        .at(end.at.clone())
        .label("no token of this vocabulary")
        .context(vocab_size.at.clone(), "the token ids end here")
        .help(format!("allowed: 0 to {}", **vocab_size - 1)),
    )
}

/// A vocabulary may be larger than its tokenizer, whose ids alone are in the data.
fn the_end_can_come(r: &Recipe) -> Option<Diagnostic> {
    let (end, largest) = (r.data.document_end.as_ref()?, r.data.tokenizer.largest_id()?);
    if !is_masked(r) || **end <= largest {
        return None;
    }
    Some(
        Diagnostic::warning(format!(
            "`data.document_end` = {} is beyond {largest}, the largest id of the tokenizer: no document ends",
            **end
        ))
        .at(end.at.clone())
        .label("never in the data")
        .context(r.data.tokenizer.at.clone(), "this tokenizer"),
    )
}
