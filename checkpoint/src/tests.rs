//! Laws of saving and restoring.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

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

fn save(folder: &Path, step: u64, shares: &[Vec<(Part, Vec<u8>)>]) -> PathBuf {
    let staged = Staged::begin(folder, step, "test").unwrap();
    let files = shares.iter().enumerate().map(|(rank, share)| {
        let parts = share.iter().map(|(part, _)| part.clone()).collect();
        let plan = ShardPlan::with_blocks(parts, SMALL).unwrap();
        let mut staging = Staging::new(plan.bytes(), 2).unwrap();
        for (place, (_, content)) in plan.places(&mut staging).unwrap().into_iter().zip(share) {
            place.copy_from_slice(content);
        }
        let name = shard_name(rank as u64);
        write_shard(staged.path(), &name, &plan, &mut staging, 2, &never()).unwrap()
    });
    let files = files.collect();
    staged.commit(json!({"run": "test"}), files).unwrap()
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
    let read = restore(&checkpoint, wanted.collect(), 3, &never())?;
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
        let found = verify(&path, 2, &never(), &|_| {}).unwrap();
        prop_assert_eq!(found.bad, []);
    }
}

/// A small checkpoint of two ranks.
fn small() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = save(folder.path(), 5, &shares(&few(), Cut { rows: 2, columns: 1 }, 2));
    (folder, path)
}

/// Whether checking, and loading, find that something is wrong.
fn is_found(path: &Path) -> [bool; 2] {
    let checked = verify(path, 1, &never(), &|_| {}).unwrap();
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
    let found = verify(&path, 1, &never(), &|_| {}).unwrap();
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
    let staged = Staged::begin(folder.path(), 5, "test").unwrap();
    let parts = all[0].iter().map(|(part, _)| part.clone()).collect();
    let plan = ShardPlan::with_blocks(parts, SMALL).unwrap();
    let mut staging = Staging::new(plan.bytes(), 1).unwrap();
    let facts =
        write_shard(staged.path(), &shard_name(0), &plan, &mut staging, 1, &never()).unwrap();
    // Twice the same part is no better.
    let twice = FileFacts { name: shard_name(1), ..facts.clone() };
    fs::copy(staged.path().join(&facts.name), staged.path().join(&twice.name)).unwrap();
    let error = staged.commit(json!({}), vec![facts, twice]).unwrap_err();
    assert!(matches!(error, Error::Lacks { .. }), "{error}");
    assert!(list(folder.path()).unwrap().is_empty());
}

#[test]
fn a_checkpoint_is_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let tensors = few();
    let path = save(folder.path(), 5, &shares(&tensors, Cut { rows: 1, columns: 1 }, 1));
    let before: Vec<Vec<u8>> = names(&path).iter().map(|name| fs::read(name).unwrap()).collect();
    let error = Staged::begin(folder.path(), 5, "test").unwrap_err();
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
    drop(Staged::begin(folder.path(), 11, "test").unwrap());
    let steps: Vec<u64> = list(folder.path()).unwrap().iter().map(|found| found.step).collect();
    assert_eq!(steps, [9, 10, 100, 1000]);
    assert_eq!(remove_abandoned(folder.path(), "test").unwrap(), 1);
    assert_eq!(remove_abandoned(folder.path(), "test").unwrap(), 0);
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
    assert!(matches!(restore(&checkpoint, wanted, 2, &stop), Err(Error::Stopped)));
    assert!(matches!(verify(&path, 2, &stop, &|_| {}), Err(Error::Stopped)));
}

#[test]
fn a_folder_that_cannot_be_used_is_found_at_the_first_save() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let error = probe(&folder.path().join("file/checkpoints")).unwrap_err().to_string();
    assert!(error.contains("file/checkpoints: cannot make this folder"), "{error}");
    let new = folder.path().join("a/b");
    probe(&new).unwrap();
    assert_eq!(fs::read_dir(&new).unwrap().count(), 0);
}
