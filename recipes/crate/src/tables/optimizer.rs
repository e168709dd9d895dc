//! `[optimizer]`.

use serde::Serialize;

use crate::diagnostic::Diagnostic;
use crate::reader::{BELOW_ONE, Context, NOT_NEGATIVE, POSITIVE};
use crate::source::Item;
use crate::tree::Table;
use crate::words::choice;

choice! {
    /// An update rule.
    OptimizerName {
        /// Adam with decoupled weight decay.
        AdamW = "adamw",
        /// Orthogonalised momentum for matrices, AdamW for the rest (Jordan 2024).
        Muon = "muon",
        /// Stochastic gradient descent.
        Sgd = "sgd",
    }
}

/// The update rule and its constants.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Optimizer {
    /// The rule.
    pub name: Item<OptimizerName>,
    /// Peak of the learning-rate schedule.
    pub learning_rate: Item<f64>,
    /// AdamW, and the part of Muon that is AdamW: decay of the first and second moment.
    pub betas: Item<[f64; 2]>,
    /// AdamW: added to the root of the second moment.
    pub epsilon: Item<f64>,
    /// SGD and Muon: decay of the velocity; 0 is plain SGD.
    pub momentum: Item<f64>,
    /// Decoupled (AdamW) or added to the gradient (SGD); matrices only, never norms.
    pub weight_decay: Item<f64>,
}

const BETAS: [f64; 2] = [0.9, 0.95];
const EPSILON: f64 = 1e-8;

impl Optimizer {
    pub(crate) fn read(cx: &mut Context<'_>, root: &Table) -> Self {
        let mut t = cx.section(root, "optimizer");
        let name = t.choice::<OptimizerName>("name");
        let name = t.or(name, OptimizerName::AdamW);
        let learning_rate = t.number("learning_rate", POSITIVE);
        let learning_rate = t.required(learning_rate, 1e-3, "3e-4");
        let betas = t.numbers::<2>("betas", BELOW_ONE, "[0.9, 0.95]");
        let betas = t.or(betas, BETAS);
        let epsilon = t.number("epsilon", POSITIVE);
        let epsilon = t.or(epsilon, EPSILON);
        let momentum = t.number("momentum", BELOW_ONE);
        let default_momentum = if *name == OptimizerName::Muon { 0.95 } else { 0.0 };
        let momentum = t.or(momentum, default_momentum);
        let weight_decay = t.number("weight_decay", NOT_NEGATIVE);
        let decay = match *name {
            OptimizerName::AdamW | OptimizerName::Muon => 0.1,
            OptimizerName::Sgd => 0.0,
        };
        let weight_decay = t.or(weight_decay, decay);
        // A resolved recipe spells out the defaults, which are no reason for a warning.
        let momentum_at = momentum.at.as_ref().filter(|_| *momentum != default_momentum);
        let betas_at = betas.at.as_ref().filter(|_| *betas != BETAS);
        let epsilon_at = epsilon.at.as_ref().filter(|_| *epsilon != EPSILON);
        let idle = match *name {
            OptimizerName::AdamW => [("momentum", momentum_at), ("", None)],
            OptimizerName::Muon => [("", None), ("", None)],
            OptimizerName::Sgd => [("betas", betas_at), ("epsilon", epsilon_at)],
        };
        for (key, at) in idle {
            if let Some(at) = at {
                let message = format!("`optimizer.{key}` has no effect with {}", *name);
                let warning = Diagnostic::warning(message).at(at.clone()).label("not used");
                t.context().diagnostics.push(warning);
            }
        }
        t.finish();
        Self { name, learning_rate, betas, epsilon, momentum, weight_decay }
    }
}
