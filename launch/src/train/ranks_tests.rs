use titan_trainer::failure::Failure as Said;

use super::*;

fn at(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn ready() -> RankMessage {
    let (parameters_total, parameters_local, threads) = (1, 1, 1);
    RankMessage::Ready { engine_seconds: 0.1, parameters_total, parameters_local, threads }
}

fn finished(ending: Ending) -> RankMessage {
    RankMessage::Finished { ending, step: 7 }
}

fn failed(class: FailureClass) -> RankMessage {
    RankMessage::Failed { step: 4, failure: Said::new(class, "it broke") }
}

fn spawned(generation: Generation, rank: u64) -> HostMessage {
    HostMessage::Spawned { generation, rank, pid: 100 + rank as u32 }
}

/// Ranks of generation 3 that run.
fn running(count: usize) -> Ranks {
    let mut ranks = Ranks::new(3, count);
    for rank in 0..count {
        assert_eq!(ranks.on(at(0.1), &Input::Host(&spawned(3, rank as u64))), []);
    }
    ranks
}

fn say(ranks: &mut Ranks, rank: usize, message: &RankMessage) -> Vec<Output> {
    ranks.on(at(1.0), &Input::Said(rank, message))
}

fn exit(ranks: &mut Ranks, rank: usize, code: i32) -> Vec<Output> {
    ranks.on(at(2.0), &Input::Exited(rank, ExitStatus::Code(code)))
}

fn ended(completed: bool) -> Output {
    Output::Tell(Event::Finished { seat: Seat::ONLY, generation: 3, completed })
}

fn cleared() -> Output {
    Output::Tell(Event::Cleared { seat: Seat::ONLY, generation: 3 })
}

fn died(rank: u64, status: ExitStatus) -> Output {
    let failure = Failure { seat: Seat::ONLY, rank: Some(rank), how: How::Died { status } };
    Output::Tell(Event::Failed { generation: 3, failure })
}

#[test]
fn ranks_are_ready_when_all_are_and_finished_when_all_are_gone() {
    for (second, completed) in [(Ending::Completed, true), (Ending::Stopped, false)] {
        let mut ranks = running(2);
        assert_eq!(say(&mut ranks, 0, &ready()), []);
        let all_ready = Event::Ready { seat: Seat::ONLY, generation: 3 };
        assert_eq!(say(&mut ranks, 1, &ready()), [Output::Tell(all_ready)]);
        assert_eq!(say(&mut ranks, 0, &finished(Ending::Completed)), []);
        assert_eq!(exit(&mut ranks, 0, 0), []);
        assert_eq!(say(&mut ranks, 1, &finished(second)), []);
        assert_eq!(exit(&mut ranks, 1, 0), [ended(completed)]);
    }
}

#[test]
fn a_rank_that_lingers_after_its_end_is_killed_and_has_finished_all_the_same() {
    let mut ranks = running(1);
    say(&mut ranks, 0, &finished(Ending::Completed));
    assert_eq!(ranks.deadline(), Some(at(11.0)));
    assert_eq!(ranks.on(at(10.9), &Input::Deadline), []);
    assert_eq!(ranks.on(at(11.0), &Input::Deadline), [Output::Kill]);
    let exited = Input::Exited(0, ExitStatus::Signal(9));
    assert_eq!(ranks.on(at(11.1), &exited), [ended(true)]);
}

#[test]
fn each_failure_is_told_at_once_and_none_of_ranks_that_were_killed() {
    let mut ranks = running(3);
    let killed = ExitStatus::Signal(9);
    assert_eq!(ranks.on(at(1.0), &Input::Exited(1, killed)), [died(1, killed)]);
    let told = say(&mut ranks, 0, &failed(FailureClass::PeerLost));
    let [Output::Tell(Event::Failed { failure, .. })] = &told[..] else { panic!("{told:?}") };
    assert!(matches!(failure.how, How::Reported { step: 4, is_consequence: true, .. }));
    assert_eq!(exit(&mut ranks, 0, 1), [], "it has said so");
    assert_eq!(ranks.on(at(1.2), &Input::Killed), []);
    assert_eq!(ranks.on(at(1.3), &Input::Exited(2, killed)), [cleared()]);
    assert_eq!(ranks.on(at(1.4), &Input::Exited(2, killed)), [], "that was the last word");
}

#[test]
fn a_rank_that_exits_without_a_word_has_failed_whatever_its_code() {
    for code in [0, 1] {
        let mut ranks = running(1);
        let told = exit(&mut ranks, 0, code);
        assert_eq!(told, [died(0, ExitStatus::Code(code)), cleared()]);
    }
}

#[test]
fn the_worker_host_matters_only_until_its_ranks_are_forked() {
    let exited = Input::HostExited(ExitStatus::Signal(9));
    let class_of = |told: &[Output]| match told {
        [Output::Tell(Event::Failed { failure, .. }), ..] => failure.class(),
        other => panic!("{other:?}"),
    };
    // Killed between its order to fork and the first fork, or between two forks.
    let mut ranks = Ranks::new(3, 2);
    let told = ranks.on(at(1.0), &exited);
    assert_eq!((class_of(&told), told.last()), (Class::Infrastructure, Some(&cleared())));
    let mut ranks = Ranks::new(3, 2);
    ranks.on(at(0.0), &Input::Host(&spawned(3, 0)));
    assert_eq!(ranks.on(at(1.0), &exited).len(), 1);
    ranks.on(at(1.0), &Input::Killed);
    assert_eq!(ranks.on(at(1.1), &Input::Exited(0, ExitStatus::Signal(9))), [cleared()]);
    // One that ends by itself has a reason that will be there the next time too.
    let told = Ranks::new(3, 1).on(at(1.0), &Input::HostExited(ExitStatus::Code(1)));
    assert_eq!(class_of(&told), Class::Configuration);

    assert_eq!(running(2).on(at(2.0), &exited), []);
}

#[test]
fn a_rank_that_is_forked_after_all_were_killed_is_killed_too() {
    let mut ranks = Ranks::new(3, 3);
    ranks.on(at(0.0), &Input::Host(&spawned(3, 0)));
    assert_eq!(ranks.on(at(0.1), &Input::Killed), []);
    assert_eq!(ranks.on(at(0.2), &Input::Host(&spawned(3, 1))), [Output::Kill]);
    assert_eq!(ranks.on(at(0.3), &Input::Host(&spawned(2, 2))), [], "that is of another start");
    assert_eq!(ranks.on(at(0.3), &Input::Exited(0, ExitStatus::Signal(9))), []);
    assert_eq!(ranks.on(at(0.3), &Input::Exited(1, ExitStatus::Signal(9))), [cleared()]);
}

#[test]
fn a_signal_to_a_rank_is_a_wish_to_stop() {
    let asked = RankMessage::StopAsked { signal: "SIGTERM".to_owned() };
    let by = "SIGTERM to rank 1".to_owned();
    let told = say(&mut running(2), 1, &asked);
    assert_eq!(told, [Output::Tell(Event::StopRequested { by })]);
}

#[test]
fn a_rank_of_the_start_before_that_could_not_be_forked_is_no_failure_of_this_one() {
    let failed = |generation| HostMessage::Failed { generation, message: "no".to_owned() };
    let mut ranks = Ranks::new(3, 1);
    assert_eq!(ranks.on(at(0.0), &Input::Host(&failed(2))), []);
    for generation in [0, 3] {
        let told = Ranks::new(3, 1).on(at(0.0), &Input::Host(&failed(generation)));
        assert!(matches!(told[..], [Output::Tell(Event::Failed { .. })]), "{told:?}");
    }
}
