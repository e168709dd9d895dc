//! Whether a run that has failed is started again, and when.

use std::time::Duration;

use crate::failure::{Class, Failure};
use crate::settings::{Backoff, Budgets};

/// Restarts so far.
#[derive(Clone, Debug, PartialEq, Default)]
pub(crate) struct Restarts {
    /// After failures of machines, processes, the network and storage, since there was progress.
    infrastructure: u32,
    /// After failures of the program, in all.
    application: u32,
    /// How far the run had come at the last failure.
    mark: u64,
    /// The last failure of the program.
    last: Option<Failure>,
}

/// What follows from a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Start again after this time.
    Again(Duration, String),
    /// Give up.
    GiveUp(String),
}

impl Restarts {
    /// What follows from a failure of a run that has come as far as `mark`: the last step that is saved, or, of a run that
    /// saves none, the furthest that was done. `has_trained` is whether any start did a step.
    pub(crate) fn after(
        &mut self,
        failure: &Failure,
        mark: u64,
        has_trained: bool,
        budgets: &Budgets,
        backoff: &Backoff,
    ) -> Next {
        let class = failure.class();
        if !class.can_be_retried() {
            return Next::GiveUp(format!("another start cannot help with a failure of {class}"));
        }
        if mark > self.mark {
            (self.infrastructure, self.mark, self.last) = (0, mark, None);
        }
        if budgets.infrastructure == 0 {
            return Next::GiveUp("elastic.max_restarts is 0".to_owned());
        }
        match class {
            Class::Application if !has_trained => {
                Next::GiveUp("the program has never done a step: it would fail again".to_owned())
            }
            Class::Application => self.after_fault(failure, budgets),
            _ => {
                let first = if class == Class::Storage { backoff.storage } else { Duration::ZERO };
                self.after_accident(first, mark, budgets, backoff)
            }
        }
    }

    fn after_accident(
        &mut self,
        first: Duration,
        mark: u64,
        budgets: &Budgets,
        backoff: &Backoff,
    ) -> Next {
        let (used, most) = (self.infrastructure, budgets.infrastructure);
        if used >= most {
            let since = match mark {
                0 => "since the run began".to_owned(),
                step => format!("since step {step}"),
            };
            return Next::GiveUp(format!(
                "{used} of {most} restarts (elastic.max_restarts) brought no progress {since}"
            ));
        }
        self.infrastructure += 1;
        let doubled = |base: Duration| base.saturating_mul(1 << (used.min(20)));
        let wait = match used {
            0 => first,
            _ => doubled(backoff.first.max(first)) / 2,
        };
        let text = format!("restart {} of at most {most} without progress", used + 1);
        Next::Again(wait.min(backoff.longest), text)
    }

    fn after_fault(&mut self, failure: &Failure, budgets: &Budgets) -> Next {
        let (used, most) = (self.application, budgets.application);
        if self.last.as_ref().is_some_and(|last| last.is_like(failure)) {
            let text = "it is the same failure as before, at the same place: it would come again";
            return Next::GiveUp(text.to_owned());
        }
        if used >= most {
            return Next::GiveUp(format!(
                "the program has failed too often: {used} restarts were allowed \
                 (elastic.max_application_restarts)"
            ));
        }
        self.application += 1;
        self.last = Some(failure.clone());
        let text = format!("restart {} of at most {most} after failures of the program", used + 1);
        Next::Again(Duration::ZERO, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seat;
    use crate::failure::{ExitStatus, How};

    fn failed(how: How) -> Failure {
        Failure { seat: Seat::ONLY, rank: Some(1), how }
    }

    fn killed() -> Failure {
        failed(How::Died { status: ExitStatus::Signal(9) })
    }

    fn raised(step: u64, class: Class) -> Failure {
        let text = "ValueError: no".to_owned();
        failed(How::Reported { step, class, is_consequence: false, text })
    }

    fn wait(next: &Next) -> Option<f64> {
        match next {
            Next::Again(wait, _) => Some(wait.as_secs_f64()),
            Next::GiveUp(_) => None,
        }
    }

    #[test]
    fn accidents_are_forgiven_as_long_as_there_is_progress() {
        let (budgets, backoff) =
            (Budgets { infrastructure: 4, application: 2 }, Backoff::default());
        let mut restarts = Restarts::default();
        let mut after = |failure: &Failure, mark| {
            wait(&restarts.after(failure, mark, true, &budgets, &backoff))
        };
        for mark in 1..100 {
            assert_eq!(after(&killed(), mark), Some(0.0), "{mark}");
        }
        let waits: Vec<_> = (0..4).map(|_| after(&killed(), 99)).collect();
        assert_eq!(waits, [Some(1.0), Some(2.0), Some(4.0), None]);
        assert_eq!(after(&killed(), 100), Some(0.0));
        // A store gets more time.
        let waits: Vec<_> = [101; 4].map(|mark| after(&raised(7, Class::Storage), mark)).into();
        assert_eq!(waits, [Some(5.0), Some(5.0), Some(10.0), Some(20.0)]);
    }

    #[test]
    fn a_fault_of_the_program_is_not_tried_for_ever() {
        let (budgets, backoff) = (Budgets::default(), Backoff::default());
        let mut restarts = Restarts::default();
        let mut after =
            |failure: Failure, mark| restarts.after(&failure, mark, true, &budgets, &backoff);
        assert_eq!(wait(&after(raised(7, Class::Application), 5)), Some(0.0));
        let Next::GiveUp(why) = after(raised(7, Class::Application), 5) else { panic!() };
        assert!(why.contains("at the same place"), "{why}");
        assert_eq!(wait(&after(raised(8, Class::Application), 5)), Some(0.0));
        let Next::GiveUp(why) = after(raised(9, Class::Application), 8) else { panic!() };
        assert!(why.contains("too often: 2"), "{why}");
        for class in [Class::Data, Class::Numeric, Class::Configuration, Class::Space] {
            assert_eq!(wait(&after(raised(1, class), 50)), None);
        }
    }

    #[test]
    fn a_program_that_never_worked_is_not_tried_again() {
        let fault = raised(0, Class::Application);
        let (budgets, backoff) = (Budgets::default(), Backoff::default());
        let after = |failure| Restarts::default().after(failure, 0, false, &budgets, &backoff);
        assert!(matches!(after(&fault), Next::GiveUp(why) if why.contains("never done a step")));
        assert_eq!(wait(&after(&killed())), Some(0.0));
    }

    #[test]
    fn without_restarts_there_are_none() {
        let budgets = Budgets { infrastructure: 0, application: 2 };
        for failure in [killed(), raised(7, Class::Application)] {
            let next = Restarts::default().after(&failure, 9, true, &budgets, &Backoff::default());
            assert_eq!(next, Next::GiveUp("elastic.max_restarts is 0".to_owned()));
        }
    }
}
