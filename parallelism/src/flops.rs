//! Training FLOPs per token.

use std::str::FromStr;

use serde::Serialize;
use titan_recipes::Recipe;
use titan_recipes::tables::flux::Flux;
use titan_recipes::tables::model::{Decoder, Dimensions, FluxTransformer};

use crate::parameters::{FluxWeights, parameters};

/// How FLOPs are counted. One run gives quite different MFU under each, so every figure names its convention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Convention {
    /// Attention over the half of the positions that the causal mask leaves: `6 P + 6 L H hd T`. Reproduces
    /// the published TorchTPU figures. Where attention goes both ways, as in FLUX, nothing is halved.
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

impl FromStr for Convention {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let all = [Self::Causal, Self::Palm, Self::SixN];
        let found = all.into_iter().find(|convention| convention.word() == word);
        found.ok_or_else(|| "allowed: causal, palm, 6n".to_owned())
    }
}

/// FLOPs of forward and backward per trained token; recomputation is not counted, that would be HFU.
pub fn flops_per_token(recipe: &Recipe, convention: Convention) -> u64 {
    match (&recipe.model.dimensions, &recipe.flux) {
        (Dimensions::Decoder(decoder), _) => {
            let weights = parameters(&recipe.model).multiplying;
            decoder_flops(decoder, weights, *recipe.training.sequence_length, convention)
        }
        (Dimensions::Flux(model), Some(flux)) => flux_flops(model, flux, convention),
        (Dimensions::Flux(_), None) => 0,
    }
}

/// `6 P` plus attention, where `P` are the weights that multiply a token (all but the embedding lookup; a tied head
/// counts; of the experts those that the token is sent to), `L` layers, `H` query heads (never key/value heads),
/// `hd` the head dimension (never `hidden / H`), `T` the sequence length.
fn decoder_flops(decoder: &Decoder, weights: u64, length: u64, convention: Convention) -> u64 {
    let per_position = *decoder.num_layers * *decoder.num_heads * *decoder.head_dim * length;
    let attention = match convention {
        Convention::Causal => 6 * per_position,
        Convention::Palm => 12 * per_position,
        Convention::SixN => 0,
    };
    6 * weights + attention
}

/// FLOPs of one sample over its tokens, image and text. Each weight counts for the tokens that it multiplies: the two
/// streams of a double block have weights of their own, and modulations multiply one vector of a sample. Attention
/// goes both ways, so nothing is halved: `12 L h S` per token. Rounded down to a whole number.
fn flux_flops(model: &FluxTransformer, flux: &Flux, convention: Convention) -> u64 {
    let weights = FluxWeights::of(model);
    let (image, text, tokens) = (flux.image_tokens(), *flux.text_length, flux.tokens());
    let pairs = [
        (weights.image, image),
        (weights.text, text),
        (weights.joint, tokens),
        (weights.sample, 1),
    ];
    let products = pairs.iter().map(|(weights, times)| u128::from(*weights) * u128::from(*times));
    let matrices = 6 * products.sum::<u128>() / u128::from(tokens);
    let layers = *model.num_double_layers + *model.num_single_layers;
    let attention = match convention {
        Convention::Causal | Convention::Palm => 12 * layers * *model.hidden_size * tokens,
        Convention::SixN => 0,
    };
    u64::try_from(matrices).unwrap_or(u64::MAX).saturating_add(attention)
}
