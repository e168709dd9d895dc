//! The JSON schema of a recipe, for editors and for other programs. Keys, kinds and ranges are those that the
//! readers of the tables ask for; the descriptions are those of `docs/recipe.md`.

mod conditions;

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::diagnostic::Diagnostic;
use crate::files::{Files, Unusable};
use crate::purpose::Purpose;
use crate::reader::{Asked, Bound, Context, Kind, Range};
use crate::recipe::{LONGEST_NAME, TABLES, VERSION, read};
use crate::source::{Source, Sources};
use crate::syntax::parse_document;
use crate::tables::checkpoint::INTERVALS;
use crate::tables::data::{NAMES, SOURCES};
use crate::tables::env::OURS;
use crate::tables::flux::PIXELS_PER_TOKEN;
use crate::tables::model::Family;
use crate::tables::validation::HELD_OUT;
use crate::tokenizer::TokenizerFacts;
use crate::words::Choice;

use conditions::{all_or_none_have_weights, at_most_one, exclusions, one_kind_of_record, whole};

const DOCUMENT: &str = include_str!("../../../docs/recipe.md");

/// The schema (JSON Schema, draft 2020-12) of recipes of this version.
pub fn schema() -> Value {
    let asked = everything_asked();
    let descriptions = descriptions();
    let of_table = |table: &str| -> Vec<&Asked> {
        asked.iter().filter(|asked| asked.table == table).collect()
    };
    let mut properties = Map::new();
    for asked in of_table("") {
        properties.insert(asked.key.to_owned(), key_schema(asked, &descriptions));
    }
    properties.insert(
        "version".to_owned(),
        json!({ "const": VERSION, "description":
        describe(&descriptions, "", "version") }),
    );
    for table in TABLES {
        let keys = of_table(table);
        let mut schema = match *table {
            "env" => env_schema(),
            _ => table_schema(&keys, &descriptions),
        };
        schema["description"] = json!(describe(&descriptions, table, ""));
        match *table {
            "checkpoint" => schema["allOf"] = json!([at_most_one(&INTERVALS)]),
            "validation" => schema["allOf"] = json!([at_most_one(&HELD_OUT)]),
            _ => {}
        }
        for list in SOURCES {
            let entry = of_table(list);
            if list.split_once('.').is_some_and(|(of, _)| of == *table) {
                let mut entry = table_schema(&entry, &descriptions);
                entry["required"] = json!(["path"]);
                entry["allOf"] = json!([one_kind_of_record()]);
                schema["properties"]["sources"]["items"] = entry;
                schema["properties"]["sources"]["minItems"] = json!(1);
                schema["properties"]["sources"]["anyOf"] = all_or_none_have_weights();
            }
        }
        properties.insert((*table).to_owned(), schema);
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "titan-tpu recipe",
        "description": "A training run of titan-tpu, version 1 of the format.",
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
        // A recipe that extends another need not be whole.
        "anyOf": [{ "required": ["extends"] }, whole(&asked)],
        "allOf": exclusions(&asked),
    })
}

/// What the tables ask for, over recipes of all families.
fn everything_asked() -> Vec<Asked> {
    let mut all: Vec<Asked> = Vec::new();
    for (_, family) in Family::WORDS {
        for asked in asked_by(*family) {
            match all.iter_mut().find(|a| (a.table, a.key) == (asked.table, asked.key)) {
                // Every size of every family; which of them a family has is a rule of its own.
                Some(known) => known.required &= asked.required,
                None => all.push(asked),
            }
        }
    }
    all
}

/// Reads a recipe that has every table and list, to learn what is asked for.
fn asked_by(family: Family) -> Vec<Asked> {
    let text = format!(
        "[model]\nfamily = \"{}\"\n[hardware]\naccelerator = \"tpu7x\"\n[schedule]\nkind = \"wsd\"\n\
         [data]\nsources = [{{ path = \"x\" }}]\n[validation]\nsources = [{{ path = \"x\" }}]\n\
         [checkpoint]\n[launch]\n[rl]\n[flux]\n[env]\n",
        family.word()
    );
    let mut sources = Sources::default();
    let id = sources.add(Source { name: String::new(), text, base: "/".into() });
    let text = &sources.get(id).text;
    let Ok(root) = parse_document(id, text, text) else { return Vec::new() };
    let mut cx = Context::new(&sources, &NoFiles, Purpose::Plan, Vec::new());
    cx.asked = Some(Vec::new());
    read(&mut cx, &root, "");
    cx.asked.unwrap_or_default()
}

/// Nothing is looked at for a schema.
struct NoFiles;

impl Files for NoFiles {
    fn recipe(&self, _: &Path) -> Result<String, Box<Diagnostic>> {
        Ok(String::new())
    }

    fn file(&self, _: &Path) -> Result<(), Unusable> {
        Ok(())
    }

    fn data(&self, _: &Path) -> Result<(), Unusable> {
        Ok(())
    }

    fn tokenizer(&self, _: &Path, _: &[&str]) -> Result<TokenizerFacts, Unusable> {
        Ok(TokenizerFacts::default())
    }

    fn folder(&self, _: &Path) -> Result<(), Unusable> {
        Ok(())
    }
}

fn table_schema(keys: &[&Asked], descriptions: &Descriptions) -> Value {
    let properties: Map<String, Value> =
        keys.iter().map(|asked| (asked.key.to_owned(), key_schema(asked, descriptions))).collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn env_schema() -> Value {
    let name = "^[A-Za-z_][A-Za-z0-9_]*$";
    let from = json!({ "type": "object", "properties": { "from": { "type": "string", "pattern": name } },
        "required": ["from"], "additionalProperties": false });
    json!({
        "type": "object",
        "propertyNames": { "not": { "anyOf": [{ "enum": OURS }, { "pattern": "^TITAN_" }] } },
        "patternProperties": { name: { "anyOf": [{ "type": "string" }, from] } },
        "additionalProperties": false,
    })
}

fn key_schema(asked: &Asked, descriptions: &Descriptions) -> Value {
    let mut schema = kind_schema(&asked.kind);
    // Rules about one key that its kind does not say.
    match (asked.table, asked.key) {
        ("", "name") => {
            schema["pattern"] = json!("^[A-Za-z0-9][A-Za-z0-9._-]*$");
            schema["maxLength"] = json!(LONGEST_NAME);
        }
        ("model", "head_dim") => schema["multipleOf"] = json!(2),
        (list, key) if SOURCES.contains(&list) && NAMES.contains(&key) => {
            schema["minLength"] = json!(1);
        }
        ("flux", "image_size") => schema["multipleOf"] = json!(PIXELS_PER_TOKEN),
        _ => {}
    }
    let description = describe(descriptions, asked.table, asked.key);
    schema["description"] = json!(description);
    schema
}

fn kind_schema(kind: &Kind) -> Value {
    let or_word = |schema: Value, word: &Option<&str>| match word {
        Some(word) => json!({ "anyOf": [schema, { "const": word }] }),
        None => schema,
    };
    match kind {
        Kind::Integer { least, most, word } => or_word(integer_schema(*least, *most), word),
        Kind::Number { range, word } => or_word(number_schema(range), word),
        Kind::Numbers { range, count } => array_schema(number_schema(range), *count),
        Kind::Integers { least, most, count } => {
            array_schema(integer_schema(*least, *most), *count)
        }
        Kind::Boolean => json!({ "type": "boolean" }),
        Kind::Text => json!({ "type": "string" }),
        Kind::IntegerOrText { least, most } => {
            json!({ "anyOf": [integer_schema(*least, *most), { "type": "string" }] })
        }
        Kind::Word(words) => json!({ "enum": words }),
        Kind::List => json!({ "type": "array" }),
        Kind::Free => json!({ "type": "object" }),
    }
}

fn integer_schema(least: u64, most: u64) -> Value {
    json!({ "type": "integer", "minimum": least, "maximum": most })
}

fn array_schema(items: Value, count: usize) -> Value {
    json!({ "type": "array", "items": items, "minItems": count, "maxItems": count })
}

fn number_schema(range: &Range) -> Value {
    let mut schema = json!({ "type": "number" });
    match range.least {
        Bound::Inclusive(least) => schema["minimum"] = json!(least),
        Bound::Exclusive(least) => schema["exclusiveMinimum"] = json!(least),
        Bound::Open => {}
    }
    match range.most {
        Bound::Inclusive(most) => schema["maximum"] = json!(most),
        Bound::Exclusive(most) => schema["exclusiveMaximum"] = json!(most),
        Bound::Open => {}
    }
    schema
}

/// Descriptions by table and key; an entry of a list is found under the name of the list.
type Descriptions = BTreeMap<(String, String), String>;

fn describe(descriptions: &Descriptions, table: &str, key: &str) -> String {
    let table = if table == "validation.sources" { "data.sources" } else { table };
    descriptions.get(&(table.to_owned(), key.to_owned())).cloned().unwrap_or_default()
}

/// The meanings in the table of the document: its rows are `key, key | value | default | meaning`, and a row in bold
/// starts a table.
fn descriptions() -> Descriptions {
    let mut table = String::new();
    let mut found = Descriptions::new();
    for row in DOCUMENT.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [keys, _, _, meaning] = cells.as_slice() else { continue };
        let meaning = meaning.replace('`', "");
        if let Some(name) = keys.strip_prefix("**`[").and_then(|rest| rest.strip_suffix("]`**")) {
            name.clone_into(&mut table);
            found.insert((table.clone(), String::new()), meaning);
            continue;
        }
        for key in keys.split(", ").filter_map(|key| key.strip_prefix('`')?.strip_suffix('`')) {
            found.insert((table.clone(), key.to_owned()), meaning.clone());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The document and the readers name the same keys.
    #[test]
    fn every_key_is_described_and_every_described_key_exists() {
        let descriptions = descriptions();
        let asked = everything_asked();
        let mut missing = Vec::new();
        for asked in asked.iter().filter(|asked| asked.table != "env") {
            if describe(&descriptions, asked.table, asked.key).is_empty() {
                missing.push(format!("{}.{}", asked.table, asked.key));
            }
        }
        let bare = TABLES.iter().filter(|table| describe(&descriptions, table, "").is_empty());
        missing.extend(bare.map(|table| format!("[{table}]")));
        assert!(missing.is_empty(), "docs/recipe.md lacks {missing:?}");
        let exists = |(table, key): &&(String, String)| {
            asked.iter().any(|a| a.table == table && a.key == key) || key.is_empty()
        };
        let strangers: Vec<_> = descriptions.keys().filter(|place| !exists(place)).collect();
        assert!(strangers.is_empty(), "docs/recipe.md describes {strangers:?}");
    }
}
