//! What a session writes down and shows.

use std::time::Duration;

use serde::Serialize;
use titan_trainer::ledger;
use titan_trainer::metrics::{StepRecord, ValidationRecord};
use titan_trainer::protocol::{HostMessage, PROTOCOL, RankMessage, RankValidation};
use titan_trainer::saver::{SaveOutcome, Tier};

use super::event::Event;
use super::keeper::Kept;
use super::progress::plain;
use super::session::Session;
use crate::console::Style;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::words;

/// A line of `train --json`.
#[derive(Serialize)]
struct ValidationEvent<'a> {
    event: &'static str,
    #[serde(flatten)]
    record: &'a ValidationRecord,
}

/// A line of `train --json`.
#[derive(Serialize)]
struct FirstStep {
    event: &'static str,
    seconds: f64,
}

/// A line of `train --json`.
#[derive(Serialize)]
struct Recovered {
    event: &'static str,
    attempt: u64,
    seconds: f64,
    steps_lost: u64,
}

impl Session<'_, '_> {
    /// Writes down and shows what an event says.
    pub(super) fn record(&mut self, event: &Event) -> Result<Vec<titan_control::Event>, Failure> {
        let console = self.run.console;
        match event {
            Event::Host(HostMessage::Ready { protocol, import_seconds }) => {
                if *protocol != PROTOCOL {
                    let text =
                        format!("the engine speaks protocol {protocol}, this binary {PROTOCOL}");
                    return Err(Failure::new(Exit::Bug, text));
                }
                console.phase(
                    "import",
                    "torch and the engine",
                    Duration::from_secs_f64(*import_seconds),
                );
                console.spin(match self.run.spec.engine.compile {
                    true => "making the model and compiling the step, which can take minutes",
                    false => "making the model",
                });
                self.recorder
                    .event(&ledger::Event::Phase { phase: "import", seconds: *import_seconds })?;
            }
            Event::Host(HostMessage::Spawned { rank, pid, .. }) => {
                self.recorder.event(&ledger::Event::WorkerStarted { rank: *rank, pid: *pid })?;
            }
            Event::Rank(_, _, RankMessage::Ready { parameters_total, threads, .. }) => {
                self.ready += 1;
                if self.ready == self.run.layout.world as usize {
                    self.engine_ready(*parameters_total, *threads)?;
                }
            }
            Event::Rank(generation, rank, RankMessage::Step(step)) => {
                self.steps[*rank] = step.step;
                if let Some(record) = self.progress.add(step.clone()) {
                    self.step_done(&record)?;
                    return Ok(vec![titan_control::Event::Step {
                        generation: *generation,
                        step: record.step,
                        took: Duration::try_from_secs_f64(record.step_seconds).unwrap_or_default(),
                    }]);
                }
            }
            Event::Rank(_, _, RankMessage::Validation(validation)) => {
                self.validations.push(validation.clone());
                if self.validations.len() == self.run.layout.world as usize {
                    let all = std::mem::take(&mut self.validations);
                    self.validation_done(&all)?;
                }
            }
            Event::Rank(_, _, RankMessage::Saved(SaveOutcome::Saved(saved))) => {
                if let Some(keeper) = &mut self.keeper {
                    keeper.add(saved);
                }
            }
            Event::Rank(_, rank, RankMessage::Saved(SaveOutcome::Lost { step, why })) => {
                if let Some(keeper) = &mut self.keeper {
                    keeper.lost(*step);
                }
                self.local_lost(*step, &format!("rank {rank}: {why}"))?;
            }
            Event::Signal(signal) => {
                self.signals += 1;
                let text = match self.signals {
                    1 if self.has_unsaved_steps() => {
                        "ending after the step under way; once more to kill"
                    }
                    1 => "ending now",
                    _ => "killing all workers",
                };
                console.block(format!("{signal}: {text}"));
                let by = (*signal).to_owned();
                self.recorder.event(&ledger::Event::StopRequested { signal: by })?;
            }
            Event::Notice(word) => {
                let signal = format!("notice: {word}");
                let text = if self.has_unsaved_steps() {
                    "ending after the step under way"
                } else {
                    "ending now"
                };
                console.block(format!("{signal}: {text}"));
                self.recorder.event(&ledger::Event::StopRequested { signal })?;
            }
            Event::Rank(_, rank, RankMessage::StopAsked { signal }) => {
                let signal = format!("{signal} to rank {rank}");
                console.block(format!("{signal}: ending after the step under way"));
                self.recorder.event(&ledger::Event::StopRequested { signal })?;
            }
            _ => {}
        }
        Ok(Vec::new())
    }

    fn engine_ready(&mut self, parameters: u64, threads: u64) -> Result<(), Failure> {
        let took = self.ranks_ordered.elapsed();
        let expected = titan_parallelism::parameters(&self.run.recipe.model).total;
        if parameters != expected {
            let text =
                format!("the engine made {parameters} parameters, the recipe means {expected}");
            return Err(Failure::new(Exit::Bug, text));
        }
        let detail = format!(
            "{} ready, {}{}{}",
            words::plural(self.run.layout.world, "rank"),
            words::plural(threads, "thread"),
            if self.run.layout.world > 1 { " each" } else { "" },
            if self.run.spec.engine.compile { ", the step compiled" } else { "" },
        );
        self.run.console.phase("engine", &detail, took);
        if self.interrupted.is_none() {
            self.run.console.line(self.run.limits_in_words());
        }
        let spec = &self.run.spec;
        self.run.console.bar(spec.steps, spec.steps_done(), "first step".to_owned());
        self.recorder.event(&ledger::Event::Phase { phase: "engine", seconds: took.as_secs_f64() })
    }

    fn step_done(&mut self, record: &StepRecord) -> Result<(), Failure> {
        if let Some(lost) = self.recorder.step(record)? {
            self.run.console.warning(&lost.to_string());
        }
        if record.loss.is_finite() && record.grad_norm.is_finite() {
            self.reached.step = record.step;
            self.reached.loss = Some(record.loss);
        }
        self.run.run_dir.check_still_there()?;
        let console = self.run.console;
        let steps = self.run.spec.steps;
        let is_first = record.step == self.run.spec.steps_done() + 1;
        if is_first {
            self.first_step_done()?;
        } else if self.noticed.is_empty() {
            // Ranks that were taken for stuck have gone on.
            self.interrupted = None;
        }
        console.json(record);
        console.bar(steps, record.step, self.progress.live(record));
        let every = *self.run.recipe.metrics.every_steps;
        let due = record.step.is_multiple_of(every) || is_first || record.step == steps;
        if console.style() == Style::Plain && due {
            console.line(plain(record, steps));
        }
        Ok(())
    }

    /// The first step of a start: how long it took to come so far.
    fn first_step_done(&mut self) -> Result<(), Failure> {
        let console = self.run.console;
        let Some(interrupted) = self.interrupted.take() else {
            let seconds = self.run.start.elapsed().as_secs_f64();
            console.json(&FirstStep { event: "first_step", seconds });
            return Ok(());
        };
        let (attempt, seconds) = (self.run.run_dir.attempt(), interrupted.at.elapsed());
        let steps_lost = interrupted.step.saturating_sub(self.run.spec.steps_done());
        console.line(format!(
            "training again {} after the failure, {} to be done again",
            words::seconds(seconds.as_secs_f64()),
            words::plural(steps_lost, "step")
        ));
        let seconds = seconds.as_secs_f64();
        console.json(&Recovered { event: "recovered", attempt, seconds, steps_lost });
        self.recorder.event(&ledger::Event::Recovered { seconds, steps_lost })
    }

    /// Records a validation, which has the same loss on all ranks.
    fn validation_done(&mut self, ranks: &[RankValidation]) -> Result<(), Failure> {
        let Some(first) = ranks.first() else { return Ok(()) };
        let seconds = ranks.iter().map(|rank| rank.seconds).fold(0.0, f64::max);
        let record = ValidationRecord {
            step: first.step,
            attempt: self.run.run_dir.attempt(),
            loss: first.loss,
            targets: first.targets,
            seconds,
        };
        if let Some(lost) = self.recorder.validation(&record)? {
            self.run.console.warning(&lost.to_string());
        }
        let console = self.run.console;
        console.json(&ValidationEvent { event: "validation", record: &record });
        if console.style() != Style::Json {
            console.line(format!(
                "validation after step {}: loss {:.4} over {} ({})",
                record.step,
                record.loss,
                words::plural(record.targets, "token"),
                words::seconds(seconds),
            ));
        }
        Ok(())
    }

    /// Records what became of a save.
    pub(super) fn checkpoint_done(&mut self, kept: &Kept) -> Result<(), Failure> {
        let step = kept.step;
        let committed = match &kept.result {
            Ok(committed) => committed,
            Err(not_kept) if kept.tier == Tier::Local => {
                return self.local_lost(step, &not_kept.text);
            }
            Err(not_kept) => {
                let failure = Failure::new(not_kept.exit, not_kept.text.clone());
                return Err(failure.help("the checkpoints before it are as they were"));
            }
        };
        self.committed = self.committed.max(Some(step));
        self.recorder.event(&committed.ledger_event(kept.tier, step))?;
        let console = self.run.console;
        console.json(&committed.json_event(kept.tier, step));
        if console.style() != Style::Json {
            console.line(committed.in_words(kept.tier, step));
        }
        if let Some(why) = &committed.kept_back {
            console.warning(why);
        }
        Ok(())
    }

    /// The local tier is there for speed: without it, the run goes on.
    fn local_lost(&mut self, step: u64, why: &str) -> Result<(), Failure> {
        let text = format!("there is no local checkpoint of step {step}: {why}");
        self.run.console.warning(&text);
        self.recorder.event(&ledger::Event::LocalCheckpointLost { step, why: why.to_owned() })
    }
}
