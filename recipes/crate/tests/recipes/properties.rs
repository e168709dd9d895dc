//! Laws that hold for every text, every sound recipe, and every suggestion.

use proptest::prelude::*;
use titan_recipes::{Diagnostic, Loaded, Report};

use crate::support::{SOUND, edited, load, said, sound};

/// Pieces that texts are made of which come close to being recipes.
fn piece() -> impl Strategy<Value = String> {
    const WORDS: &[&str] = &[
        "version",
        "name",
        "model",
        "training",
        "data",
        "steps",
        "sources",
        "path",
        "size",
        "betas",
        "auto",
        "tiny",
        "[",
        "]",
        "[[",
        "]]",
        "{",
        "}",
        "=",
        ".",
        ",",
        "\"",
        "'",
        "\"\"\"",
        "\\",
        "\\u001b",
        "#",
        "\n",
        "\r\n",
        " ",
        "\t",
        "-1",
        "0",
        "1e400",
        "0x",
        "nan",
        "true",
        "1979-05-27",
        "\u{feff}",
        "\u{9b}",
        "\u{202e}",
        "é",
        "😀",
        "99999999999999999999",
        "_",
        "\0",
        "\u{1b}",
    ];
    prop_oneof![4 => prop::sample::select(WORDS).prop_map(str::to_owned), 1 => any::<String>()]
}

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(piece(), 0..40).prop_map(|pieces| pieces.concat())
}

/// The sound recipe after some bytes were deleted, inserted or replaced.
fn mutated() -> impl Strategy<Value = String> {
    let edit = (any::<prop::sample::Index>(), 0..8_usize, piece());
    prop::collection::vec(edit, 1..5).prop_map(|edits| {
        let mut bytes = SOUND.as_bytes().to_vec();
        for (place, deleted, inserted) in edits {
            let start = place.index(bytes.len() + 1);
            let end = (start + deleted).min(bytes.len());
            bytes.splice(start..end, inserted.bytes());
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// A `--set` argument that is probably wrong.
fn set() -> impl Strategy<Value = String> {
    let key = prop::sample::select(vec![
        "training.steps",
        "model.size",
        "data.sources",
        "name",
        "version",
        "training",
        "optimizer.betas",
        "x",
        "",
    ]);
    prop_oneof![text(), (key, text()).prop_map(|(key, value)| format!("{key}={value}"))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_text_makes_loading_panic(text in text()) {
        said(&load(&text, &[]));
    }

    #[test]
    fn no_mutation_of_a_recipe_makes_loading_panic(text in mutated()) {
        said(&load(&text, &[]));
    }

    #[test]
    fn no_override_makes_loading_panic(set in prop::collection::vec(set(), 1..4)) {
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        said(&load(SOUND, &set));
    }

    #[test]
    fn no_value_of_a_setting_makes_loading_panic(line in 2..26_usize, value in text()) {
        let with_value = |(n, text): (usize, &str)| match text.split_once(" = ") {
            Some((key, _)) if n == line => format!("{key} = {value}\n"),
            _ => format!("{text}\n"),
        };
        let text: String = SOUND.lines().enumerate().map(with_value).collect();
        said(&load(&text, &[]));
    }
}

/// The settings of a sound recipe, as `--set` arguments.
fn settings() -> impl Strategy<Value = Vec<String>> {
    let float = |range: std::ops::Range<f64>| range.prop_map(|x| format!("{x:?}"));
    let word = |words: &'static [&'static str]| prop::sample::select(words).prop_map(str::to_owned);
    let model =
        (1..5_u64, 1..5_u64, 1..65_u64, any::<bool>()).prop_map(|(kv, groups, half, written)| {
            let (heads, head_dim) = (kv * groups, 2 * half);
            let mut model = vec![
                ("model.num_kv_heads", kv.to_string()),
                ("model.num_heads", heads.to_string()),
            ];
            if written {
                model.push(("model.head_dim", head_dim.to_string()));
            } else {
                model.push(("model.hidden_size", (heads * head_dim).to_string()));
            }
            model
        });
    let mesh = (1..9_u64, 1..9_u64, 1..9_u64, 1..9_u64, any::<[bool; 3]>()).prop_map(
        |(replicate, shard, local, accumulation, [auto_shard, auto_batch, one])| {
            let (replicate, shard) = if one { (1, 1) } else { (replicate, shard) };
            let world = replicate * shard;
            let or_auto = |auto: bool, n: u64| if auto { "auto".to_owned() } else { n.to_string() };
            vec![
                ("hardware.devices", or_auto(one, world)),
                ("parallelism.replicate", replicate.to_string()),
                ("parallelism.shard", or_auto(auto_shard, shard)),
                ("training.local_batch", local.to_string()),
                ("training.global_batch", or_auto(auto_batch, local * world * accumulation)),
            ]
        },
    );
    let numbers = (
        float(1e-9..10.0),
        float(0.0..1.0),
        float(0.0..0.9999),
        float(1e-12..1e-3),
        float(0.0..1.0),
    );
    let numbers = numbers.prop_map(|(rate, decay, beta, epsilon, fraction)| {
        vec![
            ("optimizer.learning_rate", rate),
            ("optimizer.weight_decay", decay),
            ("optimizer.betas", format!("[{beta}, 0.999]")),
            ("optimizer.epsilon", epsilon),
            ("schedule.final_fraction", fraction),
        ]
    });
    let words = (
        prop_oneof![float(0.1..10.0), word(&["none"])],
        word(&["cosine", "linear", "constant"]),
        word(&["float32", "bfloat16"]),
        word(&["true", "false"]),
        (0..i64::MAX as u64).prop_map(|seed| seed.to_string()),
    );
    let words = words.prop_map(|(clip, kind, format, tensorboard, seed)| {
        vec![
            ("training.gradient_clip", clip),
            ("schedule.kind", kind),
            ("precision.compute", format),
            ("metrics.tensorboard", tensorboard),
            ("training.seed", seed),
        ]
    });
    (model, mesh, numbers, words).prop_map(|(model, mesh, numbers, words)| {
        let all = [model, mesh, numbers, words].concat();
        all.iter().map(|(key, value)| format!("{key}={value}")).collect()
    })
}

fn loaded(settings: &[String]) -> Loaded {
    sound(SOUND, &settings.iter().map(String::as_str).collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn a_resolved_recipe_describes_the_same_run(settings in settings()) {
        let first = loaded(&settings);
        let text = first.recipe.to_toml(&first.layout).unwrap();
        let second = sound(&text, &[]);
        prop_assert_eq!(first.layout, second.layout);
        // What was `auto` is a number now; resolving again changes nothing.
        prop_assert_eq!(&text, &second.recipe.to_toml(&second.layout).unwrap());
        let third = sound(&text, &[]);
        prop_assert_eq!(&second.recipe, &third.recipe);
        let mut recipe = second.recipe;
        recipe.hardware.devices = first.recipe.hardware.devices.clone();
        recipe.parallelism.shard = first.recipe.parallelism.shard.clone();
        recipe.training.global_batch = first.recipe.training.global_batch.clone();
        prop_assert_eq!(recipe, first.recipe);
    }

    #[test]
    fn layouts_close(settings in settings()) {
        let Loaded { layout, recipe, .. } = loaded(&settings);
        prop_assert_eq!(layout.replicate * layout.shard, layout.world);
        prop_assert_eq!(layout.local_batch * layout.world * layout.accumulation, layout.global_batch);
        prop_assert_eq!(layout.global_tokens(), layout.global_batch * *recipe.training.sequence_length);
        prop_assert!(layout.accumulation >= 1);
    }
}

/// The settings that a help text suggests, as `--set` arguments: for each remedy, the arguments that it needs.
fn remedies(help: &str) -> Vec<Vec<String>> {
    const TABLES: &[(&str, &[&str])] = &[
        ("model", &["hidden_size", "num_heads", "num_kv_heads", "head_dim", "vocab_size"]),
        ("hardware", &["devices"]),
        ("parallelism", &["replicate", "shard"]),
        ("training", &["steps", "local_batch", "global_batch"]),
        ("schedule", &["warmup_steps"]),
    ];
    let assign = |key: &str, value: &str| {
        let table = TABLES.iter().find(|(_, keys)| keys.contains(&key));
        let (table, _) = table.unwrap_or_else(|| panic!("{key:?} of {help:?}"));
        format!("{table}.{key}={}", value.trim_end_matches(','))
    };
    let mut remedies = Vec::new();
    for part in help.split("; or ") {
        let words: Vec<&str> = part.split([' ', ':']).filter(|word| !word.is_empty()).collect();
        if let Some(of) = words.iter().position(|word| *word == "of") {
            let values = words[of + 2..].iter();
            remedies.extend(values.map(|value| vec![assign(words[of + 1], value)]));
            continue;
        }
        let equals = words.iter().enumerate().filter(|(_, word)| **word == "=").map(|(n, _)| n);
        let assigned: Vec<String> = equals.map(|n| assign(words[n - 1], words[n + 1])).collect();
        match words.contains(&"and") {
            true => remedies.push(assigned),
            false => remedies.extend(assigned.into_iter().map(|one| vec![one])),
        }
    }
    remedies
}

/// A message without its numbers: what kind of problem it is.
fn kind(diagnostic: &Diagnostic) -> String {
    diagnostic.message.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// Applies every suggestion of a report: each problem must disappear by each of its remedies.
fn suggestions_help(text: &str, set: &[String], report: &Report) {
    for problem in &report.diagnostics {
        let remedies = remedies(problem.help.as_deref().unwrap_or_default());
        let why = "a rule that is broken says how to mend it";
        assert!(!remedies.is_empty(), "{why}: {}", report.render(false));
        for remedy in remedies {
            let all: Vec<&str> = set.iter().chain(&remedy).map(String::as_str).collect();
            let after = match load(text, &all) {
                Ok(_) => continue,
                Err(after) => after,
            };
            let remains = after.diagnostics.iter().any(|d| kind(d) == kind(problem));
            assert!(
                !remains,
                "{remedy:?} does not help:\n{}\n{}",
                report.render(false),
                after.render(false)
            );
        }
    }
}

/// Settings that mostly break some rule.
fn at_odds() -> impl Strategy<Value = Vec<String>> {
    fn maybe(
        key: &'static str,
        values: std::ops::Range<u64>,
    ) -> impl Strategy<Value = Option<String>> {
        prop::option::of(values.prop_map(move |value| format!("{key}={value}")))
    }
    let model = (
        maybe("model.hidden_size", 1..300),
        maybe("model.num_heads", 1..20),
        maybe("model.num_kv_heads", 1..20),
        maybe("model.head_dim", 2..70),
        maybe("model.vocab_size", 100..300),
    );
    let mesh = (
        maybe("hardware.devices", 1..40),
        maybe("parallelism.replicate", 1..20),
        maybe("parallelism.shard", 1..20),
        maybe("training.local_batch", 1..20),
        maybe("training.global_batch", 1..300),
        maybe("schedule.warmup_steps", 0..60),
    );
    (model, mesh).prop_map(|((a, b, c, d, e), (f, g, h, i, j, k))| {
        [a, b, c, d, e, f, g, h, i, j, k].into_iter().flatten().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn what_a_rule_suggests_mends_the_problem(settings in at_odds()) {
        let set: Vec<&str> = settings.iter().map(String::as_str).collect();
        if let Err(report) = load(SOUND, &set) {
            suggestions_help(SOUND, &settings, &report);
        }
    }

    #[test]
    fn what_a_preset_needs_is_suggested_too(settings in at_odds()) {
        let dimensions = SOUND.split("[model]\nfamily = \"llama3\"\n").nth(1).unwrap().split("\n\n").next().unwrap();
        let text = edited(&[(dimensions, "size = \"tiny\"")]);
        let set: Vec<&str> = settings.iter().map(String::as_str).collect();
        if let Err(report) = load(&text, &set) {
            suggestions_help(&text, &settings, &report);
        }
    }
}

/// A value that a message about a single setting suggests is accepted in its place.
#[test]
fn what_a_reader_suggests_is_accepted() {
    let cases = [
        ("training.steps", "\"10_000\""),
        ("training.steps", "0400"),
        ("training.steps", "1e3"),
        ("training.steps", "1e99"),
        ("training.steps", "\"0\""),
        ("training.steps", "-0.2"),
        ("hardware.devices", "-1"),
        ("hardware.devices", "\"Auto\""),
        ("hardware.devices", "\"2\""),
        ("optimizer.learning_rate", "\"3e-4\""),
        ("optimizer.learning_rate", "\".5\""),
        ("training.gradient_clip", "false"),
        ("training.gradient_clip", "0"),
        ("metrics.tensorboard", "yes"),
        ("metrics.tensorboard", "0"),
        ("metrics.tensorboard", "\"True\""),
        ("optimizer.betas", "0.9"),
        ("name", "2026-01-01"),
        ("name", "1.5"),
        ("name", "true"),
        ("name", "-x y"),
        ("optimizer.name", "adam"),
        ("precision.compute", "bf16"),
        ("version", "\"1\""),
        ("version", "1.0"),
    ];
    for (key, value) in cases {
        let report = load(SOUND, &[&format!("{key}={value}")]).unwrap_err();
        let help = report.diagnostics[0].help.clone().unwrap_or_default();
        let suggestion = match help.split_once("= ") {
            Some((_, suggestion)) => suggestion,
            None => help.split_once("did you mean ").unwrap().1.split('?').next().unwrap(),
        };
        sound(SOUND, &[&format!("{key}={suggestion}")]);
    }
}
