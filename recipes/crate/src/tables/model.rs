//! `[model]`: the architecture.

use serde::{Serialize, Serializer};

use crate::location::Location;
use crate::origin::Origin;
use crate::presets::{DecoderPreset, FLUX, FluxPreset, LLAMA3, QWEN3, QWEN3_MOE};
use crate::reader::{Context, POSITIVE, Section, no_choice};
use crate::shown::Shown;
use crate::source::Item;
use crate::tables::location::{self, Named};
use crate::tree::Table;
use crate::words::{Choice, choice};

mod decoder;
mod flux;

pub use decoder::{
    Decoder, Experts, FeedForward, LoadBalancing, RopeConstants, RopeScaling, RopeScalingKind,
};
pub use flux::FluxTransformer;

choice! {
    /// A family of architectures.
    Family {
        /// Llama 3: RMSNorm, rotary positions, grouped-query attention, SwiGLU.
        Llama3 = "llama3",
        /// Qwen3, dense: as Llama 3, with norms on queries and keys and heads of a width of their own.
        Qwen3 = "qwen3",
        /// Qwen3 with a mixture of experts in every block.
        Qwen3Moe = "qwen3-moe",
        /// FLUX.1: a rectified-flow transformer for images.
        Flux = "flux",
    }
}

/// Where the first weights come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Init {
    /// Drawn from the seed.
    Random,
    /// A folder in Hugging Face layout.
    Folder(Location),
}

impl Serialize for Init {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Random => serializer.serialize_str(RANDOM),
            Self::Folder(folder) => folder.serialize(serializer),
        }
    }
}

const RANDOM: &str = "random";

/// The architecture. A preset named by `size` gives every dimension; each may be overridden.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Model {
    /// The family.
    pub family: Item<Family>,
    /// The preset that the other settings start from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Item<String>>,
    /// Where the first weights come from.
    pub init: Item<Init>,
    /// Standard deviation of the initial weights.
    pub init_std: Item<f64>,
    /// The dimensions.
    #[serde(flatten)]
    pub dimensions: Dimensions,
}

/// Dimensions of one kind of architecture.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Dimensions {
    /// A language model.
    Decoder(Box<Decoder>),
    /// A model of images.
    Flux(Box<FluxTransformer>),
}

impl Model {
    /// The dimensions, if it is a language model.
    pub fn decoder(&self) -> Option<&Decoder> {
        match &self.dimensions {
            Dimensions::Decoder(decoder) => Some(decoder),
            Dimensions::Flux(_) => None,
        }
    }

    /// The dimensions, if it is FLUX.
    pub fn flux(&self) -> Option<&FluxTransformer> {
        match &self.dimensions {
            Dimensions::Decoder(_) => None,
            Dimensions::Flux(flux) => Some(flux),
        }
    }

    /// The preset of FLUX that the model started from, or the first published one.
    pub(crate) fn flux_preset(&self) -> &'static FluxPreset {
        let size = self.size.as_ref().map_or("", |size| size);
        FLUX.iter().find(|preset| preset.size == size).unwrap_or(&FLUX[1])
    }
}

// The ranges are far beyond any published model, and small enough that parameters, and FLOPs per token with the
// longest sequence, fit in 64 bits: nothing downstream can overflow.
pub(crate) const MOST_VOCABULARY: u64 = 1 << 24;
pub(crate) const MOST_HIDDEN: u64 = 1 << 20;
pub(crate) const MOST_HEADS: u64 = 1 << 12;
pub(crate) const MOST_HEAD_DIM: u64 = 1 << 12;
pub(crate) const MOST_LAYERS: u64 = 1 << 12;
pub(crate) const MOST_INTERMEDIATE: u64 = 1 << 22;

/// All families but flux.
pub(crate) const LANGUAGE_MODELS: &str = "language models";

/// Keys that not every family has, for who writes them elsewhere.
const KEYS_OF_KINDS: &[(&str, &[&str])] = &[
    (
        "the family qwen3-moe",
        &[
            "num_experts",
            "experts_per_token",
            "expert_intermediate_size",
            "load_balancing",
            "load_balancing_coefficient",
        ],
    ),
    ("dense models; an expert has expert_intermediate_size", &["intermediate_size"]),
    (
        "the family llama3",
        &[
            "rope_scaling",
            "rope_scaling_factor",
            "rope_low_frequency_factor",
            "rope_high_frequency_factor",
            "rope_original_length",
        ],
    ),
    (
        "the family flux",
        &[
            "num_double_layers",
            "num_single_layers",
            "in_channels",
            "text_size",
            "pooled_size",
            "guidance_embedding",
            "rope_axes",
        ],
    ),
    (
        LANGUAGE_MODELS,
        &["vocab_size", "num_layers", "num_kv_heads", "head_dim", "norm_eps", "tie_embeddings"],
    ),
];

/// The sizes of a family.
pub(crate) fn sizes(family: Family) -> Vec<&'static str> {
    match decoder_presets(family) {
        Some(presets) => presets.iter().map(|preset| preset.size).collect(),
        None => FLUX.iter().map(|preset| preset.size).collect(),
    }
}

/// The families that have a size of this name.
fn families_with(size: &str) -> Vec<&'static str> {
    let families = Family::WORDS.iter().filter(|(_, family)| sizes(*family).contains(&size));
    families.map(|(word, _)| *word).collect()
}

/// The keys that a model without a size must have.
pub(crate) fn required_dimensions(family: Family) -> &'static [&'static str] {
    match family {
        Family::Flux => flux::REQUIRED,
        family => decoder::required(family),
    }
}

fn decoder_presets(family: Family) -> Option<&'static [DecoderPreset]> {
    match family {
        Family::Llama3 => Some(LLAMA3),
        Family::Qwen3 => Some(QWEN3),
        Family::Qwen3Moe => Some(QWEN3_MOE),
        Family::Flux => None,
    }
}

impl Model {
    pub(crate) fn read(cx: &mut Context<'_>, root: &Table) -> Self {
        let mut t = cx.section(root, "model");
        let family = t.choice::<Family>("family");
        let family = t.required(family, Family::Llama3, "\"llama3\"");
        let size = t.text("size");
        let size = t.optional(size);
        let sizes = sizes(*family);
        let index = size.as_ref().and_then(|size| sizes.iter().position(|s| **s == **size));
        // The size of a family that is not known is not known either.
        if let (Some(size), None, Some(_)) = (&size, index, &family.at) {
            let mut problem = no_choice("model.size", size, &sizes)
                .at(size.at.clone())
                .label(format!("not a size of {}", *family));
            let others = families_with(size);
            if let (Some(help), false) = (&mut problem.help, others.is_empty()) {
                *help =
                    format!("{help}\n\"{}\" is a size of {}", Shown(&**size), others.join(" and "));
            }
            t.reject("size", problem);
        }
        let init = read_init(&mut t);
        let init_std = t.number("init_std", POSITIVE);
        let init_std = t.or(init_std, 0.02);
        let preset = Preset::new(&t, *family, index, &sizes);
        let dimensions = match decoder_presets(*family) {
            Some(presets) => {
                let from = &presets[preset.index];
                Dimensions::Decoder(Box::new(Decoder::read(&mut t, *family, from, &preset)))
            }
            None => {
                let from = &FLUX[preset.index];
                Dimensions::Flux(Box::new(FluxTransformer::read(&mut t, from, &preset)))
            }
        };
        for (kind, keys) in KEYS_OF_KINDS {
            keys.iter().for_each(|key| t.foreign(key, kind, family.at.clone()));
        }
        t.finish();
        Self { family, size, init, init_std, dimensions }
    }
}

fn read_init(t: &mut Section<'_, '_>) -> Item<Init> {
    let text = t.text("init");
    let init = text.and_then(|text| {
        let at = text.at.clone();
        if *text == RANDOM {
            return Some(Item { value: Init::Random, at });
        }
        let folder = location::read(t.context(), &text, "a model folder", "\"random\"");
        let folder = folder.map_err(|problem| t.reject("init", problem.at(at.clone()))).ok()?;
        if let Location::Local(path) = &folder {
            let named = Named { text: &text, path };
            location::require(
                t,
                "init",
                "config.json of the model folder",
                &named,
                |files, path| files.file(&path.join("config.json")),
            );
        }
        Some(Item { value: Init::Folder(folder), at })
    });
    t.or(init, Init::Random)
}

/// The preset that dimensions start from, and whether it was asked for.
pub(super) struct Preset {
    /// In the list of the family. Without a size each dimension is required, and a recipe without any of them lacks
    /// a size. Where the size is wrong, the smallest stands in, so that one mistake is not reported seven times.
    index: usize,
    required: bool,
    label: String,
}

impl Preset {
    fn new(t: &Section<'_, '_>, family: Family, index: Option<usize>, sizes: &[&str]) -> Self {
        let required = required_dimensions(family);
        let any_dimension = required.iter().any(|key| t.has(key));
        let index = index.unwrap_or(0);
        let label = format!("{} {}", family, sizes[index]);
        Self { index, required: !t.has("size") && any_dimension, label }
    }

    /// Reads a dimension that the preset gives.
    fn integer(&self, t: &mut Section<'_, '_>, key: &'static str, most: u64, of: u64) -> Item<u64> {
        let item = t.integer(key, 1, most);
        if self.required { t.required(item, of, &of.to_string()) } else { self.or(t, item, of) }
    }

    /// A setting that the preset gives, and that has a default without one.
    fn or<T>(&self, t: &mut Section<'_, '_>, item: Option<Item<T>>, value: T) -> Item<T> {
        let origin = match t.has("size") {
            true => Origin::Preset(self.label.clone()),
            false => Origin::Default,
        };
        t.or_from(item, value, origin)
    }
}
