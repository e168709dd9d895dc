//! Training FLOPs per token.

use serde::Serialize;
use titan_recipes::tables::model::Model;

use crate::parameters::parameters;

/// How FLOPs are counted. One run gives quite different MFU under each, so every figure names its convention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Convention {
    /// Attention over the half of the positions that the causal mask leaves: `6 P + 6 L H hd T`. Reproduces
    /// the published TorchTPU figures.
    Causal,
    /// Attention over all positions: `6 P + 12 L H hd T` (PaLM, appendix B).
    Palm,
    /// No attention at all: `6 P`.
    #[serde(rename = "6n")]
    SixN,
}

impl Convention {
    /// The word for it in options and output.
    pub fn word(self) -> &'static str {
        match self {
            Convention::Causal => "causal",
            Convention::Palm => "palm",
            Convention::SixN => "6n",
        }
    }
}

/// FLOPs of forward and backward per trained token.
///
/// `P` are the weights that multiply a token (all but the embedding lookup; a tied head counts), `L` layers, `H`
/// query heads (never key/value heads), `hd` the head dimension (never `hidden / H`), `T` the sequence length.
/// Recomputation is not counted: that would be HFU.
pub fn flops_per_token(model: &Model, sequence_length: u64, convention: Convention) -> u64 {
    let per_position = *model.num_layers * *model.num_heads * *model.head_dim * sequence_length;
    let attention = match convention {
        Convention::Causal => 6 * per_position,
        Convention::Palm => 12 * per_position,
        Convention::SixN => 0,
    };
    6 * parameters(model).multiplying + attention
}
