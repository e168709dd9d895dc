//! `[training]`: how long, and how much at a time.

use serde::Serialize;

use crate::origin::Origin;
use crate::reader::{Context, NOT_NEGATIVE, POSITIVE, Section};
use crate::source::Item;
use crate::tables::flux::Flux;
use crate::tables::model::{LANGUAGE_MODELS, Model};
use crate::tree::Table;
use crate::words::{Auto, choice};

choice! {
    /// How attention is computed.
    Attention {
        /// By torch's `scaled_dot_product_attention`, on TPUs by TorchTPU's kernel: the scores are never held.
        Fused = "fused",
        /// As it is written in the papers, with all scores: to compare numbers with.
        Plain = "plain",
    }
}

/// Length and batch of the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Training {
    /// Optimizer steps.
    pub steps: Item<u64>,
    /// Tokens of one sequence that are predicted.
    pub sequence_length: Item<u64>,
    /// Sequences per data-parallel rank and micro-step; without tensor or context parallelism, per device.
    pub local_batch: Item<u64>,
    /// Sequences per optimizer step over all devices; gradient accumulation follows from it. `auto` is one
    /// micro-step.
    pub global_batch: Item<Auto<u64>>,
    /// The global gradient norm is scaled down to this; `none` leaves gradients alone.
    #[serde(serialize_with = "number_or_none")]
    pub gradient_clip: Item<Option<f64>>,
    /// Seed of the initial weights and of the data order.
    pub seed: Item<u64>,
    /// How attention is computed.
    pub attention: Item<Attention>,
    /// What only language models have.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub language: Option<LanguageTraining>,
}

/// How a language model is trained.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LanguageTraining {
    /// Weight of the squared logarithm of the softmax's denominator in the loss (arXiv 2204.02311, section 5).
    pub z_loss: Item<f64>,
    /// Whether attention ends where a document does.
    pub document_mask: Item<bool>,
}

fn number_or_none<S: serde::Serializer>(item: &Item<Option<f64>>, s: S) -> Result<S::Ok, S::Error> {
    match item.value {
        Some(number) => s.serialize_f64(number),
        None => s.serialize_str("none"),
    }
}

pub(crate) const MOST_STEPS: u64 = 1_000_000_000;
pub(crate) const MOST_SEQUENCE: u64 = 1 << 24;
pub(crate) const MOST_LOCAL_BATCH: u64 = 1 << 20;
pub(crate) const MOST_GLOBAL_BATCH: u64 = 1 << 32;

impl Training {
    /// `flux` is there for a model of images, whose sequences are as long as its text and image.
    pub(crate) fn read(
        cx: &mut Context<'_>,
        root: &Table,
        model: &Model,
        flux: Option<&Flux>,
    ) -> Self {
        let mut t = cx.section(root, "training");
        let steps = t.integer("steps", 1, MOST_STEPS);
        let steps = t.required(steps, 1, "1000");
        let sequence_length = t.integer("sequence_length", 1, MOST_SEQUENCE);
        let sequence_length = match flux {
            Some(flux) => {
                let how = Origin::Derived("tokens of image and text");
                t.or_from(sequence_length, flux.tokens(), how)
            }
            None => t.required(sequence_length, 1, "4096"),
        };
        let local_batch = t.integer("local_batch", 1, MOST_LOCAL_BATCH);
        let local_batch = t.required(local_batch, 1, "8");
        let global_batch = t.auto_or_integer("global_batch", 1, MOST_GLOBAL_BATCH);
        let global_batch = t.or(global_batch, Auto::Auto);
        let gradient_clip = t.number_or_word("gradient_clip", "none", "to switch it off", POSITIVE);
        let gradient_clip = t.or(gradient_clip, Some(1.0));
        let seed = t.integer("seed", 0, i64::MAX as u64);
        let seed = t.or(seed, 0);
        let attention = t.choice::<Attention>("attention");
        let attention = t.or(attention, Attention::Fused);
        let language = match flux {
            None => Some(LanguageTraining::read(&mut t)),
            Some(_) => {
                for key in ["z_loss", "document_mask"] {
                    t.foreign(key, LANGUAGE_MODELS, model.family.at.clone());
                }
                None
            }
        };
        t.finish();
        Self {
            steps,
            sequence_length,
            local_batch,
            global_batch,
            gradient_clip,
            seed,
            attention,
            language,
        }
    }
}

impl LanguageTraining {
    fn read(t: &mut Section<'_, '_>) -> Self {
        let z_loss = t.number("z_loss", NOT_NEGATIVE);
        let z_loss = t.or(z_loss, 0.0);
        let document_mask = t.boolean("document_mask");
        let document_mask = t.or(document_mask, false);
        Self { z_loss, document_mask }
    }
}
