//! The starts of a run: the first, and those after failures, which go on from the newest checkpoint.

use std::io;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use serde::Serialize;
use titan_control::{Class, Generation, How, Seat};
use titan_trainer::failure::FailureClass;
use titan_trainer::ledger;
use titan_trainer::metrics::{Assembler, Meter};

use super::DIRECTORY;
use super::event::Event;
use super::keeping::check_place;
use super::ranks::Ranks;
use super::resume::{Expected, Trust, decide_again};
use super::session::Session;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::words;

/// A line of `train --json`.
#[derive(Serialize)]
struct Restart<'a> {
    event: &'static str,
    attempt: u64,
    after_step: u64,
    reason: &'a str,
}

impl Session<'_, '_> {
    /// Starts all ranks.
    pub(super) fn begin(
        &mut self,
        generation: Generation,
        after: Option<titan_control::Failure>,
        events: &Receiver<Event>,
    ) -> Result<Vec<titan_control::Event>, Failure> {
        let (signals, committed) = (self.signals, self.committed);
        if generation != self.run.run_dir.attempt()
            && let Err(failure) = self.prepare_again(generation, after, events)
        {
            return self.not_prepared(generation, failure);
        }
        self.noticed.clear();
        self.reports.clear();
        self.validations.clear();
        self.not_committed = None;
        self.ready = 0;
        let world = self.run.layout.world as usize;
        self.steps = vec![self.run.spec.steps_done(); world];
        self.keep_checkpoints()?;
        let before = self.ranks.replace(Ranks::new(generation, world));
        // One that has not forked what it was told to is stopped, or hangs, or has lost count.
        let is_doubted = before.is_some_and(|before| !before.were_forked());
        if is_doubted || !self.workers.has_host() {
            self.replace_host()?;
        } else if !self.awaits_host {
            self.spawn()?;
        }
        // One that came while the start was being prepared.
        let by = "a signal".to_owned();
        let stop = (self.signals > signals).then_some(titan_control::Event::StopRequested { by });
        let is_new = self.committed.filter(|_| self.committed > committed);
        let saved = is_new.map(|step| titan_control::Event::Committed { step });
        Ok(saved.into_iter().chain(stop).collect())
    }

    /// A place of checkpoints that does not answer now may answer later.
    fn not_prepared(
        &mut self,
        generation: Generation,
        failure: Failure,
    ) -> Result<Vec<titan_control::Event>, Failure> {
        if failure.exit != Exit::Usage {
            return Err(failure);
        }
        let seat = Seat::ONLY;
        let (step, is_consequence, text) = (self.reached.step, false, failure.summary());
        let how = How::Reported { step, class: Class::Storage, is_consequence, text };
        let told = titan_control::Failure { seat, rank: None, how };
        self.noticed.push(told.clone());
        // It is no mistake of whoever started the run.
        self.not_committed = Some(Failure { exit: Exit::WorkersFailed, ..failure });
        Ok(vec![
            titan_control::Event::Failed { generation, failure: told },
            titan_control::Event::Cleared { seat, generation },
        ])
    }

    /// The worker host can fork: it takes its seat, or forks what was ordered when there was none.
    pub(super) fn host_is_ready(&mut self) -> Result<Option<titan_control::Event>, Failure> {
        // Word of one that was replaced meanwhile.
        if !std::mem::replace(&mut self.awaits_host, false) {
            return Ok(None);
        }
        if self.ranks.is_some() {
            return self.spawn().map(|()| None);
        }
        Ok(Some(titan_control::Event::Joined {
            seat: Seat::ONLY,
            machine: super::run_dir::host_name(),
            incarnation: u64::from(std::process::id()),
            holds: 0,
        }))
    }

    fn spawn(&mut self) -> Result<(), Failure> {
        self.ranks_ordered = Instant::now();
        let generation = self.ranks.as_ref().map_or(0, Ranks::generation);
        match self.workers.spawn_ranks(generation, &self.run.spec) {
            // The host is gone, which is an event of its own.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            started => started.map_err(|error| {
                Failure::io(Exit::WorkersFailed, "cannot start the ranks", &error)
            }),
        }
    }

    fn keep_checkpoints(&mut self) -> Result<(), Failure> {
        let Some(keeping) = &self.run.keeping else { return Ok(()) };
        let sender = self.sender.clone();
        let report = move |kept| drop(sender.send(Event::Checkpoint(kept)));
        let (attempt, world) = (self.run.run_dir.attempt(), self.run.layout.world as usize);
        let keeper = keeping.start(&self.run.spec, attempt, world, report);
        self.keeper = Some(keeper.map_err(|error| {
            Failure::io(Exit::WorkersFailed, "cannot start to keep checkpoints", &error)
        })?);
        Ok(())
    }

    /// Finds out what the run goes on from, and brings its records there.
    fn prepare_again(
        &mut self,
        generation: Generation,
        after: Option<titan_control::Failure>,
        events: &Receiver<Event>,
    ) -> Result<(), Failure> {
        let reason = match &after {
            Some(failure) => failure.to_string(),
            None => "the hosts of the run have changed".to_owned(),
        };
        // What all ranks have written becomes a checkpoint yet: it is the newest.
        if let Err(failure) = self.finish_checkpoints(events) {
            if self.is_keeping() {
                return Err(failure);
            }
            self.run.console.warning(&failure.summary());
        }
        // One that ranks have not told of themselves: they made no progress.
        let is_new = after.filter(|failure| !self.noticed.contains(failure));
        self.noticed.extend(is_new);
        self.note_failures()?;
        self.run.run_dir.begin_attempt(generation);
        self.run.spec.resume = None;
        if let Some(keeping) = &mut self.run.keeping {
            keeping.begin_attempt(generation);
        }
        if let Some(keeping) = &self.run.keeping {
            // Somebody may have removed it.
            check_place(&keeping.to.persistent, DIRECTORY)?;
            keeping.tidy_up();
            let is_doubted =
                self.reports.values().any(|(_, said)| said.class == FailureClass::Checkpoint);
            let trust = match self.committed {
                Some(step) if !is_doubted => Trust::Step(step),
                _ => Trust::Nothing,
            };
            let decision = decide_again(keeping.places(), trust, &self.run.cancelled)?;
            for (step, why) in &decision.skipped {
                let text = format!("the checkpoint of step {step} cannot be used: {why}");
                self.run.console.warning(&text);
            }
            let expected = Expected {
                persistent: Some(&keeping.to.persistent),
                settings: &keeping.settings,
                order: &keeping.order,
            };
            let resume = decision.chosen.as_ref().map(|chosen| chosen.resume(&expected));
            self.run.spec.resume = resume.transpose()?;
            let steps_done = self.run.spec.steps_done();
            for path in keeping.set_later_aside(&decision, steps_done, generation)? {
                self.run.console.note(&format!("a later checkpoint is set aside: {path}"));
            }
            self.run.spec.save = Some(keeping.saving());
            self.run.decision = decision;
        }
        self.record_restart(generation, &reason)
    }

    fn record_restart(&mut self, attempt: u64, reason: &str) -> Result<(), Failure> {
        let after_step = self.run.spec.steps_done();
        if let Some(lost) = self.recorder.start_again(&self.run.run_dir, after_step)? {
            self.run.console.warning(&lost.to_string());
        }
        self.recorder.event(&ledger::Event::Restarted { after_step, reason: reason.to_owned() })?;
        if let Some(resume) = &self.run.spec.resume {
            self.recorder.event(&ledger::Event::Resumed {
                step: resume.step,
                path: resume.copies.first().map(ToString::to_string).unwrap_or_default(),
                skipped: self.run.decision.skipped.clone(),
            })?;
        }
        let meter = Meter::new(self.run.recipe, self.run.layout, attempt);
        self.progress.start_again(Assembler::new(meter));
        let console = self.run.console;
        console.clear();
        console.line(match after_step {
            0 if self.run.keeping.is_none() => {
                format!("start {attempt}: the run saves no checkpoints, and begins with step 1")
            }
            0 => format!(
                "start {attempt}: there is no checkpoint yet, and the run begins with step 1"
            ),
            step => format!(
                "start {attempt}: going on after step {} of {}",
                words::grouped(step),
                words::grouped(self.run.spec.steps)
            ),
        });
        console.json(&Restart { event: "restart", attempt, after_step, reason });
        Ok(())
    }
}
