//! The border between the loop and the mathematics.

use serde::{Deserialize, Serialize};
use titan_checkpoint::Part;

use crate::failure::Failure;

/// What one optimizer step works on.
#[derive(Debug)]
pub struct StepInput {
    /// Token ids of this rank, shape `[accumulation, local_batch, sequence_length + 1]`, row-major. Inputs are
    /// all but the last of each row, targets all but the first. With a loss mask, a negative value `v` stands for
    /// the token `!v`, which is an input and no target.
    pub tokens: Vec<i32>,
    /// The learning rate of this step.
    pub learning_rate: f64,
    /// What this rank wishes. It travels with the loss, so that all ranks learn of it in the same step.
    pub wish: Wish,
}

/// What a rank wishes all ranks to do after a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// To stop.
    pub stop: bool,
    /// To save a checkpoint.
    pub save: bool,
}

impl std::ops::BitOrAssign for Wish {
    fn bitor_assign(&mut self, other: Self) {
        self.stop |= other.stop;
        self.save |= other.save;
    }
}

/// What came out of one optimizer step; equal on all ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct StepOutput {
    /// Mean cross-entropy in nats per target over the global batch.
    pub loss: f64,
    /// Norm of the gradient over all parameters, before clipping.
    pub grad_norm: f64,
    /// What any rank wishes.
    pub wish: Wish,
    /// Targets in the global batch, where a loss mask leaves some tokens out.
    pub targets: Option<u64>,
    /// How tokens were spread over the experts, if there are some.
    pub experts: Option<ExpertLoad>,
}

/// How the tokens of one step were spread over the experts, over all ranks and micro-steps. A load is relative to an
/// even share: 1 is even.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExpertLoad {
    /// Pairs of token and expert that each expert was sent, over all layers.
    pub load: Vec<f64>,
    /// The largest load of any expert in any layer.
    pub max_load: f64,
    /// The smallest load of any expert in any layer.
    pub min_load: f64,
    /// Pairs of token and expert that were left out for lack of capacity.
    pub overflow: u64,
}

/// What came out of one evaluation, summed over all ranks and equal on them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// Sum of the cross-entropy over the targets, in nats.
    pub cross_entropy: f64,
    /// How many targets there were.
    pub targets: u64,
    /// Whether some rank wishes to end.
    pub stop: bool,
}

/// A part of the state of a run, in the memory of this rank's host.
#[derive(Debug)]
pub struct StatePart<'a> {
    /// Which part of which tensor.
    pub part: Part,
    /// Whether this rank saves it; others may have it too.
    pub is_saved_here: bool,
    /// Its elements, row by row.
    pub memory: &'a mut [u8],
}

/// What is done with the parts of a state.
pub type StateWork<'a> = dyn FnMut(Vec<StatePart<'_>>) -> Result<(), Failure> + 'a;

/// A model with its optimizer, on this rank.
pub trait Engine {
    /// A step under way on the device.
    type Pending;

    /// Whether the device has a queue: then a step's result is read while the next step runs.
    fn asynchronous(&self) -> bool;

    /// Starts one optimizer step.
    ///
    /// # Errors
    /// Whatever the engine or a collective reports.
    fn step(&mut self, input: StepInput) -> Result<Self::Pending, Failure>;

    /// Waits for a step and returns its result.
    ///
    /// # Errors
    /// Whatever the engine or a collective reports.
    fn read(&mut self, pending: Self::Pending) -> Result<StepOutput, Failure>;

    /// Computes the cross-entropy of tokens of this rank, shape `[local_batch, sequence_length + 1]`, and waits for
    /// it; changes nothing. A negative value `v` stands for the token `!v`, which is an input and no target, loss
    /// mask or not. `stop` is this rank's wish to end, which travels with it. All ranks must call it together.
    ///
    /// # Errors
    /// Whatever the engine or a collective reports.
    fn evaluate(&mut self, tokens: Vec<i32>, stop: bool) -> Result<Evaluation, Failure>;

    /// Shows `work` the state as it is after the last step that was read; no step may be under way. The parts are the
    /// same ones each time, in the same order.
    ///
    /// # Errors
    /// Whatever the engine or `work` reports.
    fn state(&mut self, work: &mut StateWork<'_>) -> Result<(), Failure>;

    /// As [`state`](Self::state), with work that replaces the state by that of a run after `step` steps.
    ///
    /// # Errors
    /// Whatever the engine or `work` reports.
    fn resume(&mut self, step: u64, work: &mut StateWork<'_>) -> Result<(), Failure>;
}
