//! What can go wrong with an object store, in words for the person who has to put it right.

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// One problem with an object store. Each text is complete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An address that no object can have.
    #[error("{address}: {problem}; {hint}")]
    Address {
        /// As it was written, without credentials.
        address: String,
        /// What is wrong with it.
        problem: String,
        /// What to write instead.
        hint: String,
    },

    /// A store that does not give or take what is asked of it.
    #[error("{name}: {problem}; {hint}")]
    Store {
        /// The address.
        name: String,
        /// What went wrong.
        problem: String,
        /// What to do.
        hint: String,
    },

    /// There is no such object.
    #[error("{name}: there is no such object")]
    NotFound {
        /// The address.
        name: String,
    },
}
