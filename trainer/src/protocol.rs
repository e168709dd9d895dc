//! What launcher, worker host and workers say to each other: JSON, one object a line.
//!
//! Three channels, all of them Unix sockets that the launcher makes, so that nothing listens on a name:
//! - launcher to *worker host* (the process that has imported torch and forks ranks): [`HostOrder`] with file
//!   descriptors attached, answered by [`HostMessage`];
//! - launcher to rank: one [`Assignment`], then [`RankOrder`];
//! - rank to launcher: [`RankMessage`].
//!
//! A channel that closes is itself a message: the other side is gone.

use serde::{Deserialize, Serialize};

use crate::engine::ExpertLoad;
use crate::failure::Failure;
use crate::saver::SaveOutcome;
use crate::spec::RunSpec;

/// Changes whenever a message changes its meaning. Launcher and native module are built together, so a
/// difference means that files of two versions were mixed.
pub const PROTOCOL: u32 = 6;

/// The environment variable that names the launcher's process id to the worker host.
pub const LAUNCHER_PID: &str = "TITAN_LAUNCHER_PID";

/// The environment variable that names the run to all of its processes.
pub const RUN_ID: &str = "TITAN_RUN_ID";

/// A kind of file descriptor that comes with a [`HostOrder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attachment {
    /// The rank's end of its channel to the launcher.
    Channel,
    /// The file that receives the rank's stdout and stderr.
    Log,
    /// A listening socket for the key-value store of the rendezvous.
    Rendezvous,
}

/// An order to the worker host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum HostOrder {
    /// Fork a rank and leave it to the launcher.
    Spawn {
        /// Which start of all ranks this is for.
        generation: u64,
        /// The rank.
        rank: u64,
        /// What the attached file descriptors are, in their order.
        attached: Vec<Attachment>,
    },
}

/// What the worker host reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum HostMessage {
    /// Imports are done; ranks can be forked.
    Ready {
        /// [`PROTOCOL`] of the native module.
        protocol: u32,
        /// Seconds that importing torch and the engine took.
        import_seconds: f64,
    },
    /// A rank was forked.
    Spawned {
        /// Which start of all ranks it is for.
        generation: u64,
        /// The rank.
        rank: u64,
        /// Its process id.
        pid: u32,
    },
    /// An order could not be carried out.
    Failed {
        /// Which start of all ranks it was for; 0 if that is not known.
        generation: u64,
        /// Why.
        message: String,
    },
}

/// Where the ranks of a world meet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rendezvous {
    /// Host of rank 0.
    pub host: String,
    /// Port of the key-value store.
    pub port: u16,
    /// On rank 0 the number of the descriptor that already listens on that port.
    pub listen_fd: Option<i32>,
    /// How long a rank waits for the others, at the meeting and in every collective.
    pub timeout_seconds: u64,
}

/// What a rank is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// The rank.
    pub rank: u64,
    /// Where the ranks meet.
    pub rendezvous: Rendezvous,
    /// The run.
    pub run: RunSpec,
}

/// An order to a rank that is training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RankOrder {
    /// Finish the step under way, together with all other ranks, and end.
    Stop,
}

/// Why a rank ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// All steps are done.
    Completed,
    /// It was told to stop.
    Stopped,
}

/// What a rank does that is no step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// Batches of a validation, each of which is progress.
    Validating,
    /// Waiting for a save.
    Saving,
}

/// What a rank reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RankMessage {
    /// The engine is made and has met the other ranks.
    Ready {
        /// Seconds that took.
        engine_seconds: f64,
        /// Weights of the whole model.
        parameters_total: u64,
        /// Elements that this rank holds, padding included.
        parameters_local: u64,
        /// Threads that it computes with.
        threads: u64,
    },
    /// Something else than a step is being done, which is no reason to think that the rank is stuck.
    Doing {
        /// What.
        doing: Doing,
    },
    /// The rank itself was told to end, by a signal: it will stop with all others.
    StopAsked {
        /// The signal.
        signal: String,
    },
    /// A step is done.
    Step(RankStep),
    /// A validation is done.
    Validation(RankValidation),
    /// The rank's part of a checkpoint is on the disk, or is not in the local tier.
    Saved(SaveOutcome),
    /// The rank is done and will exit with 0.
    Finished {
        /// Why.
        ending: Ending,
        /// The last step that is done.
        step: u64,
    },
    /// The rank has failed and will exit.
    Failed {
        /// The step that was under way.
        step: u64,
        /// Why.
        failure: Failure,
    },
}

/// One step as one rank saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankStep {
    /// The step, from 1.
    pub step: u64,
    /// Mean loss over the global batch, equal on all ranks.
    #[serde(with = "any_float")]
    pub loss: f64,
    /// Norm of the whole gradient before clipping, equal on all ranks.
    #[serde(with = "any_float")]
    pub grad_norm: f64,
    /// Learning rate of the step.
    pub lr: f64,
    /// Seconds since the step before was done.
    pub step_seconds: f64,
    /// Seconds of those that this rank waited for data.
    pub data_seconds: f64,
    /// Targets in the global batch, where a loss mask leaves some tokens out; equal on all ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<u64>,
    /// How tokens were spread over the experts; equal on all ranks, so rank 0 alone sends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experts: Option<ExpertLoad>,
}

/// One validation as one rank saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankValidation {
    /// The step after which the model was validated.
    pub step: u64,
    /// Mean cross-entropy in nats per target over the validation data, equal on all ranks.
    #[serde(with = "any_float")]
    pub loss: f64,
    /// Targets in the validation data, equal on all ranks.
    pub targets: u64,
    /// Seconds that it took, data included.
    pub seconds: f64,
}

/// Floats of every kind: JSON has no NaN and no infinity, and a loss can be either.
mod any_float {
    use std::fmt;

    use serde::de::{Error, Visitor};
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        if value.is_finite() {
            serializer.serialize_f64(*value)
        } else {
            serializer.collect_str(value)
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        struct Float;
        impl Visitor<'_> for Float {
            type Value = f64;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or the name of one that JSON lacks")
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<f64, E> {
                Ok(value)
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<f64, E> {
                Ok(value as f64)
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<f64, E> {
                Ok(value as f64)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<f64, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Float)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_float_survives_the_channel() {
        for loss in [0.1 + 0.2, 5.0, f64::MIN_POSITIVE, f64::INFINITY, f64::NEG_INFINITY, f64::NAN]
        {
            let step = RankStep {
                step: 1,
                loss,
                grad_norm: loss,
                lr: 1e-3,
                step_seconds: 0.5,
                data_seconds: 0.0,
                targets: None,
                experts: None,
            };
            let text = serde_json::to_string(&RankMessage::Step(step)).unwrap();
            let Ok(RankMessage::Step(back)) = serde_json::from_str(&text) else { panic!("{text}") };
            assert_eq!(back.loss.to_bits(), loss.to_bits(), "{text}");

            let validation = RankValidation { step: 1, loss, targets: 7, seconds: 0.5 };
            let text = serde_json::to_string(&RankMessage::Validation(validation)).unwrap();
            let Ok(RankMessage::Validation(back)) = serde_json::from_str(&text) else {
                panic!("{text}")
            };
            assert_eq!(back.loss.to_bits(), loss.to_bits(), "{text}");
        }
    }

    #[test]
    fn what_a_run_may_lack_crosses_the_channel_where_it_is_there() {
        let experts =
            ExpertLoad { load: vec![1.5, 0.5], max_load: 2.0, min_load: 0.0, overflow: 3 };
        for experts in [None, Some(experts)] {
            let step = RankStep {
                step: 1,
                loss: 1.0,
                grad_norm: 1.0,
                lr: 1e-3,
                step_seconds: 0.5,
                data_seconds: 0.0,
                targets: experts.as_ref().map(|_| 9),
                experts,
            };
            let text = serde_json::to_string(&step).unwrap();
            assert_eq!(text.contains("experts"), step.experts.is_some(), "{text}");
            assert_eq!(text.contains("targets"), step.targets.is_some(), "{text}");
            assert_eq!(serde_json::from_str::<RankStep>(&text).unwrap(), step);
        }
    }
}
