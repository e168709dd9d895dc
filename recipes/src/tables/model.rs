//! `[model]`: the architecture.

use serde::Serialize;

use crate::diagnostic::Diagnostic;
use crate::presets::{LLAMA3, Preset};
use crate::reader::{Context, POSITIVE};
use crate::source::Item;
use crate::tree::Table;
use crate::words::{Choice, choice, nearest};

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

const MOST: u64 = 1 << 24;

impl Model {
    pub(crate) fn read(cx: &mut Context<'_>, root: &Table) -> Self {
        let mut t = cx.section(root, "model");
        let family = t.choice_with::<Family>("family", LATER_FAMILIES);
        let family = t.required(family, Family::Llama3, "\"llama3\"");
        let presets = match *family {
            Family::Llama3 => LLAMA3,
        };
        let size = t.text("size");
        let mut preset: Option<&Preset> = None;
        if let Some(size) = &size {
            preset = presets.iter().find(|p| p.size == size.value);
            if preset.is_none() {
                let names: Vec<&str> = presets.iter().map(|p| p.size).collect();
                let allowed = format!("sizes of {}: \"{}\"", family.word(), names.join("\", \""));
                let help = match nearest(size, names.iter().copied()) {
                    Some(word) => format!("did you mean \"{word}\"? {allowed}"),
                    None => format!("{allowed}; or leave `size` out and give every dimension"),
                };
                let diagnostic = Diagnostic::error(format!(
                    "`model.size` has no choice \"{}\" for the family {}",
                    size.value,
                    family.word()
                ))
                .at(size.at.clone())
                .label("unknown size")
                .help(help);
                t.reject("size", diagnostic);
            }
        }
        // Without a preset each dimension is required. After a wrong `size` the smallest preset stands in, so
        // that one mistake is not reported ten times.
        let stand_in = preset.or(size.as_ref().map(|_| &presets[0]));
        let mut dimension = |key: &'static str, most: u64, of: fn(&Preset) -> u64| {
            let item = t.integer(key, 1, most);
            match stand_in {
                Some(preset) => t.or(item, of(preset)),
                None => t.required(item, of(&presets[0]), &of(&presets[0]).to_string()),
            }
        };
        let vocab_size = dimension("vocab_size", MOST, |p| p.vocab_size);
        let hidden_size = dimension("hidden_size", MOST, |p| p.hidden_size);
        let intermediate_size = dimension("intermediate_size", MOST, |p| p.intermediate_size);
        let num_layers = dimension("num_layers", 10_000, |p| p.num_layers);
        let num_heads = dimension("num_heads", 65_536, |p| p.num_heads);
        let num_kv_heads = dimension("num_kv_heads", 65_536, |p| p.num_kv_heads);
        let head_dim = t.integer("head_dim", 2, 65_536);
        let head_dim = t.or(head_dim, (hidden_size.value / num_heads.value).max(1));
        let fallback = stand_in.unwrap_or(&presets[0]);
        let rope_theta = t.number("rope_theta", POSITIVE);
        let rope_theta = t.or(rope_theta, fallback.rope_theta);
        let norm_eps = t.number("norm_eps", POSITIVE);
        let norm_eps = t.or(norm_eps, 1e-5);
        let tie_embeddings = t.boolean("tie_embeddings");
        let tie_embeddings = t.or(tie_embeddings, fallback.tie_embeddings);
        let init_std = t.number("init_std", POSITIVE);
        let init_std = t.or(init_std, 0.02);
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
