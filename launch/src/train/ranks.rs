//! The ranks of one start of a run on this host: a pure state machine.
//!
//! It turns what processes do into what the control plane wants to know: that all are ready, that one has failed, that all
//! have finished, that none is left. It decides nothing about the run.

use std::time::Duration;

use titan_control::{Class, Event, ExitStatus, Failure, Generation, How, Seat};
use titan_trainer::failure::FailureClass;
use titan_trainer::protocol::{Ending, HostMessage, RankMessage};

/// How long ranks that have reported their end may take to exit.
const LINGER: Duration = Duration::from_secs(10);

/// Something that processes did.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Input<'a> {
    /// The worker host said something.
    Host(&'a HostMessage),
    /// The worker host ended.
    HostExited(ExitStatus),
    /// A rank said something.
    Said(usize, &'a RankMessage),
    /// A rank ended.
    Exited(usize, ExitStatus),
    /// All ranks were killed.
    Killed,
    /// The time that was asked for by [`Ranks::deadline`] has come.
    Deadline,
}

/// What is to be done about it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Output {
    /// Kill all ranks with all that they have started.
    Kill,
    /// Tell the control plane.
    Tell(Event),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Rank {
    /// It was ordered, and is not there yet.
    Ordered,
    Running,
    Ready,
    /// It has said that it is done: whether with all steps.
    Finished(bool),
    /// It has said that it has failed.
    Failed,
    /// It is gone, and was done before: whether with all steps.
    Gone(Option<bool>),
}

/// The ranks of one generation.
#[derive(Debug)]
pub(crate) struct Ranks {
    generation: Generation,
    ranks: Vec<Rank>,
    /// Whether the control plane knows that none is left.
    is_over: bool,
    is_killed: bool,
    /// When ranks that are done must be gone.
    linger: Option<Duration>,
    /// How many were forked.
    forked: usize,
}

impl Ranks {
    /// `count` ranks that were ordered.
    pub(crate) fn new(generation: Generation, count: usize) -> Self {
        let ranks = vec![Rank::Ordered; count];
        Self { generation, ranks, is_over: false, is_killed: false, linger: None, forked: 0 }
    }

    /// Their generation.
    pub(crate) fn generation(&self) -> Generation {
        self.generation
    }

    /// Whether the worker host has forked all of them.
    pub(crate) fn were_forked(&self) -> bool {
        self.forked == self.ranks.len()
    }

    /// When to come back with [`Input::Deadline`].
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.linger.filter(|_| !self.is_over && !self.is_killed)
    }

    /// Takes something that happened at `now`.
    pub(crate) fn on(&mut self, now: Duration, input: &Input<'_>) -> Vec<Output> {
        if self.is_over {
            return Vec::new();
        }
        let mut outputs = match input {
            Input::Host(HostMessage::Spawned { generation, rank, .. })
                if *generation == self.generation =>
            {
                self.spawned(*rank as usize)
            }
            Input::Host(HostMessage::Failed { generation, message })
                if [0, self.generation].contains(generation) =>
            {
                self.not_started(Class::Infrastructure, message.clone())
            }
            Input::Host(_) => Vec::new(),
            Input::HostExited(status) => self.host_exited(*status),
            Input::Said(rank, message) => self.said(now, *rank, message),
            Input::Exited(rank, status) => self.exited(*rank, *status),
            Input::Killed => {
                self.is_killed = true;
                Vec::new()
            }
            Input::Deadline if self.linger.is_some_and(|at| now >= at) => vec![Output::Kill],
            Input::Deadline => Vec::new(),
        };
        outputs.extend(self.none_is_left());
        outputs
    }

    fn tell(&self, how: How, rank: Option<usize>) -> Vec<Output> {
        let rank = rank.map(|rank| rank as u64);
        let failure = Failure { seat: Seat::ONLY, rank, how };
        vec![Output::Tell(Event::Failed { generation: self.generation, failure })]
    }

    /// A rank is there to be watched, or to be killed if it comes too late.
    fn spawned(&mut self, rank: usize) -> Vec<Output> {
        self.ranks[rank] = Rank::Running;
        self.forked += 1;
        if self.is_killed { vec![Output::Kill] } else { Vec::new() }
    }

    fn not_started(&mut self, class: Class, text: String) -> Vec<Output> {
        if self.is_killed { Vec::new() } else { self.tell(How::NotStarted { class, text }, None) }
    }

    /// Ranks do not need the host once they are forked. One that ends by itself before has met a fault of the Python
    /// environment.
    fn host_exited(&mut self, status: ExitStatus) -> Vec<Output> {
        if !self.ranks.contains(&Rank::Ordered) {
            return Vec::new();
        }
        for rank in self.ranks.iter_mut().filter(|rank| **rank == Rank::Ordered) {
            *rank = Rank::Gone(None);
        }
        let text = format!("the worker host {status} before all ranks were started");
        self.not_started(class_of_host(status), text)
    }

    fn said(&mut self, now: Duration, rank: usize, message: &RankMessage) -> Vec<Output> {
        match message {
            RankMessage::Ready { .. } => {
                self.ranks[rank] = Rank::Ready;
                if self.ranks.iter().all(|rank| *rank == Rank::Ready) {
                    let (seat, generation) = (Seat::ONLY, self.generation);
                    return vec![Output::Tell(Event::Ready { seat, generation })];
                }
            }
            RankMessage::Finished { ending, .. } => {
                self.ranks[rank] = Rank::Finished(*ending == Ending::Completed);
                let is_done = |rank: &Rank| matches!(rank, Rank::Finished(_) | Rank::Gone(Some(_)));
                if self.ranks.iter().all(is_done) {
                    self.linger.get_or_insert(now + LINGER);
                }
            }
            RankMessage::Failed { step, failure } => {
                self.ranks[rank] = Rank::Failed;
                let how = How::Reported {
                    step: *step,
                    class: class_of(failure.class),
                    is_consequence: failure.class == FailureClass::PeerLost,
                    text: failure.message.clone(),
                };
                return self.tell(how, Some(rank));
            }
            RankMessage::StopAsked { signal } => {
                let by = format!("{signal} to rank {rank}");
                return vec![Output::Tell(Event::StopRequested { by })];
            }
            RankMessage::Step(_)
            | RankMessage::Doing { .. }
            | RankMessage::Validation(_)
            | RankMessage::Saved(_) => {}
        }
        Vec::new()
    }

    fn exited(&mut self, rank: usize, status: ExitStatus) -> Vec<Output> {
        let before = self.ranks[rank];
        let finished = if let Rank::Finished(completed) = before { Some(completed) } else { None };
        self.ranks[rank] = Rank::Gone(finished);
        if self.is_killed || matches!(before, Rank::Finished(_) | Rank::Failed) {
            return Vec::new();
        }
        self.tell(How::Died { status }, Some(rank))
    }

    /// The last word about these ranks, once there are none.
    fn none_is_left(&mut self) -> Option<Output> {
        let is_gone = |rank: &Rank| match rank {
            Rank::Gone(_) => true,
            // It is killed when it comes.
            Rank::Ordered => self.is_killed,
            _ => false,
        };
        if !self.ranks.iter().all(is_gone) {
            return None;
        }
        self.is_over = true;
        let (seat, generation) = (Seat::ONLY, self.generation);
        let ended = |rank: &Rank| if let Rank::Gone(ended) = rank { *ended } else { None };
        let endings: Option<Vec<bool>> = self.ranks.iter().map(ended).collect();
        Some(Output::Tell(match endings {
            Some(endings) => {
                let completed = endings.into_iter().all(|completed| completed);
                Event::Finished { seat, generation, completed }
            }
            None => Event::Cleared { seat, generation },
        }))
    }
}

/// What another start can do about a worker host that has ended before it was told to.
pub(crate) fn class_of_host(status: ExitStatus) -> Class {
    match status {
        ExitStatus::Code(_) => Class::Configuration,
        ExitStatus::Signal(_) => Class::Infrastructure,
    }
}

/// What another start can do about a failure of a worker.
fn class_of(class: FailureClass) -> Class {
    match class {
        FailureClass::Data => Class::Data,
        FailureClass::NonFiniteLoss => Class::Numeric,
        FailureClass::NoSpace => Class::Space,
        // Of a checkpoint that was sound when it was made, there are older ones.
        FailureClass::Storage | FailureClass::Checkpoint => Class::Storage,
        FailureClass::Engine | FailureClass::Internal => Class::Application,
        FailureClass::PeerLost => Class::Infrastructure,
    }
}

#[cfg(test)]
#[path = "ranks_tests.rs"]
mod tests;
