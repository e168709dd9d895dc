//! Cutting a stream of tokens into samples of equal length.

use std::iter::Sum;
use std::num::NonZeroU64;

use serde::Serialize;

use crate::{Error, Result};

/// How a stream is cut: sample `i` is the tokens `i*T ..= i*T + T`.
///
/// Those are T + 1 tokens, T inputs and the T targets that follow them. A sample's last token is
/// the next sample's first one, so that every token but the first of the stream is a target exactly
/// once in an epoch, and none is a target twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    tokens: u64,
    /// Not 0.
    sequence_length: u64,
}

/// Where the tokens of one epoch went: `tokens_in == trained_per_epoch + cropped + remainder`, always.
///
/// Nothing is padded and nothing is cropped: a document that is longer than a sample goes on in the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TokenAccount {
    /// Documents of the stream.
    pub documents: u64,
    /// Tokens in the stream.
    pub tokens_in: u64,
    /// Tokens that are a target once per epoch (of instruction data also those that are not learned).
    pub trained_per_epoch: u64,
    /// Tokens that were cut off documents: 0.
    pub cropped: u64,
    /// Tokens that were added to fill samples: 0.
    pub padded: u64,
    /// Tokens that are no target: the first of a stream, which nothing comes before, and those at its end that do not
    /// fill another sample. Never more than a sample.
    pub remainder: u64,
}

impl Sum for TokenAccount {
    fn sum<I: Iterator<Item = Self>>(accounts: I) -> Self {
        accounts.fold(Self::default(), |a, b| Self {
            documents: a.documents + b.documents,
            tokens_in: a.tokens_in + b.tokens_in,
            trained_per_epoch: a.trained_per_epoch + b.trained_per_epoch,
            cropped: a.cropped + b.cropped,
            padded: a.padded + b.padded,
            remainder: a.remainder + b.remainder,
        })
    }
}

impl Packing {
    /// Cuts `tokens` tokens into samples of `sequence_length` inputs.
    pub fn new(tokens: u64, sequence_length: u64) -> Result<Self> {
        if sequence_length == 0 {
            return Err(Error::Zero { what: "sequence_length" });
        }
        Ok(Self { tokens, sequence_length })
    }

    /// T, the inputs of one sample.
    pub const fn sequence_length(self) -> u64 {
        self.sequence_length
    }

    /// The number of whole samples.
    pub const fn samples(self) -> u64 {
        self.tokens.saturating_sub(1) / self.sequence_length
    }

    /// The number of samples, if a step of `global_batch` samples can take all of them different.
    pub fn enough_for(self, global_batch: u64) -> Result<NonZeroU64> {
        let samples = self.samples();
        match NonZeroU64::new(samples) {
            Some(enough) if samples >= global_batch => Ok(enough),
            _ => Err(Error::TooSmall {
                name: None,
                tokens: self.tokens,
                sequence_length: self.sequence_length,
                samples,
                global_batch,
            }),
        }
    }

    /// The position in the stream of a sample's first token.
    pub const fn start(self, sample: u64) -> u64 {
        sample * self.sequence_length
    }

    /// Where the tokens of one epoch go.
    pub fn account(self) -> TokenAccount {
        let trained_per_epoch = self.samples() * self.sequence_length;
        TokenAccount {
            tokens_in: self.tokens,
            trained_per_epoch,
            remainder: self.tokens - trained_per_epoch,
            ..TokenAccount::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packing(tokens: u64, sequence_length: u64) -> Packing {
        Packing::new(tokens, sequence_length).unwrap()
    }

    fn samples(tokens: u64, sequence_length: u64) -> u64 {
        packing(tokens, sequence_length).samples()
    }

    fn too_small(tokens: u64, sequence_length: u64, global_batch: u64) -> String {
        packing(tokens, sequence_length).enough_for(global_batch).unwrap_err().to_string()
    }

    #[test]
    fn a_sample_needs_one_token_more_than_its_length() {
        assert_eq!(samples(0, 4), 0);
        assert_eq!(samples(1, 4), 0);
        assert_eq!(samples(4, 4), 0);
        assert_eq!(samples(5, 4), 1);
        assert_eq!(samples(8, 4), 1);
        assert_eq!(samples(9, 4), 2);
        assert_eq!(samples(u64::MAX, 1), u64::MAX - 1);
    }

    #[test]
    fn account_of_shakespeare() {
        let account = packing(1_119_740, 256).account();
        let expected = TokenAccount {
            tokens_in: 1_119_740,
            trained_per_epoch: 4373 * 256,
            remainder: 252,
            ..TokenAccount::default()
        };
        assert_eq!(account, expected);
    }

    #[test]
    fn a_step_needs_as_many_samples_as_its_batch() {
        assert_eq!(packing(41, 10).enough_for(4).unwrap().get(), 4);
        assert_eq!(
            too_small(40, 10, 4),
            "the data is too small: 40 tokens make 3 samples of sequence_length 10, but one step \
             takes global_batch 4 different samples; lower training.global_batch to 3 or less, or \
             lower training.sequence_length to 9 or less, or give at least 41 tokens of data"
        );
        // What is proposed works, and only what works is proposed.
        packing(40, 10).enough_for(3).unwrap();
        packing(40, 9).enough_for(4).unwrap();
        assert!(!too_small(4, 10, 2).contains("global_batch to"));
        assert!(too_small(4, 10, 2).contains("sequence_length to 1 or less, or give at least 21"));
        assert!(too_small(2, 10, 2).ends_with("samples; give at least 21 tokens of data"));
        assert!(matches!(packing(0, 1).enough_for(0), Err(Error::TooSmall { .. })));
        assert!(matches!(Packing::new(5, 0), Err(Error::Zero { what: "sequence_length" })));
    }

    proptest! {
        #[test]
        fn the_account_closes(tokens in any::<u64>(), sequence_length in 1..=u64::MAX) {
            let packing = packing(tokens, sequence_length);
            let account = packing.account();
            // In u128, so that a wrong sum cannot hide behind an overflow.
            let sum = u128::from(account.trained_per_epoch)
                + u128::from(account.cropped)
                + u128::from(account.remainder);
            prop_assert_eq!(sum, u128::from(account.tokens_in));
            prop_assert_eq!(account.tokens_in, tokens);
            prop_assert!(account.remainder <= sequence_length);
            prop_assert_eq!(account.trained_per_epoch, packing.samples() * sequence_length);
        }

        #[test]
        fn every_token_but_the_first_is_a_target_once(
            tokens in 0u64..500,
            sequence_length in 1u64..40,
        ) {
            let packing = packing(tokens, sequence_length);
            let mut targets = vec![0; tokens as usize];
            for sample in 0..packing.samples() {
                let start = packing.start(sample);
                for target in start + 1..=start + sequence_length {
                    targets[target as usize] += 1;
                }
            }
            let account = packing.account();
            let first = targets.len().min(1);
            let trained = first + account.trained_per_epoch as usize;
            prop_assert!(targets[..first].iter().all(|&count| count == 0));
            prop_assert!(targets[first..trained].iter().all(|&count| count == 1));
            prop_assert!(targets[trained..].iter().all(|&count| count == 0));
        }
    }
}
