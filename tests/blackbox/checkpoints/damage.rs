//! Damaged checkpoints are never loaded.

use std::fs;

use super::{Saved, events};

#[test]
fn a_damaged_checkpoint_is_loaded_instead_of_the_one_before() {
    let saved = Saved::new();
    saved.train("out", &[]).expect(0);
    let losses = saved.losses("out");
    for file in ["manifest.json", "rank-00000.safetensors", "rank-00001.safetensors"] {
        for how in ["flip", "cut", "remove"] {
            let path = saved.checkpoint("out", 6).join(file);
            let content = fs::read(&path).unwrap();
            match how {
                "flip" => {
                    let mut content = content.clone();
                    let last = content.len() - 10;
                    content[last] ^= 4;
                    fs::write(&path, content).unwrap();
                }
                "cut" => fs::write(&path, &content[..content.len() / 2]).unwrap(),
                _ => fs::remove_file(&path).unwrap(),
            }
            let done = saved.bench.run(&["checkpoint", "verify", "out"]).expect(5);
            assert!(done.stdout.contains(file), "{}", done.stdout);
            let dry = ["--dry-run", "--set", "training.steps=9"];
            let done = saved.train("out", &dry).expect(0);
            let resume = &events(&done, "resume")[0];
            assert_eq!(resume["step"], 4, "{file}, {how}");
            assert_eq!(resume["skipped"][0]["step"], 6);
            done.says(&["the checkpoint of step 6 cannot be used", file, "going on after step 4"]);
            fs::write(&path, content).unwrap();
        }
    }
    // A newest one that is damaged is in nobody's way.
    fs::write(saved.checkpoint("out", 6).join("manifest.json"), "{}").unwrap();
    let done = saved.train("out", &["--set", "training.steps=7"]).expect(0);
    assert_eq!(events(&done, "resume")[0]["step"], 4);
    assert_eq!(saved.losses("out")[..6], losses);
}

#[test]
fn a_run_that_needs_a_checkpoint_begins_without_one() {
    let saved = Saved::new();
    saved.train("new", &["--resume", "required"]).expect(5).says(&["no usable checkpoint"]);
    saved.train("new", &["--resume", "4"]).expect(5);
    assert!(!saved.path("new").exists());
    saved.train("out", &[]).expect(0);
    for step in [2, 4, 6] {
        fs::write(saved.checkpoint("out", step).join("manifest.json"), "{}").unwrap();
    }
    let more = ["--resume", "required", "--set", "training.steps=8"];
    saved.train("out", &more).expect(5).says(&["step 6:", "step 4:", "step 2:"]);
    saved.train("out", &["--resume", "4"]).expect(5);
    saved.train("out", &["--resume", "never"]).expect(2).says(&["not empty"]);
    saved.train("out", &["--resume", "soon"]).expect(2).says(&["auto, required, never"]);
}

#[test]
fn a_step_of_the_past_is_not_found_again() {
    let saved = Saved::new();
    saved.train("out", &[]).expect(0);
    let losses = saved.losses("out");
    let done = saved.train("out", &["--resume", "2"]).expect(0);
    assert_eq!(events(&done, "resume")[0]["step"], 2);
    assert_eq!(saved.losses("out"), losses);
    done.says(&["a later checkpoint is set aside", "step-00000004.superseded-2"]);
    assert!(saved.path("out/checkpoints/step-00000006.superseded-2/manifest.json").exists());
    for step in [4, 6] {
        fs::remove_dir_all(saved.path(&format!("out/checkpoints/step-{step:08}.superseded-2")))
            .unwrap();
    }
    assert_eq!(saved.steps("out"), [2, 4, 6]);
}
