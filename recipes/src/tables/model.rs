//! `[model]`: the architecture.

use serde::Serialize;

use crate::presets::{LLAMA3, Preset};
use crate::reader::{Context, POSITIVE, no_choice};
use crate::source::Item;
use crate::tree::Table;
use crate::words::choice;

choice! {
    /// A family of architectures.
    Family {
        /// Llama 3: RMSNorm, rotary positions, grouped-query attention, SwiGLU.
        Llama3 = "llama3",
    }
}

/// Families of the recipe format that this version cannot train yet.
const LATER_FAMILIES: &[&str] = &["qwen3", "qwen3-moe", "flux"];

/// The architecture. A preset named by `size` gives every dimension; each may be overridden.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Model {
    /// The family.
    pub family: Item<Family>,
    /// The preset that the other settings start from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Item<String>>,
    /// Number of token ids.
    pub vocab_size: Item<u64>,
    /// Width of the residual stream.
    pub hidden_size: Item<u64>,
    /// Width inside the feed-forward block.
    pub intermediate_size: Item<u64>,
    /// Number of transformer blocks.
    pub num_layers: Item<u64>,
    /// Query heads of a block.
    pub num_heads: Item<u64>,
    /// Key and value heads of a block; query heads share them in equal groups.
    pub num_kv_heads: Item<u64>,
    /// Width of one head. By default `hidden_size / num_heads`.
    pub head_dim: Item<u64>,
    /// Base of the rotary position frequencies.
    pub rope_theta: Item<f64>,
    /// Added to the mean square in RMSNorm.
    pub norm_eps: Item<f64>,
    /// Whether the output head uses the embedding matrix.
    pub tie_embeddings: Item<bool>,
    /// Standard deviation of the initial weights.
    pub init_std: Item<f64>,
}

/// Keys that a preset gives, and that are required without one.
const DIMENSIONS: &[&str] =
    &["vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads"];

// The ranges are far beyond any published model, and small enough that parameters, and FLOPs per token with the
// longest sequence, fit in 64 bits: nothing downstream can overflow.
pub(crate) const MOST_HIDDEN: u64 = 1 << 20;
const MOST_HEADS: u64 = 1 << 12;
pub(crate) const MOST_HEAD_DIM: u64 = 1 << 12;

impl Model {
    pub(crate) fn read(cx: &mut Context<'_>, root: &Table) -> Self {
        let mut t = cx.section(root, "model");
        let family = t.choice_with::<Family>("family", LATER_FAMILIES);
        let family = t.required(family, Family::Llama3, "\"llama3\"");
        let presets = match *family {
            Family::Llama3 => LLAMA3,
        };
        let size = t.text("size");
        let named = size.as_ref().map(|size| presets.iter().find(|p| p.size == size.value));
        let preset = named.flatten();
        // The size of a family that is not known is not known either.
        if let (Some(size), None, Some(_)) = (&size, preset, &family.at) {
            let sizes: Vec<&str> = presets.iter().map(|p| p.size).collect();
            let problem = no_choice("model.size", size, &sizes, &[]);
            t.reject("size", problem.at(size.at.clone()).label("unknown size"));
        }
        // Without a size each dimension is required, and a recipe without any of them lacks a size. Where the
        // size is wrong, the smallest stands in, so that one mistake is not reported seven times.
        let any_dimension = DIMENSIONS.iter().any(|key| t.has(key));
        if !t.has("size") && !any_dimension {
            t.lacks("size", "\"tiny\"");
        }
        let required = !t.has("size") && any_dimension;
        let stand_in = preset.unwrap_or(&presets[0]);
        let mut dimension = |key: &'static str, most: u64, of: fn(&Preset) -> u64| {
            let (item, value) = (t.integer(key, 1, most), of(stand_in));
            if required { t.required(item, value, &value.to_string()) } else { t.or(item, value) }
        };
        let vocab_size = dimension("vocab_size", 1 << 24, |p| p.vocab_size);
        let hidden_size = dimension("hidden_size", MOST_HIDDEN, |p| p.hidden_size);
        let intermediate_size = dimension("intermediate_size", 1 << 22, |p| p.intermediate_size);
        let num_layers = dimension("num_layers", 1 << 12, |p| p.num_layers);
        let num_heads = dimension("num_heads", MOST_HEADS, |p| p.num_heads);
        let num_kv_heads = dimension("num_kv_heads", MOST_HEADS, |p| p.num_kv_heads);
        let head_dim = t.integer("head_dim", 2, MOST_HEAD_DIM);
        let head_dim = t.or(head_dim, (hidden_size.value / num_heads.value).max(1));
        let rope_theta = t.number("rope_theta", POSITIVE);
        let rope_theta = t.or(rope_theta, stand_in.rope_theta);
        let norm_eps = t.number("norm_eps", POSITIVE);
        let norm_eps = t.or(norm_eps, 1e-5);
        let tie_embeddings = t.boolean("tie_embeddings");
        let tie_embeddings = t.or(tie_embeddings, stand_in.tie_embeddings);
        let init_std = t.number("init_std", POSITIVE);
        let init_std = t.or(init_std, 0.02);
        t.later(&["init", "num_experts"]);
        t.finish();
        Self {
            family,
            size,
            vocab_size,
            hidden_size,
            intermediate_size,
            num_layers,
            num_heads,
            num_kv_heads,
            head_dim,
            rope_theta,
            norm_eps,
            tie_embeddings,
            init_std,
        }
    }
}
