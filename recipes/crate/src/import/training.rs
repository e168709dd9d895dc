//! `[training]`, `[optimizer]` and `[schedule]`.

use super::config::{Config, Range, Setting};
use super::data::FOLLOWS;
use super::draft::{Draft, string};
use super::models::Model;

const POSITIVE: Range =
    Range { allows: |x| x > 0.0 && x.is_finite(), words: "a finite number greater than 0" };
const NOT_NEGATIVE: Range =
    Range { allows: |x| x >= 0.0 && x.is_finite(), words: "a finite number, 0 or greater" };
const BELOW_ONE: Range =
    Range { allows: |x| (0.0..1.0).contains(&x), words: "at least 0 and below 1" };
const FRACTION: Range = Range { allows: |x| (0.0..=1.0).contains(&x), words: "from 0 to 1" };
/// TorchTitan does not clip when the limit is infinite.
const LIMIT: Range = Range { allows: |x| x > 0.0, words: "greater than 0" };

const MOST_STEPS: i64 = 1_000_000_000;
const MOST: i64 = 1 << 32;
const STEPS: &str = "training.steps";
/// TorchTitan's default.
const DEFAULT_STEPS: i64 = 10_000;

/// Writes `[training]`. `replicas` is the number of devices that read data of their own, if that is known.
pub(super) fn training(
    config: &mut Config<'_>,
    draft: &mut Draft,
    model: &Model,
    replicas: Option<u64>,
) -> i64 {
    let steps = config.integer(STEPS, (1, MOST_STEPS), DEFAULT_STEPS);
    draft.put("training", "steps", steps.value);
    if model.is_flux() {
        let place = config.take("training.seq_len");
        config.dropped(place, FOLLOWS);
    } else {
        let length = config.integer("training.seq_len", (1, MOST), 2048);
        draft.put("training", "sequence_length", length.value);
    }
    batches(config, draft, replicas);
    let limit = config.number("training.max_norm", LIMIT, 1.0);
    let clip = match limit.value.is_infinite() {
        true => string("none"),
        false => config.digits(&limit),
    };
    draft.put("training", "gradient_clip", clip);
    let seed = config.integer("debug.seed", (0, i64::MAX), 0);
    if seed.place.is_some() {
        draft.put("training", "seed", seed.value);
    }
    steps.value
}

fn batches(config: &mut Config<'_>, draft: &mut Draft, replicas: Option<u64>) {
    let local = config.integer("training.local_batch_size", (1, MOST), 8);
    draft.put("training", "local_batch", local.value);
    let global = config.integer("training.global_batch_size", (-1, MOST), -1);
    if let (0, Some(place)) = (global.value, global.place) {
        let help = "-1 is one local batch for each data-parallel device".to_owned();
        config.problem(place, "must be at least 1, or -1", "not a batch size", Some(help));
    }
    if global.value < 1 {
        return draft.put("training", "global_batch", string("auto"));
    }
    draft.put("training", "global_batch", global.value);
    let step = replicas.map(|replicas| replicas.saturating_mul(local.value.unsigned_abs()));
    if let Some(step) = step
        && !global.value.unsigned_abs().is_multiple_of(step)
    {
        let text = format!(
            "must be a multiple of local_batch x data-parallel devices = {step}; change one of them"
        );
        config.changed(global.place, text);
    }
}

/// Writes `[optimizer]`.
pub(super) fn optimizer(config: &mut Config<'_>, draft: &mut Draft) {
    const NAMES: &[&str] = &["AdamW", "Adam", "Muon", "DistMuon", "SGD"];
    let name = config.choice("optimizer.name", NAMES, "AdamW");
    let rate = config.number("optimizer.lr", POSITIVE, 8e-4);
    let betas = [
        config.number("optimizer.beta1", BELOW_ONE, 0.9),
        config.number("optimizer.beta2", BELOW_ONE, 0.95),
    ];
    let epsilon = config.number("optimizer.eps", POSITIVE, 1e-8);
    let decay = config.number("optimizer.weight_decay", NOT_NEGATIVE, 0.1);
    let ours = optimizer_name(config, &name, decay.value);
    draft.put("optimizer", "name", string(ours));
    let digits = config.digits(&rate);
    draft.put("optimizer", "learning_rate", digits);
    if ours == "sgd" {
        for moment in betas.iter().chain([&epsilon]) {
            config.dropped(moment.place, "SGD has no second moment");
        }
    } else {
        let [first, second] = betas.map(|beta| config.digits(&beta));
        draft.put("optimizer", "betas", format!("[{first}, {second}]"));
    }
    if ours != "sgd" && epsilon.place.is_some() {
        let digits = config.digits(&epsilon);
        draft.put("optimizer", "epsilon", digits);
    }
    let why = match decay.value > 0.0 {
        true => "of matrices only; TorchTitan decays norms too",
        false => "",
    };
    let digits = config.digits(&decay);
    draft.put_why("optimizer", "weight_decay", digits, why);
}

fn optimizer_name(
    config: &mut Config<'_>,
    name: &Setting<&'static str>,
    decay: f64,
) -> &'static str {
    match name.value {
        "Adam" => {
            if decay > 0.0 {
                let text = "adamw takes its place; Adam adds weight decay to the gradient, adamw to the weights";
                config.changed(name.place, text);
            }
            "adamw"
        }
        "Muon" | "DistMuon" => {
            config.changed(name.place, "TorchTitan 0.2.2 has no Muon; check every setting of it");
            "muon"
        }
        "SGD" => {
            config.changed(name.place, "TorchTitan 0.2.2 has no SGD; check every setting of it");
            "sgd"
        }
        _ => "adamw",
    }
}

/// The learning rate after warm-up.
struct Decay {
    /// Steps of the decay.
    steps: i64,
    kind: &'static str,
    /// Whether it begins right after warm-up.
    is_whole: bool,
}

/// Writes `[schedule]`.
pub(super) fn schedule(config: &mut Config<'_>, draft: &mut Draft, steps: i64) {
    let warmup = warmup(config, steps);
    let decay = decay(config, steps, warmup.value);
    let last = config.number("lr_scheduler.min_lr_factor", FRACTION, 0.0);
    let kind = match &decay {
        Decay { steps: 0, .. } => "constant",
        Decay { is_whole: true, kind: kind @ ("linear" | "cosine"), .. } => kind,
        _ => "wsd",
    };
    draft.put("schedule", "kind", string(kind));
    let why = match (warmup.place, warmup.value < DEFAULT_WARMUP) {
        (None, true) => "TorchTitan's default of 200 ends with the run",
        (None, false) => "TorchTitan's default",
        _ => "",
    };
    draft.put_why("schedule", "warmup_steps", warmup.value, why);
    if kind == "constant" {
        return config.dropped(last.place, "had no effect: the learning rate does not decay");
    }
    if kind == "wsd" {
        draft.put("schedule", "decay_steps", decay.steps);
        draft.put("schedule", "decay_kind", string(decay.kind));
    }
    let digits = config.digits(&last);
    let why = "at the last step; TorchTitan gets there one step later";
    draft.put_why("schedule", "final_fraction", digits, why);
}

const DEFAULT_WARMUP: i64 = 200;

fn warmup(config: &mut Config<'_>, steps: i64) -> Setting<i64> {
    let warmup = config.integer("lr_scheduler.warmup_steps", (0, MOST_STEPS), DEFAULT_WARMUP);
    if warmup.value > steps {
        let text = format!("cut to the {steps} steps of the run, as TorchTitan does");
        config.changed(warmup.place, text);
    }
    Setting { value: warmup.value.min(steps), place: warmup.place }
}

fn decay(config: &mut Config<'_>, steps: i64, warmup: i64) -> Decay {
    let kind = config.choice("lr_scheduler.decay_type", &["linear", "sqrt", "cosine"], "linear");
    let left = steps - warmup;
    let ratio = config.number("lr_scheduler.decay_ratio", FRACTION, 0.0);
    let decay = match ratio.place {
        None => Decay { steps: left, kind: kind.value, is_whole: true },
        Some(_) => {
            // Python rounds halves to the even neighbour.
            let wanted = (steps as f64 * ratio.value).round_ties_even() as i64;
            if wanted > left {
                let text = format!("cut to the {left} steps after warm-up, as TorchTitan does");
                config.changed(ratio.place, text);
            }
            Decay { steps: wanted.min(left), kind: kind.value, is_whole: false }
        }
    };
    if decay.steps == 0 {
        config.dropped(kind.place, "had no effect: the learning rate does not decay");
    }
    decay
}
