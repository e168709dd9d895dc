//! The devices of the new recipe.

use titan_recipes::import::{NoteKind, Target};

use crate::support::{imported_for, listed, sound_for, unfit_for, value};

fn target(accelerator: &str, topology: Option<&str>, devices: Option<u64>) -> Target {
    let (accelerator, topology) = (accelerator.to_owned(), topology.map(str::to_owned));
    Target { accelerator, topology, devices, slices: None }
}

fn mesh(recipe: &str) -> [String; 4] {
    [
        ("hardware", "devices"),
        ("parallelism", "shard"),
        ("parallelism", "expert"),
        ("parallelism", "tensor"),
    ]
    .map(|(table, key)| value(recipe, table, key))
}

#[test]
fn without_a_target_there_are_as_many_devices_as_torchtitan_would_start() {
    let cases: &[(&str, [&str; 4])] = &[
        ("", ["8", "\"auto\"", "", ""]),
        ("data_parallel_shard_degree = -1", ["8", "\"auto\"", "", ""]),
        ("data_parallel_shard_degree = 4", ["4", "4", "", ""]),
        ("data_parallel_shard_degree = 1", ["1", "1", "", ""]),
        ("data_parallel_shard_degree = 4\ntensor_parallel_degree = 8", ["32", "4", "", "8"]),
        ("tensor_parallel_degree = 3", ["9", "\"auto\"", "", "3"]),
        ("tensor_parallel_degree = 16", ["16", "\"auto\"", "", "16"]),
        // Without the pipeline its devices are not needed.
        ("data_parallel_shard_degree = 4\npipeline_parallel_degree = 2", ["4", "4", "", ""]),
        // A model without experts has no use for an expert degree.
        ("expert_parallel_degree = 16", ["8", "\"auto\"", "", ""]),
    ];
    for (lines, expected) in cases {
        let imported = unfit_for(&format!("[parallelism]\n{lines}\n"), None);
        assert_eq!(mesh(&imported.recipe), *expected, "{lines}");
    }
}

#[test]
fn experts_are_spread_over_all_devices_of_a_replica() {
    let cases: &[(&str, [&str; 4])] = &[
        ("expert_parallel_degree = 4", ["8", "\"auto\"", "4", ""]),
        ("expert_parallel_degree = 16", ["16", "\"auto\"", "16", ""]),
        ("expert_parallel_degree = 6\ntensor_parallel_degree = 4", ["12", "\"auto\"", "6", "4"]),
        (
            "expert_parallel_degree = 8\ndata_parallel_replicate_degree = 2",
            ["16", "\"auto\"", "8", ""],
        ),
    ];
    for (lines, expected) in cases {
        let text = format!(
            "model = {{ name = 'qwen3', flavor = 'debugmodel_moe' }}\n[parallelism]\n{lines}\n"
        );
        assert_eq!(mesh(&unfit_for(&text, None).recipe), *expected, "{lines}");
    }
}

#[test]
fn a_fixed_shard_degree_gives_way_to_the_devices_of_the_target() {
    let text = "[parallelism]\ndata_parallel_shard_degree = 4\ntensor_parallel_degree = 2\n";
    let fits = sound_for(text, Some(&target("cuda", None, Some(8))));
    assert_eq!(mesh(&fits.recipe), ["8", "4", "", "2"]);
    assert_eq!(listed(&fits.notes), "");
    let larger = sound_for(text, Some(&target("cuda", None, Some(16))));
    assert_eq!(mesh(&larger.recipe), ["16", "\"auto\"", "", "2"]);
    assert_eq!(
        listed(&larger.notes),
        "2 changed parallelism.data_parallel_shard_degree: was 4; now it follows from the devices of the target\n"
    );
    let odd = unfit_for(text, Some(&target("cuda", None, Some(7))));
    let note = odd.notes.iter().find(|note| note.key.contains("tensor")).unwrap();
    assert_eq!(note.kind, NoteKind::Changed);
    assert_eq!(note.text, "the degrees need a multiple of 2 devices, the target has 7");
}

#[test]
fn a_tpu_target_has_a_topology_in_place_of_devices() {
    let slices = Some(2);
    let tpu = Target { slices, ..target("tpu7x", Some("4x4x4"), None) };
    let imported = sound_for("[parallelism]\ndata_parallel_shard_degree = 256\n", Some(&tpu));
    let [devices, shard, ..] = mesh(&imported.recipe);
    assert_eq!(value(&imported.recipe, "hardware", "accelerator"), "\"tpu7x\"");
    assert_eq!(value(&imported.recipe, "hardware", "topology"), "\"4x4x4\"");
    assert_eq!(value(&imported.recipe, "hardware", "slices"), "2");
    // A chip of this generation is two devices: 2 x 64 x 2, of which each slice has a replica.
    assert_eq!((&*devices, &*shard), ("", "\"auto\""));
    assert_eq!(value(&imported.recipe, "parallelism", "replicate"), "2");
    let one = Target { slices: None, ..tpu.clone() };
    let one = sound_for("[parallelism]\ndata_parallel_shard_degree = 128\n", Some(&one));
    assert_eq!(mesh(&one.recipe)[1], "128");
    // TorchTitan's default of not compiling is no choice of the user.
    assert_eq!(value(&imported.recipe, "compile", "enabled"), "");
    let chosen = sound_for("[compile]\nenable = false\n", Some(&tpu));
    assert_eq!(value(&chosen.recipe, "compile", "enabled"), "false");
}

#[test]
fn a_tpu_target_needs_its_topology() {
    let report = imported_for("[model]\n", Some(&target("v6e", None, None)));
    let text = report.map(|imported| imported.recipe).unwrap_err().render(false);
    assert!(text.contains("a TPU target needs the topology of its slice"), "{text}");
}

#[test]
fn a_target_that_does_not_exist_is_refused() {
    for (accelerator, topology, said) in [
        ("tpu9", Some("4x4x4"), "has no choice \"tpu9\""),
        ("tpu7x", Some("16x8x8"), "nearest: 8x8x16"),
        ("v6e", Some("big"), "there is no slice of v6e"),
        ("cuda", Some("4x4"), "a topology means nothing on cuda"),
    ] {
        let report = imported_for("[model]\n", Some(&target(accelerator, topology, None)));
        let text = report.map(|imported| imported.recipe).unwrap_err().render(false);
        assert!(text.contains(said), "{text}");
    }
}

#[test]
fn a_cpu_target_takes_the_devices_it_is_given() {
    let imported = sound_for("[model]\n", Some(&target("cpu", None, Some(2))));
    assert_eq!(value(&imported.recipe, "hardware", "accelerator"), "\"cpu\"");
    assert_eq!(mesh(&imported.recipe), ["2", "\"auto\"", "", ""]);
}

#[test]
fn a_global_batch_that_the_devices_cannot_share_is_pointed_out() {
    let text = "[training]\nlocal_batch_size = 4\nglobal_batch_size = 48\n";
    assert_eq!(
        listed(&unfit_for(text, None).notes),
        "3 changed training.global_batch_size: must be a multiple of local_batch x data-parallel devices = 32; change one of them\n"
    );
    let four = sound_for(text, Some(&target("cuda", None, Some(4))));
    assert_eq!(listed(&four.notes), "");
}
