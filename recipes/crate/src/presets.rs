//! Dimensions of published models. Source: the `config.json` files of the released checkpoints. Those called `tiny`
//! are ours: they train on two CPU cores in about a minute.

/// Experts of a mixture of experts.
#[derive(Clone, Copy)]
pub(crate) struct ExpertPreset {
    pub(crate) num_experts: u64,
    pub(crate) experts_per_token: u64,
    pub(crate) expert_intermediate_size: u64,
}

/// A named set of dimensions of a language model.
#[derive(Clone, Copy)]
pub(crate) struct DecoderPreset {
    pub(crate) size: &'static str,
    pub(crate) vocab_size: u64,
    pub(crate) hidden_size: u64,
    /// 0 for a mixture of experts.
    pub(crate) intermediate_size: u64,
    pub(crate) experts: Option<ExpertPreset>,
    pub(crate) num_layers: u64,
    pub(crate) num_heads: u64,
    pub(crate) num_kv_heads: u64,
    /// Where it is not `hidden_size / num_heads`.
    pub(crate) head_dim: Option<u64>,
    pub(crate) rope_theta: f64,
    pub(crate) tie_embeddings: bool,
    /// Whether the released model stretches its rotary positions.
    pub(crate) scaled_positions: bool,
}

/// A named set of dimensions of FLUX.
#[derive(Clone, Copy)]
pub(crate) struct FluxPreset {
    pub(crate) size: &'static str,
    pub(crate) hidden_size: u64,
    pub(crate) num_heads: u64,
    pub(crate) num_double_layers: u64,
    pub(crate) num_single_layers: u64,
    pub(crate) intermediate_size: u64,
    pub(crate) in_channels: u64,
    pub(crate) text_size: u64,
    pub(crate) pooled_size: u64,
    pub(crate) guidance_embedding: bool,
    pub(crate) rope_axes: [u64; 3],
    /// Tokens of the text encoder that the model was trained with.
    pub(crate) text_length: u64,
    /// Pixels of a side of its images in pre-training recipes.
    pub(crate) image_size: u64,
}

const LLAMA3_BASE: DecoderPreset = DecoderPreset {
    size: "",
    vocab_size: 128_256,
    hidden_size: 4096,
    intermediate_size: 14_336,
    experts: None,
    num_layers: 32,
    num_heads: 32,
    num_kv_heads: 8,
    head_dim: None,
    rope_theta: 500_000.0,
    tie_embeddings: false,
    scaled_positions: false,
};

/// Llama 3, smallest first.
pub(crate) const LLAMA3: &[DecoderPreset] = &[
    DecoderPreset {
        size: "tiny",
        vocab_size: 256,
        hidden_size: 256,
        intermediate_size: 640,
        num_layers: 2,
        num_heads: 8,
        num_kv_heads: 2,
        rope_theta: 10_000.0,
        ..LLAMA3_BASE
    },
    DecoderPreset { size: "8b", ..LLAMA3_BASE },
    DecoderPreset {
        size: "70b",
        hidden_size: 8192,
        intermediate_size: 28_672,
        num_layers: 80,
        num_heads: 64,
        ..LLAMA3_BASE
    },
    // Released as Llama 3.1 only, with stretched positions.
    DecoderPreset {
        size: "405b",
        hidden_size: 16_384,
        intermediate_size: 53_248,
        num_layers: 126,
        num_heads: 128,
        scaled_positions: true,
        ..LLAMA3_BASE
    },
];

const QWEN3_BASE: DecoderPreset = DecoderPreset {
    size: "",
    vocab_size: 151_936,
    hidden_size: 1024,
    intermediate_size: 3072,
    experts: None,
    num_layers: 28,
    num_heads: 16,
    num_kv_heads: 8,
    head_dim: Some(128),
    rope_theta: 1_000_000.0,
    tie_embeddings: true,
    scaled_positions: false,
};

/// Qwen3, smallest first.
pub(crate) const QWEN3: &[DecoderPreset] = &[
    DecoderPreset {
        size: "tiny",
        vocab_size: 256,
        hidden_size: 256,
        intermediate_size: 640,
        num_layers: 2,
        num_heads: 8,
        num_kv_heads: 2,
        head_dim: Some(64),
        rope_theta: 10_000.0,
        ..QWEN3_BASE
    },
    DecoderPreset { size: "0.6b", ..QWEN3_BASE },
    DecoderPreset { size: "1.7b", hidden_size: 2048, intermediate_size: 6144, ..QWEN3_BASE },
    DecoderPreset {
        size: "4b",
        hidden_size: 2560,
        intermediate_size: 9728,
        num_layers: 36,
        num_heads: 32,
        ..QWEN3_BASE
    },
    DecoderPreset {
        size: "8b",
        hidden_size: 4096,
        intermediate_size: 12_288,
        num_layers: 36,
        num_heads: 32,
        tie_embeddings: false,
        ..QWEN3_BASE
    },
    DecoderPreset {
        size: "14b",
        hidden_size: 5120,
        intermediate_size: 17_408,
        num_layers: 40,
        num_heads: 40,
        tie_embeddings: false,
        ..QWEN3_BASE
    },
    DecoderPreset {
        size: "32b",
        hidden_size: 5120,
        intermediate_size: 25_600,
        num_layers: 64,
        num_heads: 64,
        tie_embeddings: false,
        ..QWEN3_BASE
    },
];

const QWEN3_MOE_BASE: DecoderPreset =
    DecoderPreset { intermediate_size: 0, num_kv_heads: 4, tie_embeddings: false, ..QWEN3_BASE };

/// Qwen3 with experts, smallest first.
pub(crate) const QWEN3_MOE: &[DecoderPreset] = &[
    DecoderPreset {
        size: "tiny",
        vocab_size: 256,
        hidden_size: 256,
        experts: Some(ExpertPreset {
            num_experts: 8,
            experts_per_token: 2,
            expert_intermediate_size: 256,
        }),
        num_layers: 2,
        num_heads: 8,
        num_kv_heads: 2,
        head_dim: Some(64),
        rope_theta: 10_000.0,
        ..QWEN3_MOE_BASE
    },
    DecoderPreset {
        size: "30b-a3b",
        hidden_size: 2048,
        experts: Some(ExpertPreset {
            num_experts: 128,
            experts_per_token: 8,
            expert_intermediate_size: 768,
        }),
        num_layers: 48,
        num_heads: 32,
        ..QWEN3_MOE_BASE
    },
    DecoderPreset {
        size: "235b-a22b",
        hidden_size: 4096,
        experts: Some(ExpertPreset {
            num_experts: 128,
            experts_per_token: 8,
            expert_intermediate_size: 1536,
        }),
        num_layers: 94,
        num_heads: 64,
        ..QWEN3_MOE_BASE
    },
];

const FLUX_BASE: FluxPreset = FluxPreset {
    size: "",
    hidden_size: 3072,
    num_heads: 24,
    num_double_layers: 19,
    num_single_layers: 38,
    intermediate_size: 12_288,
    in_channels: 64,
    text_size: 4096,
    pooled_size: 768,
    guidance_embedding: true,
    rope_axes: [16, 56, 56],
    text_length: 512,
    image_size: 256,
};

/// FLUX.1, smallest first.
pub(crate) const FLUX: &[FluxPreset] = &[
    FluxPreset {
        size: "tiny",
        hidden_size: 128,
        num_heads: 4,
        num_double_layers: 2,
        num_single_layers: 4,
        intermediate_size: 512,
        in_channels: 48,
        text_size: 32,
        pooled_size: 24,
        guidance_embedding: false,
        rope_axes: [8, 12, 12],
        text_length: 8,
        image_size: 64,
    },
    FluxPreset { size: "dev", ..FLUX_BASE },
    FluxPreset { size: "schnell", guidance_embedding: false, text_length: 256, ..FLUX_BASE },
];
