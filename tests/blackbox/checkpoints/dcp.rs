//! Checkpoints of torch.distributed.checkpoint: what plain torch reads of ours, and what we take in of others.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use titan_checkpoint::{Wanted, open, restore};

use super::{LIMIT, Saved, events};
use crate::support::{Done, Running, json_lines, processes_with, wait_until};

/// With both axes, so that tensors are cut by rows and by columns, and with an optimizer that remembers two numbers.
const CUT: [&str; 10] = [
    "--devices",
    "4",
    "--set",
    "parallelism.tensor=2",
    "--set",
    "optimizer.name=adamw",
    "--set",
    "optimizer.learning_rate=0.01",
    "--set",
    "model.tie_embeddings=true",
];

/// Settings of `CUT` that say what the tensors are.
const SETTINGS: [&str; 4] = ["--set", "optimizer.name=adamw", "--set", "model.tie_embeddings=true"];

impl Saved {
    fn export(&self, from: &str, to: &str) -> Done {
        let arguments = ["checkpoint", "export", from, "--format", "dcp", "--to", to, "--json"];
        self.bench.start(&arguments).wait_for(LIMIT)
    }

    fn import(&self, from: &str, to: &str, more: &[&str]) -> Done {
        let arguments = [
            "checkpoint",
            "import",
            from,
            "--format",
            "dcp",
            "--recipe",
            "r.toml",
            "--to",
            to,
            "--json",
        ];
        self.bench.start(&[&arguments[..], more].concat()).wait_for(LIMIT)
    }

    /// The Python of the engine.
    fn python(&self) -> PathBuf {
        let done = self.bench.start(&["setup", "--json"]).wait_for(LIMIT).expect(0);
        let lines = json_lines(&done.stdout);
        lines.iter().find_map(|line| line["python"].as_str()).unwrap().into()
    }

    /// Runs a program that has no code of titan-tpu.
    fn plain_python(&self, program: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(self.python());
        command.args(["-P", "-W", "ignore", "-c", program]).args(arguments);
        command.current_dir(self.path(".")).env("TORCH_DEVICE_BACKEND_AUTOLOAD", "0");
        Running::start(command).wait_for(LIMIT).expect(0).stdout
    }

    /// Names in the folder of the test that no other test has made.
    fn hidden(&self) -> Vec<String> {
        self.bench.names().into_iter().filter(|name| name.starts_with('.')).collect()
    }
}

/// All tensors of a checkpoint of ours, whole.
fn whole_tensors(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let checkpoint = open(path).unwrap();
    let mut memory: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for (name, facts) in &checkpoint.manifest().tensors {
        let bytes = facts.whole().unwrap().elements() * facts.dtype.bytes();
        memory.insert(name.clone(), vec![0; bytes as usize]);
    }
    let wanted = memory.iter_mut().map(|(name, into)| {
        let tensor = checkpoint.manifest().tensors[name].clone();
        let region = tensor.whole().unwrap();
        Wanted { name: name.clone(), tensor, region, into }
    });
    restore(std::slice::from_ref(&checkpoint), wanted.collect(), 2, &AtomicBool::new(false))
        .unwrap();
    memory
}

#[track_caller]
fn are_same(left: &BTreeMap<String, Vec<u8>>, right: &BTreeMap<String, Vec<u8>>) {
    assert_eq!(left.keys().collect::<Vec<_>>(), right.keys().collect::<Vec<_>>());
    for (name, content) in left {
        assert!(*content == right[name], "{name} differs");
    }
}

/// Loads tensors of the shapes in a JSON file into empty ones, and writes their bytes one after the other.
const LOAD: &str = "
import json, sys, torch, torch.distributed.checkpoint as dcp
shapes = json.load(open(sys.argv[2]))
state = {name: torch.empty(shape) for name, shape in shapes.items()}
state |= {'step': torch.tensor(0), 'titan_run': ''}
dcp.load(state, checkpoint_id=sys.argv[1])
assert not any(name.startswith('titan') for name in sys.modules)
with open(sys.argv[3], 'wb') as out:
    for name in shapes:
        out.write(bytes(state[name].untyped_storage()))
print(json.dumps({'step': state['step'].item(), 'run': json.loads(state['titan_run'])}))
";

#[test]
fn plain_torch_reads_other_bytes_than_were_saved() {
    let saved = Saved::new();
    saved.train("out", &CUT).expect(0);
    let done = saved.export("out", "dcp").expect(0);
    let line = &events(&done, "exported")[0];
    assert_eq!((&line["step"], &line["format"]), (&json!(6), &json!("dcp")));
    assert_eq!(saved.hidden(), [""; 0]);
    let manifest = fs::read_to_string(saved.checkpoint("out", 6).join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    let tensors = manifest["tensors"].as_object().unwrap();
    assert!(tensors.keys().any(|name| name.starts_with("optimizer.second_moment.")));
    let shapes: BTreeMap<&String, &Value> =
        tensors.iter().map(|(name, tensor)| (name, &tensor["shape"])).collect();
    saved.bench.write("shapes.json", &serde_json::to_string(&shapes).unwrap());
    let said = saved.plain_python(LOAD, &["dcp", "shapes.json", "bytes"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["step"], &said["run"]), (&json!(6), &manifest["run"]));
    let own = whole_tensors(&saved.checkpoint("out", 6));
    let bytes: Vec<u8> = own.into_values().flatten().collect();
    assert!(fs::read(saved.path("bytes")).unwrap() == bytes, "bytes differ");
    // What is there is not written over, nor is anything else done.
    saved
        .export("out", "dcp")
        .expect(2)
        .says(&["there is something already, and it is never written over"]);
    let plain = ["checkpoint", "export", "out", "--format", "dcp", "--to", "a/b/c"];
    let done = saved.bench.start(&plain).wait_for(LIMIT).expect(0);
    assert!(done.stdout.contains("a/b/c: step 6"), "{}", done.stdout);
}

#[test]
fn a_run_that_was_exported_and_imported_goes_on_otherwise() {
    let saved = Saved::new();
    saved.train("whole", &CUT).expect(0);
    let from = "whole/checkpoints/step-00000004";
    saved.export(from, "dcp").expect(0);
    let done = saved.import("dcp", "elsewhere/c", &SETTINGS).expect(0);
    let line = &events(&done, "imported")[0];
    assert_eq!((&line["step"], &line["not_taken"]), (&json!(4), &json!([])));
    saved.bench.run(&["checkpoint", "verify", "elsewhere/c"]).expect(0);
    let imported = saved.path("elsewhere/c/step-00000004");
    are_same(&whole_tensors(&imported), &whole_tensors(&saved.checkpoint("whole", 4)));
    saved.import("dcp", "elsewhere/c", &SETTINGS).expect(2).says(&["never written over"]);
    // Another optimizer, another model.
    let done = saved.import("dcp", "other", &[]).expect(2);
    done.says(&["other settings than the recipe", "optimizer.name: \"adamw\" there, \"sgd\" here"]);
    assert!(!saved.path("other").exists());
    let setting = format!("checkpoint.directory={:?}", saved.path("elsewhere/c").to_str().unwrap());
    let done = saved.train("on", &[&CUT[..], &["--set", &setting]].concat()).expect(0);
    assert_eq!(events(&done, "resume")[0]["step"], 4);
    let losses = |out: &str| -> Vec<(u64, f64)> {
        let of = |line: &Value| (line["step"].as_u64().unwrap(), line["loss"].as_f64().unwrap());
        saved.bench.metrics(out).iter().map(of).filter(|(step, _)| *step > 4).collect()
    };
    assert_eq!(losses("on").len(), 2);
    assert_eq!(losses("on"), losses("whole"));
    let last = saved.path("elsewhere/c/step-00000006");
    are_same(&whole_tensors(&last), &whole_tensors(&saved.checkpoint("whole", 6)));
}

/// Saves the weights of an export as others name them, in half the bits, and says what they are in whole ones.
const FOREIGN: &str = "
import sys, torch, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader
entries = FileSystemReader('dcp').read_metadata().state_dict_metadata
names = [name for name in entries if name.startswith(('model.', 'lm_head.'))]
state = {name: torch.empty(entries[name].size) for name in names}
dcp.load(state, checkpoint_id='dcp')
weights = {name: weight.bfloat16() for name, weight in state.items()}
def wrapped(name):
    return name.replace('model.layers.1.', 'model.layers.1._checkpoint_wrapped_module.')
model = {'_orig_mod.' + wrapped(name): weight for name, weight in weights.items()}
optimizer = {'state': {name: {'exp_avg': weight * 0} for name, weight in weights.items()}, 'lr': 0.5}
dcp.save({'state': {'model': model, 'epoch': 3}, 'optimizer': optimizer}, checkpoint_id='foreign')
dcp.save({**weights, **{'ema.' + name: weight * 2 for name, weight in weights.items()}}, checkpoint_id='twice')
short = dict(weights)
del short['model.norm.weight']
dcp.save(short, checkpoint_id='short')
for name, weight in weights.items():
    open('expected-' + name, 'wb').write(bytes(weight.float().untyped_storage()))
";

#[test]
fn weights_of_others_are_not_found_or_changed() {
    let saved = Saved::new();
    saved.train("out", &["--set", "training.steps=2"]).expect(0);
    saved.export("out", "dcp").expect(0);
    saved.plain_python(FOREIGN, &[]);
    let done = saved.import("foreign", "taken", &[]).expect(0);
    let line = &events(&done, "imported")[0];
    assert_eq!(line["step"], 0);
    let not_taken = line["not_taken"].to_string();
    for name in ["state.epoch", "optimizer.lr", "optimizer.state.model.norm.weight.exp_avg"] {
        assert!(not_taken.contains(name), "{not_taken}");
    }
    done.says(&["not taken", "and"]);
    let path = saved.path("taken/step-00000000");
    saved.bench.run(&["checkpoint", "verify", "taken"]).expect(0);
    let shown = saved.bench.run(&["checkpoint", "show", "taken", "--json"]).expect(0);
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!((&shown["step"], &shown["run"]["cursor"]), (&json!(0), &Value::Null));
    assert_eq!(shown["run"]["settings"]["model.num_layers"], "2");
    assert_eq!(shown["run"]["source"]["format"], "dcp");
    let own = whole_tensors(&path);
    assert!(own.keys().all(|name| !name.starts_with("optimizer.")));
    for (name, content) in &own {
        let expected = fs::read(saved.path(&format!("expected-{name}"))).unwrap();
        assert!(*content == expected, "{name} differs");
    }
    // Two sets of weights, none, some, and those of another model.
    let done = saved.import("twice", "x", &[]).expect(2);
    done.says(&["more than once", "behind `ema.`", "--prefix"]);
    saved.import("twice", "ema", &["--prefix", "ema."]).expect(0);
    let (one, two) = (&own["model.norm.weight"], &whole_tensors(&saved.path("ema/step-00000000")));
    let numbers = |bytes: &[u8]| -> Vec<f32> {
        bytes.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
    };
    let doubled: Vec<f32> = numbers(one).iter().map(|number| number * 2.0).collect();
    assert_eq!(numbers(&two["model.norm.weight"]), doubled);
    let done = saved.import("short", "x", &[]).expect(2);
    done.says(&["lacks 1 of the", "model.norm.weight", "it has: "]);
    let done = saved.import("foreign", "x", &["--set", "model.intermediate_size=96"]).expect(2);
    done.says(&["not those of the recipe's model", "[64, 32] there, [96, 32] in the model"]);
    let more = ["--set", "model.num_layers=3"];
    saved.import("foreign", "x", &more).expect(2).says(&["model.layers.2."]);
    assert!(!saved.path("x").exists());
    assert_eq!(saved.hidden(), [""; 0]);
}

const EVIL: &str = "
import os, pickle
class Evil:
    def __reduce__(self):
        return os.system, ('touch mark',)
open('evil/.metadata', 'wb').write(pickle.dumps(Evil()))
";

#[test]
fn bad_folders_are_taken_for_checkpoints() {
    let saved = Saved::new();
    saved.train("out", &["--set", "training.steps=2"]).expect(0);
    saved.export("out", "dcp").expect(0);
    for (folder, why) in [("nowhere", "there is no such folder"), ("out", "no file .metadata")] {
        let done = saved.import(folder, "x", &[]).expect(2);
        done.says(&[folder, why, "torch.distributed.checkpoint.save"]);
    }
    for folder in ["evil", "cut", "gone", "torn", "zeros"] {
        fs::create_dir(saved.path(folder)).unwrap();
        for file in fs::read_dir(saved.path("dcp")).unwrap().map(Result::unwrap) {
            fs::copy(file.path(), saved.path(folder).join(file.file_name())).unwrap();
        }
    }
    let file = "__0_1.distcp";
    let content = fs::read(saved.path("dcp").join(file)).unwrap();
    fs::write(saved.path("cut").join(file), &content[..content.len() / 2]).unwrap();
    fs::write(saved.path("zeros").join(file), vec![0; content.len()]).unwrap();
    fs::remove_file(saved.path("gone").join(file)).unwrap();
    let metadata = fs::read(saved.path("dcp/.metadata")).unwrap();
    fs::write(saved.path("torn/.metadata"), &metadata[..metadata.len() / 2]).unwrap();
    saved.plain_python(EVIL, &[]);
    for (folder, at, why) in [
        ("evil", ".metadata", "which is not of such a checkpoint; nothing of it was run"),
        ("torn", ".metadata", "cannot be read"),
        ("cut", file, "it is cut off"),
        ("gone", file, "is missing"),
        ("zeros", file, "cannot be read"),
    ] {
        let done = saved.import(folder, "x", &[]).expect(5);
        assert!(!done.stderr.contains("Traceback"), "{}", done.stderr);
        done.says(&[&format!("{folder}/{at}"), why]);
    }
    assert!(!saved.path("mark").exists(), "the pickle was run");
    saved.export("nowhere", "x").expect(2).says(&["there is no such folder"]);
    saved.export("dcp", "x").expect(5).says(&["there is no checkpoint in this folder"]);
    let path = saved.checkpoint("out", 2).join("rank-00000.safetensors");
    let mut content = fs::read(&path).unwrap();
    *content.last_mut().unwrap() ^= 1;
    fs::write(&path, content).unwrap();
    saved.export("out", "x").expect(5).says(&["rank-00000.safetensors", "not what was written"]);
    let done = saved.bench.run(&["checkpoint", "export", "out", "--format", "zip", "--to", "x"]);
    done.expect(2).says(&["possible values: hugging-face, dcp"]);
    assert!(!saved.path("x").exists());
    assert_eq!(saved.hidden(), [""; 0]);
}

#[test]
fn a_disk_without_room_gets_half_a_folder() {
    let saved = Saved::new();
    saved.train("out", &["--set", "training.steps=2"]).expect(0);
    saved.export("out", "dcp").expect(0);
    let limited = |arguments: &[&str], kib: u64| {
        let run = saved.bench.command(arguments);
        let mut command = Command::new("bash");
        let script = format!("ulimit -f {kib}; exec \"$@\"");
        command.args(["-c", &script, "bash"]).arg(run.get_program()).args(run.get_args());
        command.current_dir(saved.path("."));
        command.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Running::start(command).wait_for(LIMIT).expect(7)
    };
    // The largest tensor has 32 KiB, and the smallest file of a rank 200.
    let export = ["checkpoint", "export", "out", "--format", "dcp", "--to", "x"];
    limited(&export, 16).says(&["File too large"]);
    let import =
        ["checkpoint", "import", "dcp", "--format", "dcp", "--recipe", "r.toml", "--to", "y"];
    limited(&import, 100).says(&["File too large"]);
    assert!(!saved.path("x").exists() && !saved.path("y").exists());
    assert_eq!(saved.hidden(), [""; 0]);
}

/// Processes that a launcher has started.
fn children_of(launcher: u32) -> Vec<u32> {
    processes_with(&format!("TITAN_LAUNCHER_PID={launcher}"))
}

#[test]
fn a_launcher_that_is_stopped_or_killed_leaves_a_process() {
    let saved = Saved::new();
    saved.train("out", &["--set", "training.steps=2"]).expect(0);
    for (signal, code) in [("TERM", Some(75)), ("INT", Some(75)), ("KILL", None)] {
        let run =
            saved.bench.start(&["checkpoint", "export", "out", "--format", "dcp", "--to", "x"]);
        let launcher = run.pid();
        wait_until(LIMIT, || (!children_of(launcher).is_empty()).then_some(()));
        thread::sleep(Duration::from_millis(300));
        run.signal(signal);
        let done = run.wait_for(LIMIT);
        assert_eq!(done.code, code, "{}", done.stderr);
        wait_until(Duration::from_secs(20), || children_of(launcher).is_empty().then_some(()));
        assert!(!saved.path("x").exists());
        assert_eq!(saved.hidden().len(), usize::from(signal == "KILL"));
    }
    // What a kill has left is in nobody's way.
    saved.export("out", "x").expect(0);
    let import =
        ["checkpoint", "import", "x", "--format", "dcp", "--recipe", "r.toml", "--to", "y"];
    let run = saved.bench.start(&import);
    let launcher = run.pid();
    wait_until(LIMIT, || (!children_of(launcher).is_empty()).then_some(()));
    run.signal("TERM");
    run.wait_for(LIMIT).expect(75);
    assert_eq!(children_of(launcher), [0; 0]);
    assert!(!saved.path("y").exists());
    assert_eq!(saved.hidden(), [""; 0]);
}

#[test]
fn a_damaged_checkpoint_is_exported_instead_of_the_one_before() {
    let saved = Saved::new();
    saved.train("out", &["--set", "training.steps=4"]).expect(0);
    let damage = |step| {
        let file = saved.checkpoint("out", step).join("rank-00000.safetensors");
        let mut content = fs::read(&file).unwrap();
        let last = content.len() - 1;
        content[last] ^= 1;
        fs::write(file, content).unwrap();
    };
    damage(4);
    let done =
        saved.export("out", "x").expect(0).says(&["the checkpoint of step 4 cannot be used"]);
    let line = json_lines(&done.stdout).pop().unwrap();
    assert_eq!((&line["event"], &line["step"]), (&"exported".into(), &2.into()));
    damage(2);
    saved.export("out", "y").expect(5).says(&["step-00000002"]);
    assert!(!saved.path("y").exists());
}
