//! Parallel degrees that do not multiply to the world size.

use crate::recipes::json;
use crate::support::Bench;

/// `recipe check` of the small recipe with other devices and degrees; `train` refuses it just so.
#[track_caller]
fn refused(bench: &Bench, devices: &str, parallelism: &str, says: &[&str]) {
    let to = format!("devices = {devices}\n[parallelism]\n{parallelism}");
    bench.edit("devices = 2", &to);
    let before = bench.names();
    for command in [&["recipe", "check", "r.toml"][..], &["train", "r.toml"], &["plan", "r.toml"]] {
        let done = bench.run(command).expect(2);
        done.says(&["r.toml:1", "^"]).says(says);
    }
    assert_eq!(bench.names(), before);
}

#[test]
fn parallel_degrees_that_do_not_multiply_to_the_world_size() {
    // pytorch/torchtitan#27, #518, #1184
    let bench = Bench::new();
    let message = "cannot work out the shard degree: world 6 is not a multiple of replicate 4";
    refused(&bench, "6", "replicate = 4", &[message, "r.toml:17:13"]);
    refused(
        &bench,
        "6",
        "replicate = 4\nshard = \"auto\"",
        &[message, "nearest values of replicate: 2, 3, 6"],
    );
    let auto = "to have it worked out, write shard = \"auto\"";
    refused(&bench, "2", "shard = 0", &["`parallelism.shard` must be at least 1, found 0"]);
    refused(&bench, "2", "shard = -1", &["at least 1, found -1", auto]);
    refused(&bench, "2", "shard = -2", &["at least 1, found -2", auto]);
    // At most one axis is worked out.
    let word = "`parallelism.replicate` must be an integer or \"slices\", found a string";
    refused(&bench, "2", "replicate = \"auto\"\nshard = \"auto\"", &[word, "r.toml:17:13"]);
    refused(
        &bench,
        "2",
        "replicate = -1\nshard = \"auto\"",
        &["`parallelism.replicate` must be at least 1, found -1"],
    );
    refused(&bench, "2", "replicate = -1\nshard = -1", &["r.toml:17:13", "r.toml:18:9"]);
    let product = "replicate 2 x shard 2 = 4 is not the world of 8 devices";
    refused(&bench, "8", "replicate = 2\nshard = 2", &[product, "shard = 4", "devices = 4"]);
}

#[test]
fn what_a_message_about_degrees_suggests_is_right() {
    let bench = Bench::new();
    for (devices, parallelism, mesh) in [
        ("6", "replicate = 2", [2, 3]),
        ("6", "replicate = 3", [3, 2]),
        ("8", "replicate = 4", [4, 2]),
        ("8", "replicate = 2\nshard = 4", [2, 4]),
        ("4", "replicate = 2\nshard = 2", [2, 2]),
        ("\"auto\"", "replicate = 2\nshard = 2", [2, 2]),
    ] {
        bench.edit("devices = 2", &format!("devices = {devices}\n[parallelism]\n{parallelism}"));
        let done = bench.run(&["plan", "r.toml", "--json", "--set", "training.global_batch=auto"]);
        let plan = json(&done.expect(0));
        assert_eq!(
            (&plan["mesh"]["replicate"], &plan["mesh"]["shard"]),
            (&mesh[0].into(), &mesh[1].into())
        );
        assert_eq!(plan["world"], mesh[0] * mesh[1]);
    }
}
