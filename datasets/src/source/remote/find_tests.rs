//! What an address leads to, and what is said if it leads nowhere.

use std::path::Path;

use tempfile::tempdir;

use super::tests::find_on;
use super::{Address, is_address};
use crate::source::testing::{spec, write};
use crate::source::{Input, SourceSpec, find};
use titan_objects::fake::{Fake, Fault, On, PATIENT};
use titan_objects::{Store, Variables};

const SERVICES: [&str; 2] = ["gs://bucket", "s3://bucket"];

fn spec_of(address: &str) -> SourceSpec {
    spec(Path::new(address))
}

fn names(found: crate::source::Result<Vec<Input>>, root: &str) -> Result<Vec<String>, String> {
    match found {
        Ok(inputs) => {
            Ok(inputs.into_iter().map(|input| input.name.replacen(root, "", 1)).collect())
        }
        Err(error) => {
            Err(error.to_string().replace(root, "").replace(root.trim_end_matches('/'), ""))
        }
    }
}

#[test]
fn folders_and_globs_are_those_of_local_files() {
    let folder = tempdir().unwrap();
    for name in [
        "corpus/b1.txt",
        "corpus/a1.txt",
        "corpus/a.jsonl",
        "corpus/a/x.txt",
        "corpus/c.log",
        "corpus/sub/a2.txt",
        "corpus/sub/deep/a3.txt",
        "corpus/.hidden.txt",
        "corpus/.git/x.txt",
        "corpus/README.md",
        "corpus/README_files/x.txt",
        "corpus/sub/LICENSE.txt",
        "corpus/dataset_info.json",
        "corpus/cache-12.arrow",
        "hub/README.md",
        "hub/data/train-00001-of-00002.parquet",
        "hub/data/train-00000-of-00002.parquet",
        "hub/data/validation-00000-of-00001.parquet",
        "hub/data/trainer.txt",
        "folders/train/0.jsonl",
        "folders/dev/0.jsonl",
        "folders/extra.jsonl",
        "odd/a[1].txt",
        "odd/a1.txt",
        "odd/ü & 50% more+.txt",
        "code/program.py",
        "dict/train/1.arrow",
        "dict/train/0.arrow",
        "dict/test/0.arrow",
        "tokens/made/index.json",
        "tokens/made/train-00000.tokens",
        "tokens/begun/job.json",
        "tokens/begun/train-00000.tokens",
        "tokens/index.json",
        "tokens/x.jsonl",
        "top.jsonl",
    ] {
        write(&folder, name, "x");
    }
    write(&folder, "dict/dataset_dict.json", r#"{"splits": ["train", "test"]}"#);
    let state = r#"{"_data_files": [{"filename": "1.arrow"}, {"filename": "0.arrow"}]}"#;
    write(&folder, "dict/train/state.json", state);
    write(&folder, "dict/test/state.json", "{}");
    let fake = Fake::of(folder.path());
    // Lists of more than one page.
    fake.page(5);
    let local_root = format!("{}/", folder.path().display());
    let mut found_some = 0;
    for path in [
        "corpus",
        "corpus/",
        "corpus/sub",
        "corpus/*.txt",
        "corpus/[ab]?.*",
        "corpus/*",
        "corpus/**/*.txt",
        "corpus/**",
        "**/a2.txt",
        "corpus/*/a2.txt",
        "*/sub/*.txt",
        "corpus/README.md",
        "corpus/c.log",
        "corpus/.h*",
        "corpus/.git/*.txt",
        "corpus/R*",
        "*.jsonl",
        "*/0.jsonl",
        "*/*/0.jsonl",
        "hub",
        "h*",
        "hub/data/*",
        "hub/data",
        "folders",
        "folders/*",
        "odd",
        "odd/a[1].txt",
        "odd/a[[]1].txt",
        "odd/*more+.txt",
        "odd/ü*",
        "code",
        "code/program.py",
        "code/*",
        "dict",
        "dict/train",
        "di*",
        "tokens",
        "tokens/*",
        "tokens/*.json*",
        "tokens/begun",
        "tokens/b*/*.json",
        "tokens/m*/*.tokens",
        "tokens/**/*.json",
        "tokens/made/index.json",
        "corpus/*.csv",
        "corpus/a1.tx",
        "corpsu/sub/a2.txt",
        "corpus/a1.txt/x",
        "[.txt",
        "corpus/a**b",
        "corpus/**/*.csv",
        "nothing/*",
        "nothing/**/*.txt",
    ] {
        for split in ["train", "validation", "other"] {
            let spec = SourceSpec { split: split.to_owned(), ..spec(&folder.path().join(path)) };
            let expected = names(find(&spec), &local_root);
            found_some += usize::from(expected.is_ok());
            for service in SERVICES {
                let root = format!("{service}/");
                let spec = SourceSpec { path: format!("{root}{path}"), ..spec.clone() };
                let found = names(find_on(&fake, &spec, PATIENT), &root);
                match (&found, &expected) {
                    // What is not a glob is said with another number of the character.
                    (Err(found), Err(expected)) if expected.contains("not a glob") => {
                        assert!(found.contains("not a glob"), "{found}");
                    }
                    // A path through a file is another error of the system.
                    (Err(found), Err(_)) if path == "corpus/a1.txt/x" => {
                        assert!(found.contains("there is no such file or folder"), "{found}");
                    }
                    _ => {
                        // A folder is named without the `/` at its end.
                        let expected = expected.clone().map_err(|e| e.replace("/:", ":"));
                        assert_eq!(found, expected, "{service} {path} {split}");
                    }
                }
            }
        }
    }
    assert!(found_some > 60, "{found_some}");
}

#[test]
fn a_whole_bucket_is_a_folder_and_placeholders_are_no_files() {
    let fake = Fake::start();
    fake.put("corpus/", "");
    fake.put("corpus/sub/", "");
    fake.put("corpus/sub/a.txt", "x");
    fake.put("b.txt", "x");
    fake.put("empty/", "");
    fake.put("corpus/sub/README.md", "x");
    let found = |path: &str| {
        names(find_on(&fake, &spec_of(&format!("gs://bucket{path}")), PATIENT), "gs://bucket/")
    };
    let all = Ok(vec!["b.txt".to_owned(), "corpus/sub/a.txt".to_owned()]);
    assert_eq!(found(""), all);
    assert_eq!(found("/"), all);
    assert_eq!(found("/corpus/**"), Ok(vec!["corpus/sub/a.txt".to_owned()]));
    assert_eq!(found("/*"), all);
    assert_eq!(found("/corpus/*"), Ok(vec!["corpus/sub/a.txt".to_owned()]));
    assert!(found("/empty").unwrap_err().contains("has no data files"));
    assert!(found("/empty/").unwrap_err().contains("has no data files"));
}

#[test]
fn a_glob_does_not_list_what_cannot_match() {
    let fake = Fake::start();
    for n in 0..50 {
        fake.put(&format!("other/{n}.txt"), "x");
    }
    fake.put("a/train.txt", "x");
    fake.page(10);
    assert_eq!(find_on(&fake, &spec_of("gs://bucket/*.txt"), PATIENT).map_err(drop), Err(()));
    let requests = fake.requests();
    assert!(requests.iter().all(|r| !r.contains("continuation-token")), "{requests:?}");
}

#[test]
fn a_list_that_breaks_off_is_asked_for_again() {
    let fake = Fake::start();
    for n in 0..9 {
        fake.put(&format!("corpus/{n}.txt"), "x");
    }
    fake.page(4);
    fake.fault(On::List, Fault::CutAfter(30), 2);
    assert_eq!(find_on(&fake, &spec_of("s3://bucket/corpus"), PATIENT).unwrap().len(), 9);
}

#[test]
fn refusals_are_said_in_words_without_credentials() {
    let fake = Fake::start();
    fake.put("corpus/train.jsonl", "{}");
    let error = |path: &str| find_on(&fake, &spec_of(path), PATIENT).unwrap_err().to_string();
    let text = error("s3://bucket/corpus/trian.jsonl");
    assert!(text.starts_with("s3://bucket/corpus/trian.jsonl: there is no such file"), "{text}");
    assert!(
        text.ends_with(
            "the folder s3://bucket/corpus has \"train.jsonl\"; did you mean \"train.jsonl\"?"
        ),
        "{text}"
    );
    for service in ["gs", "s3"] {
        let text = error(&format!("{service}://buckets/corpus"));
        assert!(text.contains("there is no bucket `buckets` at http://127.0.0.1"), "{text}");
    }
    let body = "<Error><Code>SignatureDoesNotMatch</Code><Message>Check your key.</Message>\
                <AWSAccessKeyId>the-id</AWSAccessKeyId></Error>";
    fake.fault(On::Any, Fault::Status(403, body), 2);
    let text = error("s3://bucket/corpus/**/*.jsonl");
    assert!(text.contains("access denied"), "{text}");
    assert!(
        text.contains("the credentials of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY were used"),
        "{text}"
    );
    assert!(text.contains("AWS_SKIP_SIGNATURE=true"), "{text}");
    assert!(!text.contains("the-id") && !text.contains("the-secret"), "{text}");
    let text = error("gs://bucket/corpus/");
    assert!(text.contains("access denied (SignatureDoesNotMatch: Check your key.)"), "{text}");
    assert!(text.contains("nothing was signed, because STORAGE_EMULATOR_HOST is set"), "{text}");
    assert!(!text.contains("the-id"), "{text}");
    fake.fault(On::Any, Fault::Status(503, "<Error><Code>SlowDown</Code></Error>"), 100);
    let text = error("gs://bucket/corpus");
    assert!(text.contains("cannot answer now: 503") && text.contains("try again later"), "{text}");
}

#[test]
fn a_host_that_is_not_there_is_named() {
    let address = Address::parse("s3://bucket/a.txt").unwrap().unwrap();
    let variables = |more: &[(&str, &str)]| {
        let mut all = vec![
            ("AWS_ENDPOINT_URL", "http://user:word@127.0.0.1:1/"),
            ("AWS_ACCESS_KEY_ID", "x"),
            ("AWS_SECRET_ACCESS_KEY", "y"),
        ];
        all.extend(more);
        Variables::of(&all)
    };
    let error = Store::new(address.bucket(), &variables(&[]), PATIENT).unwrap_err().to_string();
    assert!(error.contains("set AWS_ALLOW_HTTP=true") && !error.contains("word"), "{error}");
    let variables = variables(&[("AWS_ALLOW_HTTP", "true")]);
    let store = Store::new(address.bucket(), &variables, PATIENT).unwrap();
    let error = store.head("a.txt").unwrap_err().to_string();
    assert!(error.contains("the store at http://127.0.0.1:1 cannot be reached"), "{error}");
    assert!(!error.contains("word"), "{error}");
    let address_of_google = Address::parse("gs://bucket/a.txt").unwrap().unwrap();
    let no_file = Variables::of(&[("GOOGLE_SERVICE_ACCOUNT", "/nowhere/key.json")]);
    let error = Store::new(address_of_google.bucket(), &no_file, PATIENT).unwrap_err().to_string();
    assert!(error.contains("/nowhere/key.json"), "{error}");
    let broken =
        Variables::of(&[("GOOGLE_SERVICE_ACCOUNT_KEY", "{\"private_key\": \"the-secret\"")]);
    let error = Store::new(address_of_google.bucket(), &broken, PATIENT).unwrap_err().to_string();
    assert!(error.contains("GOOGLE_*") && !error.contains("the-secret"), "{error}");
    let only_id = Variables::of(&[("AWS_ACCESS_KEY_ID", "x")]);
    let error = Store::new(address.bucket(), &only_id, PATIENT).unwrap_err().to_string();
    assert!(error.contains("cannot be used") && error.contains("AWS_*"), "{error}");
}

#[test]
fn credentials_that_cannot_be_got_are_not_the_fault_of_the_store() {
    let fake = Fake::start();
    let address = Address::parse("s3://bucket/a.txt").unwrap().unwrap();
    let endpoint = fake.endpoint();
    let variables = Variables::of(&[
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1"),
    ]);
    let store = Store::new(address.bucket(), &variables, PATIENT).unwrap();
    let error = store.head("a.txt").unwrap_err().to_string();
    assert!(error.contains("no credentials could be got"), "{error}");
    assert!(error.contains("set credentials in one of AWS_ACCESS_KEY_ID, "), "{error}");
}

#[test]
fn only_some_texts_are_addresses() {
    assert!(is_address("gs://b/x") && is_address("s3://b"));
    assert!(!is_address("/gs/x") && !is_address("http://x/y") && !is_address("a.txt"));
    let error = |text: &str| Address::parse(text).unwrap_err().to_string();
    assert!(error("gs:///x").contains("write gs://BUCKET/PATH"), "{}", error("gs:///x"));
    assert!(error("s3://me:secret@b/x").contains("s3://...@b/x: the name of the bucket"));
    assert!(!error("s3://me:secret@b/x").contains("secret"));
    assert!(error("gs://b/a//x").contains("can be empty, `.` or `..`"));
    assert!(error("gs://b/../x").contains("can be empty, `.` or `..`"));
    assert!(error("http://h/x").contains("begins with gs:// or s3://"));
    assert!(error("file:///x").contains("write the path alone: /x"));
}
