//! Rules between keys, as far as a schema can state them. The others are those of `recipe check`.

use serde_json::{Map, Value, json};

use super::asked_by;
use crate::accelerators::Accelerator;
use crate::reader::Asked;
use crate::tables::data::SOURCES;
use crate::tables::model::{Family, required_dimensions, sizes};
use crate::tables::validation::HELD_OUT;
use crate::words::Choice;

/// Tables that every recipe has.
const REQUIRED_TABLES: [&str; 5] = ["model", "hardware", "training", "optimizer", "data"];

/// Tables that a recipe may leave out, with keys that they need if they are there.
const OPTIONAL_TABLES: [&str; 2] = ["validation", "rl"];

/// What a recipe that extends no other must have.
pub(super) fn whole(asked: &[Asked]) -> Value {
    let mut tables = Map::new();
    for table in REQUIRED_TABLES.into_iter().chain(OPTIONAL_TABLES) {
        let keys = asked.iter().filter(|asked| asked.table == table && asked.required);
        // What only some families or accelerators need is a condition of its own.
        let left = |key: &&str| !matches!(*key, "size" | "topology" | "sequence_length");
        let keys: Vec<&str> = keys.map(|asked| asked.key).filter(left).collect();
        tables.insert(table.to_owned(), json!({ "required": keys }));
    }
    tables.insert(
        "checkpoint".to_owned(),
        json!({ "dependentRequired": {
            "local_directory": ["local_interval_steps"],
            "local_interval_steps": ["local_directory"],
        } }),
    );
    tables["validation"]["oneOf"] = json!(HELD_OUT.map(|key| json!({ "required": [key] })));
    let mut required = vec!["version"];
    required.extend(REQUIRED_TABLES);
    let mut conditions = vec![
        condition_on(
            "training",
            "document_mask",
            json!({ "const": true }),
            json!({ "data": { "anyOf": ends_of_documents() } }),
        ),
        fields_of_records(),
        condition(
            "schedule",
            "kind",
            &["wsd"],
            json!({ "schedule": { "required": ["decay_steps"] } }),
        ),
        condition(
            "hardware",
            "accelerator",
            &accelerators(|accelerator| accelerator.tpu().is_some()),
            json!({ "hardware": { "required": ["topology"] } }),
        ),
    ];
    for (word, family) in Family::WORDS {
        let dimensions = json!({ "anyOf": [
            { "required": ["size"] },
            { "required": required_dimensions(*family) },
        ] });
        let then = match family {
            Family::Flux => json!({ "model": dimensions }),
            _ => json!({ "model": dimensions, "training": { "required": ["sequence_length"] } }),
        };
        conditions.push(condition("model", "family", &[word], then));
    }
    json!({ "required": required, "properties": tables, "allOf": conditions })
}

/// What must not stand together in any recipe.
pub(super) fn exclusions(asked: &[Asked]) -> Vec<Value> {
    let mut rules = vec![condition(
        "hardware",
        "accelerator",
        &accelerators(|accelerator| accelerator.tpu().is_none()),
        json!({ "hardware": { "properties": { "topology": false } } }),
    )];
    rules.push(json!({
        "if": { "required": ["rl"] },
        "then": { "properties": { "validation": { "properties": { "fraction": false } } } },
    }));
    for (word, family) in Family::WORDS {
        let mut then = json!({ "model": { "properties": { "size": { "enum": sizes(*family) } } } });
        let own = asked_by(*family);
        let is_own = |key: &Asked| own.iter().any(|o| (o.table, o.key) == (key.table, key.key));
        // Whole tables that a family lacks are asked for all the same.
        for key in asked.iter().filter(|key| !is_own(key)) {
            then[key.table]["properties"][key.key] = json!(false);
        }
        if *family != Family::Flux {
            then["flux"] = json!(false);
        }
        rules.push(condition("model", "family", &[word], then));
    }
    rules
}

/// What says which token ends a document: the recipe, or a tokenizer, which is not looked into here.
fn ends_of_documents() -> [Value; 2] {
    [
        json!({
            "properties": { "document_end": { "not": { "enum": ["auto", "none"] } } },
            "required": ["document_end"],
        }),
        json!({
            "properties": { "document_end": { "not": { "const": "none" } },
                "tokenizer": { "not": { "const": "bytes" } } },
            "required": ["tokenizer"],
        }),
    ]
}

/// Records of sources are prompts in a recipe with `[rl]`; elsewhere a prompt has a response.
fn fields_of_records() -> Value {
    let all = |of_source: Value| {
        let mut tables = Map::new();
        for table in SOURCES.iter().filter_map(|list| Some(list.split_once('.')?.0)) {
            let sources = json!({ "properties": { "sources": { "items": of_source } } });
            tables.insert(table.to_owned(), sources);
        }
        json!({ "properties": tables })
    };
    json!({
        "if": { "required": ["rl"] },
        "then": all(json!({ "properties": { "text_field": false, "response_field": false } })),
        "else": all(json!({ "dependentRequired": {
            "prompt_field": ["response_field"],
            "response_field": ["prompt_field"],
        } })),
    })
}

/// A record is one text, or a prompt with its response.
pub(super) fn one_kind_of_record() -> Value {
    let with = |key: &str| json!({ "required": ["text_field", key] });
    json!({ "not": { "anyOf": [with("prompt_field"), with("response_field")] } })
}

/// Weights of a list of sources.
pub(super) fn all_or_none_have_weights() -> Value {
    let weight = json!({ "required": ["weight"] });
    json!([{ "items": weight }, { "items": { "not": weight } }])
}

/// Settings of which only one can count.
pub(super) fn at_most_one(keys: &[&str]) -> Value {
    let firsts = keys.iter().enumerate();
    let pairs: Vec<Value> = firsts
        .flat_map(|(n, a)| keys[n + 1..].iter().map(move |b| json!({ "required": [a, b] })))
        .collect();
    json!({ "not": { "anyOf": pairs } })
}

fn accelerators(of: impl Fn(Accelerator) -> bool) -> Vec<&'static str> {
    let words = Accelerator::WORDS.iter().filter(|(_, accelerator)| of(*accelerator));
    words.map(|(word, _)| *word).collect()
}

/// If a key of a table is one of some words, these properties hold.
fn condition(table: &str, key: &str, words: &[&str], then: Value) -> Value {
    condition_on(table, key, json!({ "enum": words }), then)
}

/// If a key of a table is there and of a form, these properties hold.
fn condition_on(table: &str, key: &str, form: Value, then: Value) -> Value {
    json!({
        "if": {
            "properties": { table: { "properties": { key: form }, "required": [key] } },
            "required": [table],
        },
        "then": { "properties": then },
    })
}
