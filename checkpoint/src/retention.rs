//! Which checkpoints are kept, and which are too many.

/// The rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// The last so many are kept; at least one is.
    pub keep_last: u64,
    /// Those whose step it divides are kept for good.
    pub keep_every_steps: Option<u64>,
}

/// What the rule asks about a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its step.
    pub step: u64,
    /// Whether it can be used, as far as is known. Others do not count, and are not removed: they may be anything.
    pub usable: bool,
    /// Whether somebody wants to keep it.
    pub pinned: bool,
}

/// What becomes of a checkpoint, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Kept: it is the newest that can be used.
    Newest,
    /// Kept: it is among the last.
    Last,
    /// Kept: somebody wants it.
    Pinned,
    /// Kept: its step is a multiple of that of the rule.
    Multiple,
    /// Not touched: it cannot be used.
    Unusable,
    /// Too many.
    Surplus,
}

impl Retention {
    /// What becomes of each of some checkpoints, in whatever order they are.
    pub fn sort_out(&self, all: &[Standing]) -> Vec<Fate> {
        let mut steps: Vec<u64> = all.iter().filter(|one| one.usable).map(|one| one.step).collect();
        steps.sort_unstable_by(|a, b| b.cmp(a));
        let last =
            usize::try_from(self.keep_last).unwrap_or(usize::MAX).clamp(1, steps.len().max(1));
        let (newest, oldest) = (steps.first().copied(), steps.get(last - 1).copied());
        let fate = |one: &Standing| match () {
            () if !one.usable => Fate::Unusable,
            () if Some(one.step) == newest => Fate::Newest,
            () if Some(one.step) >= oldest => Fate::Last,
            () if one.pinned => Fate::Pinned,
            () if self.keep_every_steps.is_some_and(|every| one.step.is_multiple_of(every)) => {
                Fate::Multiple
            }
            () => Fate::Surplus,
        };
        all.iter().map(fate).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule() -> impl Strategy<Value = Retention> {
        (0..6_u64, proptest::option::of(1..5_u64))
            .prop_map(|(keep_last, keep_every_steps)| Retention { keep_last, keep_every_steps })
    }

    fn some() -> impl Strategy<Value = Vec<Standing>> {
        let flags = proptest::collection::btree_map(0..40_u64, any::<(bool, bool)>(), 0..20);
        let standings = |flags: std::collections::BTreeMap<u64, (bool, bool)>| {
            let standing = |(step, (usable, pinned))| Standing { step, usable, pinned };
            flags.into_iter().map(standing).collect::<Vec<_>>()
        };
        flags.prop_map(standings).prop_shuffle()
    }

    proptest! {
        #[test]
        fn only_what_is_too_much_is_removed(rule in rule(), all in some()) {
            let fates = rule.sort_out(&all);
            prop_assert_eq!(fates.len(), all.len());
            let is_kept = |fate: &Fate| *fate != Fate::Surplus;
            let newest = all.iter().filter(|one| one.usable).map(|one| one.step).max();
            for (one, fate) in all.iter().zip(&fates) {
                let every = rule.keep_every_steps;
                let must_stay = one.pinned
                    || !one.usable
                    || Some(one.step) == newest
                    || every.is_some_and(|every| one.step % every == 0);
                prop_assert!(is_kept(fate) || !must_stay, "{:?} of {:?}", fate, one);
                let newer = all.iter().filter(|other| other.usable && other.step > one.step).count();
                prop_assert_eq!(
                    is_kept(fate),
                    must_stay || (newer as u64) < rule.keep_last,
                    "{:?} of {:?}", fate, one
                );
            }
            let usable = all.iter().filter(|one| one.usable).count() as u64;
            let kept = all.iter().zip(&fates).filter(|(one, fate)| one.usable && is_kept(fate)).count();
            prop_assert!(kept as u64 >= rule.keep_last.max(1).min(usable));
        }
    }
}
