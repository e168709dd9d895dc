//! `[model]`: the flavors of TorchTitan as sizes and dimensions of a recipe.

use crate::shown::{Shown, quoted};
use crate::tree::Value;
use crate::words::nearest;

use super::config::{Config, Setting};
use super::draft::{Draft, string};
use super::left_out::FLUX;

/// What the rest of the translation must know of the model.
pub(super) struct Model {
    pub(super) family: &'static str,
}

impl Model {
    pub(super) fn is_flux(&self) -> bool {
        self.family == "flux"
    }

    pub(super) fn has_experts(&self) -> bool {
        self.family == "qwen3-moe"
    }
}

/// A model of TorchTitan.
struct Flavor {
    /// `model.name` and `model.flavor`.
    theirs: (&'static str, &'static str),
    family: &'static str,
    /// The preset that has the same dimensions.
    size: Option<&'static str>,
    /// Keys that the preset lacks, or has other values for.
    keys: &'static [(&'static str, &'static str)],
    /// What differs from the released model of this name.
    note: &'static str,
}

const fn preset(
    theirs: (&'static str, &'static str),
    family: &'static str,
    size: &'static str,
) -> Flavor {
    Flavor { theirs, family, size: Some(size), keys: &[], note: "" }
}

/// TorchTitan scales the rotary frequencies of every Llama.
const SCALED: (&str, &str) = ("rope_scaling", "\"llama3\"");

const FLAVORS: &[Flavor] = &[
    Flavor {
        theirs: ("llama3", "debugmodel"),
        family: "llama3",
        size: None,
        keys: &[
            ("vocab_size", "2048"),
            ("hidden_size", "256"),
            ("intermediate_size", "768"),
            ("num_layers", "6"),
            ("num_heads", "16"),
            ("num_kv_heads", "16"),
            ("rope_theta", "500000.0"),
            SCALED,
            ("norm_eps", "1e-5"),
            ("tie_embeddings", "false"),
        ],
        note: "",
    },
    Flavor {
        theirs: ("llama3", "1B"),
        family: "llama3",
        size: None,
        keys: &[
            ("vocab_size", "128256"),
            ("hidden_size", "2048"),
            ("intermediate_size", "8192"),
            ("num_layers", "16"),
            ("num_heads", "32"),
            ("num_kv_heads", "8"),
            ("rope_theta", "500000.0"),
            SCALED,
            ("norm_eps", "1e-5"),
            ("tie_embeddings", "true"),
        ],
        note: "",
    },
    Flavor {
        theirs: ("llama3", "3B"),
        family: "llama3",
        size: None,
        keys: &[
            ("vocab_size", "128256"),
            ("hidden_size", "3072"),
            ("intermediate_size", "8192"),
            ("num_layers", "28"),
            ("num_heads", "24"),
            ("num_kv_heads", "8"),
            ("rope_theta", "500000.0"),
            SCALED,
            ("norm_eps", "1e-5"),
            ("tie_embeddings", "true"),
        ],
        note: "",
    },
    Flavor { keys: &[SCALED], ..preset(("llama3", "8B"), "llama3", "8b") },
    Flavor { keys: &[SCALED], ..preset(("llama3", "70B"), "llama3", "70b") },
    Flavor { keys: &[SCALED], ..preset(("llama3", "405B"), "llama3", "405b") },
    Flavor {
        theirs: ("qwen3", "debugmodel"),
        family: "qwen3",
        size: None,
        keys: &[
            ("vocab_size", "2048"),
            ("hidden_size", "256"),
            ("intermediate_size", "3072"),
            ("num_layers", "8"),
            ("num_heads", "16"),
            ("num_kv_heads", "8"),
            ("head_dim", "128"),
            ("rope_theta", "1000000.0"),
            ("norm_eps", "1e-6"),
            ("tie_embeddings", "true"),
        ],
        note: "",
    },
    preset(("qwen3", "0.6B"), "qwen3", "0.6b"),
    preset(("qwen3", "1.7B"), "qwen3", "1.7b"),
    preset(("qwen3", "4B"), "qwen3", "4b"),
    preset(("qwen3", "8B"), "qwen3", "8b"),
    preset(("qwen3", "14B"), "qwen3", "14b"),
    preset(("qwen3", "32B"), "qwen3", "32b"),
    Flavor {
        theirs: ("qwen3", "debugmodel_moe"),
        family: "qwen3-moe",
        size: None,
        keys: &[
            ("vocab_size", "2048"),
            ("hidden_size", "256"),
            ("expert_intermediate_size", "768"),
            ("num_experts", "64"),
            ("experts_per_token", "8"),
            ("num_layers", "8"),
            ("num_heads", "16"),
            ("num_kv_heads", "8"),
            ("head_dim", "128"),
            ("rope_theta", "1000000.0"),
            ("norm_eps", "1e-6"),
            ("tie_embeddings", "false"),
        ],
        note: "",
    },
    preset(("qwen3", "30B-A3B"), "qwen3-moe", "30b-a3b"),
    Flavor {
        keys: &[("rope_theta", "5000000.0")],
        note: "TorchTitan turns this model's positions with rope_theta 5e6; the released base checkpoint has 1e6",
        ..preset(("qwen3", "235B-A22B"), "qwen3-moe", "235b-a22b")
    },
    Flavor {
        keys: &[("guidance_embedding", "false")],
        note: "TorchTitan's flux-dev has no guidance embedding; the released FLUX.1-dev has one",
        ..preset(("flux", "flux-dev"), "flux", "dev")
    },
    preset(("flux", "flux-schnell"), "flux", "schnell"),
    Flavor {
        theirs: ("flux", "flux-debug"),
        family: "flux",
        size: None,
        keys: &[
            ("hidden_size", "1536"),
            ("intermediate_size", "6144"),
            ("num_heads", "12"),
            ("num_double_layers", "2"),
            ("num_single_layers", "2"),
            ("in_channels", "64"),
            ("text_size", "4096"),
            ("pooled_size", "768"),
            ("guidance_embedding", "false"),
            ("rope_theta", "10000.0"),
            ("rope_axes", "[16, 56, 56]"),
        ],
        note: "",
    },
];

/// Endings of flavors that choose a kernel and leave the model as it is.
const KERNELS: [&str; 5] = ["_flex_attn", "_varlen_attn", "_flex", "_varlen", "_non_fused_qkv"];

/// Writes the top of the recipe and `[model]`.
pub(super) fn model(config: &mut Config<'_>, draft: &mut Draft) -> Model {
    let problems = config.problems.len();
    let name = written_or(config, "model.name", "llama3");
    let wanted = written_or(config, "model.flavor", "debugmodel");
    if config.problems.len() > problems {
        return Model { family: "llama3" };
    }
    let kernel = KERNELS.iter().find(|kernel| wanted.value.ends_with(**kernel));
    let plain = kernel.and_then(|kernel| wanted.value.strip_suffix(kernel));
    let plain = plain.unwrap_or(&wanted.value).to_owned();
    let found = FLAVORS.iter().find(|flavor| flavor.theirs == (&*name.value, &*plain));
    let Some(flavor) = found else {
        no_model(config, &name, &wanted);
        return Model { family: "llama3" };
    };
    if kernel.is_some() {
        config.changed(wanted.place, "the attention kernel of a flavor is not carried over");
    }
    if !flavor.note.is_empty() {
        config.changed(wanted.place, flavor.note);
    }
    write(draft, flavor);
    let model = Model { family: flavor.family };
    if model.is_flux() {
        config.switch_on(FLUX);
    }
    model
}

fn written_or(config: &mut Config<'_>, key: &str, default: &str) -> Setting<String> {
    let place = config.place(key);
    if let Some(setting) = config.text(key) {
        return setting;
    }
    if let Some(place) = place.filter(|place| matches!(config.value(*place), Value::Text(_))) {
        config.problem(place, "is empty", "no name", Some(format!("for example: \"{default}\"")));
    }
    Setting { value: default.to_owned(), place: None }
}

fn write(draft: &mut Draft, flavor: &Flavor) {
    draft.put("", "version", 1);
    let (theirs, size) = flavor.theirs;
    let size = size.to_lowercase().replace('_', "-");
    let name = if size.starts_with(theirs) { size } else { format!("{theirs}-{size}") };
    draft.put("", "name", string(&name));
    draft.put("model", "family", string(flavor.family));
    if let Some(size) = flavor.size {
        draft.put("model", "size", string(size));
    }
    if flavor.family == "qwen3-moe" {
        // A constant of TorchTitan's models, not a key of its configurations.
        let why = "as TorchTitan balances experts";
        draft.put_why("model", "load_balancing", string("bias"), why);
        draft.put("model", "load_balancing_coefficient", "1e-3");
    }
    for (key, value) in flavor.keys {
        let why = match *key {
            "rope_scaling" => "as TorchTitan scales every Llama 3",
            "guidance_embedding" if flavor.size.is_some() => "the released FLUX.1-dev has one",
            "rope_theta" if flavor.size.is_some() => "the released base checkpoint has 1e6",
            _ => "",
        };
        draft.put_why("model", key, value, why);
    }
}

/// Says which models and flavors there are.
fn no_model(config: &mut Config<'_>, name: &Setting<String>, flavor: &Setting<String>) {
    let mut names: Vec<&str> = FLAVORS.iter().map(|flavor| flavor.theirs.0).collect();
    names.dedup();
    if let (false, Some(place)) = (names.contains(&&*name.value), name.place) {
        let what = format!("= \"{}\" is not a model of titan-tpu", Shown(&name.value));
        let help = format!("models that can be imported: {}", quoted(&names));
        return config.problem(place, what, "no such model", Some(help));
    }
    let of_name = FLAVORS.iter().filter(|flavor| flavor.theirs.0 == name.value);
    let flavors: Vec<&str> = of_name.map(|flavor| flavor.theirs.1).collect();
    let shown = Shown(&name.value);
    let help = match nearest(&flavor.value, flavors.iter().copied()) {
        Some(near) => format!("did you mean \"{near}\"? Known: {}", quoted(&flavors)),
        None => format!("flavors of {shown}: {}", quoted(&flavors)),
    };
    // TorchTitan's own default flavor is not one of every model.
    if let Some(place) = flavor.place.or(name.place) {
        let what = match flavor.place {
            Some(_) => format!("= \"{}\" is not a flavor of {shown}", Shown(&flavor.value)),
            None => format!("= \"{shown}\" needs `model.flavor`"),
        };
        config.problem(place, what, "no such flavor", Some(help));
    }
}
