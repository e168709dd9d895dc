//! Dimensions of FLUX.1 (Black Forest Labs; the names of the layers are those of diffusers).

use serde::Serialize;

use super::{MOST_HEADS, MOST_HIDDEN, MOST_INTERMEDIATE, MOST_LAYERS, Preset};
use crate::presets::FluxPreset;
use crate::reader::{POSITIVE, Section};
use crate::source::Item;

/// Dimensions of the transformer of FLUX.1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FluxTransformer {
    /// Width of both streams.
    pub hidden_size: Item<u64>,
    /// Attention heads; each is `hidden_size / num_heads` wide.
    pub num_heads: Item<u64>,
    /// Blocks with separate weights for image and text.
    pub num_double_layers: Item<u64>,
    /// Blocks over the joined stream.
    pub num_single_layers: Item<u64>,
    /// Inner width of the feed-forward blocks.
    pub intermediate_size: Item<u64>,
    /// Numbers in one image token: latent channels of a patch of 2 x 2.
    pub in_channels: Item<u64>,
    /// Width of a text token from the T5 encoder.
    pub text_size: Item<u64>,
    /// Width of the pooled text from the CLIP encoder.
    pub pooled_size: Item<u64>,
    /// Whether the guidance scale is an input (FLUX.1 dev).
    pub guidance_embedding: Item<bool>,
    /// Base of the rotary position frequencies.
    pub rope_theta: Item<f64>,
    /// Parts of a head that turn with index, row and column; they add up to its width.
    pub rope_axes: Item<[u64; 3]>,
}

/// Keys that a preset gives, and that are required without one.
pub(super) const REQUIRED: &[&str] = &[
    "hidden_size",
    "num_heads",
    "num_double_layers",
    "num_single_layers",
    "intermediate_size",
    "in_channels",
    "text_size",
    "pooled_size",
];

impl FluxTransformer {
    /// Width of one head.
    pub fn head_dim(&self) -> u64 {
        *self.hidden_size / *self.num_heads
    }

    pub(super) fn read(t: &mut Section<'_, '_>, from: &FluxPreset, preset: &Preset) -> Self {
        if !t.has("size") && !preset.required {
            t.lacks("size", "\"tiny\"");
        }
        let hidden_size = preset.integer(t, "hidden_size", MOST_HIDDEN, from.hidden_size);
        let num_heads = preset.integer(t, "num_heads", MOST_HEADS, from.num_heads);
        let doubles = from.num_double_layers;
        let num_double_layers = preset.integer(t, "num_double_layers", MOST_LAYERS, doubles);
        let singles = from.num_single_layers;
        let num_single_layers = preset.integer(t, "num_single_layers", MOST_LAYERS, singles);
        let inner = from.intermediate_size;
        let intermediate_size = preset.integer(t, "intermediate_size", MOST_INTERMEDIATE, inner);
        let in_channels = preset.integer(t, "in_channels", 1 << 16, from.in_channels);
        let text_size = preset.integer(t, "text_size", MOST_HIDDEN, from.text_size);
        let pooled_size = preset.integer(t, "pooled_size", MOST_HIDDEN, from.pooled_size);
        let guidance = t.boolean("guidance_embedding");
        let guidance_embedding = preset.or(t, guidance, from.guidance_embedding);
        let rope_theta = t.number("rope_theta", POSITIVE);
        let rope_theta = preset.or(t, rope_theta, 10_000.0);
        let rope_axes = t.integers::<3>("rope_axes", 2, 1 << 12, "[16, 56, 56]");
        let rope_axes = preset.or(t, rope_axes, from.rope_axes);
        Self {
            hidden_size,
            num_heads,
            num_double_layers,
            num_single_layers,
            intermediate_size,
            in_channels,
            text_size,
            pooled_size,
            guidance_embedding,
            rope_theta,
            rope_axes,
        }
    }
}
