//! Rectangles of matrices: the whole arithmetic of resharding.

use serde::{Deserialize, Serialize};

/// A rectangle of a tensor that is seen as a matrix (see [`TensorFacts`](crate::TensorFacts)): rows and columns, each as
/// [first, last), the latter not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Region {
    /// Rows.
    pub rows: [u64; 2],
    /// Columns.
    pub columns: [u64; 2],
}

impl Region {
    /// Number of rows.
    pub fn height(&self) -> u64 {
        self.rows[1].saturating_sub(self.rows[0])
    }

    /// Number of columns.
    pub fn width(&self) -> u64 {
        self.columns[1].saturating_sub(self.columns[0])
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.height().saturating_mul(self.width())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.elements() == 0
    }

    /// What two regions have in common; `None` if that is nothing.
    pub fn meet(&self, other: &Self) -> Option<Self> {
        let common = |a: [u64; 2], b: [u64; 2]| [a[0].max(b[0]), a[1].min(b[1])];
        let both = Self {
            rows: common(self.rows, other.rows),
            columns: common(self.columns, other.columns),
        };
        (!both.is_empty()).then_some(both)
    }

    /// Whether all of `other` is in this region.
    pub fn contains(&self, other: &Self) -> bool {
        other.is_empty() || self.meet(other).as_ref() == Some(other)
    }

    /// Whether some regions, of which no two have anything in common, make up this one.
    pub fn is_made_of(&self, parts: &[Self]) -> bool {
        parts.iter().all(|part| self.contains(part))
            && parts.iter().map(Self::elements).fold(0, u64::saturating_add) == self.elements()
            && are_apart(parts)
    }
}

/// Whether no two regions have anything in common.
fn are_apart(regions: &[Region]) -> bool {
    let mut sorted: Vec<&Region> = regions.iter().filter(|region| !region.is_empty()).collect();
    sorted.sort_by_key(|region| region.rows);
    let meets_a_later_one = |(place, region): (usize, &&Region)| {
        // Those that begin behind it, and all after them, are below it.
        let later = sorted[place + 1..].iter().take_while(|later| later.rows[0] < region.rows[1]);
        later.into_iter().any(|later| region.meet(later).is_some())
    };
    !sorted.iter().enumerate().any(meets_a_later_one)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn region() -> impl Strategy<Value = Region> {
        let range = || (0..6_u64, 0..6_u64).prop_map(|(a, b)| [a.min(b), a.max(b)]);
        (range(), range()).prop_map(|(rows, columns)| Region { rows, columns })
    }

    fn has(region: &Region, row: u64, column: u64) -> bool {
        (region.rows[0]..region.rows[1]).contains(&row)
            && (region.columns[0]..region.columns[1]).contains(&column)
    }

    proptest! {
        #[test]
        fn regions_are_sets_of_elements(
            a in region(),
            b in region(),
            parts in proptest::collection::vec(region(), 0..5),
        ) {
            let all = (0..6).flat_map(|row| (0..6).map(move |column| (row, column)));
            let mut is_cover = true;
            for (row, column) in all {
                let both = a.meet(&b).is_some_and(|both| has(&both, row, column));
                prop_assert_eq!(both, has(&a, row, column) && has(&b, row, column));
                let times = parts.iter().filter(|part| has(part, row, column)).count();
                is_cover &= times == usize::from(has(&a, row, column));
            }
            prop_assert_eq!(a.is_made_of(&parts), is_cover);
            prop_assert_eq!(a.contains(&b), b.is_empty() || a.meet(&b) == Some(b));
        }
    }
}
