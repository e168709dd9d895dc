//! Token shards in a store arrive whole, or not at all.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::tempdir;

use super::shards::{fetch_from, find_shards_in};
use crate::shards::{DataKind, verify_shards};
use crate::testing::Shards;
use crate::{Error, Result};
use titan_objects::fake::{Fake, Fault, On, PATIENT};

const ADDRESS: &str = "s3://bucket/data/shards";

/// Instruction data in several shards of several blocks.
fn shards() -> Shards {
    let document =
        |n: u32| ((0..n % 50).collect(), (0..20_000).map(|i| (i * n) % 60_000).collect());
    Shards::new(DataKind::Instruction, 60_000, 60_000, &(0..20).map(document).collect::<Vec<_>>())
}

fn store_with(shards: &Shards) -> Fake {
    let fake = Fake::start();
    fake.put_folder(shards.path(), "data/shards/");
    fake
}

fn fetch(fake: &Fake, to: &Path) -> Result<()> {
    let (store, address) = fake.store(ADDRESS, PATIENT);
    fetch_from(&store, &address, to, &AtomicBool::new(false), &mut |_, _| {})
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let files = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()));
    files.filter(|(name, _)| name != "lock").collect()
}

#[test]
fn all_files_arrive_and_a_second_call_only_looks() {
    let shards = shards();
    let fake = store_with(&shards);
    let to = tempdir().unwrap();
    let to = to.path().join("new/folder");
    let (store, address) = fake.store(ADDRESS, PATIENT);
    assert!(find_shards_in(&store, &address).unwrap().is_some());
    let last = Cell::new((0, 0));
    let mut progress = |done, total| {
        assert!(done >= last.get().0 && done <= total);
        last.set((done, total));
    };
    fetch_from(&store, &address, &to, &AtomicBool::new(false), &mut progress).unwrap();
    assert_eq!(files(&to), files(shards.path()));
    let bytes: usize =
        files(&to).iter().filter(|(name, _)| *name != "index.json").map(|(_, b)| b.len()).sum();
    assert_eq!(last.get(), (bytes as u64, bytes as u64));
    assert!(verify_shards(&to, &AtomicBool::new(false), |_| {}).unwrap().1.bad.is_empty());
    fake.requests();
    fetch(&fake, &to).unwrap();
    assert_eq!(fake.requests().len(), 2);
}

#[test]
fn other_things_are_no_shards() {
    let fake = Fake::start();
    fake.put("data/shards/a.txt", "x");
    let is_shards = || {
        let (store, address) = fake.store(ADDRESS, PATIENT);
        find_shards_in(&store, &address).unwrap().is_some()
    };
    assert!(!is_shards());
    let to = tempdir().unwrap();
    let error = fetch(&fake, to.path()).unwrap_err().to_string();
    assert!(error.contains("there is no index.json"), "{error}");
    for index in ["{\"format\": \"other\"}", "[]", "nothing"] {
        fake.put("data/shards/index.json", index);
        assert!(!is_shards());
        let error = fetch(&fake, to.path()).unwrap_err().to_string();
        assert!(
            error.starts_with("s3://bucket/data/shards/index.json: this is no index"),
            "{error}"
        );
    }
}

#[test]
fn a_fetch_that_was_stopped_goes_on_where_it_was() {
    let shards = shards();
    let fake = store_with(&shards);
    let to = tempdir().unwrap();
    let (store, address) = fake.store(ADDRESS, PATIENT);
    let stop = AtomicBool::new(false);
    // All but the index gets stuck in its middle, so that there is time to stop.
    fake.fault(On::Get, Fault::CutAfter(usize::MAX), 1);
    fake.fault(On::Get, Fault::SilentAfter(30_000), 100);
    let mut progress = |done, _| stop.store(done >= 30_000, Ordering::Relaxed);
    let result = fetch_from(&store, &address, to.path(), &stop, &mut progress);
    assert!(matches!(result, Err(Error::Stopped)), "{result:?}");
    fake.heal();
    let there = files(to.path());
    assert!(!there.contains_key("index.json"), "{:?}", there.keys());
    let part =
        there.iter().find(|(name, bytes)| name.ends_with("tokens.part") && !bytes.is_empty());
    let (name, bytes) = part.expect("a file that was partly brought");
    fake.requests();
    fetch(&fake, to.path()).unwrap();
    assert_eq!(files(to.path()), files(shards.path()));
    let name = name.trim_end_matches(".part");
    let from = format!("bytes={}-", bytes.len());
    let requests = fake.requests();
    let went_on = |r: &String| r.contains(name) && r.contains(&from);
    assert!(requests.iter().any(went_on), "{requests:?} {name} {from}");
}

#[test]
fn damage_by_a_kill_is_repaired_and_damage_in_the_store_is_an_error() {
    let shards = shards();
    let fake = store_with(&shards);
    let to = tempdir().unwrap();
    fetch(&fake, to.path()).unwrap();
    // As a machine leaves it that lost its power: names without content.
    fs::rename(to.path().join("index.json"), to.path().join("index.json.part")).unwrap();
    let tokens = to.path().join("train-00001.tokens");
    let zeros = vec![0; fs::metadata(&tokens).unwrap().len() as usize];
    fs::write(&tokens, zeros).unwrap();
    fs::write(to.path().join("train-00000.targets"), "").unwrap();
    fetch(&fake, to.path()).unwrap();
    assert_eq!(files(to.path()), files(shards.path()));

    let mut bytes = fs::read(shards.file("train-00002.tokens")).unwrap();
    bytes[70_000] ^= 1;
    fake.put("data/shards/train-00002.tokens", bytes.clone());
    let to = tempdir().unwrap();
    let error = fetch(&fake, to.path()).unwrap_err().to_string();
    assert!(error.contains("s3://bucket/data/shards/train-00002.tokens: "), "{error}");
    assert!(error.contains("is not what was written (from byte 65536 on)"), "{error}");
    assert!(!to.path().join("index.json").exists());
    fake.put("data/shards/train-00002.tokens", &bytes[..70_000]);
    let error = fetch(&fake, to.path()).unwrap_err().to_string();
    assert!(error.contains("it has 70000 bytes, the index says"), "{error}");
    fake.remove("data/shards/train-00002.tokens");
    let error = fetch(&fake, to.path()).unwrap_err().to_string();
    assert!(error.contains("the index names it, but it is not there"), "{error}");
    // Put right.
    fake.put_folder(shards.path(), "data/shards/");
    fetch(&fake, to.path()).unwrap();
    assert_eq!(files(to.path()), files(shards.path()));
}

#[test]
fn nothing_of_others_is_written_over() {
    let shards = shards();
    let fake = store_with(&shards);
    let to = tempdir().unwrap();
    fs::write(to.path().join("notes.txt"), "mine").unwrap();
    let error = fetch(&fake, to.path()).unwrap_err().to_string();
    assert!(error.contains("the folder is not empty"), "{error}");
    // Other shards that are complete.
    let other = Shards::of_text(100, &["some", "text"]);
    let error = fetch(&fake, other.path()).unwrap_err().to_string();
    assert!(error.contains("has other shards than s3://bucket/data/shards has now"), "{error}");
    // Other shards of this address that are not complete.
    let to = tempdir().unwrap();
    fs::copy(other.file("index.json"), to.path().join("index.json.part")).unwrap();
    fs::copy(other.file("train-00000.index"), to.path().join("train-00000.index")).unwrap();
    fs::write(to.path().join("train-00000.tokens.part"), "some").unwrap();
    fetch(&fake, to.path()).unwrap();
    assert_eq!(files(to.path()), files(shards.path()));
}

#[test]
fn faults_of_the_store_do_no_harm() {
    let shards = shards();
    for fault in [Fault::Status(503, ""), Fault::CutAfter(10_000), Fault::Short(1000)] {
        let fake = store_with(&shards);
        let to = tempdir().unwrap();
        fake.fault(On::Get, fault, 4);
        fetch(&fake, to.path()).unwrap();
        assert_eq!(files(to.path()), files(shards.path()));
    }
}
