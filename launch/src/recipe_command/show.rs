//! `titan-tpu recipe show`: a recipe with every default, and where each value comes from.

use serde_json::{Map, Value, json};
use titan_recipes::{Loaded, Origin, Purpose, Setting, load, recipe_text, without_secrets};

use super::{bug, overrides, pretty, print_warnings};
use crate::cli::ShowArgs;
use crate::console;
use crate::exit::Exit;
use crate::failure::Failure;

/// Runs the command.
pub(super) fn show(args: &ShowArgs) -> Result<Exit, Failure> {
    let path = &args.recipe.recipe;
    if args.source {
        return console::print_document(&without_secrets(&recipe_text(path)?));
    }
    let loaded = load(path, &overrides(&args.recipe.set, Vec::new()), Purpose::Plan)?;
    print_warnings(&loaded);
    let settings = loaded.settings().map_err(bug)?;
    let text = match args.json {
        true => pretty(&as_json(&loaded, &settings)?)?,
        false => as_toml(&loaded, &settings),
    };
    console::print_document(&text)
}

fn as_json(loaded: &Loaded, settings: &[Setting]) -> Result<Value, Failure> {
    let sources = &loaded.warnings.sources;
    let origins: Map<String, Value> = settings
        .iter()
        .map(|setting| {
            let mut origin = match &setting.origin {
                Origin::Written(at) => {
                    let source = sources.get(at.source);
                    let (line, column) = source.position(at);
                    json!({ "from": "written", "source": source.name, "line": line, "column": column })
                }
                Origin::Preset(preset) => json!({ "from": "preset", "preset": preset }),
                Origin::Derived(how) => json!({ "from": "derived", "how": how }),
                Origin::Default => json!({ "from": "default" }),
            };
            origin["resolved"] = json!(setting.is_resolved);
            (setting.name.clone(), origin)
        })
        .collect();
    Ok(json!({ "recipe": loaded.table().map_err(bug)?, "origins": origins }))
}

/// A recipe that can be run as it is, each line with the place that its value comes from.
fn as_toml(loaded: &Loaded, settings: &[Setting]) -> String {
    let mut text = String::new();
    let mut open = String::new();
    for setting in settings {
        let (table, key) = setting.name.rsplit_once('.').unwrap_or(("", &setting.name));
        if table != open {
            table.clone_into(&mut open);
            text.push_str(&header(table));
        }
        let line = format!("{key} = {}", setting.text());
        let origin = setting.origin.describe(&loaded.warnings.sources);
        let how = if setting.is_resolved { ", worked out" } else { "" };
        // Comments in one column, unless a value is long.
        text.push_str(&format!("{line:<40} # {origin}{how}\n"));
    }
    text
}

/// `[data]`, or `[[data.sources]]` for an entry of a list.
fn header(table: &str) -> String {
    match table.split_once('[') {
        Some((list, _)) => format!("\n[[{list}]]\n"),
        None => format!("\n[{table}]\n"),
    }
}
