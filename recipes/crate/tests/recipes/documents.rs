//! The tokens at the edges of documents: how a recipe names them, and what they are.

use expect_test::expect;
use titan_recipes::Purpose;
use titan_recipes::tables::data::TokenName;

use crate::bases::{EXPERTS, add, clean, edit, mended, told};
use crate::support::{check_set, edited, load_for, said, sound, with};

/// The sound recipe with a tokenizer from a file and some more lines in `[data]`.
fn with_file(tokenizer: &str, lines: &str) -> String {
    let text = edited(&[("vocab_size = 256", "vocab_size = 1000")]);
    add(&text, "data", &format!("tokenizer = \"{tokenizer}\"\n{lines}"))
}

/// Start and end of a sound recipe.
fn edges(text: &str) -> (Option<u64>, Option<u64>) {
    let data = clean(text).recipe.data;
    assert!(data.is_settled());
    (data.start_id(), data.end_id())
}

#[test]
fn edges_of_bytes() {
    assert_eq!(edges(&edited(&[])), (None, None));
    assert_eq!(edges(&with("data", "document_start = \"auto\"")), (None, None));
    assert_eq!(edges(&with("data", "document_start = 1\ndocument_end = 0")), (Some(1), Some(0)));
    assert_eq!(edges(&with("data", "document_end = \"none\"")), (None, None));
}

#[test]
fn edges_that_a_tokenizer_names() {
    assert_eq!(edges(&with_file("tokenizer.json", "")), (Some(997), Some(998)));
    let lines = "document_start = \"none\"\ndocument_end = \"auto\"";
    assert_eq!(edges(&with_file("tokenizer.json", lines)), (None, Some(998)));
    let lines = "document_start = \"<|end_of_text|>\"\ndocument_end = \"the\"";
    assert_eq!(edges(&with_file("tokenizer.json", lines)), (Some(998), Some(7)));
    let lines = "document_start = 3\ndocument_end = 999";
    assert_eq!(edges(&with_file("tokenizer.json", lines)), (Some(3), Some(999)));
}

#[test]
fn edges_in_set() {
    let text = with_file("tokenizer.json", "");
    let end = |set: &str| sound(&text, &[set]).recipe.data.end_id();
    assert_eq!(end("data.document_end=<|begin_of_text|>"), Some(997));
    assert_eq!(end("data.document_end=none"), None);
    assert_eq!(end("data.document_end=5"), Some(5));
}

#[test]
fn a_recipe_is_written_down_with_the_names_of_its_edges() {
    let text = with_file("tokenizer.json", "document_end = \"the\"");
    let loaded = clean(&text);
    let written = loaded.recipe.to_toml(&loaded.layout).unwrap();
    assert!(written.contains("document_start = \"auto\"\ndocument_end = \"the\"\n"), "{written}");
    assert_eq!(clean(&written).recipe.data, loaded.recipe.data);
}

/// Nothing is known of a tokenizer that is elsewhere, so nothing is refused for its sake.
#[test]
fn edges_of_a_tokenizer_that_cannot_be_asked() {
    let lines = "document_start = \"<s>\"\ndocument_end = \"auto\"";
    let text =
        add(&with_file("gs://bucket/tokenizer.json", lines), "training", "document_mask = true");
    let data = clean(&text).recipe.data;
    assert!(!data.is_settled());
    assert_eq!((data.start_id(), data.end_id()), (None, None));
    assert_eq!(data.document_start.unwrap().name, TokenName::Text("<s>".into()));
    let lines = "document_start = \"none\"\ndocument_end = 5";
    let data = clean(&with_file("gs://bucket/tokenizer.json", lines)).recipe.data;
    assert!(data.is_settled());
    // `plan` looks at no file.
    let result = load_for(Purpose::Plan, &with_file("tokenizer.json", "document_end = \"x\""), &[]);
    assert_eq!(said(&result), "");
}

#[test]
fn a_tokenizer_that_names_no_end() {
    let text = with_file("endless.json", "");
    told(
        &text,
        expect![[r#"
        warning: the tokenizer names no token that ends a document
          --> r.toml:27:13
           |
        27 | tokenizer = "endless.json"
           |             ^^^^^^^^^^^^^^ documents will not be separated
           |
           = help: write document_end: the text or id of a token, or "none" if this is meant
    "#]],
    );
    told(
        &add(&text, "data", "document_end = \"auto\""),
        expect![[r#"
        warning: the tokenizer names no token that ends a document
          --> r.toml:28:13
           |
        27 | document_end = "auto"
           |                ------ what the tokenizer says
        28 | tokenizer = "endless.json"
           |             ^^^^^^^^^^^^^^ documents will not be separated
           |
           = help: write document_end: the text or id of a token, or "none" if this is meant
    "#]],
    );
    mended(&text, &["data.document_end=none", "data.document_end=<|end_of_text|>"]);
    // One message, which is the graver one.
    let masked = add(&text, "training", "document_mask = true");
    told(
        &masked,
        expect![[r#"
        error: `training.document_mask` = true without `data.document_end`, and the tokenizer names none
          --> r.toml:18:17
           |
        18 | document_mask = true
           |                 ^^^^ nothing says which token ends a document
           |
           = help: write in [data] the token that ends a document, such as document_end = "<|endoftext|>"
    "#]],
    );
    mended(&masked, &["data.document_end=998"]);
}

#[test]
fn a_token_that_the_tokenizer_does_not_have() {
    let text = |token: &str| with_file("tokenizer.json", &format!("document_end = {token}"));
    told(
        &text("\"<|endoftext|>\""),
        expect![[r#"
        error: `data.document_end` = "<|endoftext|>" is no token of the tokenizer
          --> r.toml:28:16
           |
        28 | document_end = "<|endoftext|>"
           |                ^^^^^^^^^^^^^^^ neither an added token nor one of the vocabulary
           |
           = help: did you mean "<|end_of_text|>"?
    "#]],
    );
    told(
        &text("\"Auto\""),
        expect![[r#"
        error: `data.document_end` = "Auto" is no token of the tokenizer
          --> r.toml:28:16
           |
        28 | document_end = "Auto"
           |                ^^^^^^ neither an added token nor one of the vocabulary
           |
           = help: did you mean "auto"?
    "#]],
    );
    told(
        &text("\"998\""),
        expect![[r#"
        error: `data.document_end` = "998" is no token of the tokenizer
          --> r.toml:28:16
           |
        28 | document_end = "998"
           |                ^^^^^ neither an added token nor one of the vocabulary
           |
           = help: an id has no quotes: document_end = 998
    "#]],
    );
    told(
        &text("\"\""),
        expect![[r#"
        error: `data.document_end` = "" is no token of the tokenizer
          --> r.toml:28:16
           |
        28 | document_end = ""
           |                ^^ neither an added token nor one of the vocabulary
           |
           = help: its added tokens are: "<|begin_of_text|>", "<|end_of_text|>"
    "#]],
    );
    told(
        &with_file("tokenizer.json", "document_start = \"\\u001b[2Jx\""),
        expect![[r#"
        error: `data.document_start` = "\u{1b}[2Jx" is no token of the tokenizer
          --> r.toml:28:18
           |
        28 | document_start = "\u001b[2Jx"
           |                  ^^^^^^^^^^^^ neither an added token nor one of the vocabulary
           |
           = help: its added tokens are: "<|begin_of_text|>", "<|end_of_text|>"
    "#]],
    );
}

#[test]
fn a_text_where_tokens_are_bytes() {
    let told_of =
        |value: &str, expected| told(&with("data", &format!("document_end = {value}")), expected);
    told_of(
        "\"\\n\"",
        expect![[r#"
        error: `data.document_end` = "\n" is no byte
          --> r.toml:27:16
           |
        27 | document_end = "\n"
           |                ^^^^ the tokenizer "bytes" has ids from 0 to 255
           |
           = help: write its byte as a number: document_end = 10
    "#]],
    );
    told_of(
        "\"<|endoftext|>\"",
        expect![[r#"
        error: `data.document_end` = "<|endoftext|>" is no byte
          --> r.toml:27:16
           |
        27 | document_end = "<|endoftext|>"
           |                ^^^^^^^^^^^^^^^ the tokenizer "bytes" has ids from 0 to 255
           |
           = help: write the number of a byte, such as document_end = 0, or "none"
    "#]],
    );
    told_of(
        "\"0\"",
        expect![[r#"
        error: `data.document_end` = "0" is no byte
          --> r.toml:27:16
           |
        27 | document_end = "0"
           |                ^^^ the tokenizer "bytes" has ids from 0 to 255
           |
           = help: an id has no quotes: document_end = 0
    "#]],
    );
    told_of(
        "\"non\"",
        expect![[r#"
        error: `data.document_end` = "non" is no byte
          --> r.toml:27:16
           |
        27 | document_end = "non"
           |                ^^^^^ the tokenizer "bytes" has ids from 0 to 255
           |
           = help: did you mean "none"?
    "#]],
    );
}

#[test]
fn edges_of_other_kinds() {
    told(
        &with("data", "document_start = -1\ndocument_end = 1.0"),
        expect![[r#"
        error: `data.document_start` must be at least 0, found -1
          --> r.toml:27:18
           |
        27 | document_start = -1
           |                  ^^ must be at least 0
           |
           = help: allowed: 0 to 16777215

        error: `data.document_end` must be an integer or a string, found a float
          --> r.toml:28:16
           |
        28 | document_end = 1.0
           |                ^^^ must be an integer or a string
           |
           = help: allowed: 0 to 16777215, or a string
    "#]],
    );
    told(
        &with("data", "document_start = true\ndocument_end = [0]"),
        expect![[r#"
        error: `data.document_start` must be an integer or a string, found a boolean
          --> r.toml:27:18
           |
        27 | document_start = true
           |                  ^^^^ must be an integer or a string
           |
           = help: allowed: 0 to 16777215, or a string

        error: `data.document_end` must be an integer or a string, found an array
          --> r.toml:28:16
           |
        28 | document_end = [0]
           |                ^^^ must be an integer or a string
           |
           = help: allowed: 0 to 16777215, or a string
    "#]],
    );
}

/// A tokenizer that is wrong is one problem, whatever the edges are.
#[test]
fn edges_of_a_wrong_tokenizer() {
    check_set(
        &with("data", "tokenizer = \"nowhere.json\"\ndocument_end = \"<s>\""),
        &["training.document_mask=true"],
        expect![[r#"
            error: cannot read the tokenizer `nowhere.json`: no such file
              --> r.toml:27:13
               |
            27 | tokenizer = "nowhere.json"
               |             ^^^^^^^^^^^^^^ no such file
               |
               = help: relative paths here start from /recipes
        "#]],
    );
}

#[test]
fn a_mask_without_an_end_of_documents() {
    let text = with("training", "document_mask = true");
    told(
        &text,
        expect![[r#"
            error: `training.document_mask` = true without `data.document_end`
              --> r.toml:18:17
               |
            18 | document_mask = true
               |                 ^^^^ nothing says which token ends a document
               |
               = help: write in [data] the byte that ends a document, such as document_end = 0
        "#]],
    );
    mended(&text, &["data.document_end=0", "training.document_mask=false"]);
    told(
        &add(&text, "data", "document_end = \"none\""),
        expect![[r#"
            error: `training.document_mask` = true with `data.document_end` = "none"
              --> r.toml:18:17
               |
            18 | document_mask = true
               |                 ^^^^ nothing says which token ends a document
            ...
            28 | document_end = "none"
               |                ------ no token
               |
               = help: write in [data] the byte that ends a document, such as document_end = 0
        "#]],
    );
}

#[test]
fn an_end_of_documents_is_a_fact_that_needs_no_mask() {
    let loaded = sound(&with("data", "document_end = 10"), &[]);
    assert_eq!(loaded.recipe.data.end_id(), Some(10));
}

#[test]
fn an_end_of_documents_that_is_no_token() {
    let text = with("data", "document_end = 256");
    told(
        &text,
        expect![[r#"
        error: `data.document_end` = 256 is not below `model.vocab_size` = 256
          --> r.toml:27:16
           |
         6 | vocab_size = 256
           |              --- the token ids end here
        ...
        27 | document_end = 256
           |                ^^^ no token of this vocabulary
           |
           = help: allowed: 0 to 255
    "#]],
    );
    mended(&text, &["data.document_end=255"]);
    told(
        &add(EXPERTS, "data", "document_end = 256"),
        expect![[r#"
        error: `data.document_end` = 256 is not below `model.vocab_size` = 256 (of size "tiny")
          --> r.toml:21:16
           |
        21 | document_end = 256
           |                ^^^ no token of this vocabulary
           |
           = help: allowed: 0 to 255
    "#]],
    );
}

#[test]
fn an_end_of_documents_beyond_the_tokenizer() {
    let text = edited(&[("vocab_size = 256", "vocab_size = 512")]);
    let text = add(&text, "data", "document_end = 500");
    told(
        &text,
        expect![[r#"
            error: `data.document_end` = 500 is beyond 255, the largest id of the tokenizer
              --> r.toml:27:16
               |
            27 | document_end = 500
               |                ^^^ no token of this tokenizer
               |
               = help: allowed: 0 to 255
        "#]],
    );
    mended(&text, &["data.document_end=0"]);
    told(
        &with_file("tokenizer.json", "document_start = 1000"),
        expect![[r#"
        error: `data.document_start` = 1000 is not below `model.vocab_size` = 1000
          --> r.toml:28:18
           |
         6 | vocab_size = 1000
           |              ---- the token ids end here
        ...
        28 | document_start = 1000
           |                  ^^^^ no token of this vocabulary
           |
           = help: allowed: 0 to 999
    "#]],
    );
    let text = edit(&with_file("tokenizer.json", "document_start = 1000"), &[("= 1000", "= 2000")]);
    told(
        &text,
        expect![[r#"
        error: `data.document_start` = 1000 is beyond 999, the largest id of the tokenizer
          --> r.toml:28:18
           |
        27 | tokenizer = "tokenizer.json"
           |             ---------------- this tokenizer
        28 | document_start = 1000
           |                  ^^^^ no token of this tokenizer
           |
           = help: allowed: 0 to 999
    "#]],
    );
}
