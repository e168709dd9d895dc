//! Dimensions of published models. Source: the `config.json` files of the released checkpoints.

/// A named set of dimensions.
pub(crate) struct Preset {
    pub(crate) size: &'static str,
    pub(crate) vocab_size: u64,
    pub(crate) hidden_size: u64,
    pub(crate) intermediate_size: u64,
    pub(crate) num_layers: u64,
    pub(crate) num_heads: u64,
    pub(crate) num_kv_heads: u64,
    pub(crate) rope_theta: f64,
    pub(crate) tie_embeddings: bool,
}

/// Llama 3, smallest first. `tiny` is ours: it trains on two CPU cores in about a minute.
pub(crate) const LLAMA3: &[Preset] = &[
    Preset {
        size: "tiny",
        vocab_size: 256,
        hidden_size: 256,
        intermediate_size: 640,
        num_layers: 2,
        num_heads: 8,
        num_kv_heads: 2,
        rope_theta: 10_000.0,
        tie_embeddings: false,
    },
    Preset {
        size: "8b",
        vocab_size: 128_256,
        hidden_size: 4096,
        intermediate_size: 14_336,
        num_layers: 32,
        num_heads: 32,
        num_kv_heads: 8,
        rope_theta: 500_000.0,
        tie_embeddings: false,
    },
    Preset {
        size: "70b",
        vocab_size: 128_256,
        hidden_size: 8192,
        intermediate_size: 28_672,
        num_layers: 80,
        num_heads: 64,
        num_kv_heads: 8,
        rope_theta: 500_000.0,
        tie_embeddings: false,
    },
    Preset {
        size: "405b",
        vocab_size: 128_256,
        hidden_size: 16_384,
        intermediate_size: 53_248,
        num_layers: 126,
        num_heads: 128,
        num_kv_heads: 8,
        rope_theta: 500_000.0,
        tie_embeddings: false,
    },
];
