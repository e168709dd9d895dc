//! The state of an engine, in the memory of its tensors.

use pyo3::prelude::*;
use titan_checkpoint::{Dtype, Part, Region, TensorFacts};
use titan_trainer::engine::{StatePart, StateWork};
use titan_trainer::failure::{Failure, FailureClass};

use crate::python_engine::failure;

/// What `Engine.state` of Python has returned: parts of tensors, which it keeps alive.
pub(crate) struct State {
    object: Py<PyAny>,
    parts: Vec<Held>,
}

/// A part that a tensor of Python holds.
struct Held {
    part: Part,
    is_saved_here: bool,
    address: usize,
    bytes: usize,
}

impl State {
    pub(crate) fn of(py: Python<'_>, engine: &Bound<'_, PyAny>) -> Result<Self, Failure> {
        let read = || -> PyResult<Self> {
            let object = engine.call_method0("state")?;
            let parts = object.try_iter()?.map(|part| Held::of(&part?)).collect::<PyResult<_>>()?;
            Ok(Self { object: object.unbind(), parts })
        };
        let state = read().map_err(|error| failure(py, &error))?;
        match state.parts.iter().find(|held| held.part.bytes() != held.bytes as u64) {
            None => Ok(state),
            Some(held) => {
                let message = format!("the tensor of {} has another size", held.part.name);
                Err(Failure::new(FailureClass::Internal, message))
            }
        }
    }

    /// The list of parts.
    pub(crate) fn object(&self) -> &Py<PyAny> {
        &self.object
    }

    /// Shows `work` all parts.
    #[allow(
        unsafe_code,
        reason = "a state is as large as the memory allows, so it is read and written where torch has it"
    )]
    pub(crate) fn show(&self, work: &mut StateWork<'_>) -> Result<(), Failure> {
        let parts = self.parts.iter().map(|held| {
            let Held { part, is_saved_here, address, bytes } = held;
            // SAFETY: the address and the size are those of a tensor without gaps, which `self.object` keeps alive
            // longer than the slice, and whose bytes are all initialized. Parts are of different tensors, so no two
            // slices overlap. Nobody else looks at these tensors: the engine works only when the thread that calls this
            // calls it, it has read all of its steps (see `Engine::state`), and its device has no queue of its own where
            // the memory is not a copy.
            let memory = unsafe { std::slice::from_raw_parts_mut(*address as *mut u8, *bytes) };
            StatePart { part: part.clone(), is_saved_here: *is_saved_here, memory }
        });
        work(parts.collect())
    }
}

impl Held {
    fn of(part: &Bound<'_, PyAny>) -> PyResult<Self> {
        let text: String = part.getattr("dtype")?.extract()?;
        let dtype: Dtype = serde_json::from_value(text.into())
            .map_err(|error| pyo3::exceptions::PyValueError::new_err(error.to_string()))?;
        let shape = part.getattr("shape")?.extract()?;
        let (first_row, last_row) = part.getattr("rows")?.extract()?;
        let (first_column, last_column) = part.getattr("columns")?.extract()?;
        let region = Region { rows: [first_row, last_row], columns: [first_column, last_column] };
        let name = part.getattr("name")?.extract()?;
        Ok(Self {
            part: Part { name, tensor: TensorFacts { dtype, shape }, region },
            is_saved_here: part.getattr("is_saved_here")?.extract()?,
            address: part.getattr("address")?.extract()?,
            bytes: part.getattr("bytes")?.extract()?,
        })
    }
}
