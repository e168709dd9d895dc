use serde_json::json;
use tempfile::TempDir;

use super::*;

/// What is found in a `tokenizer.json` with this text and, unless it is empty, a `tokenizer_config.json` with that.
fn read(tokenizer: &str, config: &str, texts: &[&str]) -> Result<TokenizerFacts, String> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("tokenizer.json");
    fs::write(&path, tokenizer).unwrap();
    if !config.is_empty() {
        fs::write(folder.path().join("tokenizer_config.json"), config).unwrap();
    }
    TokenizerFacts::read(&path, texts)
}

fn largest(tokenizer: &str) -> Result<u64, String> {
    read(tokenizer, "", &[]).map(|facts| facts.largest_id)
}

/// Start and end of a tokenizer with this post-processor and three added tokens.
fn edges(post_processor: Value, config: &str) -> (Option<u64>, Option<u64>) {
    let added = ["<s>", "</s>", "<|endoftext|>"].into_iter().zip(3..);
    let added: Vec<Value> =
        added.map(|(text, id)| json!({ "id": id, "content": text, "special": true })).collect();
    let tokenizer = json!({
        "added_tokens": added,
        "post_processor": post_processor,
        "model": { "type": "BPE", "vocab": { "a": 0, "b": 1, "ab": 2 }, "merges": ["a b"] },
    });
    let facts = read(&tokenizer.to_string(), config, &[]).unwrap();
    (facts.start, facts.end)
}

/// A template that puts `<s>` before a text.
fn template() -> Value {
    json!({
        "type": "TemplateProcessing",
        "single": [
            { "SpecialToken": { "id": "<s>", "type_id": 0 } },
            { "Sequence": { "id": "A", "type_id": 0 } },
            { "SpecialToken": { "id": "</s>", "type_id": 0 } },
        ],
        "pair": [],
        "special_tokens": {
            "<s>": { "id": "<s>", "ids": [3], "tokens": ["<s>"] },
            "</s>": { "id": "</s>", "ids": [4], "tokens": ["</s>"] },
        },
    })
}

#[test]
fn the_largest_id_counts_added_tokens_and_holes() {
    let bpe =
        r#"{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0, "b": 7}, "merges": []}}"#;
    assert_eq!(largest(bpe), Ok(7));
    let added = r#"{"added_tokens": [{"id": 12, "content": "<s>"}], "model": {"vocab": {"a": 3}}}"#;
    assert_eq!(largest(added), Ok(12));
    let unigram = r#"{"added_tokens": [], "model": {"vocab": [["a", -1.5], ["b", -2]]}}"#;
    assert_eq!(largest(unigram), Ok(1));
}

#[test]
fn what_is_no_tokenizer_is_refused() {
    for text in
        ["", "[]", "{}", r#"{"model": {"vocab": {}}}"#, r#"{"model": {"vocab": {"a": -1}}}"#]
    {
        assert!(largest(text).is_err(), "{text}");
    }
}

#[test]
fn a_template_puts_the_start_and_a_known_name_the_end() {
    assert_eq!(edges(template(), ""), (Some(3), Some(5)));
    // As Llama 3 has it.
    let processors = json!([{ "type": "ByteLevel", "trim_offsets": false }, template()]);
    assert_eq!(
        edges(json!({ "type": "Sequence", "processors": processors }), ""),
        (Some(3), Some(5))
    );
    assert_eq!(edges(json!({ "type": "ByteLevel" }), ""), (None, Some(5)));
    assert_eq!(edges(Value::Null, ""), (None, Some(5)));
    let mut bare = template();
    bare["single"] = json!([{ "Sequence": { "id": "A", "type_id": 0 } }]);
    assert_eq!(edges(bare, ""), (None, Some(5)));
}

#[test]
fn the_configuration_beside_it_comes_first() {
    let config = r#"{"add_bos_token": true, "bos_token": "<|endoftext|>", "eos_token": "</s>"}"#;
    assert_eq!(edges(template(), config), (Some(5), Some(4)));
    let config =
        r#"{"bos_token": "<|endoftext|>", "eos_token": {"content": "</s>", "lstrip": false}}"#;
    assert_eq!(edges(template(), config), (Some(3), Some(4)));
    // What it names is not always there, or not named at all.
    let config = r#"{"add_bos_token": true, "bos_token": "<bos>", "eos_token": "<nowhere>"}"#;
    assert_eq!(edges(template(), config), (Some(3), Some(5)));
    let config = r#"{"add_bos_token": true, "bos_token": null, "eos_token": null}"#;
    assert_eq!(edges(Value::Null, config), (None, Some(5)));
    // A token of the vocabulary proper.
    assert_eq!(edges(Value::Null, r#"{"eos_token": "ab"}"#), (None, Some(2)));
}

#[test]
fn a_configuration_that_is_none_is_refused() {
    let tokenizer = r#"{"model": {"vocab": {"a": 0}}}"#;
    let why = read(tokenizer, "[1", &[]).unwrap_err();
    assert!(why.starts_with("the tokenizer_config.json beside it is not one"), "{why}");
}

#[test]
fn a_tokenizer_may_name_no_end() {
    let facts = read(r#"{"model": {"vocab": {"a": 0, "</s>": 1}}}"#, "", &[]).unwrap();
    assert_eq!((facts.start, facts.end), (None, None));
}

#[test]
fn texts_are_found_among_added_tokens_and_in_the_vocabulary() {
    let bpe = r#"{
        "added_tokens": [{"id": 12, "content": "<s>"}],
        "model": {"vocab": {"a": 3, "\u0120the": 4}, "merges": []}
    }"#;
    let facts = read(bpe, "", &["Ġthe", "<s>", "the"]).unwrap();
    assert_eq!((facts.id("<s>"), facts.id("Ġthe"), facts.id("the")), (Some(12), Some(4), None));
    // Nobody asked.
    assert_eq!((facts.id("a"), facts.asked.len()), (None, 1));
    let unigram = r#"{"model": {"vocab": [["a", -1.5], ["b", -2]]}}"#;
    assert_eq!(read(unigram, "", &["b"]).unwrap().id("b"), Some(1));
}
