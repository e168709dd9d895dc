//! Bad recipes, bad command lines, bad data: nothing is started, nothing is created, the message says what to do.

use std::fs;

use crate::support::{Bench, Running, json_lines, tiny};

/// Runs a recipe that must be refused, and checks that nothing was created.
#[track_caller]
fn refused(bench: &Bench, arguments: &[&str], texts: &[&str]) {
    let before = bench.names();
    let done = bench.run(arguments).expect(2).says(texts);
    assert_eq!(done.stdout, "");
    assert_eq!(bench.names(), before, "something was created");
}

#[test]
fn a_recipe_with_a_mistake_is_refused_with_its_place_and_its_remedy() {
    let bench = Bench::new();
    let cases: &[(&str, &str, &[&str])] = &[
        ("sequence_length", "sequence_lenght", &["r.toml:19:1", "did you mean `sequence_length`?"]),
        ("[optimizer]", "[optimiser]", &["unknown table [optimiser]", "did you mean `optimizer`?"]),
        ("steps = 6", "steps = \"6\"", &["r.toml:18:9", "remove the quotes: steps = 6"]),
        ("steps = 6", "steps = -6", &["`training.steps` must be at least 1, found -6"]),
        (
            "[data]",
            "[schedule]\nwarmup_steps = 60\n[data]",
            &["longer than the run of 6 steps", "at most 6"],
        ),
        (
            "num_heads = 4",
            "num_heads = 5",
            &["not a multiple of `model.num_heads` = 5", "nearest values"],
        ),
        ("num_kv_heads = 2", "num_kv_heads = 3", &["nearest values of num_kv_heads"]),
        (
            "data.txt",
            "date.txt",
            &["cannot read the data file `date.txt`: no such file", "r.toml:28"],
        ),
        ("data.txt", "*.jsonl", &["`*.jsonl`: it matches no file", "looked in"]),
        ("global_batch = 4", "global_batch = 5", &["nearest values of global_batch: 4, 6"]),
        ("devices = 2", "devices = -1", &["to have it worked out, write devices = \"auto\""]),
        (
            "devices = 2",
            "devices = 2\n[parallelism]\nreplicate = 4",
            &["world 2 is not a multiple of replicate 4"],
        ),
        (
            "\"cpu\"",
            "\"cuda\"",
            &["this version cannot train with `hardware.accelerator` = \"cuda\"", "\"cpu\""],
        ),
        (
            "[data]",
            "[checkpoint]\nlocal_directory = \"gs://bucket/x\"\n[data]",
            &["`checkpoint.local_directory` is an address; the fast tier is on each host"],
        ),
        ("version = 1", "version = 2", &["reads recipes of version 1, not 2"]),
        ("family = \"llama3\"", "family = llama3", &["invalid TOML", "r.toml:5"]),
        ("name = \"small\"", "name = \"../x\"", &["cannot name a run folder"]),
    ];
    for (from, to, texts) in cases {
        bench.edit(from, to);
        refused(&bench, &["train", "r.toml"], texts);
    }
}

#[test]
fn all_mistakes_are_shown_at_once() {
    let bench = Bench::new();
    bench.edit("steps = 6\nsequence_length = 32", "steps = 0\nseq_len = 32");
    let texts = [
        "`training.steps` must be at least 1",
        "unknown key `seq_len`",
        "--set #1:1:25",
        "3 problems",
    ];
    refused(&bench, &["train", "r.toml", "--set", "optimizer.learning_rate=-1"], &texts);
}

#[test]
fn a_recipe_that_is_no_readable_text_file_is_refused() {
    let bench = Bench::new();
    fs::write(bench.path("garbage.toml"), [0x41, 0x0a, 0x42, 0xff, 0xfe, 0x00]).unwrap();
    refused(&bench, &["train", "garbage.toml"], &["byte 0xff at offset 3 (line 2) is not UTF-8"]);
    refused(&bench, &["train", "."], &["is a directory"]);
    refused(&bench, &["train", "R.toml"], &["no such file", "did you mean r.toml?"]);
    refused(&bench, &["train", "/dev/zero"], &["is not a regular file"]);
    let status =
        std::process::Command::new("mkfifo").arg(bench.path("pipe.toml")).status().unwrap();
    assert!(status.success());
    refused(&bench, &["train", "pipe.toml"], &["is not a regular file"]);
    bench.edit("data.txt", "pipe.toml");
    refused(&bench, &["train", "r.toml"], &["it is not a regular file"]);
}

#[test]
fn a_wrong_option_is_refused_with_the_nearest_one() {
    let bench = Bench::new();
    refused(&bench, &["train", "r.toml", "--device", "4"], &["--devices"]);
    refused(&bench, &["trian", "r.toml"], &["train"]);
    refused(&bench, &["train"], &["<RECIPE>"]);
    refused(
        &bench,
        &["train", "r.toml", "--devices", "two"],
        &["invalid value 'two' for '--devices <N>'"],
    );
    refused(&bench, &["train", "r.toml", "--set", "steps"], &["KEY=VALUE"]);
    refused(&bench, &["train", "r.toml", "--set", "training.step=3"], &["did you mean `steps`?"]);
}

#[test]
fn with_json_a_refusal_is_also_an_end_event() {
    let bench = Bench::new();
    bench.edit("steps = 6", "steps = 0");
    let done = bench.run(&["train", "r.toml", "--json"]).expect(2);
    let end: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(
        (&end["event"], &end["exit_code"], &end["final_step"]),
        (&"end".into(), &2.into(), &0.into())
    );
    assert_eq!(end["error"], "`training.steps` must be at least 1, found 0");
}

#[test]
fn bad_data_is_found_before_anything_starts() {
    let bench = Bench::new();
    let before = bench.names();
    let text = fs::read(bench.path("data.txt")).unwrap();

    let mut broken = text.clone();
    broken[1000] = 0xff;
    let line = 1 + text[..1000].iter().filter(|byte| **byte == b'\n').count();
    fs::write(bench.path("data.txt"), &broken).unwrap();
    bench
        .run(&["train", "r.toml"])
        .expect(3)
        .says(&[&format!("data.txt:{line}: byte 0xff at offset 1000")]);

    fs::write(bench.path("data.txt"), &text[..100]).unwrap();
    bench.run(&["train", "r.toml"]).expect(3).says(&["100 tokens", "global_batch"]);

    fs::write(bench.path("data.txt"), "").unwrap();
    // An empty file is no mistake of the recipe: it has no documents.
    bench.run(&["train", "r.toml"]).expect(3);
    assert_eq!(bench.names(), before, "something was created");
}

#[test]
fn compiled_steps_without_a_compiler_are_refused_before_anything_starts() {
    let bench = Bench::new();
    bench.edit("[data]", "[compile]\nenabled = true\n\n[data]");
    let before = bench.names();
    let run = |cxx: Option<&str>| {
        let mut command = bench.command(&["train", "r.toml"]);
        // Whatever else a run would need is not there either: this is what is said.
        command.env("PATH", bench.path("")).env_remove("CXX").env("TITAN_PYTHON", "/nowhere");
        command.envs(cxx.map(|cxx| ("CXX", cxx)));
        Running::start(command).wait().expect(8)
    };
    run(None).says(&[
        "`compile.enabled` = true needs a C++ compiler: neither g++ nor clang++ is in PATH",
        "apt install g++",
        "enabled = false",
    ]);
    run(Some("icpx")).says(&["CXX names `icpx`, which cannot be found", "apt install g++"]);
    assert_eq!(bench.names(), before, "something was created");
    // What stands in [env] is a secret, a wrong one too.
    bench.edit("[data]", "[compile]\nenabled = true\n[env]\nCXX = \"hush-17\"\n\n[data]");
    let done = run(None).says(&["what CXX in [env] names cannot be found"]);
    assert!(!done.stderr.contains("hush-17"), "{}", done.stderr);
    // A dry run starts nothing, so it needs none.
    bench.run(&["train", "r.toml", "--dry-run"]).expect(0);
}

#[test]
fn a_mesh_of_all_axes_is_described() {
    let bench = Bench::new();
    let mesh =
        ["--devices", "8", "--set", "parallelism.tensor=2", "--set", "parallelism.context=2"];
    let run = |more: &[&str]| {
        bench.run(&[&["train", "r.toml", "--dry-run"][..], &mesh, more].concat()).expect(0).stdout
    };
    let text = run(&[]);
    assert!(text.contains("(replicate 1 x shard 2 x context 2 x tensor 2)"), "{text}");
    assert!(text.contains("(1 per data-parallel rank, accumulation 2)"), "{text}");
    let lines = json_lines(&run(&["--json"]));
    let start = lines.iter().find(|line| line["event"] == "run").unwrap();
    assert_eq!(
        start["mesh"],
        serde_json::json!({ "replicate": 1, "shard": 2, "context": 2, "tensor": 2, "expert": 1 })
    );
    assert_eq!((&start["world"], &start["accumulation"]), (&8.into(), &2.into()));
}

#[test]
fn a_dry_run_checks_everything_and_creates_nothing() {
    let bench = Bench::new();
    let before = bench.names();
    let done = bench.run(&["train", "r.toml", "--dry-run"]).expect(0);
    assert!(done.stdout.contains("small: llama3 with"), "{}", done.stdout);
    assert!(done.stdout.contains("4 sequences x 32 tokens"), "{}", done.stdout);
    assert_eq!(bench.names(), before);
    bench.run(&["train", tiny().to_str().unwrap(), "--dry-run"]).expect(0);
}
