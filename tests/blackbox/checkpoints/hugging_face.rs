//! Models in Hugging Face's format: what transformers makes of an export, and what a run makes of a folder.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{LIMIT, Saved, events};
use crate::python::python;
use crate::support::{Done, Running, floats, json_lines, repository};

/// A family with a small model.
struct Family {
    name: &'static str,
    class: &'static str,
    /// Changes to the recipe.
    settings: &'static [&'static str],
    /// What the engine calls these.
    engine: fn(&mut Value),
}

const FAMILIES: [Family; 3] = [
    Family {
        name: "llama3",
        class: "Llama",
        settings: &[
            "model.rope_scaling=llama3",
            "model.rope_original_length=16",
            "model.rope_theta=5e5",
        ],
        engine: |model| {
            model["rope_scaling"] = json!({
                "factor": 8.0, "low_frequency_factor": 1.0, "high_frequency_factor": 4.0,
                "original_length": 16
            });
            model["rope_theta"] = json!(500_000.0);
            model["norm_eps"] = json!(1e-5);
            model["head_dim"] = json!(8);
        },
    },
    Family {
        name: "qwen3",
        class: "Qwen3",
        settings: &["model.tie_embeddings=true", "model.head_dim=16", "model.rope_theta=1e4"],
        engine: |model| model["tie_embeddings"] = json!(true),
    },
    Family {
        name: "qwen3-moe",
        class: "Qwen3Moe",
        settings: &[
            "model.head_dim=16",
            "model.rope_theta=1e4",
            "model.num_experts=4",
            "model.experts_per_token=2",
            "model.expert_intermediate_size=32",
        ],
        engine: |model| {
            model["intermediate_size"] = Value::Null;
            model["experts"] = json!({
                "num_experts": 4, "experts_per_token": 2, "intermediate_size": 32,
                "load_balancing": "none", "load_balancing_coefficient": 0.0
            });
        },
    },
];

impl Family {
    /// A bench whose recipe is of this family.
    fn bench(&self) -> Saved {
        let saved = Saved::new();
        let recipe = fs::read_to_string(saved.path("r.toml")).unwrap();
        let mut recipe = recipe.replace("\"llama3\"", &format!("{:?}", self.name));
        if self.name == "qwen3-moe" {
            recipe = recipe.replace("intermediate_size = 64\n", "");
        }
        saved.bench.write("r.toml", &recipe);
        saved
    }

    fn train(&self, saved: &Saved, out: &str, more: &[&str]) -> Done {
        let settings = self.settings.iter().chain(more).flat_map(|setting| ["--set", setting]);
        saved.train(out, &settings.collect::<Vec<_>>())
    }

    fn import(&self, saved: &Saved, folder: &str, to: &str) -> Done {
        let settings = self.settings.iter().flat_map(|setting| ["--set", setting]);
        let import = ["checkpoint", "import", folder, "--recipe", "r.toml", "--to", to, "--json"];
        saved.bench.run(&import.into_iter().chain(settings).collect::<Vec<_>>())
    }

    /// What the engine makes its model from.
    fn engine(&self) -> Value {
        let mut model = json!({
            "family": self.name, "vocab_size": 256, "hidden_size": 32, "intermediate_size": 64,
            "experts": null, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "head_dim": 16,
            "rope_theta": 10_000.0, "rope_scaling": null, "norm_eps": 1e-6,
            "tie_embeddings": false, "init_std": 0.02, "attention": "fused"
        });
        (self.engine)(&mut model);
        model
    }
}

fn export(saved: &Saved, from: &str, to: &str, more: &[&str]) -> Done {
    let export = ["checkpoint", "export", from, "--to", to, "--json"];
    saved.bench.run(&[&export[..], more].concat())
}

/// Runs the script beside this file, and returns what it prints.
fn script(python: &Path, saved: &Saved, arguments: &[&str], input: &str) -> String {
    let script = repository().join("tests/blackbox/checkpoints/hugging_face.py");
    let mut command = Command::new(python);
    command.arg(script).args(arguments).current_dir(saved.path("."));
    command.env("TORCH_DEVICE_BACKEND_AUTOLOAD", "0").env("OMP_NUM_THREADS", "1");
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("HF_HUB_OFFLINE", "1");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn transformers_reads_another_model_than_was_trained() {
    let python = python();
    for family in FAMILIES {
        let saved = family.bench();
        family.train(&saved, "out", &["training.steps=4"]).expect(0);
        let forms: [(&str, &[&str]); 4] = [
            ("plain", &[]),
            ("sharded", &["--shard-bytes", "20000"]),
            ("fused", &["--experts", "fused", "--shard-bytes", "50000"]),
            ("short", &["--dtype", "bfloat16"]),
        ];
        for (to, more) in forms {
            let done = export(&saved, "out", to, more).expect(0);
            let line = &json_lines(&done.stdout)[0];
            let is_one = !more.contains(&"--shard-bytes");
            assert_eq!((&line["step"], line["files"] == 1), (&4.into(), is_one));
        }
        assert!(saved.path("sharded/model.safetensors.index.json").exists());
        let engine = repository().join("trainer/engine");
        let checkpoint = saved.checkpoint("out", 4);
        let (config, engine) = (family.engine().to_string(), engine.to_str().unwrap());
        let mut arguments = vec![engine, checkpoint.to_str().unwrap(), &config];
        arguments.extend(forms.map(|(to, _)| to));
        let printed = script(&python, &saved, &arguments, "");
        let lines = json_lines(&printed);
        assert_eq!(lines.len(), forms.len());
        for (line, (to, _)) in lines.iter().zip(forms) {
            let difference = line["difference"].as_f64().unwrap();
            let (most, dtype) =
                if to == "short" { (0.1, "torch.bfloat16") } else { (1e-5, "torch.float32") };
            assert!(difference <= most, "{} {to}: {line}", family.name);
            assert!(line["spread"].as_f64() > Some(0.05), "{line}");
            assert_eq!(line["dtype"], dtype);
            assert_eq!(line["class"], format!("{}ForCausalLM", family.class));
            for keys in ["missing_keys", "unexpected_keys", "mismatched_keys"] {
                assert_eq!(line[keys], json!([]), "{} {to}", family.name);
            }
        }
    }
}

/// The batch of the first step of a run, all its rows.
fn first_batch(saved: &Saved, family: &Family) -> Vec<Value> {
    let settings = family.settings.iter().flat_map(|setting| ["--set", setting]);
    let show = ["data", "show", "r.toml", "--documents", "0", "--steps", "1", "--json"];
    let done = saved.bench.run(&show.into_iter().chain(settings).collect::<Vec<_>>()).expect(0);
    let lines = json_lines(&done.stdout);
    let step = lines.iter().find(|line| line["event"] == "step").unwrap();
    step["rows"].as_array().unwrap().iter().map(|row| row["tokens"].clone()).collect()
}

#[test]
fn a_run_begins_with_other_weights_than_those_of_transformers() {
    let python = python();
    for family in &FAMILIES {
        let family = Family {
            // As the script makes them: positions are not stretched.
            settings: if family.name == "llama3" {
                &["model.head_dim=16", "model.rope_theta=1e4"]
            } else {
                family.settings
            },
            ..*family
        };
        let saved = family.bench();
        let batch = first_batch(&saved, &family);
        assert_eq!(batch.len(), 4);
        let arguments = ["make", "theirs", family.class];
        let loss = script(&python, &saved, &arguments, &json!(batch).to_string());
        let expected: f64 = loss.trim().parse().unwrap();
        let eps = ["model.init=theirs", "model.norm_eps=1e-5"];
        let spread: &[&str] = match family.name {
            "qwen3-moe" => &["hardware.devices=2", "parallelism.expert=2"],
            _ => &["hardware.devices=2", "parallelism.tensor=2"],
        };
        for (out, mesh) in [
            ("one", &["hardware.devices=1"][..]),
            ("two", &["hardware.devices=2"]),
            ("spread", spread),
        ] {
            family.train(&saved, out, &[&eps[..], mesh].concat()).expect(0);
            let losses = saved.losses(out);
            let difference = (losses[0] - expected).abs();
            assert!(difference < 2e-5, "{} {out}: {} and {expected}", family.name, losses[0]);
            for (here, there) in losses.iter().zip(saved.losses("one")) {
                assert!((here - there).abs() < 1e-4, "{} {out}: {here}, {there}", family.name);
            }
        }
    }
}

#[test]
fn exported_weights_are_others_when_they_come_back() {
    for family in &FAMILIES {
        let saved = family.bench();
        let validated =
            ["validation.interval_steps=2", "validation.sources=[{path=\"valid.txt\"}]"];
        fs::write(saved.path("valid.txt"), "What is the loss of this text?\n".repeat(9)).unwrap();
        family.train(&saved, "out", &[&validated[..], &["training.steps=2"]].concat()).expect(0);
        export(&saved, "out", "hf", &["--shard-bytes", "30000"]).expect(0);
        // With a rate that changes nothing, the loss after two steps is that of the weights it began with.
        let still = ["training.steps=2", "model.init=hf", "optimizer.learning_rate=1e-30"];
        family.train(&saved, "still", &[&validated[..], &still].concat()).expect(0);
        let validation = |out: &str| {
            let text = fs::read_to_string(saved.path(out).join("validation.jsonl")).unwrap();
            floats(&json_lines(&text), "loss")
        };
        let (here, there) = (validation("still"), validation("out"));
        assert!(!here.is_empty());
        assert_eq!(here.last(), there.last(), "{}", family.name);
        // By way of a checkpoint it is the same run.
        let done = family.import(&saved, "hf", "imported").expect(0);
        assert_eq!(json_lines(&done.stdout)[0]["step"], 0);
        saved.bench.run(&["checkpoint", "verify", "imported"]).expect(0);
        family.train(&saved, "init", &["model.init=hf"]).expect(0);
        let folder = saved.path("imported");
        let kept_in = |folder: &str| {
            format!("checkpoint.directory={:?}", saved.path(folder).to_str().unwrap())
        };
        let done = family.train(&saved, "resumed", &[&kept_in("imported")]).expect(0);
        assert_eq!(events(&done, "resume")[0]["step"], 0);
        assert_eq!(saved.losses("resumed"), saved.losses("init"), "{}", family.name);
        // It is one of another run, and stays.
        assert!(folder.join("step-00000000/manifest.json").exists());
        // The optimizer may be any, and its memory begins anew.
        family.train(&saved, "adam", &["optimizer.name=adamw", "model.init=hf"]).expect(0);
        family.import(&saved, "hf", "imported2").expect(0);
        let other = kept_in("imported2");
        let more = ["model.norm_eps=1e-3", &other];
        family.train(&saved, "other", &more).expect(2).says(&["model.norm_eps", "0.001 here"]);
        family.train(&saved, "adam2", &["optimizer.name=adamw", &other]).expect(0);
        assert_eq!(saved.losses("adam2"), saved.losses("adam"), "{}", family.name);
        if family.name == "qwen3-moe" {
            export(&saved, "out", "fused", &["--experts", "fused"]).expect(0);
            family.train(&saved, "stacks", &["model.init=fused"]).expect(0);
            assert_eq!(saved.losses("stacks"), saved.losses("init"));
        }
        // An imported one can be exported again: the same weights.
        let exported = |from: &str, to: &str| {
            export(&saved, from, to, &[]).expect(0);
            fs::read(saved.path(to).join("model.safetensors")).unwrap()
        };
        let again = exported("imported/step-00000000", "again");
        assert!(again == exported("out", "before"), "{}", family.name);
    }
}

/// A small run with an export of it.
fn with_export() -> Saved {
    let saved = Saved::new();
    saved.train("out", &["--set", "training.steps=2"]).expect(0);
    export(&saved, "out", "hf", &[]).expect(0);
    export(&saved, "out", "shards", &["--shard-bytes", "20000"]).expect(0);
    saved
}

#[test]
fn a_folder_that_cannot_be_used_is_found_by_a_worker() {
    let saved = with_export();
    let copy = |from: &str, to: &str| -> PathBuf {
        let to = saved.path(to);
        fs::create_dir(&to).unwrap();
        for entry in fs::read_dir(saved.path(from)).unwrap().map(Result::unwrap) {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
        to
    };
    let edit = |path: &Path, from: &str, to: &str| {
        let text = fs::read_to_string(path).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(path, text.replace(from, to)).unwrap();
    };
    let refused = |folder: &str, says: &[&str]| {
        let setting = format!("model.init={folder}");
        let done = saved.train("new", &["--set", &setting]).expect(2).says(says);
        assert!(!saved.path("new").exists(), "{folder}: a run directory was made");
        let import = ["checkpoint", "import", folder, "--recipe", "r.toml", "--to", "checkpoints"];
        saved.bench.run(&import).expect(2);
        assert!(!saved.path("checkpoints").exists(), "{folder}: something was made");
        done
    };

    let folder = copy("shards", "missing");
    let index = fs::read(folder.join("model.safetensors.index.json")).unwrap();
    let index: Value = serde_json::from_slice(&index).unwrap();
    let name = index["weight_map"]["model.norm.weight"].as_str().unwrap();
    fs::remove_file(folder.join(name)).unwrap();
    refused("missing", &["are not there", name]);

    let folder = copy("hf", "cut");
    let file = folder.join("model.safetensors");
    let content = fs::read(&file).unwrap();
    fs::write(&file, &content[..content.len() - 1]).unwrap();
    refused("cut", &["cut/model.safetensors", "it is cut off"]);

    let folder = copy("hf", "dimensions");
    let config = folder.join("config.json");
    edit(&config, "\"hidden_size\": 32", "\"hidden_size\": 64");
    edit(&config, "\"rms_norm_eps\": 0.00001", "\"rms_norm_eps\": 1e-6");
    edit(&config, "\"mlp_bias\": false", "\"mlp_bias\": true");
    let lines = [
        "model.hidden_size: 64 there, 32 here",
        "model.norm_eps: 1e-6 there, 1e-5 here",
        "mlp_bias is true, and models of titan-tpu have false",
    ];
    refused("dimensions", &lines);

    // The description is right, and the weights are not.
    let folder = copy("hf", "shapes");
    let file = folder.join("model.safetensors");
    let changed = |from: &[u8], to: &[u8]| {
        let place = content.windows(from.len()).position(|part| part == from).unwrap();
        [&content[..place], to, &content[place + from.len()..]].concat()
    };
    fs::write(&file, changed(b"model.norm.weight", b"model.NORM.weight")).unwrap();
    let lines = ["model.norm.weight is not there", "model.NORM.weight is there, and this model"];
    refused("shapes", &lines);
    fs::write(&file, changed(b"\"shape\":[64,32]", b"\"shape\":[32,64]")).unwrap();
    refused("shapes", &["has the shape [32, 64], and this model has [64, 32]"]);

    fs::create_dir(saved.path("empty")).unwrap();
    refused("empty", &["cannot read config.json of the model folder `empty`"]);
    let folder = copy("hf", "pickles");
    fs::rename(folder.join("model.safetensors"), folder.join("pytorch_model.bin")).unwrap();
    refused("pickles", &["convert them to safetensors"]);

    let folder = copy("shards", "outside");
    edit(&folder.join("model.safetensors.index.json"), name, "../hf/model.safetensors");
    refused("outside", &["is not the name of a file in this folder"]);

    let folder = copy("hf", "family");
    edit(&folder.join("config.json"), "\"llama\"", "\"mistral\"");
    refused("family", &["model.family: \"mistral\" there, llama3 here"]);
    refused("nowhere", &["nowhere"]);
    saved.train("new", &["--set", "model.init=gs://bucket/model"]).expect(2);
}

#[test]
fn a_folder_of_another_format_is_called_unreadable() {
    let saved = with_export();
    for (folder, name) in [("dcp", ".metadata"), ("ours", "manifest.json")] {
        fs::create_dir(saved.path(folder)).unwrap();
        fs::write(saved.path(folder).join(name), "").unwrap();
    }
    let import = |folder: &str, says: &[&str]| {
        let arguments = ["checkpoint", "import", folder, "--recipe", "r.toml", "--to", "new"];
        saved.bench.run(&arguments).expect(2).says(says);
        assert!(!saved.path("new").exists(), "{folder}: something was made");
    };
    import("dcp", &["dcp: it has no config.json", "checkpoint import --format dcp"]);
    import("ours", &["it is a checkpoint of titan-tpu", "checkpoint export"]);
    import("hf/config.json", &["hf/config.json: it is no folder"]);
}

#[test]
fn something_is_exported_that_should_not_be() {
    let saved = with_export();
    let before = fs::read(saved.path("hf/model.safetensors")).unwrap();
    export(&saved, "out", "hf", &[]).expect(2).says(&["never written over"]);
    assert!(fs::read(saved.path("hf/model.safetensors")).unwrap() == before);
    export(&saved, "out", "new", &["--dtype", "int4"]).expect(2).says(&["int4", "bfloat16"]);
    export(&saved, "out", "new", &["--shard-bytes", "0"]).expect(2);
    export(&saved, "nowhere", "new", &[]).expect(2).says(&["there is no such folder"]);
    fs::create_dir(saved.path("none")).unwrap();
    export(&saved, "none", "new", &[]).expect(5).says(&["there is no checkpoint"]);

    // The newest is damaged, and the one before is not.
    saved.train("out", &["--set", "training.steps=4"]).expect(0);
    let shard = saved.checkpoint("out", 4).join("rank-00001.safetensors");
    let mut content = fs::read(&shard).unwrap();
    // Files begin with weights.
    let manifest = fs::read(saved.checkpoint("out", 4).join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    content[manifest["files"][1]["header_bytes"].as_u64().unwrap() as usize + 100] ^= 1;
    fs::write(&shard, content).unwrap();
    export(&saved, "out/checkpoints/step-00000004", "new", &[])
        .expect(5)
        .says(&["rank-00001.safetensors", "are not what was written"]);
    assert!(!saved.path("new").exists());
    let done = export(&saved, "out", "new", &[]).expect(0);
    assert_eq!(json_lines(&done.stdout)[0]["step"], 2);
    done.says(&["the checkpoint of step 4 cannot be used"]);
    assert!(fs::read(saved.path("new/model.safetensors")).unwrap() == before);
    // A run would go on from another.
    let import = ["checkpoint", "import", "hf", "--recipe", "r.toml", "--to", "out/checkpoints"];
    saved.bench.run(&import).expect(2).says(&["there is a checkpoint of step 4"]);
}

#[test]
fn an_export_that_is_ended_leaves_a_part_of_a_model() {
    let saved = Saved::new();
    // Large enough to be met while it is being written.
    let large = ["training.steps=1", "model.vocab_size=40000", "model.hidden_size=256"];
    let settings = large.iter().flat_map(|setting| ["--set", setting]);
    saved.train("out", &settings.collect::<Vec<_>>()).expect(0);
    let begin = || {
        let running = saved.bench.start(&["checkpoint", "export", "out", "--to", "hf"]);
        let start = Instant::now();
        while !saved.path(".hf.exporting/model.safetensors").exists() {
            assert!(start.elapsed() < LIMIT, "nothing is written");
            thread::sleep(Duration::from_millis(1));
        }
        running.signal("STOP");
        assert!(!saved.path("hf").exists());
        running
    };
    let running = begin();
    running.signal("TERM");
    running.signal("CONT");
    running.wait_for(LIMIT).expect(75).says(&["nothing is there"]);
    assert!(!saved.path("hf").exists() && !saved.path(".hf.exporting").exists());

    let running = begin();
    // Not by two at once.
    let done = saved.bench.run(&["checkpoint", "export", "out", "--to", "hf"]);
    done.expect(2).says(&["another process is writing"]);
    running.signal("KILL");
    running.wait_for(LIMIT);
    assert!(!saved.path("hf").exists() && saved.path(".hf.exporting").exists());
    export(&saved, "out", "hf", &[]).expect(0);
    assert!(!saved.path(".hf.exporting").exists());
    let entries = fs::read_dir(saved.path("hf")).unwrap();
    assert_eq!(entries.count(), 2);
}

#[test]
fn a_disk_without_room_leaves_a_part_of_a_model() {
    let saved = with_export();
    let names = saved.bench.names();
    let export = ["checkpoint", "export", "out", "--to", "new"];
    let import = ["checkpoint", "import", "hf", "--recipe", "r.toml", "--to", "new"];
    for arguments in [&export[..], &import] {
        let run = saved.bench.command(arguments);
        let mut command = Command::new("bash");
        command.args(["-c", "ulimit -f 40; exec \"$@\"", "bash"]);
        command.arg(run.get_program()).args(run.get_args()).current_dir(saved.path("."));
        command.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Running::start(command).wait_for(LIMIT).expect(7).says(&["File too large"]);
        if saved.path("new").exists() {
            // The folder of checkpoints, with none in it.
            fs::remove_dir(saved.path("new")).unwrap();
        }
        assert_eq!(saved.bench.names(), names);
    }
}
