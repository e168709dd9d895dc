//! What a cluster asks of a recipe: topologies, and names from which others are derived.

use expect_test::expect;
use titan_recipes::{Purpose, workload};

use crate::bases::{EXPERTS, add, clean, edit, mended, told};
use crate::support::{SOUND, edited, load_for, said, with};

fn topology(accelerator: &str, topology: &str) -> String {
    edit(EXPERTS, &[("v5e", accelerator), ("\"4x4\"", topology)])
}

#[test]
fn a_topology_that_is_no_shape() {
    told(
        &topology("v5e", "\"16\""),
        expect![[r#"
            error: `hardware.topology` = "16" is not the shape of a slice
              --> r.toml:10:12
               |
            10 | topology = "16"
               |            ^^^^ chips along two dimensions, as in "4x8"
               |
               = help: slices of v5e are, for example: "2x4", "4x4", "4x8", "8x8", "8x16", "16x16"
        "#]],
    );
    told(
        &topology("tpu7x", "\"8X8X16\""),
        expect![[r#"
            error: `hardware.topology` = "8X8X16" is not the shape of a slice
              --> r.toml:10:12
               |
            10 | topology = "8X8X16"
               |            ^^^^^^^^ chips along three dimensions, as in "4x4x8"
               |
               = help: write topology = "8x8x16"
        "#]],
    );
    told(
        &topology("v5p", "\"\""),
        expect![[r#"
            error: `hardware.topology` = "" is not the shape of a slice
              --> r.toml:10:12
               |
            10 | topology = ""
               |            ^^ chips along three dimensions, as in "4x4x8"
               |
               = help: slices of v5p are, for example: "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x4x12"
        "#]],
    );
    told(
        &topology("v5e", "16"),
        expect![[r#"
        error: `hardware.topology` must be a string, found an integer
          --> r.toml:10:12
           |
        10 | topology = 16
           |            ^^ must be a string
           |
           = help: put it in quotes: topology = "16"
    "#]],
    );
    told(
        &topology("v5e", "[4, 4]"),
        expect![[r#"
        error: `hardware.topology` must be a string, found an array
          --> r.toml:10:12
           |
        10 | topology = [4, 4]
           |            ^^^^^^ must be a string
           |
           = help: put it in quotes: topology = "..."
    "#]],
    );
}

#[test]
fn a_topology_in_the_wrong_order() {
    let text = topology("tpu7x", "\"8x4x4\"");
    told(
        &text,
        expect![[r#"
        error: there is no slice of tpu7x with topology 8x4x4
          --> r.toml:10:12
           |
        10 | topology = "8x4x4"
           |            ^^^^^^^ no such slice
           |
           = help: nearest: "4x4x8"
    "#]],
    );
    mended(&text, &["hardware.topology=4x4x8"]);
    // v4 has both orders.
    clean(&topology("v4", "\"8x4x4\""));
    let text = topology("v6e", "\"8x4\"");
    told(
        &text,
        expect![[r#"
        error: there is no slice of v6e with topology 8x4
          --> r.toml:10:12
           |
        10 | topology = "8x4"
           |            ^^^^^ no such slice
           |
           = help: nearest: "4x8"
    "#]],
    );
    mended(&text, &["hardware.topology=4x8"]);
}

#[test]
fn a_topology_with_the_wrong_number_of_dimensions() {
    let text = topology("v5e", "\"4x4x4\"");
    told(
        &text,
        expect![[r#"
            error: there is no slice of v5e with topology 4x4x4
              --> r.toml:10:12
               |
            10 | topology = "4x4x4"
               |            ^^^^^^^ v5e has 2 dimensions
               |
               = help: nearest: "8x8", "8x16"
        "#]],
    );
    mended(&text, &["hardware.topology=8x8"]);
    let text = topology("v5p", "\"8x8\"");
    told(
        &text,
        expect![[r#"
            error: there is no slice of v5p with topology 8x8
              --> r.toml:10:12
               |
            10 | topology = "8x8"
               |            ^^^^^ v5p has 3 dimensions
               |
               = help: nearest: "4x4x4", "4x4x8"
        "#]],
    );
    mended(&text, &["hardware.topology=4x4x4"]);
}

#[test]
fn a_topology_that_does_not_exist() {
    let text = topology("v6e", "\"3x5\"");
    told(
        &text,
        expect![[r#"
        error: there is no slice of v6e with topology 3x5
          --> r.toml:10:12
           |
        10 | topology = "3x5"
           |            ^^^^^ no such slice
           |
           = help: nearest: "2x4", "4x4"
    "#]],
    );
    mended(&text, &["hardware.topology=2x4", "hardware.topology=4x4"]);
    told(
        &topology("tpu7x", "\"32x32x32\""),
        expect![[r#"
        error: there is no slice of tpu7x with topology 32x32x32
          --> r.toml:10:12
           |
        10 | topology = "32x32x32"
           |            ^^^^^^^^^^ no such slice
           |
           = help: nearest: "16x24x24"
    "#]],
    );
}

#[test]
fn a_topology_where_there_is_none() {
    told(
        &edited(&[("devices = 2", "topology = \"2x2\"")]),
        expect![[r#"
        error: `hardware.topology` means nothing on cpu
          --> r.toml:15:12
           |
        15 | topology = "2x2"
           |            ^^^^^ for TPUs only
           |
           = help: say how many devices there are: devices = 4
    "#]],
    );
    told(
        &topology("cuda", "\"2x2\""),
        expect![[r#"
        error: `hardware.topology` means nothing on cuda
          --> r.toml:10:12
           |
        10 | topology = "2x2"
           |            ^^^^^ for TPUs only
           |
           = help: say how many devices there are: devices = 4
    "#]],
    );
    told(
        &topology("tpu-emulated", "\"2x2\""),
        expect![[r#"
        error: `hardware.topology` means nothing on tpu-emulated
          --> r.toml:10:12
           |
        10 | topology = "2x2"
           |            ^^^^^ for TPUs only
           |
           = help: say how many devices there are: devices = 4
    "#]],
    );
    // An accelerator that is not known has unknown topologies.
    told(
        &topology("v9", "\"2x2\""),
        expect![[r#"
        error: `hardware.accelerator` has no choice "v9"
         --> r.toml:9:15
          |
        9 | accelerator = "v9"
          |               ^^^^ unknown choice
          |
          = help: allowed: "cpu", "tpu-emulated", "cuda", "v4", "v5e", "v5p", "v6e", "tpu7x"
    "#]],
    );
}

#[test]
fn a_tpu_without_its_topology() {
    let text = edit(EXPERTS, &[("topology = \"4x4\"\n", "")]);
    told(
        &text,
        expect![[r#"
        error: [hardware] has no `topology`
         --> r.toml:8:2
          |
        8 | [hardware]
          |  ^^^^^^^^ incomplete
          |
          = help: add to [hardware], for example: topology = "4x4"
    "#]],
    );
    mended(&text, &["hardware.topology=4x4"]);
    let text = edit(&text, &[("v5e\"", "tpu7x\"\ndevices = 32")]);
    told(
        &text,
        expect![[r#"
        error: [hardware] has no `topology`
         --> r.toml:8:2
          |
        8 | [hardware]
          |  ^^^^^^^^ incomplete
          |
          = help: add to [hardware], for example: topology = "2x2x4"
    "#]],
    );
}

#[test]
fn names_of_chips_are_exact() {
    // pytorch/torchtitan#4779, #4800: an unknown chip must not get another one's peak.
    let names = [
        "TPU v5 lite",
        "TPU v5e",
        "TPU v5",
        "TPU v5p",
        "TPU v6 lite",
        "TPU v6e",
        "TPU7x",
        "TPU v9",
        "v5",
        "v5litepod",
        "V5E",
        "v7x",
        "ironwood",
        "trillium",
        "H100",
        "H20",
        "",
    ];
    let report = |name: &&str| {
        let result = load_for(Purpose::Check, &topology(name, "\"2x2\""), &[]);
        let report = result.expect_err(name);
        format!("{name:12} {}", report.diagnostics[0].help.clone().unwrap_or_default())
    };
    let all: Vec<String> = names.iter().map(report).collect();
    expect![[r#"
        TPU v5 lite  did you mean "v5e"? allowed: "cpu", "tpu-emulated", "cuda", "v4", "v5e", "v5p", "v6e", "tpu7x"
        TPU v5e      did you mean "v5e"? allowed: "cpu", "tpu-emulated", "cuda", "v4", "v5e", "v5p", "v6e", "tpu7x"
        TPU v5       did you mean "v5p"? allowed: "cpu", "tpu-emulated", "cuda", "v4", "v5e", "v5p", "v6e", "tpu7x"
        TPU v5p      did you mean "v5p"? allowed: "cpu", "tpu-emulated", "cuda", "v4", "v5e", "v5p", "v6e", "tpu7x"
        TPU v6 lite  did you mean "v6e"? allowed: "cpu", "tpu-emulated", "cuda", "v4", "v5e", "v5p", "v6e", "tpu7x"
        TPU v6e      did you mean "v6e"? allowed: "cpu", "tpu-emulated", "cuda", "v4", "v5e", "v5p", "v6e", "tpu7x"
        TPU7x        did you mean "tpu7x"? allowed: "cpu", "tpu-emulated", "cuda", "v4", "v5e", "v5p", "v6e", "tpu7x"
        TPU v9       allowed: "cpu", "tpu-emulated", "cuda", "v4", "v5e", "v5p", "v6e", "tpu7x"
        v5           did you mean "v5p"? allowed: "cpu", "tpu-emulated", "cuda", "v4", "v5e", "v5p", "v6e", "tpu7x"
        v5litepod    did you mean "v5e"? allowed: "cpu", "tpu-emulated", "cuda", "v4", "v5e", "v5p", "v6e", "tpu7x"
        V5E          did you mean "v5e"? allowed: "cpu", "tpu-emulated", "cuda", "v4", "v5e", "v5p", "v6e", "tpu7x"
        v7x          did you mean "tpu7x"? allowed: "cpu", "tpu-emulated", "cuda", "v4", "v5e", "v5p", "v6e", "tpu7x"
        ironwood     did you mean "tpu7x"? allowed: "cpu", "tpu-emulated", "cuda", "v4", "v5e", "v5p", "v6e", "tpu7x"
        trillium     did you mean "v6e"? allowed: "cpu", "tpu-emulated", "cuda", "v4", "v5e", "v5p", "v6e", "tpu7x"
        H100         did you mean "cuda"? allowed: "cpu", "tpu-emulated", "cuda", "v4", "v5e", "v5p", "v6e", "tpu7x"
        H20          allowed: "cpu", "tpu-emulated", "cuda", "v4", "v5e", "v5p", "v6e", "tpu7x"
                     allowed: "cpu", "tpu-emulated", "cuda", "v4", "v5e", "v5p", "v6e", "tpu7x"
    "#]].assert_eq(&format!("{}\n", all.join("\n")));
}

#[test]
fn a_peak_of_ones_own() {
    told(
        &with("hardware", "peak_tflops = 0"),
        expect![[r#"
        error: `hardware.peak_tflops` must be greater than 0, found 0
          --> r.toml:14:15
           |
        14 | peak_tflops = 0
           |               ^ must be greater than 0
    "#]],
    );
    let own = clean(&with("hardware", "peak_tflops = 1.5")).recipe.hardware.peak_flops();
    assert_eq!(own, Some((1.5e12, "hardware.peak_tflops")));
    assert_eq!(clean(SOUND).recipe.hardware.peak_flops(), None);
}

fn named(name: &str, slices: u64) -> String {
    let text = edit(
        EXPERTS,
        &[
            ("name = \"experts\"", &format!("name = \"{name}\"")),
            ("\"4x4\"", &format!("\"4x4\"\nslices = {slices}")),
        ],
    );
    add(&add(&text, "parallelism", "replicate = \"slices\""), "launch", "on = \"gke\"")
}

#[test]
fn workload_name_refused_late_by_the_cluster() {
    // AI-Hypercomputer/maxtext#214; kubernetes-sigs/jobset#409; kubeflow/trainer#1101
    let long = |n: usize| "a".repeat(n);
    let names = [
        long(1),
        long(39),
        long(40),
        long(41),
        long(63),
        long(64),
        "My_Run".into(),
        "-a".into(),
        "a-".into(),
        "ünï".into(),
        "1st".into(),
        "a.b".into(),
        "run".into(),
        String::new(),
    ];
    let mut refused = Vec::new();
    for slices in [1, 100] {
        let longest = workload::longest_run_name(slices, 4);
        for name in &names {
            let result = load_for(Purpose::Check, &named(name, slices), &[]);
            let is_good = workload::is_label(name) && name.len() <= longest;
            assert_eq!(result.is_ok(), is_good, "{name} {slices}: {}", said(&result));
            let Err(report) = result else {
                let pod = workload::longest_pod_name(name, slices, 4);
                assert!(workload::is_label(&pod), "{pod}");
                continue;
            };
            let help = report.diagnostics[0].help.clone().unwrap();
            refused.push(format!("{slices:>3} {name}: {}", report.diagnostics[0].message));
            let suggested = help.split('"').nth(1).unwrap();
            // What can name a folder is suggested first; then comes what can name a workload.
            let mut again = load_for(Purpose::Check, &named(suggested, slices), &[]);
            if let Err(report) = &again {
                let help = report.diagnostics[0].help.clone().unwrap();
                let suggested = help.split('"').nth(1).unwrap();
                again = load_for(Purpose::Check, &named(suggested, slices), &[]);
            }
            assert_eq!(said(&again), "", "{name} -> {suggested}");
        }
    }
    expect![[r#"
          1 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: `name` = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" has 63 characters; a run on 1 slice may have 42, because its pods have longer names
          1 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: `name` = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" cannot name a run folder
          1 My_Run: `name` = "My_Run" cannot name a workload on a cluster
          1 -a: `name` = "-a" cannot name a run folder
          1 a-: `name` = "a-" cannot name a workload on a cluster
          1 ünï: `name` = "ünï" cannot name a run folder
          1 1st: `name` = "1st" cannot name a workload on a cluster
          1 a.b: `name` = "a.b" cannot name a workload on a cluster
          1 : `name` = "" cannot name a run folder
        100 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: `name` = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" has 63 characters; a run on 100 slices may have 41, because its pods have longer names
        100 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: `name` = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" cannot name a run folder
        100 My_Run: `name` = "My_Run" cannot name a workload on a cluster
        100 -a: `name` = "-a" cannot name a run folder
        100 a-: `name` = "a-" cannot name a workload on a cluster
        100 ünï: `name` = "ünï" cannot name a run folder
        100 1st: `name` = "1st" cannot name a workload on a cluster
        100 a.b: `name` = "a.b" cannot name a workload on a cluster
        100 : `name` = "" cannot name a run folder
    "#]].assert_eq(&format!("{}\n", refused.join("\n")));
}

#[test]
fn a_name_that_is_too_long_for_its_pods() {
    told(
        &named(&"n".repeat(60), 100),
        expect![[r#"
            error: `name` = "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn" has 60 characters; a run on 100 slices may have 41, because its pods have longer names
              --> r.toml:2:8
               |
             2 | name = "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
               |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ up to 41 lower-case letters, digits and `-`, the first a letter, the last no `-`
            ...
            28 | on = "gke"
               |      ----- the cluster
               |
               = help: for example: name = "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
        "#]],
    );
    told(
        &named("My_Run", 1),
        expect![[r#"
        error: `name` = "My_Run" cannot name a workload on a cluster
          --> r.toml:2:8
           |
         2 | name = "My_Run"
           |        ^^^^^^^^ up to 42 lower-case letters, digits and `-`, the first a letter, the last no `-`
        ...
        28 | on = "gke"
           |      ----- the cluster
           |
           = help: for example: name = "my-run"
    "#]],
    );
    // Without a name, that of the file is used.
    let text = edit(EXPERTS, &[("name = \"experts\"\n", "")]);
    clean(&add(&text, "launch", "on = \"gke\""));
    // Elsewhere a name is a folder.
    clean(&edit(EXPERTS, &[("\"experts\"", "\"My_Run\"")]));
}
