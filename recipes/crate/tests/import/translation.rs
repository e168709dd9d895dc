//! How single settings are translated.

use crate::support::{listed, sound, value};

#[test]
fn what_torchtitan_does_by_itself_is_written_out() {
    let imported = sound("[model]\n");
    assert_eq!(listed(&imported.notes), "");
    let expected = [
        ("model", "family", "\"llama3\""),
        ("model", "vocab_size", "2048"),
        ("training", "steps", "10000"),
        ("training", "sequence_length", "2048"),
        ("training", "local_batch", "8"),
        ("training", "global_batch", "\"auto\""),
        ("training", "gradient_clip", "1.0"),
        ("optimizer", "name", "\"adamw\""),
        ("optimizer", "learning_rate", "0.0008"),
        ("optimizer", "betas", "[0.9, 0.95]"),
        ("optimizer", "weight_decay", "0.1"),
        ("schedule", "kind", "\"linear\""),
        ("schedule", "warmup_steps", "200"),
        ("schedule", "final_fraction", "0.0"),
        ("precision", "compute", "\"bfloat16\""),
        ("precision", "reduce", "\"float32\""),
        ("remat", "policy", "\"selective\""),
        ("compile", "enabled", "false"),
        ("metrics", "every_steps", "10"),
        ("metrics", "tensorboard", "false"),
    ];
    for (table, key, expected) in expected {
        assert_eq!(value(&imported.recipe, table, key), expected, "{table}.{key}");
    }
    for table in ["checkpoint", "validation", "flux"] {
        assert!(!imported.recipe.contains(&format!("[{table}]")), "{table}");
    }
}

#[test]
fn every_flavor_has_its_dimensions() {
    let flavors = [
        ("llama3", "debugmodel", "llama3", ""),
        ("llama3", "1B", "llama3", ""),
        ("llama3", "3B", "llama3", ""),
        ("llama3", "8B", "llama3", "8b"),
        ("llama3", "70B", "llama3", "70b"),
        ("llama3", "405B", "llama3", "405b"),
        ("llama3", "debugmodel_flex_attn", "llama3", ""),
        ("qwen3", "debugmodel", "qwen3", ""),
        ("qwen3", "0.6B", "qwen3", "0.6b"),
        ("qwen3", "1.7B", "qwen3", "1.7b"),
        ("qwen3", "4B", "qwen3", "4b"),
        ("qwen3", "8B", "qwen3", "8b"),
        ("qwen3", "14B", "qwen3", "14b"),
        ("qwen3", "32B", "qwen3", "32b"),
        ("qwen3", "debugmodel_moe", "qwen3-moe", ""),
        ("qwen3", "30B-A3B", "qwen3-moe", "30b-a3b"),
        ("qwen3", "235B-A22B", "qwen3-moe", "235b-a22b"),
        ("flux", "flux-dev", "flux", "dev"),
        ("flux", "flux-schnell", "flux", "schnell"),
        ("flux", "flux-debug", "flux", ""),
    ];
    for (name, flavor, family, size) in flavors {
        let recipe = sound(&format!("[model]\nname = '{name}'\nflavor = '{flavor}'\n")).recipe;
        assert_eq!(value(&recipe, "model", "family"), format!("\"{family}\""), "{flavor}");
        let size = if size.is_empty() { String::new() } else { format!("\"{size}\"") };
        assert_eq!(value(&recipe, "model", "size"), size, "{flavor}");
        assert_eq!(value(&recipe, "model", "hidden_size").is_empty(), !size.is_empty(), "{flavor}");
        let scaling = if family == "llama3" { "\"llama3\"" } else { "" };
        assert_eq!(value(&recipe, "model", "rope_scaling"), scaling, "{flavor}");
        let is_flux = family == "flux";
        assert_eq!(recipe.contains("[flux]"), is_flux, "{flavor}");
        assert_eq!(value(&recipe, "training", "sequence_length").is_empty(), is_flux, "{flavor}");
        assert_eq!(value(&recipe, "data", "tokenizer").is_empty(), is_flux, "{flavor}");
    }
}

/// The numbers of parameters are those that TorchTitan itself counts.
#[test]
fn dimensions_multiply_to_the_known_number_of_parameters() {
    let known = [
        ("llama3", "debugmodel", 6_163_712),
        ("llama3", "1B", 1_235_814_400),
        ("llama3", "3B", 3_212_749_824),
        ("qwen3", "debugmodel", 31_987_968),
        ("qwen3", "debugmodel_moe", 315_758_848),
    ];
    for (name, flavor, expected) in known {
        let recipe = sound(&format!("[model]\nname = '{name}'\nflavor = '{flavor}'\n")).recipe;
        let of = |key: &str| value(&recipe, "model", key).parse::<u64>().unwrap_or(0);
        let (hidden, heads, kv) = (of("hidden_size"), of("num_heads"), of("num_kv_heads"));
        let is_qwen = name == "qwen3";
        let head_dim = if is_qwen { of("head_dim") } else { hidden / heads };
        let attention =
            hidden * head_dim * 2 * (heads + kv) + if is_qwen { 2 * head_dim } else { 0 };
        let (experts, width) = (of("num_experts"), of("expert_intermediate_size"));
        let mlp = 3 * hidden * of("intermediate_size") + experts * (3 * hidden * width + hidden);
        let tables = if value(&recipe, "model", "tie_embeddings") == "true" { 1 } else { 2 };
        let embeddings = tables * of("vocab_size") * hidden;
        let total = of("num_layers") * (attention + mlp + 2 * hidden) + hidden + embeddings;
        assert_eq!(total, expected, "{name} {flavor}");
    }
}

#[test]
fn schedules_keep_their_shape() {
    // Lines of [lr_scheduler] for 1000 steps; kind, warm-up, steps and kind of the decay, last factor.
    let cases: &[(&str, [&str; 5])] = &[
        ("", ["linear", "200", "", "", "0.0"]),
        ("decay_type = 'cosine'", ["cosine", "200", "", "", "0.0"]),
        ("decay_type = 'sqrt'", ["wsd", "200", "800", "sqrt", "0.0"]),
        ("decay_ratio = 0.0", ["constant", "200", "", "", ""]),
        ("decay_ratio = 0", ["constant", "200", "", "", ""]),
        ("decay_ratio = 0.5", ["wsd", "200", "500", "linear", "0.0"]),
        ("decay_ratio = 0.9\nmin_lr_factor = 0.1", ["wsd", "200", "800", "linear", "0.1"]),
        // Halves are rounded to even, as Python does.
        ("decay_ratio = 0.0025", ["wsd", "200", "2", "linear", "0.0"]),
        ("warmup_steps = 0", ["linear", "0", "", "", "0.0"]),
        ("warmup_steps = 5000", ["constant", "1000", "", "", ""]),
        ("warmup_steps = 1000\ndecay_type = 'sqrt'", ["constant", "1000", "", "", ""]),
        ("lr_min = 0.2", ["linear", "200", "", "", "0.2"]),
    ];
    for (lines, expected) in cases {
        let text = format!("[training]\nsteps = 1000\n[lr_scheduler]\n{lines}\n");
        let recipe = sound(&text).recipe;
        let keys = ["kind", "warmup_steps", "decay_steps", "decay_kind", "final_fraction"];
        let found = keys.map(|key| value(&recipe, "schedule", key).trim_matches('"').to_owned());
        assert_eq!(found, *expected, "{lines}");
    }
}

#[test]
fn what_is_cut_is_said() {
    let text = "[training]\nsteps = 100\n[lr_scheduler]\nwarmup_steps = 60\ndecay_ratio = 0.5\n";
    assert_eq!(
        listed(&sound(text).notes),
        "5 changed lr_scheduler.decay_ratio: cut to the 40 steps after warm-up, as TorchTitan does\n"
    );
    let short = sound("[training]\nsteps = 10\n[lr_scheduler]\nwarmup_steps = 60\n");
    assert_eq!(
        listed(&short.notes),
        "4 changed lr_scheduler.warmup_steps: cut to the 10 steps of the run, as TorchTitan does\n"
    );
    let silent = sound("[training]\nsteps = 10\n");
    assert!(silent.recipe.contains("warmup_steps = 10"), "{}", silent.recipe);
    assert_eq!(listed(&silent.notes), "");
}

#[test]
fn numbers_keep_the_digits_of_the_user() {
    let recipe = sound("[optimizer]\nlr = 3.00e-4\nweight_decay = 1\neps = 1E-6\n").recipe;
    for line in ["learning_rate = 3.00e-4\n", "weight_decay = 1.0 ", "epsilon = 1E-6\n"] {
        assert!(recipe.contains(line), "{line}\n{recipe}");
    }
    let recipe = sound("[training]\nmax_norm = inf\nsteps = 1_000\n").recipe;
    assert_eq!(value(&recipe, "training", "gradient_clip"), "\"none\"");
    assert_eq!(value(&recipe, "training", "steps"), "1000");
}

#[test]
fn weights_of_a_hugging_face_folder_are_loaded() {
    let cases = [
        ("enable = true\ninitial_load_path = '/m'\ninitial_load_in_hf = true", "\"/m\"", 0),
        ("enable = true\ninitial_load_in_hf = true", "\"/assets\"", 0),
        // A checkpoint of TorchTitan itself, and two that TorchTitan would not have loaded either.
        ("enable = true\ninitial_load_path = '/m'", "", 1),
        ("initial_load_path = '/m'\ninitial_load_in_hf = true", "", 2),
        ("enable = false\ninitial_load_path = '/m'", "", 1),
    ];
    for (lines, init, notes) in cases {
        let text = format!("[model]\nhf_assets_path = '/assets'\n[checkpoint]\n{lines}\n");
        let imported = sound(&text);
        assert_eq!(value(&imported.recipe, "model", "init"), init, "{lines}");
        assert_eq!(imported.notes.len(), notes, "{lines}");
    }
}

#[test]
fn checkpoints_lie_where_torchtitan_put_them() {
    let cases = [
        ("", "", ""),
        ("/runs", "", "/runs/checkpoint"),
        ("/runs/", "ckpt", "/runs/ckpt"),
        ("", "ckpt", "./outputs/ckpt"),
        ("./out", "/elsewhere", "/elsewhere"),
        ("/runs", "gs://bucket/ckpt", "gs://bucket/ckpt"),
        ("s3://bucket/runs", "ckpt", "s3://bucket/runs/ckpt"),
    ];
    for (dump, folder, expected) in cases {
        let text = format!(
            "[job]\ndump_folder = '{dump}'\n[checkpoint]\nenable = true\nfolder = '{folder}'\n"
        );
        let found = value(&sound(&text).recipe, "checkpoint", "directory");
        assert_eq!(found.trim_matches('"'), expected, "{dump} {folder}");
    }
}

#[test]
fn relative_paths_are_pointed_out_once() {
    let notes = sound(
        "[job]\ndump_folder = './out'\n[model]\nhf_assets_path = 'assets'\n\
         [training]\ndataset_path = 'data/c4'\n[checkpoint]\nenable = true\n",
    )
    .notes;
    assert_eq!(
        listed(&notes),
        "2 changed job.dump_folder: relative paths of a recipe start from the folder of the recipe; taken over: job.dump_folder, model.hf_assets_path, training.dataset_path\n"
    );
}

#[test]
fn parts_that_are_off_leave_no_table() {
    let imported = sound(
        "[validation]\nenable = false\nfreq = 5\n[checkpoint]\nenable = false\ninterval = 5\n\
         [profiling]\nenable_profiling = false\nprofile_freq = 5\n[metrics]\nsave_tb_folder = 'tb'\n",
    );
    assert_eq!(
        listed(&imported.notes),
        "3 dropped validation.freq: had no effect: validation was off\n\
           6 dropped checkpoint.interval: had no effect: checkpointing was off\n\
           9 dropped profiling.profile_freq: had no effect: profiling was off\n\
          11 dropped metrics.save_tb_folder: had no effect: TensorBoard was off\n"
    );
}

#[test]
fn unknown_keys_are_named_with_what_they_may_have_meant() {
    let imported = sound(
        "steps = 5\n[training]\nstep = 5\nlr = 1e-3\nwurst = 1\n[optimiser]\nlr = 1e-4\n\
         [nonsense]\n[quantize.linear.float8]\n",
    );
    assert_eq!(
        listed(&imported.notes),
        "1 changed steps: not a TorchTitan key; did you mean training.steps?\n\
           3 changed training.step: not a TorchTitan key; did you mean training.steps?\n\
           4 changed training.lr: not a TorchTitan key; did you mean optimizer.lr?\n\
           5 changed training.wurst: not a TorchTitan key\n\
           7 changed optimiser.lr: not a TorchTitan key; did you mean optimizer.lr?\n\
           8 changed nonsense: not a TorchTitan key\n\
           9 dropped quantize.linear.float8: had no effect: quantization was off\n"
    );
}

#[test]
fn nothing_that_a_user_wrote_can_leave_its_comment_or_string() {
    let imported = sound(
        "[job]\ndescription = \"a\\nversion = 2\\u001b[31m\\u202e\"\n\
         [model]\nhf_assets_path = '/a\"\\b'\n\
         [training]\ndataset = \"../x\\n y\"\n\"new\\nline = 1\" = 2\n",
    );
    let recipe = &imported.recipe;
    assert!(recipe.chars().all(|c| c == '\n' || !c.is_control()), "{recipe}");
    assert!(!recipe.contains('\u{202e}'));
    assert!(recipe.contains("gs://your-bucket/..-x--y"), "{recipe}");
    assert!(value(recipe, "data", "tokenizer").contains("/a\"\\b/tokenizer.json"), "{recipe}");
    assert!(imported.notes.iter().all(|note| !note.key.contains('\n')));
}

#[test]
fn windows_line_ends_and_a_byte_order_mark_change_nothing() {
    let text = "[training]\nsteps = 7\nwurst = 1\n";
    let plain = sound(text);
    let other = sound(&format!("\u{feff}{}", text.replace('\n', "\r\n")));
    assert_eq!(plain.recipe, other.recipe);
    assert_eq!(plain.notes, other.notes);
}

#[test]
fn adam_becomes_adamw_and_says_where_they_differ() {
    let adam = sound("[optimizer]\nname = 'Adam'\n");
    assert_eq!(value(&adam.recipe, "optimizer", "name"), "\"adamw\"");
    assert_eq!(adam.notes.len(), 1);
    // Without weight decay the two are one.
    assert_eq!(sound("[optimizer]\nname = 'Adam'\nweight_decay = 0.0\n").notes.len(), 0);
    let sgd = sound("[optimizer]\nname = 'SGD'\nbeta1 = 0.9\neps = 1e-8\n");
    assert_eq!(value(&sgd.recipe, "optimizer", "name"), "\"sgd\"");
    assert_eq!(value(&sgd.recipe, "optimizer", "betas"), "");
    assert_eq!(sgd.notes.len(), 3);
}
