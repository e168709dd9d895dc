//! `[data]`, `[flux]` and `[validation]`.

use crate::shown::list;

use super::config::{Config, Place, Range, Setting};
use super::draft::{Draft, string};
use super::left_out::VALIDATION;
use super::models::Model;

/// What becomes of the sequence length of a model that makes images.
pub(super) const FOLLOWS: &str = "had no effect: the length follows from the image and the prompt";

const MOST: i64 = 1 << 32;
const FRACTION: Range = Range { allows: |x| (0.0..=1.0).contains(&x), words: "from 0 to 1" };

/// The file of a Hugging Face folder that titan-tpu reads.
const TOKENIZER: &str = "tokenizer.json";

/// Whether a path starts from the current folder.
pub(super) fn is_relative(path: &str) -> bool {
    !path.starts_with('/') && !path.contains("://")
}

/// Writes `[data]`, and `[flux]` for a model that makes images.
pub(super) fn data(config: &mut Config<'_>, draft: &mut Draft, model: &Model) {
    let keys = ["training.dataset_path", "training.dataset"];
    let default = if model.is_flux() { "cc12m-test" } else { "c4_test" };
    sources(config, draft, "data", keys, default);
    if model.is_flux() {
        let folder = config.peek_text("model.hf_assets_path").map(|folder| string(&folder.value));
        let place = config.take("model.hf_assets_path");
        // It may have told where the weights are.
        if folder.as_deref() != draft.get("model", "init") {
            config.dropped(place, "a recipe does not name the encoders");
        }
        flux(config, draft);
    } else {
        tokenizer(config, draft);
    }
}

/// Writes where the records are. TorchTitan knows data sets by name and loads them from a hub.
fn sources(
    config: &mut Config<'_>,
    draft: &mut Draft,
    table: &'static str,
    [path, name]: [&'static str; 2],
    default: &str,
) {
    let path = config.text(path);
    let name = config.text(name);
    let put = |draft: &mut Draft, path: &str, why: &str| {
        draft.put_why(table, "sources", format!("[{{ path = {} }}]", string(path)), why);
    };
    if let Some(path) = path {
        let place = name.and_then(|name| name.place);
        config.dropped(
            place,
            "it said how to read the path that is set too; files say so themselves",
        );
        if let Some(place) = path.place.filter(|_| is_relative(&path.value)) {
            config.relative.push(place);
        }
        return put(draft, &path.value, "");
    }
    let set = name.as_ref().map_or(default, |name| &name.value);
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let folder: String = set.chars().map(|c| if legal(c) { c } else { '-' }).collect();
    let why = match name {
        Some(_) => "put your copy of the data here",
        None => "TorchTitan's default; put your copy of the data here",
    };
    put(draft, &format!("gs://your-bucket/{folder}"), why);
    let text = format!(
        "a data set of the Hugging Face hub: copy it to a bucket or folder of yours and name that in `{table}.sources`"
    );
    config.changed(name.and_then(|name| name.place), text);
}

fn tokenizer(config: &mut Config<'_>, draft: &mut Draft) {
    let folder = config.text("model.hf_assets_path");
    let file = config.text("model.tokenizer_path");
    if let Some(folder) = folder {
        let place = file.and_then(|file| file.place);
        config.dropped(place, "an older spelling of model.hf_assets_path, which is set too");
        return put_tokenizer(config, draft, &folder, joined(&folder.value));
    }
    let Some(file) = file else {
        let why = "TorchTitan's default, a file of its own tests";
        let path = string(&joined("./tests/assets/tokenizer"));
        return draft.put_why("data", "tokenizer", path, why);
    };
    if file.value.ends_with(".json") {
        return put_tokenizer(config, draft, &file, file.value.clone());
    }
    let Some(model) = file.value.strip_suffix(".model") else {
        return put_tokenizer(config, draft, &file, joined(&file.value));
    };
    let text = "was a tokenizer.model; download the tokenizer.json of the same model to this place";
    config.changed(file.place, text);
    let folder = model.rsplit_once('/').map_or(".", |(folder, _)| folder);
    put_tokenizer(config, draft, &file, joined(folder));
}

fn joined(folder: &str) -> String {
    format!("{}/{TOKENIZER}", folder.trim_end_matches('/'))
}

fn put_tokenizer(config: &mut Config<'_>, draft: &mut Draft, from: &Setting<String>, path: String) {
    if let Some(place) = from.place.filter(|_| is_relative(&path)) {
        config.relative.push(place);
    }
    draft.put("data", "tokenizer", string(&path));
}

fn flux(config: &mut Config<'_>, draft: &mut Draft) {
    let size = config.integer("training.img_size", (16, 1 << 16), 256);
    draft.put("flux", "image_size", size.value);
    let length = config.integer("encoder.max_t5_encoding_len", (1, 1 << 16), 256);
    let why = if length.place.is_none() { "TorchTitan's default" } else { "" };
    draft.put_why("flux", "text_length", length.value, why);
    let dropout = config.number("training.classifier_free_guidance_prob", FRACTION, 0.0);
    let digits = config.digits(&dropout);
    draft.put("flux", "prompt_dropout", digits);
}

/// Writes `[validation]`, if there is any.
pub(super) fn validation(config: &mut Config<'_>, draft: &mut Draft, model: &Model) {
    if !config.flag("validation.enable", false).value {
        return;
    }
    config.switch_on(VALIDATION);
    let every = config.integer("validation.freq", (1, MOST), 10);
    draft.put("validation", "interval_steps", every.value);
    let steps = config.integer("validation.steps", (-1, MOST), -1);
    if let (0, Some(place)) = (steps.value, steps.place) {
        let help = "-1 is all records".to_owned();
        config.problem(place, "must be at least 1, or -1", "no steps", Some(help));
    }
    match steps.value {
        ..1 => draft.put("validation", "steps", string("all")),
        steps => draft.put("validation", "steps", steps),
    }
    let default = if model.is_flux() { "coco-validation" } else { "c4_validation" };
    sources(
        config,
        draft,
        "validation",
        ["validation.dataset_path", "validation.dataset"],
        default,
    );
    same_as_training(config, draft, "validation.local_batch_size", "local_batch");
    if model.is_flux() {
        let place = config.take("validation.seq_len");
        config.dropped(place, FOLLOWS);
    } else {
        same_as_training(config, draft, "validation.seq_len", "sequence_length");
    }
}

/// Validation has no batch and no length of its own.
fn same_as_training(config: &mut Config<'_>, draft: &Draft, key: &'static str, ours: &'static str) {
    let written = config.integer(key, (1, MOST), 1);
    if draft.get("training", ours) != Some(&*written.value.to_string()) {
        let text = format!("validation takes `training.{ours}`");
        config.dropped(written.place, text);
    }
}

/// Says once that relative paths have another start here.
pub(super) fn relative_paths(config: &mut Config<'_>) {
    let mut places: Vec<Place> = std::mem::take(&mut config.relative);
    places.sort_unstable();
    places.dedup();
    let Some(first) = places.first().copied() else { return };
    let keys: Vec<&str> = places.iter().map(|place| config.path(*place)).collect();
    let text = match keys.as_slice() {
        [_] => "a relative path of a recipe starts from the folder of the recipe".to_owned(),
        keys => format!(
            "relative paths of a recipe start from the folder of the recipe; taken over: {}",
            list(keys)
        ),
    };
    config.changed(Some(first), text);
}
