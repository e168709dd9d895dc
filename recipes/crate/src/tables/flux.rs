//! `[flux]`: how a model of images is trained.

use serde::Serialize;

use crate::diagnostic::Diagnostic;
use crate::origin::Origin;
use crate::reader::{Context, FRACTION};
use crate::source::Item;
use crate::tables::model::{Family, Model};
use crate::tree::Table;
use crate::words::choice;

choice! {
    /// How the times of the noise are drawn.
    Timesteps {
        /// Evenly from 0 to 1.
        Uniform = "uniform",
        /// The logistic function of a normal variable (arXiv 2403.03206).
        LogitNormal = "logit-normal",
    }
}

/// How a model of images is trained.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Flux {
    /// Pixels of a side of the square images.
    pub image_size: Item<u64>,
    /// Tokens of the text encoder; shorter texts are padded.
    pub text_length: Item<u64>,
    /// The share of samples whose text is left out, for guidance without a classifier.
    pub prompt_dropout: Item<f64>,
    /// How the times of the noise are drawn.
    pub timesteps: Item<Timesteps>,
}

/// Pixels of a side of the square that becomes one token: the autoencoder makes one latent of 8 x 8 pixels, and a
/// token has 2 x 2 latents.
pub const PIXELS_PER_TOKEN: u64 = 16;

impl Flux {
    /// Tokens of one image.
    pub fn image_tokens(&self) -> u64 {
        let side = *self.image_size / PIXELS_PER_TOKEN;
        side * side
    }

    /// Tokens of one sample, text and image.
    pub fn tokens(&self) -> u64 {
        self.image_tokens() + *self.text_length
    }

    pub(crate) fn read(cx: &mut Context<'_>, root: &Table, model: &Model) -> Option<Self> {
        let is_flux = *model.family == Family::Flux;
        let preset = model.flux_preset();
        let label = || Origin::Preset(format!("flux {}", preset.size));
        let mut t = cx.optional_section(root, "flux");
        let (exists, at) = (t.exists(), t.at());
        let image_size = t.integer("image_size", PIXELS_PER_TOKEN, 1 << 14);
        let image_size = t.or_from(image_size, preset.image_size, label());
        let text_length = t.integer("text_length", 1, 1 << 16);
        let text_length = t.or_from(text_length, preset.text_length, label());
        let dropout = t.number("prompt_dropout", FRACTION);
        let prompt_dropout = t.or(dropout, 0.1);
        let timesteps = t.choice::<Timesteps>("timesteps");
        let timesteps = t.or(timesteps, Timesteps::Uniform);
        t.finish();
        if exists && !is_flux && model.family.at.is_some() {
            let what = format!("the table [flux] means nothing for {}", *model.family);
            let problem = Diagnostic::error(what)
                .at(at)
                .label("for the family flux only")
                .context(model.family.at.clone(), "the family")
                .help("remove the table, or choose family = \"flux\"");
            cx.diagnostics.push(problem);
        }
        is_flux.then_some(Self { image_size, text_length, prompt_dropout, timesteps })
    }
}
