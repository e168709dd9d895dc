//! A recipe as a list of settings, each with its value and where that comes from.

use std::collections::BTreeMap;

use toml::{Table, Value};

use crate::location::Location;
use crate::origin::Origin;
use crate::recipe::{Loaded, Recipe};
use crate::secrets::Secret;
use crate::tables::data::Tokenizer;
use crate::tables::env::EnvValue;
use crate::tables::model::Init;

/// One setting of a recipe.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Its whole name, such as `training.steps` or `data.sources[0].path`.
    pub name: String,
    /// Its value, with `auto` worked out and secrets masked.
    pub value: Value,
    /// Where the value comes from.
    pub origin: Origin,
    /// The secret that the value hides, which tells two of them apart and is not shown.
    pub hidden: Option<Secret>,
    /// Whether a word such as `auto` stands there, and the value was worked out from it.
    pub is_resolved: bool,
}

impl Setting {
    /// The value as a recipe writes it.
    pub fn text(&self) -> String {
        value_text(&self.value)
    }
}

/// A value as a recipe writes it: 1e-8, not 0.00000001.
pub fn value_text(value: &Value) -> String {
    match value {
        Value::Float(number) => format!("{number:?}"),
        Value::Array(items) if !items.iter().any(Value::is_table) => {
            let items: Vec<String> = items.iter().map(value_text).collect();
            format!("[{}]", items.join(", "))
        }
        value => value.to_string(),
    }
}

/// A setting that two recipes have different values for.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The name of the setting.
    pub name: String,
    /// Its value in the first recipe, if it has one there.
    pub left: Option<Value>,
    /// Its value in the second recipe, if it has one there.
    pub right: Option<Value>,
}

impl Loaded {
    /// Every setting of the recipe, in the order they are documented.
    ///
    /// # Errors
    /// A value that TOML cannot hold, which would be a bug.
    pub fn settings(&self) -> Result<Vec<Setting>, toml::ser::Error> {
        let leaves = |table: Table| {
            let mut leaves = Vec::new();
            flatten(String::new(), &Value::Table(table), &mut leaves);
            leaves
        };
        let written: BTreeMap<String, Value> =
            leaves(Table::try_from(&self.recipe)?).into_iter().collect();
        let mut secrets = self.recipe.secrets();
        let settings = leaves(self.table()?).into_iter().map(|(name, value)| Setting {
            hidden: secrets.remove(&name),
            origin: self.origins.get(&name).cloned().unwrap_or(Origin::Default),
            is_resolved: written.get(&name) != Some(&value),
            name,
            value,
        });
        Ok(settings.collect())
    }

    /// The recipe as a table, with `auto` worked out and secrets masked.
    ///
    /// # Errors
    /// A value that TOML cannot hold, which would be a bug.
    pub fn table(&self) -> Result<Table, toml::ser::Error> {
        Table::try_from(self.recipe.resolved(&self.layout))
    }
}

/// Lists what is not a table. Arrays of tables are numbered; other arrays are values.
fn flatten(name: String, value: &Value, leaves: &mut Vec<(String, Value)>) {
    match value {
        Value::Table(table) if !is_reference(table) => {
            for (key, value) in table {
                let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                flatten(name, value, leaves);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_table) => {
            for (index, item) in items.iter().enumerate() {
                flatten(format!("{name}[{index}]"), item, leaves);
            }
        }
        value => leaves.push((name, value.clone())),
    }
}

/// Whether a table is a value: the variable that a secret is taken from.
fn is_reference(table: &Table) -> bool {
    table.len() == 1 && table.get("from").is_some_and(Value::is_str)
}

impl Recipe {
    /// Whatever is masked in the settings, by their names.
    fn secrets(&self) -> BTreeMap<String, Secret> {
        let mut secrets = BTreeMap::new();
        for (name, value) in &self.env.variables {
            if let EnvValue::Secret(secret) = &value.value {
                secrets.insert(format!("env.{name}"), secret.clone());
            }
        }
        let mut address = |name: String, location: &Location| {
            if let Location::Remote(url) = location {
                secrets.insert(name, Secret::new(url.expose().to_owned()));
            }
        };
        if let Init::Folder(folder) = &*self.model.init {
            address("model.init".to_owned(), folder);
        }
        if let Tokenizer::File { location, .. } = &*self.data.tokenizer {
            address("data.tokenizer".to_owned(), location);
        }
        let validation = self.validation.as_ref().and_then(|validation| validation.sources());
        let lists = [("validation", validation), ("data", Some(self.data.sources.as_slice()))];
        for (table, sources) in lists.into_iter().filter_map(|(table, list)| Some((table, list?))) {
            for (n, source) in sources.iter().enumerate() {
                address(format!("{table}.sources[{n}].path"), &source.path);
            }
        }
        if let Some(checkpoint) = &self.checkpoint {
            address("checkpoint.directory".to_owned(), &checkpoint.directory);
        }
        secrets
    }
}

/// The settings that differ between two recipes, in the order of the first. Two secrets may look alike and differ.
pub fn difference(left: &[Setting], right: &[Setting]) -> Vec<Difference> {
    let by_name = |settings: &[Setting]| -> BTreeMap<String, (Value, Option<Secret>)> {
        settings.iter().map(|s| (s.name.clone(), (s.value.clone(), s.hidden.clone()))).collect()
    };
    let (lefts, rights) = (by_name(left), by_name(right));
    let added = right.iter().filter(|setting| !lefts.contains_key(&setting.name));
    let names = left.iter().chain(added).map(|setting| &setting.name);
    let differing = names.filter(|name| lefts.get(*name) != rights.get(*name));
    let value = |found: Option<&(Value, Option<Secret>)>| found.map(|(value, _)| value.clone());
    differing
        .map(|name| Difference {
            name: name.clone(),
            left: value(lefts.get(name)),
            right: value(rights.get(name)),
        })
        .collect()
}
