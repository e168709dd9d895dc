//! Files of tensors that nobody has cut yet.

use crate::{Part, Region, TensorFacts};

/// Cuts whole tensors by rows, in their order, so that no file has more than so many bytes, unless a row has. A tensor is
/// in one file only once.
pub fn cut<'a>(
    tensors: impl IntoIterator<Item = (&'a str, &'a TensorFacts)>,
    file_bytes: u64,
) -> Vec<Vec<Part>> {
    let (mut files, mut file, mut free) = (Vec::new(), Vec::new(), file_bytes);
    for (name, facts) in tensors {
        let Some(whole) = facts.whole() else { continue };
        let row = (whole.width() * facts.dtype.bytes()).max(1);
        let mut first = 0;
        loop {
            let left = whole.height() - first;
            if left > 0 && free < row && !file.is_empty() {
                files.push(std::mem::take(&mut file));
                free = file_bytes;
            }
            let rows = (free / row).max(1).min(left);
            let region = Region { rows: [first, first + rows], columns: whole.columns };
            file.push(Part { name: name.to_owned(), tensor: facts.clone(), region });
            free = free.saturating_sub(rows * row);
            first += rows;
            if first == whole.height() {
                break;
            }
        }
    }
    if !file.is_empty() {
        files.push(file);
    }
    files
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{Dtype, ShardPlan};

    #[test]
    fn a_file_has_more_than_fits_or_two_parts_of_a_tensor() {
        let facts = |shape: &[u64]| TensorFacts { dtype: Dtype::F32, shape: shape.to_vec() };
        let tensors = [
            ("large", facts(&[10, 2, 3])),
            ("nothing", facts(&[0, 3])),
            ("vector", facts(&[7])),
            ("wide", facts(&[2, 100])),
            ("scalar", facts(&[])),
        ];
        let all = || tensors.iter().map(|(name, facts)| (*name, facts));
        for limit in [1, 8, 24, 100, 250, 10_000] {
            let files = cut(all(), limit);
            let mut regions: BTreeMap<&str, Vec<Region>> = BTreeMap::new();
            for file in &files {
                let bytes: u64 = file.iter().map(Part::bytes).sum();
                let largest_row = file.iter().map(|part| part.region.width() * 4).max().unwrap();
                assert!(bytes <= limit.max(largest_row), "{limit}: {file:?}");
                assert!(ShardPlan::new(file.clone()).is_ok());
                for part in file {
                    regions.entry(&part.name).or_default().push(part.region);
                }
            }
            for (name, facts) in all() {
                let own = &regions[name];
                assert!(facts.whole().unwrap().is_made_of(own), "{limit}: {own:?}");
                assert_eq!(own.iter().filter(|region| region.rows[0] == 0).count(), 1);
            }
        }
        assert_eq!(cut(all(), 10_000).len(), 1);
        assert_eq!(cut([], 10_000).len(), 0);
    }
}
