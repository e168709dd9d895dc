//! The one place where Rust calls the Python engine.

use pyo3::prelude::*;
use serde_json::to_string;
use titan_trainer::engine::{
    Engine, Evaluation, ExpertLoad, StateWork, StepInput, StepOutput, Wish,
};
use titan_trainer::failure::{Failure, FailureClass};
use titan_trainer::protocol::Rendezvous;
use titan_trainer::spec::EngineConfig;

use crate::state::State;
use crate::tokens::Tokens;

/// What `read` of the engine returns: loss, gradient norm, whether to stop, with a loss mask the number of targets,
/// of a mixture of experts its load, overflow, largest and smallest load, and whether to save.
type Read = (f64, f64, bool, Option<u64>, Option<(Vec<f64>, u64, f64, f64)>, bool);

/// `titan_tpu.engine.Engine` of this rank.
pub(crate) struct PythonEngine {
    object: Py<PyAny>,
    asynchronous: bool,
}

impl PythonEngine {
    /// Makes the engine; returns when all ranks have met.
    pub(crate) fn new(
        py: Python<'_>,
        config: &EngineConfig,
        rank: u64,
        rendezvous: &Rendezvous,
    ) -> Result<Self, Failure> {
        let json =
            |error: serde_json::Error| Failure::new(FailureClass::Internal, error.to_string());
        let arguments =
            (to_string(config).map_err(json)?, rank, to_string(rendezvous).map_err(json)?);
        let make = || -> PyResult<Self> {
            let object = py.import("titan_tpu.engine")?.getattr("Engine")?.call1(arguments)?;
            let asynchronous = object.getattr("asynchronous")?.extract()?;
            Ok(Self { object: object.unbind(), asynchronous })
        };
        make().map_err(|error| failure(py, &error))
    }

    /// Weights of the model, elements of this rank, threads.
    pub(crate) fn describe(&self, py: Python<'_>) -> Result<(u64, u64, u64), Failure> {
        let describe = || -> PyResult<(u64, u64, u64)> {
            let facts = self.object.bind(py).call_method0("describe")?;
            let fact = |name: &str| facts.get_item(name)?.extract::<u64>();
            Ok((fact("parameters_total")?, fact("parameters_local")?, fact("threads")?))
        };
        describe().map_err(|error| failure(py, &error))
    }

    /// Leaves the world. All work is done by then, so a fault is only logged.
    pub(crate) fn close(&self, py: Python<'_>) {
        if let Err(error) = self.object.bind(py).call_method0("close") {
            error.print(py);
        }
    }
}

impl Engine for PythonEngine {
    type Pending = Py<PyAny>;

    fn asynchronous(&self) -> bool {
        self.asynchronous
    }

    fn step(&mut self, input: StepInput) -> Result<Self::Pending, Failure> {
        Python::attach(|py| {
            let step = || -> PyResult<Self::Pending> {
                let Wish { stop, save } = input.wish;
                let arguments = (Tokens::new(input.tokens), input.learning_rate, stop, save);
                Ok(self.object.bind(py).call_method1("step", arguments)?.unbind())
            };
            step().map_err(|error| failure(py, &error))
        })
    }

    fn read(&mut self, pending: Self::Pending) -> Result<StepOutput, Failure> {
        Python::attach(|py| {
            let read = || -> PyResult<Read> {
                self.object.bind(py).call_method1("read", (pending,))?.extract()
            };
            let (loss, grad_norm, stop, targets, experts, save) =
                read().map_err(|error| failure(py, &error))?;
            let experts = experts.map(|(load, overflow, max_load, min_load)| ExpertLoad {
                load,
                max_load,
                min_load,
                overflow,
            });
            Ok(StepOutput { loss, grad_norm, wish: Wish { stop, save }, targets, experts })
        })
    }

    fn evaluate(&mut self, tokens: Vec<i32>, stop: bool) -> Result<Evaluation, Failure> {
        Python::attach(|py| {
            let evaluate = || -> PyResult<(f64, u64, bool)> {
                let engine = self.object.bind(py);
                let handle = engine.call_method1("evaluate", (Tokens::new(tokens), stop))?;
                engine.call_method1("read_evaluation", (handle,))?.extract()
            };
            let (cross_entropy, targets, stop) = evaluate().map_err(|error| failure(py, &error))?;
            Ok(Evaluation { cross_entropy, targets, stop })
        })
    }

    fn state(&mut self, work: &mut StateWork<'_>) -> Result<(), Failure> {
        let state = Python::attach(|py| State::of(py, self.object.bind(py)))?;
        state.show(work)
    }

    fn resume(&mut self, step: u64, work: &mut StateWork<'_>) -> Result<(), Failure> {
        let state = Python::attach(|py| State::of(py, self.object.bind(py)))?;
        state.show(work)?;
        Python::attach(|py| {
            let resume = || self.object.bind(py).call_method1("resume", (state.object(), step));
            resume().map(drop).map_err(|error| failure(py, &error))
        })
    }
}

/// Writes the traceback to the rank's log and keeps one line of it for the user.
pub(crate) fn failure(py: Python<'_>, error: &PyErr) -> Failure {
    error.print(py);
    let kind =
        error.get_type(py).name().map_or_else(|_| "Exception".to_owned(), |name| name.to_string());
    Failure::from_exception(&kind, &error.value(py).to_string())
}
