//! What a recipe is loaded for.

/// What a recipe is loaded for: it decides what of the world must be there, and what the engine must be able to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To reckon with it: the files it names do not matter.
    Plan,
    /// To check it: files are looked at where the run would be on this machine.
    Check,
    /// To train it here and now, with the engine of this version.
    Train,
}
