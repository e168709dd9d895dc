//! `recipe show`, `ls`, `diff`, `schema` and `plan`, of every recipe that comes with titan-tpu.

use std::fs;

use serde_json::Value;

use crate::recipes::{json, prints, recipe, shipped};
use crate::support::Bench;

#[test]
fn every_shipped_recipe_passes_its_check() {
    let bench = Bench::new();
    let before = bench.names();
    let recipes = shipped();
    assert_eq!(recipes.len(), 15);
    let mut arguments = vec!["recipe", "check"];
    arguments.extend(recipes.iter().map(|path| path.to_str().unwrap()));
    let done = bench.run(&arguments).expect(0);
    assert_eq!(done.stdout.lines().filter(|line| line.starts_with("ok   ")).count(), 15);
    assert!(!done.stderr.contains("error"), "{}", done.stderr);
    assert_eq!(bench.names(), before);
}

/// What `show` prints is a recipe by itself, and the same run.
#[test]
fn what_show_prints_is_the_same_recipe() {
    let bench = Bench::new();
    for path in shipped() {
        let path = path.to_str().unwrap();
        let text = bench.run(&["recipe", "show", path]).expect(0).stdout;
        bench.write("shown.toml", &text);
        bench.run(&["recipe", "check", "shown.toml"]).expect(0);
        let same = bench.run(&["recipe", "diff", path, "shown.toml"]).expect(0);
        assert_eq!(same.stdout, "no setting differs\n", "{path}");
        // Showing it again changes nothing but the places.
        let again = bench.run(&["recipe", "show", "shown.toml"]).expect(0).stdout;
        let values = |text: &str| -> Vec<String> {
            let lines = text.lines().filter_map(|line| Some(line.rsplit_once(" # ")?.0));
            lines.map(|line| line.trim_end().to_owned()).collect()
        };
        assert_eq!(values(&text), values(&again), "{path}");
    }
}

#[test]
fn show_says_where_each_value_comes_from() {
    let bench = Bench::new();
    bench.write("child.toml", "extends = \"r.toml\"\n[training]\nsteps = 9\n");
    let set = ["--set", "training.seed=4"];
    let done = bench.run(&[&["recipe", "show", "child.toml"][..], &set].concat()).expect(0);
    let line = |key: &str| {
        let mut lines = done.stdout.lines();
        lines.find(|line| line.starts_with(&format!("{key} ="))).unwrap_or_default().to_owned()
    };
    for (key, value, origin) in [
        ("steps", "= 9 ", "# child.toml:3"),
        ("sequence_length", "= 32 ", "# r.toml:19"),
        ("seed", "= 4 ", "# --set #1"),
        ("gradient_clip", "= 1.0 ", "# default"),
        ("shard", "= 2 ", "# default, worked out"),
        ("head_dim", "= 8 ", "# hidden_size / num_heads"),
    ] {
        let line = line(key);
        assert!(line.contains(value) && line.ends_with(origin), "{line}");
    }
    let shown = json(
        &bench.run(&[&["recipe", "show", "child.toml", "--json"][..], &set].concat()).expect(0),
    );
    assert_eq!(shown["recipe"]["training"]["steps"], 9);
    let origins = &shown["origins"];
    let steps = serde_json::json!({ "from": "written", "source": "child.toml", "line": 3, "column": 9, "resolved": false });
    assert_eq!(origins["training.steps"], steps);
    assert_eq!(origins["training.seed"]["source"], "--set #1");
    assert_eq!(origins["optimizer.epsilon"]["from"], "default");
    assert_eq!(origins["model.head_dim"]["from"], "derived");
    assert_eq!(origins["parallelism.shard"]["resolved"], true);
    let tiny = json(&bench.run(&["recipe", "show", "llama3_tiny", "--json"]).expect(0));
    assert_eq!(tiny["origins"]["model.num_layers"]["from"], "preset");
}

#[test]
fn show_source_prints_the_file_as_it_is() {
    let bench = Bench::new();
    let text = fs::read_to_string(recipe("qwen3_8b")).unwrap();
    assert_eq!(
        bench.run(&["recipe", "show", "--source", &recipe("qwen3_8b")]).expect(0).stdout,
        text
    );
    assert_eq!(bench.run(&["recipe", "show", "--source", "qwen3_8b"]).expect(0).stdout, text);
    bench.run(&["recipe", "show", "--source", "qwen3_8b", "--json"]).expect(2);
    bench.run(&["recipe", "show", "nowhere"]).expect(2).says(&["no such file"]);
}

#[test]
fn ls_lists_every_shipped_recipe() {
    let bench = Bench::new();
    let names: Vec<String> = shipped()
        .iter()
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    let done = bench.run(&["recipe", "ls"]).expect(0);
    assert_eq!(done.stdout.lines().count(), 15);
    let mut listed: Vec<&str> =
        done.stdout.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    listed.sort_unstable();
    assert_eq!(listed, names);
    let all = json(&bench.run(&["recipe", "ls", "--json"]).expect(0));
    let all = all.as_array().unwrap();
    assert_eq!(all.len(), 15);
    for one in all {
        assert!(one["parameters"].as_u64().is_some_and(|n| n > 1_000_000), "{one}");
        assert!(one["devices"].as_u64().is_some_and(|n| n >= 2), "{one}");
        assert!(one["title"].as_str().is_some_and(|title| title.len() > 10), "{one}");
        bench.run(&["plan", one["name"].as_str().unwrap()]).expect(0);
    }
}

#[test]
fn diff_names_every_setting_that_differs_and_no_other() {
    let bench = Bench::new();
    bench.write("child.toml", "extends = \"r.toml\"\n[training]\nsteps = 9\n[checkpoint]\n");
    let done = bench.run(&["recipe", "diff", "r.toml", "child.toml"]).expect(0);
    let rows: Vec<Vec<&str>> =
        done.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["r.toml", "child.toml"]);
    assert!(rows.contains(&vec!["training.steps", "6", "9"]), "{}", done.stdout);
    prints(&done, &["checkpoint.directory", "(not set)"]);
    assert!(!done.stdout.contains("sequence_length"), "{}", done.stdout);
    let all = json(&bench.run(&["recipe", "diff", "r.toml", "child.toml", "--json"]).expect(0));
    let steps = all.as_array().unwrap().iter().find(|one| one["key"] == "training.steps").unwrap();
    assert_eq!((&steps["left"], &steps["right"]), (&6.into(), &9.into()));
    let directory = all.as_array().unwrap().iter().find(|one| one["key"] == "checkpoint.directory");
    assert_eq!(directory.unwrap()["left"], Value::Null);
    let done = bench.run(&["recipe", "diff", "qwen3_8b", "llama3_8b"]).expect(0);
    prints(&done, &["model.family", "qwen3", "llama3", "hardware.accelerator"]);
    bench.run(&["recipe", "diff", "r.toml", "nowhere.toml"]).expect(2).says(&["no such file"]);
}

#[test]
fn the_schema_is_json_and_names_every_table() {
    let bench = Bench::new();
    let schema = json(&bench.run(&["recipe", "schema"]).expect(0));
    let tables = schema["properties"].as_object().unwrap();
    for table in ["model", "hardware", "parallelism", "training", "data", "checkpoint", "rl", "env"]
    {
        assert!(tables.contains_key(table), "{table}");
    }
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["properties"]["training"]["properties"]["steps"]["minimum"], 1);
}

#[test]
fn every_shipped_recipe_has_a_plan() {
    let bench = Bench::new();
    for path in shipped() {
        let path = path.to_str().unwrap();
        let done = bench.run(&["plan", path]).expect(0);
        prints(
            &done,
            &[
                "mesh",
                "global batch",
                "parameters",
                "FLOPs per token",
                "(causal)",
                "state per device",
            ],
        );
        // Every shipped recipe fits the devices that it names.
        assert!(!done.stderr.contains("cannot fit"), "{path}: {}", done.stderr);
        let plan = json(&bench.run(&["plan", path, "--json"]).expect(0));
        let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{path}: {plan}"));
        let mesh = &plan["mesh"];
        let [replicate, shard, context, tensor, expert] =
            ["replicate", "shard", "context", "tensor", "expert"].map(|axis| number(&mesh[axis]));
        assert_eq!(replicate * shard * context * tensor, number(&plan["world"]), "{path}");
        assert_eq!((shard * context * tensor) % expert, 0, "{path}");
        let batch =
            number(&plan["local_batch"]) * replicate * shard * number(&plan["accumulation"]);
        assert_eq!(batch, number(&plan["global_batch"]), "{path}");
        let parameters = &plan["parameters"];
        assert!(number(&parameters["active"]) <= number(&parameters["total"]), "{path}");
        assert!(number(&parameters["embedding"]) < number(&parameters["total"]), "{path}");
        assert!(number(&plan["flops_per_token"]) > 0 && plan["convention"] == "causal");
        let memory = &plan["memory_per_device"];
        let parts = ["parameters_bytes", "gradients_bytes", "optimizer_bytes"];
        let sum: u64 = parts.iter().map(|part| number(&memory[part])).sum();
        assert_eq!(sum, number(&memory["state_bytes"]), "{path}");
    }
}

#[test]
fn a_plan_for_another_machine() {
    let bench = Bench::new();
    let target = ["--target", "v5p:4x4x8"];
    let plan = json(&bench.run(&[&["plan", "qwen3_8b", "--json"][..], &target].concat()).expect(0));
    assert_eq!(plan["world"], 128);
    for (target, says) in [
        ("v5p:3x3x3", "no slice of v5p"),
        ("v5p:", "names no machine"),
        (":4x4", "names no machine"),
        ("v9:4x4", "no choice \"v9\""),
    ] {
        bench.run(&["plan", "qwen3_8b", "--target", target]).expect(2).says(&[says]);
    }
}

#[test]
fn a_shipped_recipe_called_by_its_name_is_read_anywhere_and_takes_no_data_of_strangers() {
    let bench = Bench::new();
    for name in ["qwen3_8b", "qwen3_235b_8192"] {
        bench.run(&["recipe", "check", name]).expect(0);
    }
    // These read the corpus of a checkout, which is not here; a file beside the folder is not meant.
    for name in ["llama3_tiny", "qwen3_tiny", "qwen3_moe_tiny"] {
        bench.run(&["plan", name]).expect(0);
        let start = format!("relative paths here start from {}", bench.path("recipes").display());
        bench.run(&["recipe", "check", name]).expect(2).says(&["no such file", &start]);
    }
}
