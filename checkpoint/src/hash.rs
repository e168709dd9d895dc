//! Hashes of blocks.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// An XXH3-128 hash, written as 32 hexadecimal digits as `xxhsum -H2` does.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hash(u128);

impl Hash {
    /// Digits of the text of a hash.
    pub(crate) const DIGITS: usize = 32;

    /// The hash of bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(xxh3_128(bytes))
    }

    /// The hash of bytes that are in several places.
    pub(crate) fn of_all<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut hasher = Hasher::default();
        pieces.for_each(|piece| hasher.update(piece));
        hasher.finish()
    }
}

/// The hash of bytes that come one after the other.
#[derive(Default)]
pub(crate) struct Hasher(Xxh3);

impl Hasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(&self) -> Hash {
        Hash(self.0.digest128())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hash({self})")
    }
}

impl FromStr for Hash {
    type Err = &'static str;

    /// Takes the one way in which a hash is written, and no other.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_digit = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        if text.len() != Self::DIGITS || !text.bytes().all(is_digit) {
            return Err("a hash has 32 hexadecimal digits");
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_| "a hash has 32 hexadecimal digits")
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
