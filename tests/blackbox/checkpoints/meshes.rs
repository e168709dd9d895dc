//! A checkpoint is restored onto any mesh.

use super::{Saved, events};

/// The losses of a run whose second half is on another mesh, and those of one that stays on one device.
fn halves(model: &[&str], first: &[&str], second: &[&str]) -> (Vec<f64>, Vec<f64>) {
    let saved = Saved::new();
    let recipe = std::fs::read_to_string(saved.path("r.toml")).unwrap();
    if !model.is_empty() {
        saved.bench.write("r.toml", &recipe.replace("intermediate_size = 64\n", ""));
    }
    let train = |out: &str, steps: &str, mesh: &[&str]| {
        let steps = format!("training.steps={steps}");
        saved.train(out, &[model, &["--set", &steps], mesh].concat()).expect(0)
    };
    train("whole", "8", &["--devices", "1"]);
    train("moved", "4", first);
    let done = train("moved", "8", second);
    assert_eq!(events(&done, "resume")[0]["step"], 4);
    (saved.losses("moved"), saved.losses("whole"))
}

#[track_caller]
fn are_close((left, right): (Vec<f64>, Vec<f64>)) {
    assert_eq!(left.len(), right.len());
    for (step, (left, right)) in left.iter().zip(&right).enumerate() {
        assert!((left - right).abs() < 1e-5, "step {}: {left} and {right}", step + 1);
    }
}

#[test]
fn a_dense_model_goes_on_with_another_loss_on_another_mesh() {
    let four = ["--devices", "4"];
    are_close(halves(&[], &four, &["--devices", "1"]));
    are_close(halves(&[], &four, &["--devices", "2"]));
    let hybrid = ["--devices", "4", "--set", "parallelism.replicate=2"];
    are_close(halves(&[], &four, &hybrid));
    are_close(halves(&[], &hybrid, &["--devices", "2", "--set", "parallelism.tensor=2"]));
    are_close(halves(&[], &["--devices", "2", "--set", "parallelism.tensor=2"], &four));
}

#[test]
fn a_mixture_goes_on_with_another_loss_on_another_mesh() {
    let mixture = [
        "--set",
        "model.family=qwen3-moe",
        "--set",
        "model.num_experts=4",
        "--set",
        "model.experts_per_token=2",
        "--set",
        "model.expert_intermediate_size=32",
    ];
    let spread = ["--devices", "4", "--set", "parallelism.expert=2"];
    are_close(halves(&mixture, &["--devices", "4"], &spread));
    are_close(halves(&mixture, &spread, &["--devices", "1"]));
}
