//! Which samples make a step, and who takes which of them.

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// How the samples of a step are shared out: `global_batch = accumulation * data_parallel_degree *
/// local_batch`.
///
/// A step takes the next `G` places of the order, whatever the number of ranks; that is why a run can
/// shrink and grow, raising and lowering `accumulation`, and still train on the same samples in the
/// same step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchPlan {
    /// G, samples of one step.
    pub global_batch: u64,
    /// A, micro-steps of one step.
    pub accumulation: u64,
    /// W, ranks that read different data.
    pub data_parallel_degree: u64,
    /// B, samples per rank and micro-step.
    pub local_batch: u64,
    /// The step that this plan begins with, from 0: a run that goes on may have another batch than before.
    pub first_step: u64,
    /// The place in the order that this step begins at, see [`Cursor`](crate::Cursor).
    pub first_sample: u64,
}

impl BatchPlan {
    /// Checks that the parts are not zero and make the whole.
    pub fn check(&self) -> Result<()> {
        let sizes = [
            ("global_batch", self.global_batch),
            ("accumulation", self.accumulation),
            ("data-parallel degree", self.data_parallel_degree),
            ("local_batch", self.local_batch),
        ];
        for (what, value) in sizes {
            if value == 0 {
                return Err(Error::Zero { what });
            }
        }
        let product = self
            .accumulation
            .checked_mul(self.data_parallel_degree)
            .and_then(|ranks| ranks.checked_mul(self.local_batch));
        if product != Some(self.global_batch) {
            return Err(Error::UnevenBatch {
                global_batch: self.global_batch,
                accumulation: self.accumulation,
                data_parallel_degree: self.data_parallel_degree,
                local_batch: self.local_batch,
            });
        }
        Ok(())
    }

    /// The place in the order of row `row` of micro-step `micro` of rank `rank` in step `step`, which must be from
    /// `first_step` to [`last_step`](Self::last_step).
    pub fn place(&self, step: u64, micro: u64, rank: u64, row: u64) -> u64 {
        self.samples_before(step)
            + (micro * self.data_parallel_degree + rank) * self.local_batch
            + row
    }

    /// The samples of all steps before `step`: the place of its first.
    pub fn samples_before(&self, step: u64) -> u64 {
        self.first_sample + (step - self.first_step) * self.global_batch
    }

    /// The last step whose places 64 bits can count.
    pub fn last_step(&self) -> u64 {
        let steps = (u64::MAX - self.first_sample) / self.global_batch;
        self.first_step.saturating_add(steps).saturating_sub(1)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plan(accumulation: u64, data_parallel_degree: u64, local_batch: u64) -> BatchPlan {
        let global_batch = accumulation * data_parallel_degree * local_batch;
        BatchPlan {
            global_batch,
            accumulation,
            data_parallel_degree,
            local_batch,
            first_step: 0,
            first_sample: 0,
        }
    }

    /// A small plan that fits together.
    pub(crate) fn any_plan() -> impl Strategy<Value = BatchPlan> {
        (1u64..5, 1u64..5, 1u64..5).prop_map(|(a, w, b)| plan(a, w, b))
    }

    #[test]
    fn a_plan_must_fit_together() {
        plan(2, 3, 4).check().unwrap();
        let uneven = BatchPlan { global_batch: 25, ..plan(2, 3, 4) };
        assert_eq!(
            uneven.check().unwrap_err().to_string(),
            "global_batch is 25, but accumulation 2 x data-parallel degree 3 x local_batch 4 = 24"
        );
        let zero = BatchPlan { local_batch: 0, ..plan(2, 3, 4) };
        assert!(matches!(zero.check(), Err(Error::Zero { what: "local_batch" })));
        let huge = BatchPlan { accumulation: u64::MAX, ..plan(2, 3, 4) };
        assert!(matches!(huge.check(), Err(Error::UnevenBatch { .. })));
    }

    #[test]
    fn places_are_in_the_order_step_micro_rank_row() {
        let plan = plan(2, 3, 4);
        assert_eq!(plan.place(0, 0, 0, 0), 0);
        assert_eq!(plan.place(0, 0, 0, 3), 3);
        assert_eq!(plan.place(0, 0, 1, 0), 4);
        assert_eq!(plan.place(0, 1, 0, 0), 12);
        assert_eq!(plan.place(1, 0, 0, 0), 24);
        assert_eq!(plan.place(10, 1, 2, 3), 263);
        assert!(plan.place(plan.last_step(), 1, 2, 3) > u64::MAX - 24);
    }

    proptest! {
        /// Disjoint and complete, and so the same set for every world size and accumulation.
        #[test]
        fn the_places_of_a_step_are_a_range(plan in any_plan(), step in 0u64..1_000_000) {
            let mut places = Vec::new();
            for micro in 0..plan.accumulation {
                for rank in 0..plan.data_parallel_degree {
                    let rows = 0..plan.local_batch;
                    places.extend(rows.map(|row| plan.place(step, micro, rank, row)));
                }
            }
            let start = step * plan.global_batch;
            prop_assert!(places.into_iter().eq(start..start + plan.global_batch));
        }
    }
}
