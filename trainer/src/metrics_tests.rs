use super::*;

fn meter(world: u64, peak: Option<f64>) -> Meter {
    let layout = Layout {
        world,
        replicate: 1,
        context: 1,
        tensor: 1,
        expert: 1,
        shard: world,
        local_batch: 2,
        accumulation: 1,
        global_batch: 2 * world,
        sequence_length: 10,
    };
    Meter { layout, flops_per_token: 1000, peak_flops_per_device: peak, attempt: 1 }
}

fn report(step: u64, step_seconds: f64, data_seconds: f64) -> RankStep {
    RankStep {
        step,
        loss: 2.5,
        grad_norm: 1.0,
        lr: 0.1,
        step_seconds,
        data_seconds,
        targets: None,
        experts: None,
    }
}

#[test]
fn a_step_is_recorded_once_all_ranks_have_reported_it_and_times_are_the_slowest_ranks() {
    let mut assembler = Assembler::new(meter(3, Some(1e6)));
    assert_eq!(assembler.add(report(1, 0.5, 0.01)), None);
    assert_eq!(assembler.add(report(2, 0.4, 0.0)), None);
    assert_eq!(assembler.add(report(1, 1.0, 0.0)), None);
    let record = assembler.add(report(1, 0.25, 0.02)).unwrap();
    assert_eq!((record.step, record.tokens), (1, 60));
    assert_eq!((record.step_seconds, record.data_seconds), (1.0, 0.02));
    assert_eq!((record.tokens_per_second, record.tokens_per_second_per_device), (60.0, 20.0));
    // 20 tokens/s per device x 1000 FLOP / 1e6 FLOP/s
    assert_eq!(record.mfu, Some(0.02));
}

#[test]
fn without_a_peak_no_utilisation_is_claimed_and_above_the_peak_none_is_recorded() {
    let mut unknown = Assembler::new(meter(1, None));
    assert_eq!(unknown.add(report(1, 1.0, 0.0)).unwrap().mfu, None);
    let mut wrong = Assembler::new(meter(1, Some(1.0)));
    assert_eq!(wrong.add(report(1, 1.0, 0.0)).unwrap().mfu, None);
    assert!(wrong.meter().mfu(20.0).is_err());
}

#[test]
fn a_loss_that_json_cannot_hold_is_null() {
    let mut assembler = Assembler::new(meter(1, None));
    let record = assembler.add(RankStep { loss: f64::NAN, ..report(1, 1.0, 0.0) }).unwrap();
    let line = serde_json::to_value(&record).unwrap();
    assert!(line["loss"].is_null() && line["mfu"].is_null(), "{line}");
}

#[test]
fn the_load_of_experts_is_that_of_the_rank_that_sent_it_and_dense_models_have_no_such_key() {
    let load = ExpertLoad { load: vec![1.25, 0.75], max_load: 2.0, min_load: 0.5, overflow: 7 };
    let mut assembler = Assembler::new(meter(2, None));
    assembler.add(report(1, 1.0, 0.0));
    let of_rank_0 = RankStep { experts: Some(load.clone()), ..report(1, 1.0, 0.0) };
    let record = assembler.add(of_rank_0).unwrap();
    assert_eq!((record.experts.as_ref(), record.overflow()), (Some(&load), 7));
    let line = serde_json::to_value(&record).unwrap();
    let expected = serde_json::json!(
        { "load": [1.25, 0.75], "max_load": 2.0, "min_load": 0.5, "overflow": 7 }
    );
    assert_eq!(line["experts"], expected);

    let mut dense = Assembler::new(meter(1, None));
    let record = dense.add(report(1, 1.0, 0.0)).unwrap();
    assert_eq!(record.overflow(), 0);
    assert_eq!(serde_json::to_value(&record).unwrap().get("experts"), None);
}
