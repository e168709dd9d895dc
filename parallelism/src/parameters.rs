//! Parameter counts by formula.

use serde::Serialize;
use titan_recipes::tables::model::{Decoder, Dimensions, FeedForward, FluxTransformer, Model};

/// Numbers of weights of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Parameters {
    /// All weights; a tied output head counts once, with the embedding.
    pub total: u64,
    /// Weights that a token meets: of a mixture of experts, those of the experts that it is sent to.
    pub active: u64,
    /// The input embedding, which is looked up and multiplies nothing.
    pub embedding: u64,
    /// Weights that multiply a token: the active ones without the embedding lookup. A tied head counts here.
    pub multiplying: u64,
}

/// Counts the weights of a model.
pub fn parameters(model: &Model) -> Parameters {
    match &model.dimensions {
        Dimensions::Decoder(decoder) => decoder_parameters(decoder),
        Dimensions::Flux(flux) => {
            let total = FluxWeights::of(flux).total();
            Parameters { total, active: total, embedding: 0, multiplying: total }
        }
    }
}

/// Per block the projections q, o (`hidden x heads x head_dim`) and k, v (`hidden x kv_heads x head_dim`), the norms
/// of queries and keys where there are some, the feed-forward and two norms; then the final norm, the embedding and
/// the output head. A SwiGLU has three matrices; a mixture has as many for each expert, and a router.
fn decoder_parameters(decoder: &Decoder) -> Parameters {
    let hidden = *decoder.hidden_size;
    let qk_norms = if decoder.has_qk_norm { 2 * *decoder.head_dim } else { 0 };
    let attention =
        2 * hidden * *decoder.head_dim * (*decoder.num_heads + *decoder.num_kv_heads) + qk_norms;
    let (feed_forward, idle) = match &decoder.feed_forward {
        FeedForward::Dense { intermediate_size } => (3 * hidden * **intermediate_size, 0),
        FeedForward::Experts(experts) => {
            let expert = 3 * hidden * *experts.expert_intermediate_size;
            let idle = (*experts.num_experts - *experts.experts_per_token) * expert;
            (*experts.num_experts * (expert + hidden), idle)
        }
    };
    let blocks = *decoder.num_layers * (attention + feed_forward + 2 * hidden);
    let idle = *decoder.num_layers * idle;
    let embedding = *decoder.vocab_size * hidden;
    let head = embedding;
    let stored_head = if *decoder.tie_embeddings { 0 } else { head };
    let total = embedding + blocks + hidden + stored_head;
    Parameters {
        total,
        active: total - idle,
        embedding,
        multiplying: blocks - idle + hidden + head,
    }
}

/// Weights of FLUX.1, biases and norms included, by what they multiply. The layers are those of diffusers'
/// `FluxTransformer2DModel`.
pub(crate) struct FluxWeights {
    /// Multiply each image token: its embedding, its half of the double blocks, the output projection.
    pub(crate) image: u64,
    /// Multiply each text token: its embedding and its half of the double blocks.
    pub(crate) text: u64,
    /// Multiply each token of both: the single blocks.
    pub(crate) joint: u64,
    /// Multiply one vector of each sample: embeddings of time, text and guidance, and all modulations.
    pub(crate) sample: u64,
}

impl FluxWeights {
    pub(crate) fn of(flux: &FluxTransformer) -> Self {
        /// Numbers in the sinusoidal embedding of the time.
        const FREQUENCIES: u64 = 256;
        let (hidden, inner) = (*flux.hidden_size, *flux.intermediate_size);
        let linear = |from: u64, to: u64| from * to + to;
        let norms = 2 * flux.head_dim();
        let attention = 4 * linear(hidden, hidden) + norms;
        let stream = attention + linear(hidden, inner) + linear(inner, hidden);
        let single = 3 * linear(hidden, hidden)
            + norms
            + linear(hidden, inner)
            + linear(hidden + inner, hidden);
        let embedder = |from: u64| linear(from, hidden) + linear(hidden, hidden);
        let guidance = if *flux.guidance_embedding { embedder(FREQUENCIES) } else { 0 };
        let (doubles, singles) = (*flux.num_double_layers, *flux.num_single_layers);
        let modulations = doubles * 2 * linear(hidden, 6 * hidden)
            + singles * linear(hidden, 3 * hidden)
            + linear(hidden, 2 * hidden);
        Self {
            image: linear(*flux.in_channels, hidden)
                + doubles * stream
                + linear(hidden, *flux.in_channels),
            text: linear(*flux.text_size, hidden) + doubles * stream,
            joint: singles * single,
            sample: embedder(FREQUENCIES) + guidance + embedder(*flux.pooled_size) + modulations,
        }
    }

    fn total(&self) -> u64 {
        self.image + self.text + self.joint + self.sample
    }
}
