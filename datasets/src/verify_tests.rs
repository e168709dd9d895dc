use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use super::*;
use crate::testing::Folder;

fn one_error(content: &[u8]) -> Error {
    let mut errors = verify(&Folder::new(&[content]).paths()).unwrap_err().0;
    assert_eq!(errors.len(), 1);
    errors.remove(0)
}

/// Line, offset, byte and hint of the first bad byte.
fn bad_byte(content: &[u8]) -> (u64, u64, u8, &'static str) {
    match one_error(content) {
        Error::InvalidUtf8 { line, offset, byte, hint, .. } => (line, offset, byte, hint),
        other => panic!("{other}"),
    }
}

#[test]
fn good_files_are_measured() {
    let folder = Folder::new(&[
        "To be, or not to be\nčšž\n".as_bytes(),
        b"that is\0\r\n\r\nthe",
        b"\xef\xbb\xbf?",
    ]);
    let corpus = verify(&folder.paths()).unwrap();
    assert_eq!(corpus.sources(), folder.sources());
    assert_eq!(corpus.tokens(Tokenizer::Bytes), 27 + 15 + 4);
    assert_eq!(corpus.files.iter().map(|f| f.newlines).collect::<Vec<_>>(), [2, 2, 0]);
    assert_eq!(corpus.files[0].notes, []);
    assert_eq!(corpus.files[1].notes, [Note::Nul { count: 1 }, Note::CrLf { count: 2 }]);
    assert_eq!(corpus.files[2].notes, [Note::ByteOrderMark]);
    assert_eq!(corpus.files[1].fingerprint, Fingerprint::of(b"that is\0\r\n\r\nthe"));
}

#[test]
fn the_stream_fingerprint_ignores_names_and_cuts_but_not_order() {
    let whole = verify(&Folder::new(&[b"To be, or not"]).paths()).unwrap();
    let cut = verify(&Folder::new(&[b"To be,", b" or not"]).paths()).unwrap();
    let other = verify(&Folder::new(&[b" or not", b"To be,"]).paths()).unwrap();
    assert_eq!(whole.fingerprint, cut.fingerprint);
    assert_ne!(whole.fingerprint, other.fingerprint);
    assert_eq!(whole.fingerprint, whole.files[0].fingerprint);
}

#[test]
fn the_fingerprint_is_plain_xxh3() {
    // The published value for no input.
    assert_eq!(Fingerprint::of(b"").to_string(), "99aa06d3014798d86001c324468d497f");
}

#[test]
fn the_shipped_text_is_clean() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("shakespeare/shakespeare.txt");
    let corpus = verify(&[path]).unwrap();
    assert_eq!((corpus.bytes(), corpus.files[0].newlines), (1_119_740, 43_303));
    assert_eq!(corpus.files[0].notes, []);
    assert_eq!(corpus.fingerprint.to_string(), "ee49e1ff419a54d09fbd8e1a476143ac");
}

#[test]
fn a_bad_byte_is_placed() {
    let plain = hint(*b"abcd");
    assert_eq!(bad_byte(b"abc\nde\xfff"), (2, 6, 0xff, plain));
    assert_eq!(bad_byte(b"\xe2\x28\xa1"), (1, 0, 0xe2, plain));
    // Far beyond one read, with characters of two bytes across every border of reads.
    let mut long = "ž\nžž".repeat(200_000).into_bytes();
    long.push(0x80);
    assert_eq!(bad_byte(&long), (200_001, 1_400_000, 0x80, plain));
}

#[test]
fn a_character_cut_by_the_end_of_the_file_is_bad() {
    let error = one_error("ab\ncdé".as_bytes().split_last().unwrap().1);
    assert!(
        error.to_string().contains("0.txt:2: byte 0xc3 at offset 5 begins a UTF-8 character that"),
        "{error}"
    );
}

#[test]
fn other_formats_are_recognised() {
    assert!(bad_byte(b"\xff\xfea\0b\0").3.contains("UTF-16"));
    assert!(bad_byte(b"\x1f\x8b\x08\x00").3.contains("gzip"));
    assert!(bad_byte(b"\x28\xb5\x2f\xfd\x00").3.contains("zstd"));
    assert!(bad_byte(b"PAR1\xff").3.contains("Parquet"));
    assert!(bad_byte(b"caf\xe9 au lait").3.contains("iconv"));
}

#[test]
fn what_is_not_a_text_file_is_refused_at_once() {
    let folder = Folder::new(&[b"fine", b""]);
    let pipe = folder.path(2);
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let start = Instant::now();
    let paths = vec![
        folder.path(0),
        folder.path(1),
        pipe,
        folder.path(0).parent().unwrap().to_owned(),
        PathBuf::from("/dev/zero"),
        folder.path(9),
    ];
    let errors = verify(&paths).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_eq!(errors.to_string().lines().count(), 5);
    let [empty, pipe, folder, device, missing] = &errors.0[..] else { panic!("{errors}") };
    assert!(matches!(empty, Error::Empty { .. }), "{empty}");
    assert!(matches!(pipe, Error::NotRegular { kind: "pipe", .. }), "{pipe}");
    assert!(matches!(folder, Error::NotRegular { kind: "folder", .. }), "{folder}");
    assert!(matches!(device, Error::NotRegular { kind: "device", .. }), "{device}");
    assert!(matches!(missing, Error::Io { action: "find", .. }), "{missing}");
    assert!(matches!(&verify(&[]).unwrap_err().0[..], [Error::NoFiles]));
}

#[test]
fn a_link_is_followed() {
    let folder = Folder::new(&[b"fine"]);
    std::os::unix::fs::symlink(folder.path(0), folder.path(1)).unwrap();
    assert_eq!(verify(&[folder.path(1)]).unwrap().bytes(), 4);
    fs::remove_file(folder.path(0)).unwrap();
    assert!(verify(&[folder.path(1)]).is_err());
}
