//! `[validation]`: the loss on data that is not trained on.

use serde::{Serialize, Serializer};

use crate::diagnostic::Diagnostic;
use crate::reader::{Context, HELD_OUT_FRACTION, Section};
use crate::source::{Item, Loc};
use crate::tables::data::{DataSource, prompts_of, read_sources};
use crate::tables::model::{LANGUAGE_MODELS, Model};
use crate::tables::training::MOST_STEPS;
use crate::tree::Table;

/// The loss on data that is not trained on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Validation {
    /// Steps between two validations.
    pub interval_steps: Item<u64>,
    /// Batches of one validation; `all` reads every source to its end.
    #[serde(serialize_with = "number_or_all")]
    pub steps: Item<Option<u64>>,
    /// Where the data comes from.
    #[serde(flatten)]
    pub held_out: HeldOut,
    /// Where the table was written.
    #[serde(skip)]
    pub at: Option<Loc>,
}

/// Data that is not trained on.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum HeldOut {
    /// Data of its own.
    Sources {
        /// Files and folders.
        sources: Item<Vec<DataSource>>,
    },
    /// A share of the training data, which is left out of training.
    Fraction {
        /// The share of its documents, chosen by a hash of what is in them.
        fraction: Item<f64>,
    },
}

/// Settings that exclude each other.
pub(crate) const HELD_OUT: [&str; 2] = ["sources", "fraction"];

const BOTH: &str = "`validation.fraction` together with `validation.sources`";
const ALL: &str = "all";

fn number_or_all<S: Serializer>(item: &Item<Option<u64>>, s: S) -> Result<S::Ok, S::Error> {
    match item.value {
        Some(number) => s.serialize_u64(number),
        None => s.serialize_str(ALL),
    }
}

impl Validation {
    /// The sources, if it has data of its own.
    pub fn sources(&self) -> Option<&[DataSource]> {
        match &self.held_out {
            HeldOut::Sources { sources } => Some(sources),
            HeldOut::Fraction { .. } => None,
        }
    }

    /// The share of the training documents, if it has no data of its own.
    pub fn fraction(&self) -> Option<&Item<f64>> {
        match &self.held_out {
            HeldOut::Sources { .. } => None,
            HeldOut::Fraction { fraction } => Some(fraction),
        }
    }

    pub(crate) fn read(cx: &mut Context<'_>, root: &Table, model: &Model) -> Option<Self> {
        let prompts = prompts_of(root);
        let mut t = cx.optional_section(root, "validation");
        let (exists, at) = (t.exists(), t.at());
        let interval_steps = t.integer("interval_steps", 1, MOST_STEPS);
        let interval_steps = t.required(interval_steps, 1, "500");
        let steps = t.word_or_integer("steps", ALL, 1, MOST_STEPS);
        let steps = t.or(steps, None);
        let held_out = read_held_out(&mut t, model, prompts.as_ref());
        t.finish();
        exists.then_some(Self { interval_steps, steps, held_out, at })
    }
}

fn read_held_out(t: &mut Section<'_, '_>, model: &Model, prompts: Option<&Loc>) -> HeldOut {
    let sources = read_sources(t, "validation.sources", prompts);
    let sources = t.optional(sources);
    let fraction = match model.flux() {
        None => {
            let fraction = t.number("fraction", HELD_OUT_FRACTION);
            t.optional(fraction)
        }
        Some(_) => {
            t.foreign("fraction", LANGUAGE_MODELS, model.family.at.clone());
            None
        }
    };
    match HELD_OUT.map(|key| t.has(key)) {
        [true, true] if fraction.is_some() => {
            let at = fraction.as_ref().and_then(|fraction| fraction.at.clone());
            let problem = Diagnostic::error(BOTH)
                .at(at)
                .label("data of its own, or a share of the training data")
                .context(sources.as_ref().and_then(|s| s.at.clone()), "data of its own")
                .help("keep one of: sources, fraction");
            t.reject("fraction", problem);
        }
        [false, false] => {
            let sources = "[{ path = \"validation.txt\" }]";
            match prompts.is_some() || model.flux().is_some() {
                true => t.lacks("sources", sources),
                false => {
                    t.lacks("sources", &format!("{sources}  # or, of [data]: fraction = 0.01"))
                }
            }
        }
        _ => {}
    }
    match (sources, fraction) {
        (None, Some(fraction)) => HeldOut::Fraction { fraction },
        (sources, _) => {
            HeldOut::Sources { sources: sources.unwrap_or_else(|| Item::derived(Vec::new())) }
        }
    }
}
