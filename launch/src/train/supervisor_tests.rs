use titan_trainer::protocol::RankStep;

use super::*;

const GRACE: Duration = Duration::from_secs(30);

fn at(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn step(rank: usize, step: u64) -> Event {
    let step = RankStep {
        step,
        loss: 1.0,
        grad_norm: 1.0,
        lr: 0.1,
        step_seconds: 0.1,
        data_seconds: 0.0,
        targets: None,
        experts: None,
    };
    Event::Rank(rank, RankMessage::Step(step))
}

fn finished(rank: usize, ending: Ending) -> Event {
    Event::Rank(rank, RankMessage::Finished { ending, step: 7 })
}

fn reported(rank: usize, class: FailureClass) -> Event {
    Event::Rank(rank, RankMessage::Failed { step: 4, failure: Failure::new(class, "it broke") })
}

fn exited(rank: usize, code: i32) -> Event {
    Event::RankExited(rank, ExitStatus::Code(code))
}

fn killed(rank: usize) -> Event {
    Event::RankExited(rank, ExitStatus::Signal(9))
}

fn ready() -> Event {
    Event::Host(HostMessage::Ready { protocol: 1, import_seconds: 1.0 })
}

fn spawned(rank: usize) -> Event {
    Event::Host(HostMessage::Spawned { rank: rank as u64, pid: 100 + rank as u32 })
}

/// A supervisor whose ranks run, after `steps` steps.
fn running(world: usize, steps: u64) -> Supervisor {
    let mut supervisor = Supervisor::new(world, GRACE);
    assert_eq!(supervisor.on(at(0.0), &ready()), [Action::SpawnRanks]);
    for rank in 0..world {
        assert_eq!(supervisor.on(at(0.1), &spawned(rank)), []);
    }
    for n in 1..=steps {
        for rank in 0..world {
            assert_eq!(supervisor.on(at(1.0), &step(rank, n)), []);
        }
    }
    supervisor
}

/// Feeds events and returns all actions.
fn feed(supervisor: &mut Supervisor, now: f64, events: &[Event]) -> Vec<Action> {
    events.iter().flat_map(|event| supervisor.on(at(now), event)).collect()
}

#[test]
fn a_run_is_complete_when_all_ranks_have_done_all_steps_and_are_gone() {
    let mut s = running(2, 3);
    let both = [finished(0, Ending::Completed), exited(0, 0), finished(1, Ending::Completed)];
    assert_eq!(feed(&mut s, 2.0, &both), []);
    assert_eq!(s.on(at(2.1), &exited(1, 0)), [Action::End(Verdict::Completed)]);
    assert_eq!(s.on(at(2.2), &Event::Signal("SIGINT")), [], "an ended run takes no more events");
}

#[test]
fn a_rank_that_lingers_after_its_last_step_is_killed_and_the_run_is_complete_all_the_same() {
    let mut s = running(2, 3);
    feed(
        &mut s,
        2.0,
        &[finished(0, Ending::Completed), exited(0, 0), finished(1, Ending::Completed)],
    );
    assert_eq!(s.deadline(), Some(at(2.0) + LINGER));
    assert_eq!(s.on(at(12.0), &Event::Deadline), [Action::KillRanks]);
    assert_eq!(s.on(at(12.1), &killed(1)), [Action::End(Verdict::Completed)]);
}

#[test]
fn a_signal_lets_the_step_finish_and_a_second_one_does_not() {
    let mut s = running(2, 3);
    assert_eq!(s.on(at(5.0), &Event::Signal("SIGTERM")), [Action::OrderStop]);
    assert_eq!(s.deadline(), Some(at(5.0) + GRACE));
    let ends =
        [finished(0, Ending::Stopped), finished(1, Ending::Stopped), exited(0, 0), exited(1, 0)];
    let verdict = Verdict::Stopped { signal: "SIGTERM", killed: false };
    assert_eq!(feed(&mut s, 5.5, &ends), [Action::End(verdict)]);

    let mut s = running(2, 3);
    feed(&mut s, 5.0, &[Event::Signal("SIGINT")]);
    assert_eq!(s.on(at(6.0), &Event::Signal("SIGTERM")), [Action::KillRanks]);
    let verdict = Verdict::Stopped { signal: "SIGINT", killed: false };
    assert_eq!(feed(&mut s, 6.1, &[killed(0), killed(1)]), [Action::End(verdict)]);
}

#[test]
fn workers_that_do_not_end_within_the_grace_are_killed() {
    let mut s = running(2, 3);
    s.on(at(5.0), &Event::Signal("SIGINT"));
    assert_eq!(s.on(at(34.9), &Event::Deadline), []);
    assert_eq!(s.on(at(35.0), &Event::Deadline), [Action::KillRanks]);
    let verdict = Verdict::Stopped { signal: "SIGINT", killed: true };
    assert_eq!(feed(&mut s, 35.1, &[killed(0), killed(1)]), [Action::End(verdict)]);
}

#[test]
fn before_the_first_step_a_signal_ends_everything_at_once() {
    let mut s = Supervisor::new(2, GRACE);
    let verdict = Verdict::Stopped { signal: "SIGINT", killed: false };
    assert_eq!(s.on(at(0.5), &Event::Signal("SIGINT")), [Action::KillRanks, Action::End(verdict)]);

    let mut s = running(2, 0);
    assert_eq!(s.on(at(0.5), &Event::Signal("SIGINT")), [Action::KillRanks]);
}

#[test]
fn a_stop_that_meets_the_last_step_is_a_complete_run() {
    let mut s = running(1, 3);
    s.on(at(5.0), &Event::Signal("SIGINT"));
    let ends = [finished(0, Ending::Completed), exited(0, 0)];
    assert_eq!(feed(&mut s, 5.1, &ends), [Action::End(Verdict::Completed)]);
}

#[test]
fn the_rank_that_was_killed_is_the_cause_even_if_the_others_are_noticed_first() {
    let mut s = running(3, 3);
    let seen =
        [reported(0, FailureClass::PeerLost), exited(0, 1), reported(2, FailureClass::Engine)];
    assert_eq!(feed(&mut s, 2.0, &seen), []);
    assert_eq!(s.deadline(), Some(at(2.0) + SETTLE));
    feed(&mut s, 2.1, &[killed(1)]);
    assert_eq!(s.on(at(2.7), &Event::Deadline), [Action::KillRanks]);
    let actions = s.on(at(2.8), &killed(2));
    let [Action::End(Verdict::Failed { failures, cause })] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(failures.iter().map(|f| f.rank).collect::<Vec<_>>(), [0, 2, 1]);
    assert_eq!(
        (failures[*cause].rank, &failures[*cause].how),
        (1, &How::Died(ExitStatus::Signal(9)))
    );
}

#[test]
fn a_fault_outranks_the_lost_peers_that_follow_from_it() {
    let failure =
        |rank, class| RankFailure { rank, how: How::Reported(1, Failure::new(class, "x")) };
    let died = |rank, code| RankFailure { rank, how: How::Died(ExitStatus::Code(code)) };
    let cases = [
        (vec![failure(0, FailureClass::PeerLost), failure(1, FailureClass::Data)], 1),
        (vec![failure(0, FailureClass::PeerLost), died(1, 1)], 1),
        (vec![died(0, 1), failure(1, FailureClass::Engine)], 1),
        (vec![failure(0, FailureClass::PeerLost), failure(1, FailureClass::PeerLost)], 0),
        (
            vec![
                RankFailure { rank: 0, how: How::Died(ExitStatus::Signal(6)) },
                failure(1, FailureClass::Engine),
            ],
            1,
        ),
        (vec![failure(3, FailureClass::Engine), failure(1, FailureClass::NonFiniteLoss)], 0),
    ];
    for (failures, cause) in cases {
        assert_eq!(cause_of(&failures), Some(cause), "{failures:?}");
    }
    assert_eq!(cause_of(&[]), None);
}

#[test]
fn the_ends_of_ranks_that_were_killed_are_no_failures_of_their_own() {
    let mut s = running(2, 3);
    feed(&mut s, 2.0, &[reported(0, FailureClass::NonFiniteLoss), exited(0, 1)]);
    s.on(at(2.7), &Event::Deadline);
    let actions = s.on(at(2.8), &killed(1));
    let [Action::End(Verdict::Failed { failures, .. })] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(failures.len(), 1);
}

#[test]
fn the_worker_host_matters_only_until_its_ranks_are_forked() {
    let exited = Event::HostExited(ExitStatus::Signal(9));
    let failed = Action::End(Verdict::HostFailed(HostFailure::Exited(ExitStatus::Signal(9))));
    let mut s = Supervisor::new(2, GRACE);
    assert_eq!(s.on(at(1.0), &exited), [Action::KillRanks, failed.clone()]);

    // Killed between its order to fork and the first fork, or between two forks.
    let mut s = Supervisor::new(2, GRACE);
    s.on(at(0.0), &ready());
    assert_eq!(s.on(at(1.0), &exited), [Action::KillRanks, failed.clone()]);
    let mut s = Supervisor::new(2, GRACE);
    feed(&mut s, 0.0, &[ready(), spawned(0)]);
    assert_eq!(s.on(at(1.0), &exited), [Action::KillRanks]);
    assert_eq!(s.on(at(1.1), &killed(0)), [failed]);

    let mut s = running(2, 3);
    assert_eq!(s.on(at(2.0), &exited), []);
}

#[test]
fn a_rank_that_is_forked_after_all_were_killed_is_killed_too() {
    let mut s = Supervisor::new(2, GRACE);
    feed(&mut s, 0.0, &[ready(), spawned(0)]);
    assert_eq!(s.on(at(0.1), &Event::Signal("SIGINT")), [Action::KillRanks]);
    assert_eq!(s.on(at(0.2), &spawned(1)), [Action::KillRanks]);
    let verdict = Verdict::Stopped { signal: "SIGINT", killed: false };
    assert_eq!(feed(&mut s, 0.3, &[killed(0), killed(1)]), [Action::End(verdict)]);
}

#[test]
fn a_process_that_cannot_be_killed_does_not_keep_the_launcher() {
    let mut s = running(2, 3);
    feed(&mut s, 2.0, &[killed(0)]);
    s.on(at(2.7), &Event::Deadline);
    assert_eq!(s.deadline(), Some(at(2.7) + BURIAL));
    let actions = s.on(at(7.7), &Event::Deadline);
    assert!(matches!(&actions[..], [Action::End(Verdict::Failed { cause: 0, .. })]), "{actions:?}");
}

#[test]
fn every_status_is_described_in_words() {
    assert_eq!(describe(ExitStatus::Code(3)), "exited with code 3");
    assert_eq!(describe(ExitStatus::Signal(9)), "was killed by signal 9 (SIGKILL)");
}
