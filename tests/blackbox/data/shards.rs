//! Shards that are no longer what was written: found, named, never trained on.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};

use super::{Data, files, flip, letters};
use crate::support::{none_left, repository};

/// Bytes that have one hash.
const BLOCK: u64 = 64 * 1024;

/// Shards of all kinds: `text`, `pairs`, `prompts`, with more than one block each.
fn write_shards(data: &Data) {
    let record = |n: u64| {
        let id = letters(n + 5000, 40);
        json!({ "id": id, "text": letters(n, 60), "answer": letters(n + 9000, 300) }).to_string()
            + "\n"
    };
    data.write("d.jsonl", (0..3000).map(record).collect::<String>());
    let tokenize = |output: &str, fields: &[&str]| {
        data.run(&[&["data", "tokenize", "d.jsonl", "-o", output][..], fields].concat()).expect(0);
    };
    tokenize("text", &[]);
    tokenize("pairs", &["--prompt-field", "text", "--response-field", "answer"]);
    tokenize("prompts", &["--prompt-field", "text"]);
}

/// What `data verify` finds in a damaged folder: the file and offset of each fault.
#[track_caller]
fn faults(data: &Data, folder: &str) -> Vec<(String, Option<u64>)> {
    let done = data.run(&["data", "verify", folder, "--json"]).expect(3);
    let found: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(found["ok"], false);
    let faults = found["faults"].as_array().unwrap().iter();
    let fault =
        |fault: &Value| (fault["file"].as_str().unwrap().to_owned(), fault["offset"].as_u64());
    let faults: Vec<_> = faults.map(fault).collect();
    // People are told the same.
    let words = data.run(&["data", "verify", folder]).expect(3).stdout;
    for (file, offset) in &faults {
        assert!(words.contains(file), "{words}");
        assert!(offset.is_none_or(|at| words.contains(&format!("(byte {at})"))), "{words}");
    }
    faults
}

#[test]
fn a_flipped_bit_in_any_file_of_a_shard_is_found_with_its_place() {
    let data = Data::new();
    write_shards(&data);
    for folder in ["text", "pairs", "prompts"] {
        let done = data.run(&["data", "verify", folder]).expect(0);
        assert!(done.stdout.contains("all good"), "{}", done.stdout);
    }
    for (folder, ending, offset) in [
        ("text", "tokens", BLOCK + 17),
        ("text", "tokens", 0),
        ("pairs", "tokens", 9 * BLOCK - 1),
        ("pairs", "targets", BLOCK),
        ("prompts", "tokens", 2 * BLOCK + 1),
        ("prompts", "extra", 3 * BLOCK + 100),
    ] {
        let name = format!("{folder}/train-00000.{ending}");
        flip(&data.path(&name), offset as usize);
        let block = offset / BLOCK * BLOCK;
        assert_eq!(faults(&data, folder), [(name.clone(), Some(block))], "{name} at {offset}");
        flip(&data.path(&name), offset as usize);
        data.run(&["data", "verify", folder]).expect(0);
    }
    // An index is small: it has one hash for all of it, which has no place.
    for (folder, offset) in [("text", 11), ("pairs", 8 * 3000 + 3), ("prompts", 8)] {
        let name = format!("{folder}/train-00000.index");
        flip(&data.path(&name), offset);
        let found = faults(&data, folder);
        assert!(found.contains(&(name.clone(), None)), "{name} at {offset}: {found:?}");
        flip(&data.path(&name), offset);
    }
    let json = fs::read_to_string(data.path("text/index.json")).unwrap();
    fs::write(
        data.path("text/index.json"),
        json.replacen("\"tokens\": 180000", "\"tokens\": 180001", 1),
    )
    .unwrap();
    data.run(&["data", "verify", "text"]).expect(3).says(&["text/index.json"]);
}

#[test]
fn a_changed_value_of_the_index_is_believed() {
    let data = Data::new();
    data.write_texts("d.jsonl", &["a", "b"]);
    data.run(&["data", "tokenize", "d.jsonl", "-o", "s"]).expect(0);
    let good = files(&data.path("s"));
    // A folder for each byte of the index, with one of its bits flipped.
    let names: Vec<String> = (0..good["index.json"].len()).map(|at| format!("f/{at}")).collect();
    for (at, folder) in names.iter().enumerate() {
        for (name, content) in &good {
            data.write(&format!("{folder}/{name}"), content);
        }
        let mut changed = good["index.json"].clone();
        changed[at] ^= 1 << (at % 8);
        data.write(&format!("{folder}/index.json"), changed);
    }
    let folders: Vec<&str> = names.iter().map(String::as_str).collect();
    let done = data.run(&[&["data", "verify"][..], &folders].concat()).expect(3);
    assert_eq!(done.stdout, "", "changed shards are good");
    let accused = done.stderr.lines().filter(|line| line.contains("/index.json: ")).count();
    assert_eq!(accused, names.len());

    let text = String::from_utf8(good["index.json"].clone()).unwrap();
    for (from, to) in [
        ("\"targets\": 2", "\"targets\": 3"),
        ("\"records\": 2", "\"records\": 7"),
        ("\"validation_fraction\": 0.0", "\"validation_fraction\": 0.1"),
        ("\"largest_id\": 255", "\"largest_id\": 254"),
        ("\"document_end\": null", "\"document_end\": 10"),
    ] {
        assert!(text.contains(from), "{text}");
        data.write("s/index.json", text.replacen(from, to, 1));
        let told = ["s/index.json: ", "its content does not have the hash that it says"];
        let train = ["train", "r.toml", "--set", r#"data.sources=[{path="s"}]"#];
        for command in [&["data", "verify", "s"][..], &["data", "show", "s"], &train] {
            data.run(command).expect(3).says(&told);
        }
    }
    data.nothing_ran();
}

#[test]
fn shards_with_a_missing_file_were_made_before() {
    let data = Data::new();
    write_shards(&data);
    let tokenize = |fields: &[&str], output: &str| {
        data.run(&[&["data", "tokenize", "d.jsonl", "-o", output][..], fields].concat())
    };
    let pairs = ["--prompt-field", "text", "--response-field", "answer"];
    for (folder, fields, ending) in [
        ("text", &[][..], "tokens"),
        ("text", &[], "index"),
        ("pairs", &pairs, "targets"),
        ("prompts", &pairs[..2], "extra"),
    ] {
        let name = format!("{folder}/train-00000.{ending}");
        let content = fs::read(data.path(&name)).unwrap();
        let advice = format!("remove the folder {folder} and start the same command again");
        fs::remove_file(data.path(&name)).unwrap();
        tokenize(fields, folder).expect(3).says(&[&name, "cannot be found", &advice]);
        fs::write(data.path(&name), &content[1..]).unwrap();
        let sizes = format!("has {} bytes, not {}", content.len() - 1, content.len());
        tokenize(fields, folder).expect(3).says(&[&name, &sizes, &advice]);
        fs::remove_dir_all(data.path(folder)).unwrap();
        tokenize(fields, folder).expect(0);
        assert_eq!(fs::read(data.path(&name)).unwrap(), content);
    }
}

#[test]
fn advice_about_the_cache_does_not_help() {
    let data = Data::new();
    let show = ["data", "show", "r.toml"];
    data.run(&show).expect(0);
    let folder = data.bench.shards().remove(0);
    for (name, is_removed) in [
        ("index.json", false),
        ("job.json", false),
        ("train-00000.tokens", true),
        ("train-00000.index", false),
        ("train-00000.tokens", false),
    ] {
        if is_removed {
            fs::remove_file(folder.join(name)).unwrap();
        } else {
            flip(&folder.join(name), 0);
        }
        let help = format!("remove {}: the next command makes it anew", folder.display());
        data.run(&show).expect(3).says(&[name, &help]);
        fs::remove_dir_all(&folder).unwrap();
        data.run(&show).expect(0);
    }
    // What somebody has made is not removed so lightly.
    data.run(&["data", "tokenize", "data.txt", "-o", "s"]).expect(0);
    flip(&data.path("s/index.json"), 0);
    let done = data.run(&["data", "show", "s"]).expect(3);
    assert!(!done.stderr.contains("makes it anew"), "{}", done.stderr);
}

#[test]
fn of_a_damaged_index_nothing_else_is_accused() {
    let data = Data::new();
    write_shards(&data);
    // The hash of the first block of tokens.
    flip(&data.path("text/train-00000.index"), 8 * 3000 + 3);
    assert_eq!(faults(&data, "text"), [("text/train-00000.index".to_owned(), None)]);
}

#[test]
fn a_flipped_position_of_a_document_is_not_shown_as_data() {
    let data = Data::new();
    write_shards(&data);
    // The second document begins at token 60; now at 61.
    flip(&data.path("text/train-00000.index"), 8);
    data.run(&["data", "show", "text"]).expect(3).says(&["text/train-00000.index"]);
}

#[test]
fn shards_that_are_not_finished_are_read_as_records() {
    let data = Data::new();
    data.run(&["data", "tokenize", "data.txt", "-o", "s"]).expect(0);
    fs::remove_file(data.path("s/index.json")).unwrap();
    let skip = ["--set", "data.on_bad_record=skip"];
    for more in [&[][..], &skip] {
        let train = ["train", "r.toml", "--dry-run", "--set", r#"data.sources=[{path="s"}]"#];
        let done = data.run(&[&train[..], more].concat());
        assert_ne!(done.code, Some(0));
        done.says(&["index.json"]);
    }
    let done = data.run(&["data", "verify", "s"]);
    assert_ne!(done.code, Some(0));
    let said = done.stdout + &done.stderr;
    assert!(said.contains("index.json") && !said.contains("job.json:1"), "{said}");
}

#[test]
fn a_file_of_a_shard_that_is_cut_off_or_missing_is_found() {
    let data = Data::new();
    write_shards(&data);
    for (folder, ending) in [
        ("text", "tokens"),
        ("text", "index"),
        ("pairs", "targets"),
        ("pairs", "index"),
        ("prompts", "extra"),
        ("prompts", "tokens"),
    ] {
        let name = format!("{folder}/train-00000.{ending}");
        let content = fs::read(data.path(&name)).unwrap();
        for left in [Some(content.len() - 1), Some(100), Some(0), None] {
            match left {
                Some(bytes) => fs::write(data.path(&name), &content[..bytes]).unwrap(),
                None => fs::remove_file(data.path(&name)).unwrap(),
            }
            let found = faults(&data, folder);
            assert!(found.iter().any(|(file, _)| *file == name), "{name}, {left:?}: {found:?}");
            // Reading all of it finds it too.
            data.run(&["data", "show", folder, "--documents", "3000"]).expect(3).says(&[&name]);
        }
        fs::write(data.path(&name), content).unwrap();
        data.run(&["data", "verify", folder]).expect(0);
    }
}

#[test]
fn a_run_never_trains_on_a_flipped_bit() {
    let data = Data::new();
    let text = repository().join("datasets/shakespeare/shakespeare.txt");
    fs::copy(text, data.path("data.txt")).unwrap();
    data.run(&["data", "tokenize", "data.txt", "-o", "s"]).expect(0);
    let settings = ["--set", r#"data.sources=[{path="s"}]"#, "--set", "training.steps=40"];
    // The step in which each block is first touched.
    let mut first = BTreeMap::new();
    for row in data.rows("1..40", &settings) {
        let start = row.id.sample * 32;
        for block in [start / BLOCK, (start + 32) / BLOCK] {
            first.entry(block).or_insert(row.place[0]);
        }
    }
    let (block, step) = first.into_iter().max_by_key(|(_, step)| *step).unwrap();
    assert!(step > 3, "all blocks are read at once");
    let tokens = data.path("s/train-00000.tokens");
    flip(&tokens, (block * BLOCK + 5) as usize);

    let done = data.train("out", &settings).expect(3);
    let place = format!("bytes from offset {} on are not what was written", block * BLOCK);
    let done = done.says(&["s/train-00000.tokens: the ", &place]);
    assert!(!done.stderr.contains("Traceback"), "{}", done.stderr);
    let trained = data.bench.metrics("out").len() as u64;
    assert!(trained < step, "{trained} steps were done; step {step} has the flipped bit");
    none_left(&data.bench, "out");
    // Looking at it neither.
    let steps = format!("1..{step}");
    let show = [&["data", "show", "r.toml", "--steps", &steps][..], &settings].concat();
    data.run(&show).expect(3).says(&[&place]);
}

#[test]
fn the_tokens_in_the_cache_are_checked_too() {
    let data = Data::new();
    let first = data.rows("1", &[]);
    let folder = data.bench.shards().remove(0);
    flip(&folder.join("train-00000.tokens"), 3);
    let show = ["data", "show", "r.toml", "--steps", "1"];
    data.run(&show).expect(3).says(&["train-00000.tokens: the ", "bytes from offset 0 on"]);
    // Without them it is as it was.
    fs::remove_dir_all(folder).unwrap();
    assert_eq!(data.rows("1", &[]), first);
}
