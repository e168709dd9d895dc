use proptest::prelude::*;
use tempfile::tempdir;

use crate::source::document::{BadRecord, Place, Reason};
use crate::source::reader::Limits;
use crate::source::testing::{Got, Reading, SMALL, write};

use super::place_to_cut;

fn read(bytes: impl AsRef<[u8]>) -> Vec<Got> {
    let folder = tempdir().unwrap();
    Reading::new(&write(&folder, "a.txt", bytes)).small().whole().check_every_start()
}

fn texts(all: &[Got]) -> Vec<&str> {
    let mut texts = Vec::new();
    for got in all {
        match got {
            Got::Text(text, ..) => texts.push(text.as_str()),
            other => panic!("{other:?}"),
        }
    }
    texts
}

#[test]
fn a_small_file_is_one_document() {
    let body = "one\r\n\ntwo\n".repeat(6);
    assert!(body.len() < SMALL.whole);
    assert_eq!(read(&body), [Got::Text(body, 1, 0)]);
}

#[test]
fn a_large_file_is_cut_after_lone_line_ends() {
    // The first line end behind 16 bytes has a blank line or a space beside it.
    let part = "0123456789abcdef\n\nno \nno\n no\nyes\n";
    let all = read(part.repeat(3));
    let first = "<0123456789abcdef\n\nno \nno\n no\n";
    assert_eq!(texts(&all)[0], first);
    let places: Vec<_> = all
        .iter()
        .map(|got| match got {
            Got::Text(_, line, offset) => (*line, *offset),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(places[..2], [(1, 0), (6, first.len() as u64 - 1)]);
    let joined = texts(&all).concat();
    assert_eq!(joined, format!("<{}>", part.repeat(3)));
    assert!(joined.contains("yes\n") && all.len() > 3);
}

#[test]
fn a_file_without_line_ends_is_cut_at_characters() {
    let all = read("é€😀".repeat(20));
    assert_eq!(texts(&all).concat(), format!("<{}>", "é€😀".repeat(20)));
    assert!(texts(&all)[1..all.len() - 1].iter().all(|piece| (29..=33).contains(&piece.len())));
}

#[test]
fn carriage_returns_do_not_prevent_a_cut() {
    let all = read("0123456789abcdef\r\n".repeat(8));
    assert_eq!(texts(&all)[1], "0123456789abcdef\r\n");
}

#[test]
fn whitespace_that_is_not_ascii_prevents_a_cut() {
    let limits = Limits { piece: 2, uncut: 10, ..SMALL };
    assert_eq!(place_to_cut("a\n\u{3000}b\nc".as_bytes(), true, limits), Some(7));
    assert_eq!(place_to_cut("a\u{a0}\nb\nc".as_bytes(), true, limits), Some(6));
    assert_eq!(place_to_cut("a\nb\n".as_bytes(), false, limits), None);
}

#[test]
fn invalid_utf8_makes_the_document_bad() {
    let expected = |line, offset| BadRecord {
        place: Place { record: line, offset },
        reason: Reason::InvalidUtf8,
        detail: format!("byte 0xff at offset {offset} is not valid UTF-8"),
    };
    assert_eq!(read(b"one\ntw\xffo\n"), [Got::Bad(expected(2, 6))]);

    let mut large = "0123456789abcdef\n".repeat(10).into_bytes();
    large[40] = 0xff;
    large[100] = 0xff;
    let all = read(large);
    assert_eq!(all.len(), 3, "{all:?}");
    assert_eq!(all[2], Got::Bad(expected(3, 40)));
}

#[test]
fn a_cut_character_and_a_nul_are_bad() {
    let bad = |bytes: &[u8]| match &read(bytes)[..] {
        [Got::Bad(bad)] => (bad.reason, bad.place.offset),
        other => panic!("{other:?}"),
    };
    assert_eq!(bad(b"abc\xe2\x82"), (Reason::InvalidUtf8, 3));
    assert_eq!(bad(b"ab\0c\xff"), (Reason::NulCharacter, 2));
    assert_eq!(bad(b"ab\xffc\0"), (Reason::InvalidUtf8, 2));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn pieces_join_to_the_file(
        parts in prop::collection::vec(prop::sample::select(vec!["a", "é", "\n", "\r\n", " ", "word\nnext"]), 0..120),
    ) {
        let body = parts.concat();
        let all = read(&body);
        let joined = texts(&all).concat();
        let expected = if body.len() > SMALL.whole { format!("<{body}>") } else { body };
        prop_assert_eq!(joined, expected);
    }
}
