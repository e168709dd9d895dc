//! Which slices the next generation has.

use std::time::Duration;

use crate::settings::{Policy, Settings};

/// What is known when slices are chosen.
pub(crate) struct Standing<'a> {
    /// Slices all of whose hosts are there and can be used, ascending.
    pub(crate) whole: &'a [u32],
    /// The slices of the generation before.
    pub(crate) before: &'a [u32],
    /// Whether no generation was before.
    pub(crate) is_first: bool,
    /// How long slices were waited for.
    pub(crate) waited: Duration,
}

/// The slices of the next generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// These.
    These(Vec<u32>),
    /// Not yet.
    Wait,
    /// The run has waited long enough.
    GiveUp,
}

/// Chooses the slices: those of before, so that hosts keep what they have; then the lowest numbers. Spares take the places
/// of those that are missing. With too few, the policy decides.
pub(crate) fn choose(settings: &Settings, standing: &Standing<'_>) -> Choice {
    let there = standing.whole.len() as u32;
    let most = settings.usable.iter().copied().filter(|n| *n <= there).max();
    let limits = &settings.limits;
    let is_enough = match (most, settings.policy) {
        (Some(most), _) if most == settings.slices => true,
        // Slices boot at different times: a run does not begin small for that.
        (Some(_), Policy::Shrink) => !standing.is_first || standing.waited >= limits.boot,
        _ => false,
    };
    match most {
        Some(most) if is_enough => {
            let (mut slices, others): (Vec<u32>, Vec<u32>) =
                standing.whole.iter().partition(|slice| standing.before.contains(slice));
            slices.extend(others);
            slices.truncate(most as usize);
            slices.sort_unstable();
            Choice::These(slices)
        }
        _ if standing.waited >= limits.absence.max(limits.boot) => Choice::GiveUp,
        _ => Choice::Wait,
    }
}

/// How many slices a run on `now` of them could have instead, if it were stopped for them.
pub(crate) fn larger(settings: &Settings, now: u32, whole: u32) -> Option<u32> {
    settings.usable.iter().copied().filter(|n| *n <= whole && *n > now).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(policy: Policy) -> Settings {
        // 16 sequences: 3 slices cannot share them.
        Settings { slices: 4, usable: vec![1, 2, 4], policy, ..Settings::one_host() }
    }

    fn chosen(policy: Policy, whole: &[u32], before: &[u32], waited: u64) -> Choice {
        let waited = Duration::from_secs(waited);
        let is_first = before.is_empty();
        choose(&settings(policy), &Standing { whole, before, is_first, waited })
    }

    #[test]
    fn a_run_shrinks_to_what_the_batch_can_be_spread_over_and_takes_spares_first() {
        use Choice::{GiveUp, These, Wait};
        use Policy::{Shrink, Wait as Waits};
        let all = [0, 1, 2, 3];
        assert_eq!(chosen(Shrink, &all, &[], 0), These(all.into()));
        assert_eq!(chosen(Shrink, &[0, 2, 3], &all, 0), These(vec![0, 2]));
        assert_eq!(chosen(Shrink, &[3], &all, 0), These(vec![3]));
        assert_eq!(chosen(Shrink, &[], &all, 0), Wait);
        assert_eq!(chosen(Shrink, &[], &all, 3600), GiveUp);
        assert_eq!(chosen(Waits, &[0, 2, 3], &all, 0), Wait);
        assert_eq!(chosen(Waits, &[0, 2, 3], &all, 3600), GiveUp);
        for policy in [Shrink, Waits] {
            // A spare, number 5, stands in.
            assert_eq!(chosen(policy, &[0, 2, 3, 5], &all, 0), These(vec![0, 2, 3, 5]));
            assert_eq!(chosen(policy, &[0, 1, 2, 3, 5], &[0, 2, 3, 5], 0), These(vec![0, 2, 3, 5]));
        }
        // The first start waits for machines that boot.
        assert_eq!(chosen(Shrink, &[0, 1], &[], 60), Wait);
        assert_eq!(chosen(Shrink, &[0, 1], &[], 1200), These(vec![0, 1]));
    }

    #[test]
    fn a_small_run_grows_by_as_much_as_the_batch_allows() {
        let settings = settings(Policy::Shrink);
        assert_eq!(larger(&settings, 2, 3), None);
        assert_eq!(larger(&settings, 1, 3), Some(2));
        assert_eq!(larger(&settings, 2, 5), Some(4));
        assert_eq!(larger(&settings, 4, 5), None);
    }
}
