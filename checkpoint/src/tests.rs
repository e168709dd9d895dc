//! Laws of saving and restoring.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use crate::*;

/// Blocks in tests are small, so that small tensors have several.
const SMALL: u64 = 16;

fn never() -> AtomicBool {
    AtomicBool::new(false)
}

/// A whole tensor with its content.
#[derive(Clone, Debug)]
struct Tensor {
    name: String,
    facts: TensorFacts,
    content: Vec<u8>,
}

impl Tensor {
    fn new(name: &str, dtype: Dtype, shape: &[u64], seed: u8) -> Self {
        let facts = TensorFacts { dtype, shape: shape.to_vec() };
        let bytes = facts.whole().unwrap().elements() * dtype.bytes();
        let content = (0..bytes).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect();
        Self { name: name.to_owned(), facts, content }
    }

    /// The content of a region, row by row.
    fn cut(&self, region: &Region) -> Vec<u8> {
        let (width, element) = (self.facts.width(), self.facts.dtype.bytes());
        let rows = region.rows[0]..region.rows[1];
        let row = |row: u64| {
            let [from, to] =
                region.columns.map(|column| ((row * width + column) * element) as usize);
            self.content[from..to].to_vec()
        };
        rows.flat_map(row).collect()
    }

    fn part(&self, region: Region) -> Part {
        Part { name: self.name.clone(), tensor: self.facts.clone(), region }
    }
}

/// How a mesh cuts a tensor: in so many parts by rows and by columns, dealt to ranks in turn.
#[derive(Clone, Copy, Debug)]
struct Cut {
    rows: u64,
    columns: u64,
}

impl Cut {
    fn regions(self, facts: &TensorFacts) -> Vec<Region> {
        let whole = facts.whole().unwrap();
        let ranges = |size: u64, parts: u64| {
            let each = size.div_ceil(parts);
            (0..parts).map(move |i| [(i * each).min(size), ((i + 1) * each).min(size)])
        };
        let columns = ranges(whole.width(), self.columns);
        let all = columns.flat_map(|columns| {
            ranges(whole.height(), self.rows).map(move |rows| Region { rows, columns })
        });
        all.collect()
    }
}

/// What each rank has.
fn shares(tensors: &[Tensor], cut: Cut, ranks: usize) -> Vec<Vec<(Part, Vec<u8>)>> {
    let mut shares = vec![Vec::new(); ranks];
    for (first, tensor) in tensors.iter().enumerate() {
        // At most one part of a tensor for each rank: otherwise its file would have two of one name.
        for (i, region) in cut.regions(&tensor.facts).into_iter().enumerate() {
            shares[(first + i) % ranks].push((tensor.part(region), tensor.cut(&region)));
        }
    }
    shares
}

/// Writes the file of one rank.
fn write(staged: &Staged, name: &str, share: &[(Part, Vec<u8>)]) -> FileFacts {
    let parts = share.iter().map(|(part, _)| part.clone()).collect();
    let image = Image::new(ShardPlan::with_blocks(parts, SMALL).unwrap(), 2).unwrap();
    let contents: Vec<&[u8]> = share.iter().map(|(_, content)| content.as_slice()).collect();
    let target = vec![(staged.place().clone(), name.to_owned())];
    let writer = ShardWriter::start(target, image, &contents, 2, &Arc::new(never())).unwrap();
    writer.next(Duration::from_secs(60)).unwrap().0.unwrap()
}

fn save(folder: &Path, step: u64, shares: &[Vec<(Part, Vec<u8>)>]) -> PathBuf {
    let staged = Staged::begin(&folder.into(), step, "test").unwrap();
    let files = shares.iter().enumerate().map(|(rank, share)| {
        write(&staged, &shard_name(staged.place(), rank as u64, "test-1"), share)
    });
    let files = files.collect();
    staged.commit(json!({"run": "test"}), files).unwrap().folder().unwrap().to_owned()
}

/// Reads regions of tensors.
fn load(path: &Path, parts: &[Part]) -> Result<(Vec<Vec<u8>>, u64)> {
    let checkpoint = open(path)?;
    let mut memory: Vec<Vec<u8>> =
        parts.iter().map(|part| vec![0xee; part.bytes() as usize]).collect();
    let wanted = parts.iter().zip(&mut memory).map(|(part, into)| Wanted {
        name: part.name.clone(),
        tensor: part.tensor.clone(),
        region: part.region,
        into,
    });
    let read = restore(&[checkpoint], wanted.collect(), 3, &never())?;
    Ok((memory, read))
}

fn few() -> Vec<Tensor> {
    vec![
        Tensor::new("matrix", Dtype::F32, &[7, 5], 1),
        Tensor::new("stack", Dtype::BF16, &[2, 3, 4], 2),
        Tensor::new("vector", Dtype::F32, &[9], 3),
        Tensor::new("scalar", Dtype::I64, &[], 4),
        Tensor::new("nothing", Dtype::F32, &[0, 3], 5),
    ]
}

fn whole(tensors: &[Tensor]) -> Vec<Part> {
    tensors.iter().map(|tensor| tensor.part(tensor.facts.whole().unwrap())).collect()
}

fn cut() -> impl Strategy<Value = Cut> {
    (1..6_u64, 1..4_u64).prop_map(|(rows, columns)| Cut { rows, columns })
}

fn tensor() -> impl Strategy<Value = Tensor> {
    let dtype = prop_oneof![Just(Dtype::F32), Just(Dtype::BF16), Just(Dtype::U8)];
    let shape = proptest::collection::vec(0..9_u64, 0..4);
    ("[a-c]{1,3}", dtype, shape, any::<u8>())
        .prop_map(|(name, dtype, shape, seed)| Tensor::new(&name, dtype, &shape, seed))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn what_one_mesh_saves_any_mesh_restores(
        tensors in proptest::collection::vec(tensor(), 1..5),
        saved in cut(),
        wanted in cut(),
    ) {
        let mut tensors = tensors;
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        tensors.dedup_by(|a, b| a.name == b.name);
        let folder = tempfile::tempdir().unwrap();
        let ranks = (saved.rows * saved.columns) as usize;
        let path = save(folder.path(), 5, &shares(&tensors, saved, ranks));
        for share in shares(&tensors, wanted, (wanted.rows * wanted.columns) as usize) {
            let (parts, contents): (Vec<Part>, Vec<Vec<u8>>) = share.into_iter().unzip();
            prop_assert_eq!(load(&path, &parts).unwrap().0, contents);
        }
        let (all, read) = load(&path, &whole(&tensors)).unwrap();
        let contents: Vec<Vec<u8>> = tensors.iter().map(|tensor| tensor.content.clone()).collect();
        prop_assert_eq!(&all, &contents);
        prop_assert_eq!(read, contents.iter().map(|content| content.len() as u64).sum::<u64>());
        let found = verify(&(&path).into(), 2, &never(), &|_| {}).unwrap();
        prop_assert_eq!(found.bad, []);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Copies of several meshes, each damaged in one byte, are one whole if no two are damaged in the same rows.
    #[test]
    fn what_is_wrong_in_one_copy_is_taken_of_another(
        cuts in proptest::collection::vec(cut(), 2..4),
        wanted in cut(),
        damages in proptest::collection::vec((any::<usize>(), 0..3_u8), 3),
    ) {
        let tensors = few();
        let folder = tempfile::tempdir().unwrap();
        let mut copies = Vec::new();
        for (number, cut) in cuts.iter().enumerate() {
            let shares = shares(&tensors, *cut, (cut.rows * cut.columns) as usize);
            copies.push(save(&folder.path().join(number.to_string()), 5, &shares));
        }
        // The last copy is whole; of the others a byte, a file's end or a file is missing.
        for (path, (place, kind)) in copies[..copies.len() - 1].iter().zip(damages) {
            let files = names(path);
            let file = &files[1 + place % (files.len() - 1)];
            let mut content = fs::read(file).unwrap();
            let data = content.len() - 4096;
            if data == 0 {
                continue;
            }
            let at = 4096 + place % data;
            match kind {
                0 => content[at] ^= 1,
                1 => content[at..].fill(0xee),
                // Found when its header is read, which is before this.
                _ => content[4096..].fill(0xee),
            }
            fs::write(file, content).unwrap();
        }
        let copies: Vec<Checkpoint> = copies.iter().map(|path| open(path).unwrap()).collect();
        are_enough(&copies, 2, &never()).unwrap();
        for share in shares(&tensors, wanted, (wanted.rows * wanted.columns) as usize) {
            for (part, content) in share {
                let mut into = vec![0xaa; content.len()];
                let (name, tensor, region) = (part.name, part.tensor, part.region);
                let wanted = vec![Wanted { name, tensor, region, into: &mut into }];
                restore(&copies, wanted, 2, &never()).unwrap();
                prop_assert_eq!(into, content);
            }
        }
    }
}

#[test]
fn copies_that_lack_the_same_block_are_enough() {
    let folder = tempfile::tempdir().unwrap();
    let cut = Cut { rows: 2, columns: 1 };
    let save = |name: &str| save(&folder.path().join(name), 5, &shares(&few(), cut, 2));
    let copies = [save("a"), save("b")];
    let flip = |path: &Path, file: usize, at: usize| {
        let mut content = fs::read(&names(path)[file]).unwrap();
        content[at] ^= 1;
        fs::write(&names(path)[file], content).unwrap();
    };
    let check = || {
        let copies: Vec<Checkpoint> = copies.iter().map(|path| open(path).unwrap()).collect();
        are_enough(&copies, 2, &never())
    };
    flip(&copies[0], 1, 4096);
    flip(&copies[0], 2, 4096);
    flip(&copies[1], 1, 4096 + 40);
    check().unwrap();
    flip(&copies[1], 1, 4096);
    let error = check().unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}

/// A small checkpoint of two ranks.
fn small() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = save(folder.path(), 5, &shares(&few(), Cut { rows: 2, columns: 1 }, 2));
    (folder, path)
}

/// Whether checking, and loading, find that something is wrong.
fn is_found(path: &Path) -> [bool; 2] {
    let checked = verify(&path.into(), 1, &never(), &|_| {}).unwrap();
    [!checked.bad.is_empty(), load(path, &whole(&few())).is_err()]
}

fn names(path: &Path) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> = fs::read_dir(path).unwrap().map(|e| e.unwrap().path()).collect();
    names.sort();
    names
}

#[test]
fn a_changed_byte_of_any_file_is_loaded() {
    let (_folder, path) = small();
    assert_eq!(is_found(&path), [false, false]);
    for name in names(&path) {
        let content = fs::read(&name).unwrap();
        // The spaces behind the header are many and alike.
        let padding = content.windows(64).position(|window| window == [b' '; 64]);
        let pages = 4096.min(content.len());
        let places = (0..content.len()).filter(|place| {
            padding.is_none_or(|from| !(from..pages).contains(place) || place % 97 == 0)
        });
        for place in places {
            let mut changed = content.clone();
            changed[place] ^= 1 << (place % 8);
            fs::write(&name, changed).unwrap();
            assert_eq!(is_found(&path), [true, true], "{}, byte {place}", name.display());
        }
        fs::write(&name, content).unwrap();
    }
    assert_eq!(is_found(&path), [false, false]);
}

#[test]
fn a_file_that_is_cut_off_missing_or_another_is_loaded() {
    let (_folder, path) = small();
    let (_other_folder, other) = small();
    let all = names(&path);
    for name in &all {
        let content = fs::read(name).unwrap();
        for length in [0, 1, 7, 8, 100, content.len() / 2, content.len() - 1] {
            fs::write(name, &content[..length.min(content.len() - 1)]).unwrap();
            assert_eq!(is_found(&path), [true, true], "{} cut to {length}", name.display());
        }
        fs::write(name, [&content[..], b" "].concat()).unwrap();
        assert_eq!(is_found(&path), [true, true], "{} is longer", name.display());
        fs::remove_file(name).unwrap();
        assert_eq!(is_found(&path), [true, true], "{} is missing", name.display());
        for from in all.iter().filter(|from| *from != name) {
            let from = other.join(from.file_name().unwrap());
            fs::copy(&from, name).unwrap();
            assert_eq!(is_found(&path), [true, true], "{} for another", from.display());
        }
        fs::write(name, content).unwrap();
    }
    // What is beside them is reported and harmless.
    fs::write(path.join("notes.txt"), "mine").unwrap();
    assert_eq!(is_found(&path), [false, false]);
    let found = verify(&(&path).into(), 1, &never(), &|_| {}).unwrap();
    assert_eq!(found.extra, [path.join("notes.txt")]);
}

#[test]
fn files_of_two_saves_are_mixed() {
    let folder = tempfile::tempdir().unwrap();
    let cut = Cut { rows: 2, columns: 1 };
    let first = save(folder.path(), 5, &shares(&few(), cut, 2));
    let later: Vec<Tensor> = few()
        .into_iter()
        .map(|tensor| Tensor { content: tensor.content.iter().map(|b| b ^ 1).collect(), ..tensor })
        .collect();
    let second = save(folder.path(), 6, &shares(&later, cut, 2));
    for name in names(&second) {
        let kept = fs::read(&name).unwrap();
        fs::copy(first.join(name.file_name().unwrap()), &name).unwrap();
        assert_eq!(is_found(&second), [true, true], "{}", name.display());
        fs::write(&name, kept).unwrap();
    }
    assert_eq!(is_found(&second), [false, false]);
    // A whole checkpoint under the name of another.
    fs::remove_dir_all(&second).unwrap();
    fs::rename(&first, &second).unwrap();
    assert_eq!(is_found(&second), [true, true]);
}

#[test]
fn a_checkpoint_without_a_part_of_a_tensor_is_committed() {
    let folder = tempfile::tempdir().unwrap();
    let all = shares(&few(), Cut { rows: 2, columns: 1 }, 2);
    let staged = Staged::begin(&folder.path().into(), 5, "test").unwrap();
    let facts = write(&staged, "rank-00000.safetensors", &all[0]);
    // Twice the same part is no better.
    let twice = FileFacts { name: "rank-00001.safetensors".to_owned(), ..facts.clone() };
    let path = staged.place().folder().unwrap();
    fs::copy(path.join(&facts.name), path.join(&twice.name)).unwrap();
    let error = staged.commit(json!({}), vec![facts, twice]).unwrap_err();
    assert!(matches!(error, Error::Lacks { .. }), "{error}");
    assert!(list(&folder.path().into()).unwrap().is_empty());
}

#[test]
fn a_checkpoint_is_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let tensors = few();
    let path = save(folder.path(), 5, &shares(&tensors, Cut { rows: 1, columns: 1 }, 1));
    let before: Vec<Vec<u8>> = names(&path).iter().map(|name| fs::read(name).unwrap()).collect();
    let error = Staged::begin(&folder.path().into(), 5, "test").unwrap_err();
    assert!(matches!(error, Error::Exists { .. }), "{error}");
    let after: Vec<Vec<u8>> = names(&path).iter().map(|name| fs::read(name).unwrap()).collect();
    assert_eq!(before, after);
}

#[test]
fn only_checkpoints_are_listed_and_only_own_attempts_removed() {
    let folder = tempfile::tempdir().unwrap();
    for step in [10, 9, 1000, 100] {
        save(folder.path(), step, &shares(&few(), Cut { rows: 1, columns: 1 }, 1));
    }
    let strangers = [
        "step-100.backup",
        "foo-step-100",
        "step-0100",
        "step-99999999999999999999",
        "step--1",
        ".step-00000011.other.writing",
        ".step-11.test.writing",
        "step-00000012.test.writing",
    ];
    for name in strangers {
        fs::create_dir(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name).join("file"), "mine").unwrap();
    }
    fs::write(folder.path().join("step-00000013"), "a file").unwrap();
    drop(Staged::begin(&folder.path().into(), 11, "test").unwrap());
    let steps: Vec<u64> =
        list(&folder.path().into()).unwrap().iter().map(|found| found.step).collect();
    assert_eq!(steps, [9, 10, 100, 1000]);
    assert_eq!(remove_abandoned(&folder.path().into(), "test").unwrap(), 1);
    assert_eq!(remove_abandoned(&folder.path().into(), "test").unwrap(), 0);
    for name in strangers {
        assert_eq!(fs::read(folder.path().join(name).join("file")).unwrap(), b"mine", "{name}");
    }
}

#[test]
fn a_tensor_of_another_shape_is_taken() {
    let (_folder, path) = small();
    let checkpoint = open(&path).unwrap();
    let own: BTreeMap<String, TensorFacts> =
        few().into_iter().map(|tensor| (tensor.name, tensor.facts)).collect();
    checkpoint.check_tensors(&own).unwrap();
    let says = |tensors: &BTreeMap<String, TensorFacts>, text: &str| {
        let error = checkpoint.check_tensors(tensors).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    let mut other = own.clone();
    other.insert("vector".to_owned(), TensorFacts { dtype: Dtype::F32, shape: vec![8] });
    says(&other, "its tensor vector is [9] of F32, and that of this run [8] of F32");
    let mut more = own.clone();
    more.insert("more".to_owned(), other["vector"].clone());
    says(&more, "it has no tensor more");
    let mut less = own;
    less.remove("matrix");
    says(&less, "it has a tensor matrix, and this run has none");
}

#[test]
fn a_stop_is_noticed() {
    let (_folder, path) = small();
    let stop = AtomicBool::new(true);
    let checkpoint = open(&path).unwrap();
    let tensor = &few()[0];
    let mut into = tensor.content.clone();
    let region = tensor.facts.whole().unwrap();
    let (name, facts) = (tensor.name.clone(), tensor.facts.clone());
    let wanted = vec![Wanted { name, tensor: facts, region, into: &mut into }];
    assert!(matches!(restore(&[checkpoint], wanted, 2, &stop), Err(Error::Stopped)));
    assert!(matches!(verify(&(&path).into(), 2, &stop, &|_| {}), Err(Error::Stopped)));
}

#[test]
fn a_folder_that_cannot_be_used_is_found_at_the_first_save() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let error = probe(&folder.path().join("file/checkpoints").into()).unwrap_err().to_string();
    assert!(error.contains("file/checkpoints: cannot make this folder"), "{error}");
    let new = folder.path().join("a/b");
    probe(&(&new).into()).unwrap();
    assert_eq!(fs::read_dir(&new).unwrap().count(), 0);
}

#[test]
fn every_kind_of_place_keeps_the_same_laws() {
    let folder = tempfile::tempdir().unwrap();
    conformance::check(&folder.path().join("there").into());
    let fake = titan_objects::fake::Fake::start();
    for address in ["gs://bucket/runs/a", "s3://bucket/runs/b"] {
        let (store, address) = fake.store(address, titan_objects::fake::PATIENT);
        conformance::check(&Place::Objects(Prefix::of(&store, &address)));
    }
    assert_eq!(fake.uploads(), 0);
}

#[test]
fn a_store_with_faults_gets_the_same_checkpoint() {
    use titan_objects::fake::{Fake, Fault, On, PATIENT};
    let fake = Fake::start();
    for address in ["gs://bucket/runs/a", "s3://bucket/runs/b"] {
        let (store, address) = fake.store(address, PATIENT);
        for (on, fault, times) in [
            (On::Part, Fault::Status(503, ""), 2),
            (On::Part, Fault::ResetAfter(1 << 20), 2),
            (On::Part, Fault::LoseAnswer, 2),
            (On::Complete, Fault::LoseAnswer, 1),
            (On::Put, Fault::LoseAnswer, 2),
            (On::Get, Fault::Status(503, ""), 2),
            (On::Get, Fault::CutAfter(1000), 2),
            (On::List, Fault::Status(500, ""), 1),
        ] {
            fake.fault(on, fault, times);
        }
        conformance::check(&Place::Objects(Prefix::of(&store, &address)));
        fake.heal();
    }
    assert_eq!(fake.uploads(), 0);
}

#[test]
fn a_store_without_an_answer_gets_no_checkpoint() {
    use titan_objects::fake::{Fake, Fault, HASTY, On};
    let fake = Fake::start();
    let (store, address) = fake.store("gs://bucket/runs", HASTY);
    let place = Place::Objects(Prefix::of(&store, &address));
    let shares = shares(&few(), Cut { rows: 1, columns: 1 }, 1);
    let staged = Staged::begin(&place, 5, "test").unwrap();
    let facts = write(&staged, "rank-00000.test-1.safetensors", &shares[0]);
    fake.fault(On::Put, Fault::ResetAfter(10), 99);
    let error = staged.commit(json!({}), vec![facts]).unwrap_err();
    assert!(error.to_string().contains("the connection to the store at"), "{error}");
    fake.heal();
    assert_eq!(list(&place).unwrap(), []);
    assert_eq!(remove_abandoned(&place, "test").unwrap(), 1);
    assert_eq!(fake.keys(), [""; 0]);
}
