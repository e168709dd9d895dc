//! `[checkpoint]`, `[precision]`, `[remat]`, `[compile]` and `[metrics]`.

use super::config::{Config, Setting};
use super::data::is_relative;
use super::draft::{Draft, string};
use super::left_out::{CHECKPOINTING, COMPILATION, FLUX, MEMORY_BUDGET, SELECTIVE, TENSORBOARD};

const MOST_STEPS: i64 = 1_000_000_000;

/// More checkpoints than any run has.
const MOST_KEPT: i64 = 1_000_000;

/// Writes `[checkpoint]`, and where the initial weights come from.
pub(super) fn checkpoint(config: &mut Config<'_>, draft: &mut Draft) {
    if !config.flag("checkpoint.enable", false).value {
        return initial_weights_of_no_checkpoint(config);
    }
    config.switch_on(CHECKPOINTING);
    initial_weights(config, draft);
    directory(config, draft);
    let (key, interval) = interval(config);
    draft.put("checkpoint", key, interval);
    let keep = config.integer("checkpoint.keep_latest_k", (0, MOST_STEPS), 10);
    match keep.value {
        0 => draft.put_why("checkpoint", "keep_last", MOST_KEPT, "all of them"),
        keep => draft.put("checkpoint", "keep_last", keep),
    }
}

/// TorchTitan ignores what to load while checkpointing is off, which few expect.
fn initial_weights_of_no_checkpoint(config: &mut Config<'_>) {
    let place = config.take("checkpoint.initial_load_path");
    let text = "had no effect: checkpointing was off, so training began with random weights; `model.init` loads a folder in the Hugging Face layout";
    config.dropped(place, text);
}

fn initial_weights(config: &mut Config<'_>, draft: &mut Draft) {
    let path = config.text("checkpoint.initial_load_path");
    let in_hf = config.flag("checkpoint.initial_load_in_hf", false);
    match (path, in_hf.value) {
        (Some(path), true) => init(config, draft, &path),
        (Some(path), false) => {
            let text = "checkpoints of TorchTitan cannot be read; convert it to the Hugging Face layout and name the folder in `model.init`";
            config.dropped(path.place, text);
        }
        (None, true) => match config.peek_text("model.hf_assets_path") {
            Some(path) => init(config, draft, &path),
            None => config.dropped(in_hf.place, "no folder was named; name it in `model.init`"),
        },
        (None, false) => {}
    }
}

fn init(config: &mut Config<'_>, draft: &mut Draft, path: &Setting<String>) {
    if let Some(place) = path.place.filter(|_| is_relative(&path.value)) {
        config.relative.push(place);
    }
    draft.put("model", "init", string(&path.value));
}

/// TorchTitan's folder of checkpoints lies in that of the run.
fn directory(config: &mut Config<'_>, draft: &mut Draft) {
    /// TorchTitan's defaults.
    const DEFAULTS: (&str, &str) = ("./outputs", "checkpoint");
    let dump = config.text("job.dump_folder");
    let folder = config.text("checkpoint.folder");
    let place = dump.as_ref().or(folder.as_ref()).and_then(|setting| setting.place);
    let Some(place) = place else { return };
    let dump = dump.map_or(DEFAULTS.0.to_owned(), |dump| dump.value);
    let folder = folder.map_or(DEFAULTS.1.to_owned(), |folder| folder.value);
    let path = match is_relative(&folder) {
        true => format!("{}/{folder}", dump.trim_end_matches('/')),
        false => folder,
    };
    if is_relative(&path) {
        config.relative.push(place);
    }
    draft.put("checkpoint", "directory", string(&path));
}

fn interval(config: &mut Config<'_>) -> (&'static str, i64) {
    /// TorchTitan's default.
    const DEFAULT: i64 = 500;
    let unit = config.choice("checkpoint.interval_type", &["steps", "seconds"], "steps");
    let interval = config.integer("checkpoint.interval", (1, MOST_STEPS), DEFAULT);
    let key = if unit.value == "seconds" { "interval_seconds" } else { "interval_steps" };
    (key, interval.value)
}

/// Writes `[precision]`.
pub(super) fn precision(config: &mut Config<'_>, draft: &mut Draft) {
    const TYPES: &[&str] = &["bfloat16", "float32"];
    let params = config.choice("training.dtype", TYPES, "float32");
    let compute = config.choice("training.mixed_precision_param", TYPES, "bfloat16");
    let reduce = config.choice("training.mixed_precision_reduce", TYPES, "float32");
    if params.value == "bfloat16" {
        let text = "parameters and optimizer state are float32; they take more memory, and compute is bfloat16";
        config.changed(params.place, text);
    }
    let is_single = params.value == "float32" && compute.value == "float32";
    draft.put("precision", "params", string("float32"));
    draft.put("precision", "compute", string(if is_single { "float32" } else { "bfloat16" }));
    draft.put("precision", "reduce", string(reduce.value));
}

/// Writes `[remat]`.
pub(super) fn remat(config: &mut Config<'_>, draft: &mut Draft) {
    const MODES: &[&str] = &["selective", "full", "memory_budget", "none"];
    let mode = config.choice("activation_checkpoint.mode", MODES, "selective");
    let policy = match mode.value {
        "memory_budget" => {
            config.switch_on(MEMORY_BUDGET);
            config.changed(mode.place, "`remat.policy` has no memory budget; it is \"selective\"");
            "selective"
        }
        "selective" => {
            config.switch_on(SELECTIVE);
            "selective"
        }
        other => other,
    };
    if config.is_on(FLUX) && policy == "selective" {
        let text = "TorchTitan recomputes the blocks of FLUX in full, whatever the mode";
        config.changed(mode.place, text);
        return draft.put_why("remat", "policy", string("full"), "as TorchTitan does for FLUX");
    }
    draft.put("remat", "policy", string(policy));
}

/// Writes `[compile]`. A TPU needs its programs compiled, so there TorchTitan's default is left out.
pub(super) fn compile(config: &mut Config<'_>, draft: &mut Draft, is_tpu: bool) {
    let enable = config.flag("compile.enable", false);
    if enable.value {
        config.switch_on(COMPILATION);
    }
    if enable.place.is_some() || !is_tpu {
        draft.put("compile", "enabled", enable.value);
    }
}

/// Writes `[metrics]`.
pub(super) fn metrics(config: &mut Config<'_>, draft: &mut Draft) {
    let every = config.integer("metrics.log_freq", (1, MOST_STEPS), 10);
    draft.put("metrics", "every_steps", every.value);
    let tensorboard = config.flag("metrics.enable_tensorboard", false);
    if tensorboard.value {
        config.switch_on(TENSORBOARD);
    }
    draft.put("metrics", "tensorboard", tensorboard.value);
}
