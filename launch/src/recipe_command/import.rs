//! `titan-tpu recipe import`: a TorchTitan configuration becomes a recipe.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use titan_recipes::import::{Imported, Note, NoteKind, Target, import as translate};
use titan_recipes::{Disk, Overrides, Purpose, Source, load_text, recipe_text};

use super::shown;
use crate::cli::ImportArgs;
use crate::console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::reckon::parse_target;
use crate::words::plural;

/// Runs the command. The recipe goes to stdout or to a file, what could not be carried over to stderr.
pub(super) fn import(args: &ImportArgs) -> Result<Exit, Failure> {
    let text = recipe_text(&args.config)?;
    let source = Source {
        name: args.config.display().to_string(),
        text,
        base: args.config.parent().map(Path::to_owned).unwrap_or_default(),
    };
    let Imported { recipe, notes } = translate(source, target(args)?.as_ref())?;
    match &args.output {
        Some(path) if path.as_os_str() != "-" => write_new(path, &recipe)?,
        _ => drop(console::print_document(&recipe)?),
    }
    console::print_block(&summary(&notes));
    let named = args.output.as_deref().unwrap_or(Path::new("the imported recipe"));
    let source = Source {
        name: named.display().to_string(),
        text: recipe,
        base: named.parent().map(Path::to_owned).unwrap_or_default(),
    };
    // Degrees that do not suit the model or the target, say, were as wrong before; now they are seen.
    let checked = load_text(source, &Overrides::default(), &Disk::default(), Purpose::Plan);
    checked.map(|_| Exit::Done).map_err(|report| {
        Failure::from(report).help("the recipe was written all the same: correct it there")
    })
}

fn target(args: &ImportArgs) -> Result<Option<Target>, Failure> {
    let (slices, devices) = (args.target.slices, args.devices);
    let Some(text) = &args.target.target else {
        if slices.is_some() {
            let what = "`--slices` needs `--target`";
            let help = "for example: --target tpu7x:4x4x8 --slices 2";
            return Err(Failure::new(Exit::Usage, what).help(help));
        }
        let gpus = |devices| Target {
            accelerator: "cuda".to_owned(),
            topology: None,
            devices: Some(devices),
            slices: None,
        };
        return Ok(devices.map(gpus));
    };
    if devices.is_some() && text.contains(':') {
        let what = "`--devices` is for CPUs and GPUs; the topology says how many devices there are";
        return Err(Failure::new(Exit::Usage, what));
    }
    let (accelerator, topology) = parse_target(text)?;
    let topology = topology.map(str::to_owned);
    Ok(Some(Target { accelerator: accelerator.to_owned(), topology, devices, slices }))
}

/// Writes a file that was not there before: no recipe is overwritten.
fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            let what = format!("{} is there already", shown(path));
            Failure::new(Exit::Usage, what).help("choose another name for --output")
        }
        _ => Failure::io(Exit::Usage, format!("cannot write {}", shown(path)), &error),
    })
}

/// What became of the keys that were not simply carried over.
fn summary(notes: &[Note]) -> String {
    if notes.is_empty() {
        return "every key was carried over".to_owned();
    }
    let mut text = String::new();
    for (kind, title) in [(NoteKind::Changed, "to look at"), (NoteKind::Dropped, "left out")] {
        let of_kind: Vec<&Note> = notes.iter().filter(|note| note.kind == kind).collect();
        if of_kind.is_empty() {
            continue;
        }
        text.push_str(&format!("{} {title}:\n", plural(of_kind.len() as u64, "key")));
        for note in of_kind {
            text.push_str(&format!("  line {:<4} {}: {}\n", note.line, note.key, note.text));
        }
    }
    text.trim_end().to_owned()
}
