use super::*;
use crate::failure::{Class, ExitStatus, How};
use crate::settings::{Budgets, Limits, Policy};

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// A run, and what it was told to do.
struct Run {
    state: Option<State>,
    now: f64,
    reasons: Vec<Reason>,
    /// What the last start came after.
    after: Option<Failure>,
}

impl Run {
    fn new(settings: Settings) -> Self {
        let state = Some(State::new(settings, Duration::ZERO, 0, 0));
        Self { state, now: 0.0, reasons: Vec::new(), after: None }
    }

    /// The same, whose hosts have leases of three seconds.
    fn on_leases(slices: u32, policy: Policy) -> Self {
        let mut run = Self::training(slices, policy);
        run.state.as_mut().unwrap().settings.limits.lease = Some(seconds(3.0));
        run
    }

    /// One with `slices` of one host each, all of which are there and train.
    fn training(slices: u32, policy: Policy) -> Self {
        let mut run = Self::new(settings(slices, policy));
        for slice in 0..slices {
            run.join(slice, 1);
        }
        run.ready();
        run.step(1);
        run
    }

    fn on(&mut self, event: &Event) -> Vec<Action> {
        let state = self.state.take().unwrap();
        let advance = state.advance(seconds(self.now), event);
        self.state = Some(advance.state);
        self.reasons.extend(advance.reasons);
        let mut actions = advance.actions;
        for action in &mut actions {
            if let Action::Start { after, .. } = action {
                self.after = after.take();
            }
        }
        actions
    }

    fn at(&mut self, now: f64) -> &mut Self {
        assert!(now >= self.now);
        self.now = now;
        self
    }

    fn state(&self) -> &State {
        self.state.as_ref().unwrap()
    }

    fn generation(&self) -> Generation {
        self.state().generation()
    }

    fn join(&mut self, slice: u32, incarnation: u64) -> Vec<Action> {
        let machine = format!("machine-{slice}");
        self.on(&Event::Joined { seat: seat(slice), machine, incarnation, holds: 0 })
    }

    fn hear(&mut self, slices: &[u32]) {
        for slice in slices {
            assert_eq!(self.on(&Event::Heard(seat(*slice))), []);
        }
    }

    fn ready(&mut self) {
        let generation = self.generation();
        for slice in self.state().slices().to_vec() {
            assert_eq!(self.on(&Event::Ready { seat: seat(slice), generation }), []);
        }
    }

    fn step(&mut self, step: u64) {
        let (generation, took) = (self.generation(), seconds(1.0));
        assert_eq!(self.on(&Event::Step { generation, step, took }), []);
    }

    fn fail(&mut self, slice: u32, how: How) -> Vec<Action> {
        let (generation, rank) = (self.generation(), Some(u64::from(slice)));
        let failure = Failure { seat: seat(slice), rank, how };
        self.on(&Event::Failed { generation, failure })
    }

    fn kill(&mut self, slice: u32) -> Vec<Action> {
        self.fail(slice, How::Died { status: ExitStatus::Signal(9) })
    }

    /// Hosts say that their ranks are gone; what the last of these brought about.
    fn cleared(&mut self, slices: &[u32]) -> Vec<Action> {
        let generation = self.generation();
        let clear = |slice: &u32| Event::Cleared { seat: seat(*slice), generation };
        slices.iter().map(clear).map(|event| self.on(&event)).last().unwrap()
    }

    fn finished(&mut self, slices: &[u32], completed: bool) -> Vec<Action> {
        let generation = self.generation();
        let finish = |slice: &u32| Event::Finished { seat: seat(*slice), generation, completed };
        slices.iter().map(finish).map(|event| self.on(&event)).last().unwrap()
    }

    fn stop(&mut self, by: &str) -> Vec<Action> {
        self.on(&Event::StopRequested { by: by.to_owned() })
    }

    fn said(&self, decision: Decision) -> Vec<&str> {
        let of = |reason: &&Reason| reason.decision == decision;
        self.reasons.iter().filter(of).map(|reason| &reason.text[..]).collect()
    }
}

fn seat(slice: u32) -> Seat {
    Seat { slice, host: 0 }
}

/// Slices of one host; 3 cannot share the batch.
fn settings(slices: u32, policy: Policy) -> Settings {
    let usable = (1..=slices).filter(|n| *n != 3).collect();
    let limits = Limits { first_step: seconds(120.0), lease: None, ..Limits::default() };
    Settings { slices, usable, policy, limits, saves: true, ..Settings::one_host() }
}

fn start(generation: Generation, slices: &[u32]) -> Action {
    Action::Start { generation, slices: slices.to_vec(), after: None }
}

fn reported(step: u64, class: Class) -> How {
    How::Reported { step, class, is_consequence: false, text: "it broke".to_owned() }
}

fn lost_peer() -> How {
    let (class, text) = (Class::Infrastructure, "connection closed".to_owned());
    How::Reported { step: 3, class, is_consequence: true, text }
}

fn stopped(by: &str, killed: bool) -> Action {
    Action::End(Verdict::Stopped { by: by.to_owned(), killed })
}

#[test]
fn a_run_starts_when_all_hosts_are_there_and_is_complete_when_all_have_finished() {
    let settings = Settings { hosts_per_slice: 2, ..settings(1, Policy::Wait) };
    let mut run = Run::new(settings);
    let join = |host| Event::Joined {
        seat: Seat { slice: 0, host },
        machine: format!("m{host}"),
        incarnation: 1,
        holds: 0,
    };
    assert_eq!(run.on(&join(1)), []);
    assert_eq!(run.said(Decision::Wait), ["the run waits for host 0 of slice 0"]);
    assert_eq!(run.on(&join(7)), [], "there is no such seat");
    assert_eq!(run.on(&join(0)), [start(1, &[0])]);
    for host in [0, 1] {
        assert_eq!(run.on(&Event::Ready { seat: Seat { slice: 0, host }, generation: 1 }), []);
    }
    run.step(1);
    let finish =
        |host| Event::Finished { seat: Seat { slice: 0, host }, generation: 1, completed: true };
    assert_eq!(run.on(&finish(0)), []);
    assert_eq!(run.on(&finish(1)), [Action::End(Verdict::Completed)]);
    assert_eq!(run.stop("SIGINT"), [], "an ended run takes no more events");
}

#[test]
fn a_killed_rank_means_a_new_start_at_once_of_the_same_slices() {
    let mut run = Run::training(2, Policy::Wait);
    assert_eq!(run.at(5.0).kill(1), [Action::Kill { generation: 1 }]);
    run.on(&Event::Failed {
        generation: 1,
        failure: Failure { seat: seat(0), rank: Some(0), how: lost_peer() },
    });
    assert_eq!(run.cleared(&[0]), []);
    assert_eq!(run.cleared(&[1]), [start(2, &[0, 1])]);
    let why = run.said(Decision::Restart);
    assert_eq!(
        why,
        ["rank 1 was killed by signal 9 (SIGKILL); again at once: \
          restart 1 of at most 5 without progress"]
    );
    // What is left of the generation before means nothing.
    assert_eq!(run.on(&Event::Ready { seat: seat(0), generation: 1 }), []);
    let failure = Failure { seat: seat(0), rank: Some(0), how: lost_peer() };
    assert_eq!(run.on(&Event::Failed { generation: 1, failure }), []);
    run.ready();
    run.step(2);
}

#[test]
fn the_rank_that_was_killed_is_the_cause_even_if_the_others_are_noticed_first() {
    let mut run = Run::training(2, Policy::Wait);
    assert_eq!(run.at(5.0).fail(0, lost_peer()), []);
    assert_eq!(run.state().deadline(), Some(seconds(5.7)));
    assert_eq!(run.at(5.1).kill(1), [Action::Kill { generation: 1 }]);
    run.cleared(&[0, 1]);
    assert!(run.said(Decision::Restart)[0].starts_with("rank 1 was killed"));

    // If nothing better comes, it is that.
    run.ready();
    run.hear(&[0, 1]);
    assert_eq!(run.at(6.0).fail(0, lost_peer()), []);
    assert_eq!(run.at(6.7).on(&Event::Tick), [Action::Kill { generation: 2 }]);
    assert_eq!(run.cleared(&[0, 1]), []);
    assert!(run.said(Decision::Restart)[1].contains("again in 1 s"), "{:?}", run.reasons);
    assert_eq!(run.at(7.7).on(&Event::Tick), [start(3, &[0, 1])]);

    // Where all ranks are gone, no cause is left to come.
    run.ready();
    run.fail(0, lost_peer());
    assert_eq!(run.cleared(&[0]), []);
    assert_eq!(run.cleared(&[1]), [Action::Kill { generation: 3 }]);
}

#[test]
fn a_lost_host_shrinks_the_run_and_makes_it_grow_when_it_is_back() {
    let mut run = Run::on_leases(2, Policy::Shrink);
    run.at(1.0).hear(&[0, 1]);
    run.at(3.0).hear(&[0]);
    assert_eq!(run.at(4.0).on(&Event::Heard(seat(0))), [Action::Kill { generation: 1 }]);
    assert_eq!(run.cleared(&[0]), [start(2, &[0])]);
    assert_eq!(
        run.said(Decision::Shrink),
        ["1 of 2 slices can be used: the run goes on with these"]
    );
    run.at(5.0).ready();
    run.step(2);
    assert_eq!(run.at(6.0).join(1, 2), [], "a generation is given time");
    for second in 7..65_u32 {
        run.at(f64::from(second)).hear(&[0, 1]);
        run.step(second.into());
    }
    assert_eq!(run.at(65.0).on(&Event::Heard(seat(0))), [Action::Stop { generation: 2 }]);
    assert_eq!(run.finished(&[0], false), [start(3, &[0, 1])]);

    // Three slices cannot share the batch.
    let mut run = Run::on_leases(4, Policy::Shrink);
    run.at(2.9).hear(&[0, 1, 3]);
    assert_eq!(run.at(3.0).on(&Event::Tick), [Action::Kill { generation: 1 }]);
    assert_eq!(run.cleared(&[0, 1, 3]), [start(2, &[0, 1])]);
}

#[test]
fn a_run_that_may_not_shrink_waits_takes_a_spare_or_names_who_is_absent() {
    let lose_one = || {
        let mut run = Run::on_leases(2, Policy::Wait);
        run.at(2.9).hear(&[0]);
        assert_eq!(run.at(3.0).on(&Event::Tick), [Action::Kill { generation: 1 }]);
        run
    };
    let mut run = lose_one();
    assert_eq!(run.cleared(&[0]), []);
    assert_eq!(run.said(Decision::Wait).last(), Some(&"the run waits for host 0 of slice 1"));
    assert_eq!(run.join(1, 2), [start(2, &[0, 1])]);

    let mut run = lose_one();
    run.join(5, 1);
    assert_eq!(run.cleared(&[0]), [start(2, &[0, 5])]);

    let mut run = lose_one();
    run.cleared(&[0]);
    let mut now = 3.0;
    while now < 3603.0 {
        now += 2.0;
        let actions = run.at(now).on(&Event::Heard(seat(0)));
        assert_eq!(actions.is_empty(), now < 3603.0, "{now}");
        if let [Action::End(Verdict::Absent { seats, .. })] = &actions[..] {
            assert_eq!(seats, &[seat(1)]);
        }
    }
    assert!(run.said(Decision::End)[0].contains("host 0 of slice 1"));
}

#[test]
fn an_agent_that_begins_anew_has_lost_its_ranks() {
    let mut run = Run::on_leases(2, Policy::Wait);
    assert_eq!(run.join(1, 1), [], "it says the same again");
    assert_eq!(run.join(1, 2), [Action::Kill { generation: 1 }]);
    assert_eq!(run.cleared(&[0]), [start(2, &[0, 1])]);
    // One that was cut off and still has ranks gets rid of them first.
    let mut run = Run::on_leases(2, Policy::Wait);
    run.at(2.9).hear(&[0]);
    run.at(3.0).on(&Event::Tick);
    assert_eq!(run.state().deadline(), Some(seconds(5.9)), "the other one has a lease too");
    run.cleared(&[0]);
    let machine = "machine-1".to_owned();
    let back = Event::Joined { seat: seat(1), machine, incarnation: 1, holds: 1 };
    assert_eq!(run.on(&back), [Action::Kill { generation: 1 }]);
    assert_eq!(run.cleared(&[1]), [start(2, &[0, 1])]);
}

#[test]
fn the_next_start_waits_for_ranks_that_do_not_die_but_not_for_ever() {
    let mut run = Run::training(2, Policy::Shrink);
    run.at(2.0).kill(1);
    assert_eq!(run.cleared(&[0]), []);
    run.at(4.0).hear(&[0, 1]);
    run.at(6.9).hear(&[0, 1]);
    assert_eq!(run.at(7.0).on(&Event::Tick), [start(2, &[0])]);
    assert_eq!(
        run.said(Decision::Membership).last().unwrap(),
        &"ranks on host 0 of slice 1 were killed and are still there"
    );
}

#[test]
fn a_stop_lets_the_step_finish_and_a_second_one_does_not() {
    let mut run = Run::training(2, Policy::Wait);
    assert_eq!(run.at(2.0).stop("SIGTERM"), [Action::Stop { generation: 1 }]);
    assert_eq!(run.finished(&[0, 1], false), [stopped("SIGTERM", false)]);

    let mut run = Run::training(2, Policy::Wait);
    run.at(2.0).stop("SIGTERM");
    assert_eq!(run.stop("SIGINT"), [Action::Kill { generation: 1 }]);
    assert_eq!(run.cleared(&[0, 1]), [stopped("SIGTERM", false)]);

    // The grace.
    let mut run = Run::training(2, Policy::Wait);
    run.at(2.0).stop("SIGTERM");
    for second in 3..32 {
        run.at(f64::from(second)).hear(&[0, 1]);
    }
    assert_eq!(run.at(32.0).on(&Event::Heard(seat(0))), [Action::Kill { generation: 1 }]);
    assert_eq!(run.cleared(&[0, 1]), [stopped("SIGTERM", true)]);

    // With the last step.
    let mut run = Run::training(2, Policy::Wait);
    run.at(2.0).stop("SIGTERM");
    assert_eq!(run.finished(&[0, 1], true), [Action::End(Verdict::Completed)]);
}

#[test]
fn before_the_first_step_a_stop_ends_everything_at_once() {
    let mut run = Run::new(settings(2, Policy::Wait));
    assert_eq!(run.stop("SIGINT"), [stopped("SIGINT", false)]);
    let mut run = Run::new(settings(1, Policy::Wait));
    run.join(0, 1);
    assert_eq!(run.stop("SIGINT"), [Action::Kill { generation: 1 }]);
    assert_eq!(run.cleared(&[0]), [stopped("SIGINT", false)]);
}

#[test]
fn a_failure_while_the_run_stops_is_told_and_not_tried_again() {
    let mut run = Run::training(2, Policy::Wait);
    run.at(2.0).stop("SIGTERM");
    run.kill(0);
    let actions = run.cleared(&[0, 1]);
    let [Action::End(Verdict::Failed { failures, cause: 0, why })] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!((failures.len(), &why[..]), (1, "SIGTERM asked it to stop"));
    // The same if the failure came first.
    let mut run = Run::training(2, Policy::Wait);
    run.at(2.0).kill(0);
    assert_eq!(run.stop("SIGTERM"), []);
    assert!(matches!(run.cleared(&[0, 1])[..], [Action::End(Verdict::Failed { .. })]));
}

#[test]
fn a_machine_that_leaves_is_done_without_at_a_step() {
    let mut run = Run::training(2, Policy::Shrink);
    let leaving = Event::Leaving { seat: seat(1), why: "maintenance".to_owned(), within: None };
    assert_eq!(run.at(2.0).on(&leaving), [Action::Stop { generation: 1 }]);
    assert_eq!(run.on(&leaving), [], "it is known");
    assert_eq!(run.finished(&[0, 1], false), [start(2, &[0])]);

    // A short notice is a short grace.
    let mut run = Run::training(2, Policy::Shrink);
    let within = Some(seconds(2.0));
    let leaving = Event::Leaving { seat: seat(1), why: "maintenance".to_owned(), within };
    run.at(2.0).on(&leaving);
    assert_eq!(run.at(4.0).on(&Event::Heard(seat(0))), [Action::Kill { generation: 1 }]);
    assert_eq!(run.cleared(&[0, 1]), [start(2, &[0])]);

    // Without a spare and without leave to shrink, the run waits for the machine or another one.
    let mut run = Run::training(2, Policy::Wait);
    let leaving = Event::Leaving { seat: seat(1), why: "maintenance".to_owned(), within: None };
    run.at(2.0).on(&leaving);
    assert_eq!(run.finished(&[0, 1], false), []);
    assert_eq!(run.join(1, 2), [start(2, &[0, 1])]);
}

#[test]
fn a_stuck_rank_is_named_and_the_run_started_again() {
    let mut run = Run::training(2, Policy::Wait);
    for second in 2..=61 {
        run.at(f64::from(second)).hear(&[0, 1]);
        if second == 30 {
            run.step(2);
        }
    }
    run.at(89.9);
    assert_eq!(run.on(&Event::Tick), []);
    assert_eq!(run.at(90.0).on(&Event::Tick), [Action::Diagnose { generation: 1 }]);
    let evidence = |rank: u32, state| Evidence {
        rank: rank.into(),
        step: 2,
        state,
        waits_for_others: Some(state == 'S'),
        place: None,
    };
    let says = |rank: u32, state| Event::Evidence {
        seat: seat(rank),
        generation: 1,
        ranks: vec![evidence(rank, state)],
    };
    assert_eq!(run.on(&says(0, 'S')), []);
    assert_eq!(run.on(&says(1, 'T')), [Action::Kill { generation: 1 }]);
    assert_eq!(run.cleared(&[0, 1]), [start(2, &[0, 1])]);
    let why = run.said(Decision::Restart)[0];
    assert!(
        why.starts_with("rank 1 is stuck in step 3: no progress for 60 s; its process is stopped"),
        "{why}"
    );

    // Nobody answers.
    run.ready();
    run.at(210.0);
    assert_eq!(
        run.on(&Event::Tick),
        [Action::Diagnose { generation: 2 }],
        "the first step has a limit of its own"
    );
    assert_eq!(run.at(213.0).on(&Event::Tick), [Action::Kill { generation: 2 }]);
}

#[test]
fn ranks_that_go_on_while_they_are_asked_have_only_been_slow() {
    let mut run = Run::training(2, Policy::Wait);
    // The first step is all that is known of how long one takes.
    assert_eq!(run.at(60.0).on(&Event::Tick), [Action::Diagnose { generation: 1 }]);
    run.step(2);
    assert_eq!(run.at(63.0).on(&Event::Tick), []);
    let ranks = Vec::new();
    assert_eq!(run.on(&Event::Evidence { seat: seat(0), generation: 1, ranks }), []);
    assert_eq!(run.at(120.0).on(&Event::Tick), [Action::Diagnose { generation: 1 }]);
}

#[test]
fn ranks_that_are_not_ready_in_time_are_started_again() {
    let mut run = Run::new(settings(2, Policy::Wait));
    run.join(0, 1);
    run.join(1, 1);
    run.on(&Event::Ready { seat: seat(0), generation: 1 });
    assert_eq!(run.at(1800.0).on(&Event::Tick), [Action::Kill { generation: 1 }]);
    assert_eq!(run.cleared(&[0, 1]), [start(2, &[0, 1])]);
    assert!(run.said(Decision::Restart)[0].starts_with("host 0 of slice 1 could not start"));
}

#[test]
fn a_failure_that_would_come_again_ends_the_run() {
    for class in [Class::Data, Class::Numeric, Class::Configuration, Class::Space] {
        let mut run = Run::training(1, Policy::Wait);
        run.at(2.0).fail(0, reported(2, class));
        run.on(&Event::Cleared { seat: seat(0), generation: 1 });
        let given_up = run.said(Decision::GiveUp);
        assert_eq!(given_up.len(), 1, "{class}: {:?}", run.reasons);
    }
}

#[test]
fn a_run_without_progress_gives_up_and_one_with_progress_does_not() {
    let mut run = Run::training(1, Policy::Wait);
    run.state.as_mut().unwrap().settings.budgets = Budgets { infrastructure: 3, application: 0 };
    let mut now = 10.0;
    for step in 1..=20 {
        run.on(&Event::Committed { step });
        run.at(now).kill(0);
        assert_eq!(run.cleared(&[0]).len(), 1, "{step}");
        run.ready();
        now += 10.0;
    }
    for n in 0..3 {
        run.at(now).kill(0);
        let actions = run.cleared(&[0]);
        if n == 2 {
            assert!(matches!(&actions[..], [Action::End(Verdict::Failed { .. })]), "{actions:?}");
            break;
        }
        run.at(now + 9.0).on(&Event::Tick);
        run.ready();
        now += 10.0;
    }
}

#[test]
fn a_machine_on_which_failures_begin_is_done_without() {
    let mut run = Run::training(2, Policy::Shrink);
    for n in 1..=3 {
        run.on(&Event::Committed { step: n });
        run.at(10.0 * n as f64).kill(1);
        let actions = run.cleared(&[0, 1]);
        let slices: &[u32] = if n == 3 { &[0] } else { &[0, 1] };
        assert_eq!(actions, [start(n + 1, slices)]);
        run.ready();
    }
    assert_eq!(
        run.said(Decision::Quarantine),
        ["3 failures began on machine-1 within 60 minutes: it is not used for 240 minutes"]
    );
    // Alone, it is better than nothing.
    run.on(&Event::Joined { seat: seat(0), machine: "machine-0".into(), incarnation: 2, holds: 0 });
    assert_eq!(run.said(Decision::Quarantine).len(), 1);
}

#[test]
fn after_a_failure_that_settles_the_next_start_waits_for_ranks_that_are_still_there() {
    let mut run = Run::training(4, Policy::Shrink);
    run.at(5.0).fail(0, lost_peer());
    // The ranks of two hosts have ended by themselves.
    assert_eq!(run.cleared(&[0, 1]), []);
    assert_eq!(run.at(5.7).on(&Event::Tick), [Action::Kill { generation: 1 }]);
    assert_eq!(run.cleared(&[2]), []);
    assert_eq!(run.cleared(&[3]), [start(2, &[0, 1, 2, 3])]);
}

#[test]
fn a_run_that_waits_for_its_first_hosts_is_not_woken_for_ever() {
    for policy in [Policy::Wait, Policy::Shrink] {
        let mut run = Run::new(settings(2, policy));
        let mut wakes = 0;
        loop {
            let at = run.state().deadline().unwrap();
            assert!(at > seconds(run.now) || run.now == 0.0, "woken at {at:?}, at {} s", run.now);
            wakes += 1;
            if matches!(run.at(at.as_secs_f64()).on(&Event::Tick)[..], [Action::End(_)]) {
                break;
            }
        }
        assert!(wakes < 100, "{wakes}");
    }
}

#[test]
fn a_run_that_grows_has_time_for_the_step_under_way() {
    let mut run = Run::training(2, Policy::Shrink);
    run.at(2.0).kill(1);
    run.cleared(&[0]);
    run.at(7.0).on(&Event::Tick);
    assert_eq!(run.state().slices(), [0]);
    run.ready();
    let generation = run.generation();
    run.cleared(&[1]);
    run.at(40.0).step(2);
    // A step takes longer than the grace of 30 seconds.
    assert_eq!(run.at(67.0).on(&Event::Tick), [Action::Stop { generation }]);
    assert_eq!(run.at(107.0).on(&Event::Tick), []);
    assert_eq!(run.finished(&[0], false), [start(3, &[0, 1])]);
}
