//! How text becomes token ids.

/// A way to turn text into token ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tokenizer {
    /// One token per byte of UTF-8; the id is the byte.
    #[default]
    Bytes,
}

impl Tokenizer {
    /// The number of different ids: every id is below it.
    pub const fn vocab_size(self) -> u32 {
        match self {
            Self::Bytes => 256,
        }
    }
}
