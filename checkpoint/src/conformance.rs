//! The laws of every kind of place, for tests: the same for folders and for each object store.

#![allow(clippy::unwrap_used, reason = "this is part of tests")]

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;

use crate::*;

/// Rows of 4 KiB: more than a piece of a file has, and not a whole number of pieces.
const ROWS: u64 = 4500;
const WIDTH: u64 = 1024;

fn facts() -> TensorFacts {
    TensorFacts { dtype: Dtype::F32, shape: vec![2 * ROWS, WIDTH] }
}

fn content(rank: u64, seed: u8) -> Vec<u8> {
    // No period of it is one of a piece or a block.
    let period: Vec<u8> = (0..40_961_u32).map(|at| (at / 7) as u8 ^ seed ^ rank as u8).collect();
    let mut content = period.repeat((ROWS * WIDTH * 4) as usize / period.len() + 1);
    content.truncate((ROWS * WIDTH * 4) as usize);
    content
}

/// Writes the file of a rank.
fn write(staged: &Staged, rank: u64, seed: u8) -> FileFacts {
    let region = Region { rows: [rank * ROWS, (rank + 1) * ROWS], columns: [0, WIDTH] };
    let part = Part { name: "matrix".to_owned(), tensor: facts(), region };
    let image = Image::new(ShardPlan::new(vec![part]).unwrap(), 2).unwrap();
    let name = shard_name(staged.place(), rank, &format!("conformance-{seed}"));
    let content = content(rank, seed);
    let stop = Arc::new(AtomicBool::new(false));
    let targets = vec![(staged.place().clone(), name)];
    let writer = ShardWriter::start(targets, image, &[&content], 2, &stop).unwrap();
    let (written, _) = writer.next(Duration::from_secs(120)).unwrap();
    assert!(writer.finish().is_some(), "the memory is used again");
    written.unwrap()
}

fn save(root: &Place, step: u64, seed: u8) -> Place {
    let staged = Staged::begin(root, step, "conformance").unwrap();
    let files = (0..2).map(|rank| write(&staged, rank, seed)).collect();
    staged.commit(json!({"id": "conformance"}), files).unwrap()
}

/// All of a checkpoint.
fn load(place: &Place) -> Result<Vec<u8>> {
    let mut into = vec![0; (2 * ROWS * WIDTH * 4) as usize];
    let (name, tensor) = ("matrix".to_owned(), facts());
    let region = tensor.whole().unwrap();
    let wanted = vec![Wanted { name, tensor, region, into: &mut into }];
    restore(&[open(place)?], wanted, 4, &AtomicBool::new(false))?;
    Ok(into)
}

#[track_caller]
fn is_whole(place: &Place, seed: u8) {
    let expected: Vec<u8> = (0..2).flat_map(|rank| content(rank, seed)).collect();
    assert!(load(place).unwrap() == expected, "{place} has other bytes");
    let found = verify(place, 4, &AtomicBool::new(false), &|_| {}).unwrap();
    assert_eq!(found.bad, []);
    assert_eq!(found.files, 3);
}

fn steps(root: &Place) -> Vec<u64> {
    list(root).unwrap().iter().map(|found| found.step).collect()
}

/// Flips a bit of a file, or of an object.
fn damage(place: &Place, name: &str) {
    let mut content = place.read(name).unwrap();
    let last = content.len() - 1;
    content[last] ^= 1;
    match place {
        Place::Folder(path) => fs::write(path.join(name), content).unwrap(),
        Place::Objects(prefix) => {
            prefix.store().unwrap().put(&prefix.key(name), Bytes::from(content)).unwrap();
        }
    }
}

/// Checks that checkpoints can be kept in `root`, in which there is nothing yet.
///
/// # Panics
/// A law is broken.
pub fn check(root: &Place) {
    assert_eq!(list(root).unwrap(), [], "nothing is there yet");
    probe(root).unwrap();
    let missing = open(root.join("step-00000007")).unwrap_err();
    assert!(missing.is_not_found(), "{missing}");

    let first = save(root, 7, 1);
    let second = save(root, 10, 2);
    assert_eq!(steps(root), [7, 10]);
    is_whole(&first, 1);
    is_whole(&second, 2);

    // Never written over, whoever tries.
    let error = Staged::begin(root, 7, "conformance").unwrap_err();
    assert!(matches!(error, Error::Exists { .. }), "{error}");
    is_whole(&first, 1);

    // What is not committed is none, and nobody else's to remove.
    let staged = Staged::begin(root, 12, "conformance").unwrap();
    let files = vec![write(&staged, 0, 3), write(&staged, 1, 3)];
    assert_eq!(steps(root), [7, 10]);
    assert_eq!(remove_abandoned(root, "another").unwrap(), 0);
    let late = staged.commit(json!({"id": "conformance"}), files).unwrap();
    is_whole(&late, 3);
    write(&Staged::begin(root, 14, "conformance").unwrap(), 0, 3);
    assert_eq!(remove_abandoned(root, "conformance").unwrap(), 1);
    assert_eq!(steps(root), [7, 10, 12]);

    // A part is missing.
    let staged = Staged::begin(root, 16, "conformance").unwrap();
    let half = vec![write(&staged, 0, 3)];
    assert!(matches!(staged.commit(json!({}), half), Err(Error::Lacks { .. })));
    assert_eq!(remove_abandoned(root, "conformance").unwrap(), 1);

    // Two starts of a run come to the same step.
    set_aside(&late, "superseded-2").unwrap();
    assert_eq!(steps(root), [7, 10]);
    is_whole(&save(root, 12, 4), 4);
    assert_eq!(remove_abandoned(root, "conformance").unwrap(), 0);

    remove_checkpoint(&first).unwrap();
    assert_eq!(steps(root), [10, 12]);
    assert!(open(&first).unwrap_err().is_not_found());

    for name in [&open(&second).unwrap().manifest().files[1].name, MANIFEST] {
        damage(&second, name);
        assert!(load(&second).is_err(), "{name} is damaged");
        let found = verify(&second, 2, &AtomicBool::new(false), &|_| {}).unwrap();
        assert!(!found.bad.is_empty(), "{name} is damaged");
        damage(&second, name);
        is_whole(&second, 2);
    }
}
