//! Laws of folders of models.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::import::import_in_shards;
use super::{header, *};
use crate::{
    Checkpoint, Dtype, Error, Part, Place, Region, Result, ShardPlan, Staged, TensorFacts, Wanted,
    open, restore, shard_name, verify, write_whole,
};

const GATE_UP: &str = "model.layers.0.mlp.experts.gate_up_proj";
const DOWN: &str = "model.layers.0.mlp.experts.down_proj";

fn never() -> AtomicBool {
    AtomicBool::new(false)
}

/// The tensors of a small model, with numbers that every format has.
fn model() -> BTreeMap<String, (TensorFacts, Vec<f32>)> {
    let shapes: [(&str, &[u64]); 5] = [
        (DOWN, &[3, 5, 2]),
        (GATE_UP, &[3, 4, 5]),
        ("model.embed_tokens.weight", &[11, 5]),
        ("model.layers.10.norm.weight", &[7]),
        ("model.layers.2.norm.weight", &[1]),
    ];
    let tensor = |(name, shape): (&str, &[u64])| {
        let facts = TensorFacts { dtype: Dtype::F32, shape: shape.to_vec() };
        let count = shape.iter().product::<u64>();
        let seed = name.len() as u64 * 7;
        let content = (0..count).map(|i| ((i * 37 + seed) % 251) as f32 / 8.0 - 9.0);
        (name.to_owned(), (facts, content.collect()))
    };
    shapes.into_iter().map(tensor).collect()
}

fn facts() -> BTreeMap<String, TensorFacts> {
    model().into_iter().map(|(name, (facts, _))| (name, facts)).collect()
}

/// A checkpoint of that model, in files of two ranks, with something that training remembers.
fn checkpoint(folder: &Path) -> Checkpoint {
    let staged = Staged::begin(&folder.into(), 3, "test").unwrap();
    let mut tensors = model();
    let extra = tensors["model.embed_tokens.weight"].clone();
    tensors.insert("optimizer.average.model.embed_tokens.weight".to_owned(), extra);
    let files = (0..2_u64).map(|rank| {
        let cut = |(facts, content): &(TensorFacts, Vec<f32>)| {
            let whole = facts.whole().unwrap();
            let middle = whole.height() / 2;
            let rows = if rank == 0 { [0, middle] } else { [middle, whole.height()] };
            let [from, to] = rows.map(|row| (row * whole.width()) as usize);
            (Region { rows, columns: whole.columns }, content[from..to].to_vec())
        };
        let parts = tensors.iter().map(|(name, tensor)| {
            let (name, tensor, region) = (name.clone(), tensor.0.clone(), cut(tensor).0);
            Part { name, tensor, region }
        });
        let plan = ShardPlan::with_blocks(parts.collect(), 64).unwrap();
        let contents: Vec<Vec<u8>> = tensors.values().map(|t| bytes(&cut(t).1)).collect();
        let contents: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
        let target = (staged.place().clone(), shard_name(staged.place(), rank, "test-1"));
        write_whole(target, plan, &contents, 1, &never()).unwrap()
    });
    let files = files.collect();
    open(staged.commit(json!({}), files).unwrap()).unwrap()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn form(dtype: Dtype, experts: ExpertForm, shard_bytes: u64) -> Form {
    Form { dtype, experts, shard_bytes }
}

fn exported(form: &Form) -> (TempDir, PathBuf, Exported) {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = checkpoint(folder.path());
    let to = folder.path().join("new/hf");
    let done = export(&checkpoint, &to, form, &json!({"a": 1}), 2, &never(), &|_, _| {}).unwrap();
    assert_eq!(done.path, to);
    (folder, to, done)
}

/// Reads a region of a tensor of that model.
fn read(folder: &Folder, name: &str, region: Region) -> Result<Vec<u8>> {
    let tensor = facts()[name].clone();
    let mut memory = vec![0xee; region.elements() as usize * 4];
    let wanted = Wanted { name: name.to_owned(), tensor, region, into: &mut memory };
    let read = folder.read(vec![wanted], 2, &never())?;
    assert!(read > 0);
    Ok(memory)
}

/// Fails unless a folder has the weights of the model.
#[track_caller]
fn has_all(path: &Path) {
    let folder = Folder::open(path).unwrap();
    assert_eq!(folder.differences(&facts()), Vec::<String>::new());
    for (name, (facts, content)) in model() {
        assert!(read(&folder, &name, facts.whole().unwrap()).unwrap() == bytes(&content), "{name}");
    }
}

#[test]
fn weights_come_back_as_others() {
    let forms = [Dtype::F32, Dtype::BF16, Dtype::F16].into_iter().flat_map(|dtype| {
        let experts = [ExpertForm::Separate, ExpertForm::Fused];
        experts.into_iter().flat_map(move |experts| {
            [1, 100, 200, 1 << 30].map(|shard_bytes| form(dtype, experts, shard_bytes))
        })
    });
    for form in forms {
        let (_folder, path, done) = exported(&form);
        has_all(&path);
        let names: Vec<String> = fs::read_dir(&path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let has = |name: &str| names.iter().any(|other| other == name);
        assert_eq!(has(MODEL), done.files == 1);
        assert_eq!(has(INDEX), done.files > 1);
        assert_eq!(Folder::config(&path).unwrap(), json!({"a": 1}));
        let numbers: u64 = model().values().map(|(_, content)| content.len() as u64).sum();
        assert_eq!((done.parameters, done.bytes), (numbers, numbers * form.dtype.bytes()));
        let experts = if form.experts == ExpertForm::Fused { 2 } else { 9 };
        assert_eq!(done.tensors, 3 + experts);
    }
}

#[test]
fn an_index_says_something_else_than_the_files() {
    let (_folder, path, done) = exported(&form(Dtype::F32, ExpertForm::Separate, 100));
    let index: Value = serde_json::from_slice(&fs::read(path.join(INDEX)).unwrap()).unwrap();
    assert_eq!(index["metadata"]["total_size"], done.bytes);
    let map = index["weight_map"].as_object().unwrap();
    assert_eq!(map.len() as u64, done.tensors);
    let first = format!("model-00001-of-{:05}.safetensors", done.files);
    assert_eq!(map["model.embed_tokens.weight"], first);
    assert!(map.contains_key("model.layers.0.mlp.experts.2.up_proj.weight"));
    assert!(!map.keys().any(|name| name.contains("optimizer")));
}

#[test]
fn a_shard_is_larger_than_its_limit() {
    let (_folder, path, _) = exported(&form(Dtype::F32, ExpertForm::Fused, 250));
    for entry in fs::read_dir(&path).unwrap().map(Result::unwrap) {
        if entry.file_name().to_string_lossy().ends_with(".safetensors") {
            let (_, tensors) = header::open(&entry.path()).unwrap();
            let sizes = tensors.values().map(|stored| stored.shape.iter().product::<u64>() * 4);
            assert!(tensors.len() == 1 || sizes.sum::<u64>() <= 250);
        }
    }
}

#[test]
fn experts_are_put_together_in_another_order() {
    let (_folder, path, _) = exported(&form(Dtype::F32, ExpertForm::Separate, 1 << 30));
    let folder = Folder::open(&path).unwrap();
    let up = TensorFacts { dtype: Dtype::F32, shape: vec![2, 5] };
    let mut memory = vec![0; 40];
    let name = "model.layers.0.mlp.experts.1.up_proj.weight".to_owned();
    let region = up.whole().unwrap();
    let wanted = Wanted { name, tensor: up, region, into: &mut memory };
    folder.read(vec![wanted], 1, &never()).unwrap();
    // Of the second expert the rows behind those of its gate.
    let (_, stack) = &model()[GATE_UP];
    assert_eq!(memory, bytes(&stack[30..40]));
}

#[test]
fn something_is_left_where_nothing_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = checkpoint(folder.path());
    let plain = form(Dtype::F16, ExpertForm::Fused, 1 << 30);
    let try_to = |checkpoint: &Checkpoint, to: &Path, stop: bool| {
        let stop = AtomicBool::new(stop);
        export(checkpoint, to, &plain, &json!({}), 2, &stop, &|_, _| {})
    };
    let to = folder.path().join("hf");
    assert!(matches!(try_to(&checkpoint, &to, true), Err(Failed::Stopped)));
    // What a killed process has left is removed.
    fs::create_dir_all(folder.path().join(".hf.exporting/x")).unwrap();
    fs::write(folder.path().join(".hf.exporting/model.safetensors"), "half").unwrap();
    fs::create_dir(&to).unwrap();
    try_to(&checkpoint, &to, false).unwrap();
    has_all(&to);
    let error = try_to(&checkpoint, &to, false).unwrap_err();
    assert!(error.to_string().contains("never written over"), "{error}");
    has_all(&to);
    let file = folder.path().join("file");
    fs::write(&file, "mine").unwrap();
    assert!(matches!(try_to(&checkpoint, &file, false), Err(Failed::Target(_))));
    assert!(matches!(try_to(&checkpoint, &file.join("hf"), false), Err(Failed::Target(_))));
    // Damage is found while reading.
    let shard = checkpoint.place().folder().unwrap().join("rank-00001.safetensors");
    let mut content = fs::read(&shard).unwrap();
    content[4100] ^= 1;
    fs::write(&shard, content).unwrap();
    let to = folder.path().join("other");
    assert!(matches!(try_to(&checkpoint, &to, false), Err(Failed::Source(Error::Corrupt { .. }))));
    let mut names: Vec<_> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["file", "hf", "step-00000003"]);
}

#[test]
fn a_number_becomes_infinite_without_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let staged = Staged::begin(&folder.path().into(), 1, "test").unwrap();
    let tensor = TensorFacts { dtype: Dtype::F32, shape: vec![3] };
    let region = tensor.whole().unwrap();
    let plan = ShardPlan::new(vec![Part { name: "w".to_owned(), tensor, region }]).unwrap();
    let content = bytes(&[1.0, -65520.0, 2.0]);
    let target = (staged.place().clone(), "rank-00000.safetensors".to_owned());
    let file = write_whole(target, plan, &[&content], 1, &never());
    let checkpoint = open(staged.commit(json!({}), vec![file.unwrap()]).unwrap()).unwrap();
    let to = folder.path().join("hf");
    let write = |dtype| {
        let form = form(dtype, ExpertForm::Separate, 1 << 30);
        export(&checkpoint, &to, &form, &json!({}), 1, &never(), &|_, _| {})
    };
    let error = write(Dtype::F16).unwrap_err().to_string();
    assert_eq!(error, "w has the number -65520, which F16 cannot hold");
    assert!(!to.exists());
    write(Dtype::BF16).unwrap();
}

#[test]
fn an_imported_checkpoint_has_other_weights() {
    for shard_bytes in [1, 64, 1 << 20] {
        let (folder, path, _) = exported(&form(Dtype::BF16, ExpertForm::Separate, 150));
        let source = Folder::open(&path).unwrap();
        let into = Place::from(folder.path().join("imported"));
        let run = json!({"cursor": null});
        let made = import_in_shards(
            &source,
            &facts(),
            (&into, shard_bytes),
            run,
            (2, &never()),
            &|_, _| {},
        );
        let made = made.unwrap();
        assert_eq!(made.place, into.join("step-00000000"));
        assert!(verify(&made.place, 2, &never(), &|_| {}).unwrap().bad.is_empty());
        let checkpoint = open(&made.place).unwrap();
        assert_eq!(checkpoint.manifest().tensors, facts());
        for (name, (tensor, content)) in model() {
            let mut memory = vec![0; content.len() * 4];
            let region = tensor.whole().unwrap();
            let wanted = Wanted { name, tensor, region, into: &mut memory };
            restore(std::slice::from_ref(&checkpoint), vec![wanted], 1, &never()).unwrap();
            assert_eq!(memory, bytes(&content));
        }
        let again = import(&source, &facts(), &into, json!({}), 1, &never(), &|_, _| {});
        assert!(matches!(again, Err(Error::Exists { .. })));
        let stop = AtomicBool::new(true);
        let other = Place::from(folder.path().join("stopped"));
        let stopped = import(&source, &facts(), &other, json!({}), 1, &stop, &|_, _| {});
        assert!(matches!(stopped, Err(Error::Stopped)));
        assert!(!other.folder().unwrap().exists(), "a folder is left");
    }
}

#[test]
fn a_wrong_tensor_is_not_named() {
    let (_folder, path, _) = exported(&form(Dtype::F32, ExpertForm::Separate, 1 << 30));
    let folder = Folder::open(&path).unwrap();
    let mut tensors = facts();
    let vector = |size| TensorFacts { dtype: Dtype::F32, shape: vec![size] };
    tensors.insert("model.layers.2.norm.weight".to_owned(), vector(4));
    tensors.insert("model.missing.weight".to_owned(), vector(4));
    tensors.remove("model.layers.10.norm.weight");
    tensors.get_mut(DOWN).unwrap().shape[0] = 4;
    assert_eq!(
        folder.differences(&tensors),
        [
            "model.layers.0.mlp.experts.3.down_proj.weight is not there",
            "model.layers.2.norm.weight has the shape [1], and this model has [4]",
            "model.missing.weight is not there",
            "model.layers.10.norm.weight is there, and this model has none",
        ]
    );
}

/// A file of safetensors with this header and so many bytes behind it.
fn file(header: &str, bytes: usize) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.resize(file.len() + bytes, 0);
    file
}

#[test]
fn tensors_that_are_of_no_use_are_in_the_way() {
    let folder = tempfile::tempdir().unwrap();
    let header = r#"{"__metadata__":{"format":"pt"},
        "lm_head.weight":{"dtype":"F16","shape":[2,1],"data_offsets":[0,4]},
        "model.layers.0.self_attn.rotary_emb.inv_freq":{"dtype":"F64","shape":[1],"data_offsets":[4,12]},
        "odd":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[12,15]}}"#;
    fs::write(folder.path().join(MODEL), file(header, 15)).unwrap();
    let folder = Folder::open(folder.path()).unwrap();
    let facts = TensorFacts { dtype: Dtype::F32, shape: vec![2, 1] };
    // A head that is tied may have been saved in place of the embedding.
    let mut tensors = BTreeMap::from([("model.embed_tokens.weight".to_owned(), facts)]);
    assert_eq!(folder.differences(&tensors), ["odd is there, and this model has none"]);
    let mut memory = [0; 8];
    let region = Region { rows: [0, 2], columns: [0, 1] };
    let (name, tensor) = tensors.first_key_value().unwrap();
    let (name, tensor) = (name.clone(), tensor.clone());
    let wanted = Wanted { name, tensor: tensor.clone(), region, into: &mut memory };
    assert_eq!(folder.read(vec![wanted], 1, &never()).unwrap(), 4);
    tensors.insert("lm_head.weight".to_owned(), tensor);
    let found = folder.differences(&tensors);
    assert_eq!(found[0], "model.embed_tokens.weight is not there", "{found:?}");
    tensors.remove("lm_head.weight");
    let facts = TensorFacts { dtype: Dtype::F32, shape: vec![3] };
    tensors.insert("odd".to_owned(), facts);
    let odd = "odd is of F8_E4M3, and F32, BF16 and F16 are what can be read";
    assert_eq!(folder.differences(&tensors), [odd]);
}

#[test]
fn a_malformed_file_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(MODEL);
    let tensor = |shape: &str, offsets: &str| {
        format!(r#"{{"w":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    let two = |first: &str, second: &str| {
        let text = |name: &str, offsets: &str| {
            format!(r#""{name}":{{"dtype":"F32","shape":[1],"data_offsets":{offsets}}}"#)
        };
        format!("{{{},{}}}", text("a", first), text("b", second))
    };
    let mut bomb = u64::MAX.to_le_bytes().to_vec();
    bomb.extend(b"{}");
    let mut large = 99_999_999_u64.to_le_bytes().to_vec();
    large.extend(b"{}");
    let mut no_text = file(&tensor("[1]", "[0,4]"), 4);
    no_text[10] = 0xff;
    for (content, says) in [
        (Vec::new(), "cut off"),
        (vec![1, 2, 3], "cut off"),
        (bomb, "the length of its header"),
        (large, "the length of its header"),
        (no_text, "its header is wrong"),
        (file("[]", 0), "its header is wrong"),
        (file("{", 0), "its header is wrong"),
        (file(r#"{"w":{"dtype":"F32"}}"#, 0), "its header is wrong"),
        (file(&tensor("[1]", "[0,4]"), 3), "cut off"),
        (file(&tensor("[1]", "[0,4]"), 5), "1 bytes behind its last tensor"),
        (file(&tensor("[2]", "[0,4]"), 4), "which is not the size of [2]"),
        (file(&tensor("[1]", "[4,0]"), 4), "ends before it begins"),
        (file(&tensor("[1]", "[4,8]"), 8), "leaves a gap"),
        (file(&tensor("[1]", "[18446744073709551612,18446744073709551616]"), 4), "wrong"),
        (file(&tensor("[1]", "[18446744073709551611,18446744073709551615]"), 4), "leaves a gap"),
        (file(&tensor("[4294967296,4294967296,4294967296]", "[0,4]"), 4), "not the size"),
        (file(&tensor("[-1]", "[0,4]"), 4), "its header is wrong"),
        (file(&two("[0,4]", "[0,4]"), 4), "overlaps"),
        (file(&two("[0,4]", "[2,6]"), 6), "overlaps"),
    ] {
        fs::write(&path, content).unwrap();
        let error = Folder::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains(MODEL), "{error} does not say {says}");
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let error = Folder::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("not a file"), "{error}");
}

#[test]
fn a_malformed_index_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("secret"), "x").unwrap();
    let models = folder.path().join("models");
    fs::create_dir(&models).unwrap();
    let empty = Folder::open(&models).unwrap_err().to_string();
    assert!(empty.contains("neither model.safetensors nor"), "{empty}");
    fs::write(models.join("pytorch_model.bin"), "x").unwrap();
    let pickle = Folder::open(&models).unwrap_err().to_string();
    assert!(pickle.contains("convert them to safetensors"), "{pickle}");
    let good = r#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    fs::write(models.join("good.safetensors"), file(good, 4)).unwrap();
    for (index, says) in [
        (r#"{"weight_map":{"w":"../secret"}}"#, "is not the name of a file in this folder"),
        (r#"{"weight_map":{"w":"/etc/passwd"}}"#, "is not the name of a file in this folder"),
        (r#"{"weight_map":{"w":".."}}"#, "is not the name of a file in this folder"),
        (r#"{"weight_map":{"w":""}}"#, "is not the name of a file in this folder"),
        (r#"{"weight_map":{"w":"a/../good.safetensors"}}"#, "is not the name"),
        (r#"{"weight_map":{"w":"gone.safetensors"}}"#, "not there: gone.safetensors"),
        (r#"{"weight_map":{"other":"good.safetensors"}}"#, "says that it has other"),
        (r#"{"weight_map":{}}"#, "names no tensors"),
        (r#"{"weight_map":[1]}"#, "invalid type"),
        ("\u{0}", "expected value"),
    ] {
        fs::write(models.join(INDEX), index).unwrap();
        let error = Folder::open(&models).unwrap_err().to_string();
        assert!(error.contains(says), "{error} does not say {says}");
    }
    fs::write(models.join(INDEX), r#"{"weight_map":{"w":"good.safetensors"}}"#).unwrap();
    Folder::open(&models).unwrap();
}

proptest! {
    // Each case writes files and waits for the disk.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_region_has_other_numbers(
        which in 0_usize..5,
        rows in (0_u64..16, 1_u64..16),
        columns in (0_u64..5, 1_u64..6),
        experts in prop_oneof![Just(ExpertForm::Separate), Just(ExpertForm::Fused)],
        dtype in prop_oneof![Just(Dtype::F32), Just(Dtype::BF16)],
    ) {
        let (name, (facts, content)) = model().into_iter().nth(which).unwrap();
        let whole = facts.whole().unwrap();
        let asked = Region {
            rows: [rows.0, rows.0 + rows.1],
            columns: [columns.0, columns.0 + columns.1],
        };
        let Some(region) = asked.meet(&whole) else { return Ok(()) };
        let (_folder, path, _) = exported(&form(dtype, experts, 300));
        let found = read(&Folder::open(&path).unwrap(), &name, region).unwrap();
        let expected = (region.rows[0]..region.rows[1]).flat_map(|row| {
            let [from, to] = region.columns.map(|column| (row * whole.width() + column) as usize);
            content[from..to].to_vec()
        });
        prop_assert_eq!(found, bytes(&expected.collect::<Vec<_>>()));
    }

    #[test]
    fn any_header_is_answered(
        content in proptest::collection::vec(any::<u8>(), 0..200),
        length in 0_u64..220,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut file = length.to_le_bytes().to_vec();
        file.extend(content);
        fs::write(folder.path().join(MODEL), file).unwrap();
        // No panic.
        let _ = Folder::open(folder.path());
    }
}
