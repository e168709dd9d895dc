//! Pins: a checkpoint that somebody wants to keep.

use serde::{Deserialize, Serialize};

use crate::{Place, Result};

/// Name of the file in the folder of a checkpoint that says that it is kept. It is not of the checkpoint: no hash covers
/// it.
pub const PINNED: &str = "pinned.json";

/// Why a checkpoint is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pin {
    /// What somebody wrote about it.
    pub note: Option<String>,
    /// When, in seconds since 1970.
    pub made: u64,
}

impl Pin {
    /// The pin of a checkpoint, if it has one. A file that cannot be understood, or not even be looked at, is a pin too:
    /// in doubt, a checkpoint is kept.
    pub fn of(checkpoint: &Place) -> Option<Self> {
        match checkpoint.read(PINNED) {
            Ok(content) => Some(serde_json::from_slice(&content).unwrap_or_default()),
            Err(error) if error.is_not_found() => None,
            Err(_) => Some(Self::default()),
        }
    }

    /// Pins a checkpoint, or says something else about one that is pinned.
    ///
    /// # Errors
    /// The disk or the store refuses.
    pub fn put(&self, checkpoint: &Place) -> Result<()> {
        let text = serde_json::to_string(self).unwrap_or_default() + "\n";
        checkpoint.write(PINNED, text.into())
    }

    /// Removes the pin of a checkpoint; whether there was one.
    ///
    /// # Errors
    /// The disk or the store refuses.
    pub fn remove(checkpoint: &Place) -> Result<bool> {
        let is_there = checkpoint.has(PINNED)?;
        checkpoint.remove(PINNED)?;
        Ok(is_there)
    }
}
