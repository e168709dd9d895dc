//! Dimensions of the language models: Llama 3, Qwen3 and Qwen3 with experts.

use serde::Serialize;

use super::{
    Family, MOST_HEAD_DIM, MOST_HEADS, MOST_HIDDEN, MOST_INTERMEDIATE, MOST_LAYERS,
    MOST_VOCABULARY, Preset,
};
use crate::origin::Origin;
use crate::presets::{DecoderPreset, ExpertPreset};
use crate::reader::{POSITIVE, Section};
use crate::source::Item;
use crate::words::choice;

choice! {
    /// How rotary positions reach beyond the length of the first training.
    RopeScalingKind {
        /// They do not.
        None = "none",
        /// Llama 3.1: low frequencies are divided, high ones kept.
        Llama3 = "llama3",
    }
}

choice! {
    /// What keeps tokens from all going to the same experts.
    LoadBalancing {
        /// Nothing.
        None = "none",
        /// A loss of the global batch, whose gradient is added (arXiv 2101.03961 equation 4, arXiv 2501.11873).
        AuxiliaryLoss = "auxiliary-loss",
        /// A bias for each expert, which moves against its load after each step and takes part in the choice of
        /// experts only (arXiv 2408.15664).
        Bias = "bias",
    }
}

/// Dimensions of a decoder.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decoder {
    /// Number of token ids.
    pub vocab_size: Item<u64>,
    /// Width of the residual stream.
    pub hidden_size: Item<u64>,
    /// Widths inside the feed-forward block.
    #[serde(flatten)]
    pub feed_forward: FeedForward,
    /// Number of transformer blocks.
    pub num_layers: Item<u64>,
    /// Query heads of a block.
    pub num_heads: Item<u64>,
    /// Key and value heads of a block; query heads share them in equal groups.
    pub num_kv_heads: Item<u64>,
    /// Width of one head.
    pub head_dim: Item<u64>,
    /// Base of the rotary position frequencies.
    pub rope_theta: Item<f64>,
    /// Stretched positions, of Llama 3 only.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub rope_scaling: Option<RopeScaling>,
    /// Added to the mean square in RMSNorm.
    pub norm_eps: Item<f64>,
    /// Whether the output head uses the embedding matrix.
    pub tie_embeddings: Item<bool>,
    /// Whether queries and keys of each head are normalised: a property of the family.
    #[serde(skip)]
    pub has_qk_norm: bool,
}

/// The feed-forward block.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum FeedForward {
    /// One SwiGLU.
    Dense {
        /// Its inner width.
        intermediate_size: Item<u64>,
    },
    /// A router that sends each token to some of many SwiGLUs.
    Experts(Experts),
}

/// A mixture of experts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Experts {
    /// Experts of a block.
    pub num_experts: Item<u64>,
    /// Experts that one token is sent to.
    pub experts_per_token: Item<u64>,
    /// Inner width of one expert.
    pub expert_intermediate_size: Item<u64>,
    /// What keeps tokens from all going to the same experts.
    pub load_balancing: Item<LoadBalancing>,
    /// Weight of the auxiliary loss, or step of the bias; none where nothing is balanced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_balancing_coefficient: Option<Item<f64>>,
}

/// Whether rotary positions are stretched.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RopeScaling {
    /// How.
    #[serde(rename = "rope_scaling")]
    pub kind: Item<RopeScalingKind>,
    /// Its constants, unless it is none.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub constants: Option<RopeConstants>,
}

/// Constants of the stretched positions of Llama 3.1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RopeConstants {
    /// Low frequencies are divided by this.
    #[serde(rename = "rope_scaling_factor")]
    pub factor: Item<f64>,
    /// Wavelengths longer than `original_length` over this are divided.
    #[serde(rename = "rope_low_frequency_factor")]
    pub low_frequency_factor: Item<f64>,
    /// Wavelengths shorter than `original_length` over this are kept.
    #[serde(rename = "rope_high_frequency_factor")]
    pub high_frequency_factor: Item<f64>,
    /// Tokens of the first training's sequences.
    #[serde(rename = "rope_original_length")]
    pub original_length: Item<u64>,
}

impl Decoder {
    /// The experts, if it has some.
    pub fn experts(&self) -> Option<&Experts> {
        match &self.feed_forward {
            FeedForward::Dense { .. } => None,
            FeedForward::Experts(experts) => Some(experts),
        }
    }

    /// The inner width of the feed-forward block, if it is dense.
    pub fn intermediate_size(&self) -> Option<&Item<u64>> {
        match &self.feed_forward {
            FeedForward::Dense { intermediate_size } => Some(intermediate_size),
            FeedForward::Experts(_) => None,
        }
    }

    pub(super) fn read(
        t: &mut Section<'_, '_>,
        family: Family,
        from: &DecoderPreset,
        preset: &Preset,
    ) -> Self {
        if !t.has("size") && !preset.required {
            t.lacks("size", "\"tiny\"");
        }
        let vocab_size = preset.integer(t, "vocab_size", MOST_VOCABULARY, from.vocab_size);
        let hidden_size = preset.integer(t, "hidden_size", MOST_HIDDEN, from.hidden_size);
        let feed_forward = match from.experts {
            Some(experts) => FeedForward::Experts(Experts::read(t, &experts, preset)),
            None => {
                let of = from.intermediate_size;
                let size = preset.integer(t, "intermediate_size", MOST_INTERMEDIATE, of);
                FeedForward::Dense { intermediate_size: size }
            }
        };
        let num_layers = preset.integer(t, "num_layers", MOST_LAYERS, from.num_layers);
        let num_heads = preset.integer(t, "num_heads", MOST_HEADS, from.num_heads);
        let num_kv_heads = preset.integer(t, "num_kv_heads", MOST_HEADS, from.num_kv_heads);
        let head_dim = read_head_dim(t, from, preset, *hidden_size / *num_heads);
        let rope_theta = t.number("rope_theta", POSITIVE);
        let rope_theta = preset.or(t, rope_theta, from.rope_theta);
        let is_llama = family == Family::Llama3;
        let rope_scaling = is_llama.then(|| RopeScaling::read(t, from, preset));
        let norm_eps = t.number("norm_eps", POSITIVE);
        let norm_eps = t.or(norm_eps, if is_llama { 1e-5 } else { 1e-6 });
        let tie_embeddings = t.boolean("tie_embeddings");
        let tie_embeddings = preset.or(t, tie_embeddings, from.tie_embeddings);
        Self {
            vocab_size,
            hidden_size,
            feed_forward,
            num_layers,
            num_heads,
            num_kv_heads,
            head_dim,
            rope_theta,
            rope_scaling,
            norm_eps,
            tie_embeddings,
            has_qk_norm: !is_llama,
        }
    }
}

/// Llama's heads divide the width of the model among them; Qwen3's have a width of their own.
fn read_head_dim(
    t: &mut Section<'_, '_>,
    from: &DecoderPreset,
    preset: &Preset,
    share: u64,
) -> Item<u64> {
    let head_dim = t.integer("head_dim", 2, MOST_HEAD_DIM);
    match from.head_dim.filter(|_| !preset.required) {
        Some(of) => preset.or(t, head_dim, of),
        None => {
            let how = Origin::Derived("hidden_size / num_heads");
            t.or_from(head_dim, share.max(1), how)
        }
    }
}

impl Experts {
    fn read(t: &mut Section<'_, '_>, from: &ExpertPreset, preset: &Preset) -> Self {
        let num_experts = preset.integer(t, "num_experts", 1 << 14, from.num_experts);
        let per_token = preset.integer(t, "experts_per_token", 1 << 14, from.experts_per_token);
        let of = from.expert_intermediate_size;
        let size = preset.integer(t, "expert_intermediate_size", MOST_INTERMEDIATE, of);
        let load_balancing = t.choice::<LoadBalancing>("load_balancing");
        let load_balancing = t.or(load_balancing, LoadBalancing::AuxiliaryLoss);
        let coefficient = t.number("load_balancing_coefficient", POSITIVE);
        let coefficient = match *load_balancing {
            LoadBalancing::None => {
                let why = "is for load_balancing = \"auxiliary-loss\" or \"bias\"";
                t.idle("load_balancing_coefficient", coefficient, why)
            }
            LoadBalancing::AuxiliaryLoss | LoadBalancing::Bias => Some(t.or(coefficient, 1e-3)),
        };
        Self {
            num_experts,
            experts_per_token: per_token,
            expert_intermediate_size: size,
            load_balancing,
            load_balancing_coefficient: coefficient,
        }
    }
}

impl RopeScaling {
    fn read(t: &mut Section<'_, '_>, from: &DecoderPreset, preset: &Preset) -> Self {
        let kind = t.choice::<RopeScalingKind>("rope_scaling");
        let of =
            if from.scaled_positions { RopeScalingKind::Llama3 } else { RopeScalingKind::None };
        let kind = preset.or(t, kind, of);
        let is_stretched = *kind == RopeScalingKind::Llama3;
        let mut constant = |key, default| {
            let item = t.number(key, POSITIVE);
            match is_stretched {
                true => t.or(item, default),
                false => t.idle(key, item, IDLE).unwrap_or_else(|| Item::derived(default)),
            }
        };
        // The constants of Llama 3.1.
        let factor = constant("rope_scaling_factor", 8.0);
        let low_frequency_factor = constant("rope_low_frequency_factor", 1.0);
        let high_frequency_factor = constant("rope_high_frequency_factor", 4.0);
        let length = t.integer("rope_original_length", 1, 1 << 24);
        let original_length = match is_stretched {
            true => t.or(length, 8192),
            false => {
                let idle = t.idle("rope_original_length", length, IDLE);
                idle.unwrap_or_else(|| Item::derived(8192))
            }
        };
        let constants = is_stretched.then_some(RopeConstants {
            factor,
            low_frequency_factor,
            high_frequency_factor,
            original_length,
        });
        Self { kind, constants }
    }
}

const IDLE: &str = "is for rope_scaling = \"llama3\"";

/// Keys that a preset gives, and that are required without one.
pub(super) fn required(family: Family) -> &'static [&'static str] {
    match family {
        Family::Qwen3Moe => &[
            "vocab_size",
            "hidden_size",
            "num_experts",
            "experts_per_token",
            "expert_intermediate_size",
            "num_layers",
            "num_heads",
            "num_kv_heads",
        ],
        _ => &[
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_layers",
            "num_heads",
            "num_kv_heads",
        ],
    }
}
