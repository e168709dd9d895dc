use super::*;

fn read(line: &str, fields: &Fields) -> Result<Document<'static>, BadRecord> {
    let line = Box::leak(line.to_owned().into_boxed_str());
    document(line.as_bytes(), Place { record: 7, offset: 100 }, fields).unwrap()
}

fn text_of(line: &str) -> Result<String, BadRecord> {
    match read(line, &Fields::Text { text: "text".to_owned() })?.content {
        Content::Text(text) => Ok(text.into_owned()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_field_is_taken_and_the_rest_is_skipped() {
    for line in [
        r#"{"text":"x"}"#,
        r#" { "a" : [1, {"text": 2}, null], "text" : "x", "b": 1e5 } "#,
        r#"{"text":"first","text":"x"}"#,
        r#"{"te\u0078t":"\u0078"}"#,
    ] {
        assert_eq!(text_of(line).unwrap(), "x", "{line}");
    }
    let deep = format!("{{\"a\":{}{},\"text\":\"x\"}}", "[".repeat(10_000), "]".repeat(10_000));
    assert_eq!(text_of(&deep).unwrap(), "x");
}

#[test]
fn text_is_borrowed_where_it_can_be() {
    let fields = Fields::Text { text: "text".to_owned() };
    let Content::Text(text) = read(r#"{"text":"x"}"#, &fields).unwrap().content else { panic!() };
    assert!(matches!(text, Cow::Borrowed("x")));
}

/// Line, reason, offset in the line, and what the detail says.
#[test]
fn what_is_wrong_with_a_record_is_said() {
    use Reason::*;
    for (line, reason, at, detail) in [
        (r#"{"text":"x""#, BrokenJson, 11, "EOF while parsing an object in column 12"),
        (r#"{"text":"x"} {}"#, BrokenJson, 13, "trailing characters in column 14"),
        (r#"{"text":x}"#, BrokenJson, 8, "expected value in column 9"),
        (r#"{"text":"\ud800"}"#, BrokenJson, 15, "hex escape"),
        ("{\"text\":\"a\u{1}\"}", BrokenJson, 10, "control character"),
        ("oops", BrokenJson, 0, "expected value in column 1"),
        ("[1]", NotAnObject, 0, "the line is an array"),
        ("\"x\"", NotAnObject, 0, "a string"),
        ("null", NotAnObject, 0, "null"),
        ("-1", NotAnObject, 0, "a number"),
        (
            r#"{"txt":"x","id":1}"#,
            MissingField,
            0,
            r#"there is no field "text"; did you mean "txt"?; the record has "txt", "id""#,
        ),
        ("{}", MissingField, 0, "the record has no fields"),
        (r#"{"text":3}"#, WrongType, 0, r#"field "text" is a number; it must be a string"#),
        (r#"{"text":[[1],{}]}"#, WrongType, 0, "is an array"),
        (r#"{"text":{"a":[1]}}"#, WrongType, 0, "is an object"),
        (r#"{"text":true}"#, WrongType, 0, "is a boolean"),
        (r#"{"text":null}"#, Null, 0, r#"field "text" is null"#),
        (r#"{"text":"a\u0000"}"#, NulCharacter, 0, r#"field "text" has a U+0000"#),
    ] {
        let bad = text_of(line).unwrap_err();
        assert_eq!((bad.reason, bad.place.record), (reason, 7), "{line}: {bad}");
        assert_eq!(bad.place.offset, 100 + at, "{line}: {bad}");
        assert!(bad.detail.contains(detail), "{line}: {bad}");
    }
}

#[test]
fn invalid_utf8_has_its_offset() {
    let fields = Fields::Text { text: "text".to_owned() };
    let place = Place { record: 7, offset: 100 };
    let bad = document(b"{\"a\":\"\xff\",\"text\":\"x\"}", place, &fields).unwrap().unwrap_err();
    assert_eq!((bad.reason, bad.place.offset), (Reason::InvalidUtf8, 106));
    assert_eq!(bad.detail, "byte 0xff in column 7 is not valid UTF-8");
}

#[test]
fn blank_lines_are_no_records() {
    let fields = Fields::Text { text: "text".to_owned() };
    for line in ["", " ", "\t \r"] {
        assert_eq!(document(line.as_bytes(), Place::default(), &fields), None);
    }
    assert!(document(b"\x0c", Place::default(), &fields).unwrap().is_err());
}

#[test]
fn an_array_over_lines_is_explained() {
    let fields = Fields::Text { text: "text".to_owned() };
    let place = Place { record: 1, offset: 0 };
    let bad = document(b"[", place, &fields).unwrap().unwrap_err();
    assert!(bad.detail.contains("jq -c '.[]'"), "{bad}");
}

#[test]
fn the_rest_of_a_prompt_is_json_in_its_order() {
    let fields = Fields::Prompt { prompt: "q".to_owned() };
    for (line, expected) in [
        (
            r#"{"z": [1, 2.50], "q": "x", "a\n\"": {"b": null}}"#,
            r#"{"z":[1, 2.50],"a\n\"":{"b": null}}"#,
        ),
        (r#"{"q":"x"}"#, "{}"),
    ] {
        let content = read(line, &fields).unwrap().content;
        let rest = expected.to_owned();
        assert_eq!(content, Content::Prompt { prompt: Cow::Borrowed("x"), rest }, "{line}");
    }
}
