//! `titan-tpu recipe`: list, show, check, compare and import recipes.

mod import;
mod show;

use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};
use titan_recipes::{
    Diagnostic, Loaded, Overrides, Purpose, Report, Severity, difference, load, schema, shipped,
    value_text,
};

use crate::cli::{CheckArgs, DiffArgs, RecipeCommand};
use crate::console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::words::{count, plural};

/// Runs the command.
pub(crate) fn run(command: &RecipeCommand) -> Result<Exit, Failure> {
    match command {
        RecipeCommand::Ls { json } => ls(*json),
        RecipeCommand::Show(args) => show::show(args),
        RecipeCommand::Check(args) => check(args),
        RecipeCommand::Schema => console::print_document(&pretty(&schema())?),
        RecipeCommand::Diff(args) => diff(args),
        RecipeCommand::Import(args) => import::import(args),
    }
}

/// The changes that the command line makes to a recipe.
pub(crate) fn overrides(set: &[String], options: Vec<(&'static str, String)>) -> Overrides {
    let base = std::env::current_dir().unwrap_or_default();
    Overrides { options, unset: Vec::new(), set: set.to_vec(), base }
}

/// Prints what is worth a warning about a sound recipe, on stderr.
pub(crate) fn print_warnings(loaded: &Loaded) {
    if !loaded.warnings.diagnostics.is_empty() {
        console::print_block(&loaded.warnings.render(true));
    }
}

fn bug(error: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Bug, format!("the result cannot be written: {error}"))
}

fn pretty(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(bug)
}

/// A shipped recipe, for `recipe ls`.
#[derive(Serialize)]
struct Listed {
    name: &'static str,
    path: String,
    family: String,
    parameters: u64,
    accelerator: String,
    devices: u64,
    title: &'static str,
}

fn ls(as_json: bool) -> Result<Exit, Failure> {
    let mut all = Vec::new();
    for shipped in shipped::ALL {
        let Loaded { recipe, layout, .. } =
            load(Path::new(shipped.name), &Overrides::default(), Purpose::Plan)?;
        all.push(Listed {
            name: shipped.name,
            path: format!("recipes/{}.toml", shipped.name),
            family: recipe.model.family.to_string(),
            parameters: titan_parallelism::parameters(&recipe.model).total,
            accelerator: recipe.hardware.accelerator.to_string(),
            devices: layout.world,
            title: shipped.title(),
        });
    }
    if as_json {
        return console::print_document(&pretty(&all)?);
    }
    let lines = all.iter().map(|listed| {
        let machine = format!("{} on {}", plural(listed.devices, "device"), listed.accelerator);
        format!(
            "{:<17} {:>6}  {machine:<23} {}\n",
            listed.name,
            count(listed.parameters as f64),
            listed.title
        )
    });
    console::print_document(&lines.collect::<String>())
}

fn check(args: &CheckArgs) -> Result<Exit, Failure> {
    let overrides = overrides(&args.set, Vec::new());
    let mut bad = 0;
    for path in &args.recipes {
        let result = load(path, &overrides, Purpose::Check);
        bad += u64::from(result.is_err());
        if args.json {
            let text = serde_json::to_string(&verdict(path, &result)).map_err(bug)?;
            console::print_document(&format!("{text}\n"))?;
            continue;
        }
        match result {
            Ok(loaded) => {
                print_warnings(&loaded);
                let (family, world) = (*loaded.recipe.model.family, loaded.layout.world);
                let parameters = titan_parallelism::parameters(&loaded.recipe.model).total;
                let (path, size) = (shown(path), count(parameters as f64));
                let devices = plural(world, "device");
                console::print_document(&format!(
                    "ok   {path}: {family} with {size} parameters on {devices}\n"
                ))?;
            }
            Err(report) => {
                let (errors, path) = (plural(report.errors() as u64, "problem"), shown(path));
                console::print_block(&(report.render(true) + "\n"));
                console::print_document(&format!("bad  {path}: {errors}\n"))?;
            }
        }
    }
    Ok(if bad > 0 { Exit::Usage } else { Exit::Done })
}

fn shown(path: &Path) -> String {
    titan_recipes::shown_path(path)
}

fn verdict(path: &Path, result: &Result<Loaded, Report>) -> Value {
    let report = match result {
        Ok(loaded) => &loaded.warnings,
        Err(report) => report,
    };
    let problems: Vec<Value> =
        report.diagnostics.iter().map(|diagnostic| problem(report, diagnostic)).collect();
    json!({
        "recipe": shown(path),
        "ok": result.is_ok(),
        "errors": report.errors(),
        "problems": problems,
    })
}

fn problem(report: &Report, diagnostic: &Diagnostic) -> Value {
    let place = diagnostic.at.as_ref().map(|at| {
        let source = report.sources.get(at.source);
        let (line, column) = source.position(at);
        json!({ "source": source.name, "line": line, "column": column })
    });
    json!({
        "severity": match diagnostic.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        },
        "message": diagnostic.message,
        "place": place,
        "label": diagnostic.label,
        "help": diagnostic.help,
    })
}

fn diff(args: &DiffArgs) -> Result<Exit, Failure> {
    let settings = |path: &Path| -> Result<_, Failure> {
        load(path, &overrides(&[], Vec::new()), Purpose::Plan)?.settings().map_err(bug)
    };
    let (left, right) = match (settings(&args.left), settings(&args.right)) {
        (Ok(left), Ok(right)) => (left, right),
        (Err(left), Err(right)) => {
            console::print_failure(&left);
            return Err(right);
        }
        (Err(failure), _) | (_, Err(failure)) => return Err(failure),
    };
    let differences = difference(&left, &right);
    if args.json {
        let all: Vec<Value> = differences
            .iter()
            .map(|d| json!({ "key": d.name, "left": d.left, "right": d.right }))
            .collect();
        return console::print_document(&pretty(&all)?);
    }
    if differences.is_empty() {
        return console::print_document("no setting differs\n");
    }
    let rows: Vec<[String; 3]> = std::iter::once(["", &*shown(&args.left), &*shown(&args.right)])
        .map(|row| row.map(str::to_owned))
        .chain(differences.iter().map(|d| {
            let [left, right] = [&d.left, &d.right]
                .map(|value| value.as_ref().map_or_else(|| "(not set)".to_owned(), value_text));
            [d.name.clone(), left, right]
        }))
        .collect();
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).min(60)
    };
    let (first, second) = (width(0), width(1));
    let lines = rows.iter().map(|[name, left, right]| {
        format!("{name:<first$}  {left:<second$}  {right}").trim_end().to_owned() + "\n"
    });
    console::print_document(&lines.collect::<String>())
}
