//! Parameter counts by formula.

use serde::Serialize;
use titan_recipes::tables::model::Model;

/// Numbers of weights of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Parameters {
    /// All weights; a tied output head counts once, with the embedding.
    pub total: u64,
    /// Weights that a token meets.
    pub active: u64,
    /// The input embedding, which is looked up and multiplies nothing.
    pub embedding: u64,
    /// Weights that multiply a token: the active ones without the embedding lookup. A tied head counts here.
    pub multiplying: u64,
}

/// Counts the weights of a dense decoder: per block the projections q, o (`hidden x heads x head_dim`) and k, v
/// (`hidden x kv_heads x head_dim`), three matrices of the feed-forward (`hidden x intermediate`) and two
/// norms; then the final norm, the embedding and the output head.
pub fn parameters(model: &Model) -> Parameters {
    let hidden = *model.hidden_size;
    let attention = 2 * hidden * *model.head_dim * (*model.num_heads + *model.num_kv_heads);
    let feed_forward = 3 * hidden * *model.intermediate_size;
    let blocks = *model.num_layers * (attention + feed_forward + 2 * hidden);
    let embedding = *model.vocab_size * hidden;
    let head = embedding;
    let stored_head = if *model.tie_embeddings { 0 } else { head };
    let total = embedding + blocks + hidden + stored_head;
    Parameters { total, active: total, embedding, multiplying: blocks + hidden + head }
}
