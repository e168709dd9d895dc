use serde_json::json;
use titan_recipes::{Disk, Overrides, Purpose, Source, load_text};

use super::*;

/// The engine's configuration of a small mixture of experts with more settings, as JSON.
fn engine(tables: &str) -> serde_json::Value {
    let text = format!(
        "version = 1\n[model]\nfamily = \"qwen3-moe\"\nsize = \"tiny\"\n[hardware]\naccelerator = \"cpu\"\n\
         {tables}"
    );
    let source = Source { name: "r.toml".into(), text, base: "/".into() };
    let loaded = load_text(source, &Overrides::default(), &Disk::default(), Purpose::Plan).unwrap();
    let spec = RunSpec::new(&loaded.recipe, loaded.layout, DataSpec::default(), 1).unwrap();
    assert_eq!(spec.loader_config().plan.check().map_err(|error| error.to_string()), Ok(()));
    serde_json::to_value(spec.engine).unwrap()
}

const REST: &str = "[training]\nsteps = 1\nsequence_length = 64\nlocal_batch = 2\n\
    [data]\nsources = [{ path = \"data.txt\" }]\n";

#[test]
fn defaults_reach_the_engine() {
    let engine = engine(&format!("devices = 2\n{REST}[optimizer]\nlearning_rate = 1e-3\n"));
    assert_eq!(engine["model"]["attention"], "fused");
    assert_eq!(
        engine["model"]["experts"],
        json!({ "num_experts": 8, "experts_per_token": 2,
            "intermediate_size": engine["model"]["experts"]["intermediate_size"],
            "load_balancing": "auxiliary-loss", "load_balancing_coefficient": 0.001 })
    );
    assert_eq!(
        engine["mesh"],
        json!({ "replicate": 1, "shard": 2, "context": 1, "tensor": 1, "expert": 1 })
    );
    for (key, value) in [
        ("expert_capacity_factor", json!(null)),
        ("loss_mask", json!(false)),
        ("z_loss", json!(0.0)),
        ("document_end", json!(null)),
        ("compile", json!(false)),
    ] {
        assert_eq!(engine.get(key), Some(&value), "{key}");
    }
}

#[test]
fn every_setting_reaches_the_engine() {
    let settings = REST
        .replace(
            "[training]",
            "[training]\nattention = \"plain\"\nz_loss = 1e-4\ndocument_mask = true",
        )
        .replace("[data]", "[data]\ndocument_end = 10");
    let engine = engine(&format!(
        "devices = 16\n[parallelism]\nreplicate = 2\nexpert = 4\ncontext = 2\ntensor = 2\n\
         expert_capacity_factor = 1.5\n[compile]\nenabled = true\n[optimizer]\nname = \"muon\"\n\
         learning_rate = 0.02\nmomentum = 0.9\n{settings}"
    ));
    assert_eq!(engine["model"]["attention"], "plain");
    assert_eq!(
        engine["mesh"],
        json!({ "replicate": 2, "shard": 2, "context": 2, "tensor": 2, "expert": 4 })
    );
    for (key, value) in [
        ("expert_capacity_factor", json!(1.5)),
        ("z_loss", json!(1e-4)),
        ("document_end", json!(10)),
        ("compile", json!(true)),
        (
            "optimizer",
            json!({ "name": "muon", "momentum": 0.9, "betas": [0.9, 0.95], "epsilon": 1e-8,
                "weight_decay": 0.1 }),
        ),
    ] {
        assert_eq!(engine[key], value, "{key}");
    }
}

#[test]
fn an_end_of_documents_is_nothing_to_the_engine_without_a_mask() {
    let rest = REST.replace("[data]", "[data]\ndocument_end = 10");
    let engine = engine(&format!("{rest}[optimizer]\nlearning_rate = 1e-3\n"));
    assert_eq!(engine["document_end"], json!(null));
}

#[test]
fn a_capacity_that_has_room_for_all_is_dropless() {
    let factor = |expert: u64, factor: &str| {
        let parallelism =
            format!("[parallelism]\nexpert = {expert}\nexpert_capacity_factor = {factor}\n");
        let engine =
            engine(&format!("devices = 4\n{parallelism}{REST}[optimizer]\nlearning_rate = 1e-3\n"));
        engine["expert_capacity_factor"].clone()
    };
    assert_eq!(factor(4, "2.0"), json!(2.0));
    for (expert, written) in [(4, "\"dropless\""), (4, "4.0"), (4, "64.0"), (1, "2.0")] {
        assert_eq!(factor(expert, written), json!(null), "{expert} {written}");
    }
}

#[test]
fn ranks_of_one_sequence_share_the_data_of_their_data_parallel_rank() {
    let text = "version = 1\n[model]\nfamily = \"llama3\"\nsize = \"tiny\"\n[hardware]\naccelerator = \"cpu\"\n\
        [parallelism]\nreplicate = 2\nshard = 2\ncontext = 2\ntensor = 2\n[training]\nsteps = 1\n\
        sequence_length = 64\nlocal_batch = 3\nglobal_batch = 24\n[optimizer]\nlearning_rate = 1e-3\n\
        [data]\nsources = [{ path = \"data.txt\" }]\n";
    let source = Source { name: "r.toml".into(), text: text.into(), base: "/".into() };
    let loaded = load_text(source, &Overrides::default(), &Disk::default(), Purpose::Plan).unwrap();
    let spec = RunSpec::new(&loaded.recipe, loaded.layout, DataSpec::default(), 1).unwrap();
    let plan = spec.loader_config().plan;
    assert_eq!((spec.layout.world, plan.data_parallel_degree, plan.accumulation), (16, 4, 2));
    // Every sequence of a step is read by context x tensor ranks.
    let mut readers = vec![0; plan.global_batch as usize];
    for rank in 0..spec.layout.world {
        for micro in 0..plan.accumulation {
            for row in 0..plan.local_batch {
                readers[plan.place(0, micro, spec.layout.data_rank(rank), row) as usize] += 1;
            }
        }
    }
    assert_eq!(readers, [4; 24]);
}
