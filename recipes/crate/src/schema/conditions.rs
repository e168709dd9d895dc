//! Rules between keys, as far as a schema can state them. The others are those of `recipe check`.

use serde_json::{Map, Value, json};

use super::asked_by;
use crate::accelerators::Accelerator;
use crate::reader::Asked;
use crate::tables::checkpoint::INTERVALS;
use crate::tables::model::{Family, required_dimensions, sizes};
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
    let mut required = vec!["version"];
    required.extend(REQUIRED_TABLES);
    let mut conditions = vec![
        condition_on(
            "training",
            "document_mask",
            json!({ "const": true }),
            json!({ "data": { "required": ["document_end"] } }),
        ),
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

/// Two intervals cannot both count.
pub(super) fn one_interval() -> Value {
    let pairs =
        [(0, 1), (0, 2), (1, 2)].map(|(a, b)| json!({ "required": [INTERVALS[a], INTERVALS[b]] }));
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
