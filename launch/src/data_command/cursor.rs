//! Cursors as files: `--cursor` and `--write-cursor` of `titan-tpu data show`.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use titan_datasets::{Cursor, OrderIdentity};

use crate::cli::ShowDataArgs;
use crate::exit::Exit;
use crate::failure::Failure;

/// The place to begin with; a step takes `per_step` places from there on.
pub(super) fn place_of(
    args: &ShowDataArgs,
    identity: &OrderIdentity,
    per_step: u64,
) -> Result<u64, Failure> {
    let Some(path) = &args.cursor else { return Ok(0) };
    let problem = |what: String| Failure::new(Exit::Usage, format!("{}: {what}", path.display()));
    let text = fs::read(path).map_err(|error| problem(format!("cannot be read: {error}")))?;
    let cursor: Cursor = serde_json::from_slice(&text)
        .map_err(|error| problem(format!("this is no cursor: {error}")))?;
    let differences = cursor.order.differences(identity);
    if !differences.is_empty() {
        let what = "this cursor is of other data, so its place means nothing here".to_owned();
        return Err(problem(what).quoting(differences));
    }
    let most = u64::MAX - per_step;
    if cursor.samples > most {
        return Err(problem(format!(
            "this is no cursor: samples is {}; the last step begins at {most} or before",
            cursor.samples
        )));
    }
    Ok(cursor.samples)
}

/// Refuses a cursor that would be the one that was there before: nothing is taken without steps.
pub(super) fn check(args: &ShowDataArgs) -> Result<(), Failure> {
    if args.write_cursor.is_none() || args.steps.is_some() {
        return Ok(());
    }
    let text = "--write-cursor needs --steps: it writes the place after the last of them";
    Err(Failure::new(Exit::Usage, text).help("add --steps 1, or --steps 1..10"))
}

/// Writes a cursor to a file. If that fails the file is as it was before.
pub(super) fn write(path: &Path, cursor: &Cursor) -> Result<(), Failure> {
    // Cannot fail: there are no maps with keys that are not text.
    let text = serde_json::to_vec_pretty(cursor).unwrap_or_default();
    write_whole(path, &text).map_err(|error| {
        Failure::io(Exit::Usage, format!("cannot write {}", path.display()), &error)
    })
}

fn write_whole(path: &Path, text: &[u8]) -> io::Result<()> {
    // The file that a link leads to is replaced, not the link.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if fs::metadata(&path).is_ok_and(|there| !there.is_file()) {
        // A pipe or a device is written to.
        return fs::write(&path, text);
    }
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.new", std::process::id()));
    let staged = path.with_file_name(name);
    let write = || -> io::Result<()> {
        let mut file = File::create(&staged)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&staged, &path)
    };
    let written = write();
    if written.is_err() {
        let _ = fs::remove_file(&staged);
    }
    written
}
