//! Whole set-ups with a fake interpreter: no network, a second each.

mod choosing;
mod environment;
mod fake;
mod processes;

use std::cell::RefCell;

use super::progress::Progress;

/// Remembers what it was told.
#[derive(Default)]
pub(super) struct Recorder {
    phases: RefCell<Vec<String>>,
    updates: RefCell<Vec<(String, Option<f64>)>>,
    notes: RefCell<Vec<String>>,
}

impl Recorder {
    pub(super) fn notes(&self) -> Vec<String> {
        self.notes.borrow().clone()
    }

    fn phases(&self) -> Vec<String> {
        self.phases.borrow().clone()
    }

    fn updates(&self) -> Vec<(String, Option<f64>)> {
        self.updates.borrow().clone()
    }
}

impl Progress for Recorder {
    fn phase(&self, name: &str) {
        self.phases.borrow_mut().push(name.to_owned());
    }

    fn update(&self, message: &str, fraction: Option<f64>) {
        self.updates.borrow_mut().push((message.to_owned(), fraction));
    }

    fn note(&self, text: &str) {
        self.notes.borrow_mut().push(text.to_owned());
    }
}
