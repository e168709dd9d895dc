//! What loading a recipe asks of the disk: the recipe itself, and whether its data files can be read.

use std::cell::Cell;
use std::fs::{self, File, Metadata};
use std::io::{Error, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;

use crate::diagnostic::Diagnostic;
use crate::pattern::{find_a_file, is_pattern};
use crate::report::SHOWN;
use crate::shipped;
use crate::shown::ShownPath;
use crate::tokenizer::TokenizerFacts;
use crate::words::nearest;

/// A recipe is a page of text; a larger file is something else.
const LARGEST: u64 = 1 << 20;

/// Where the recipes are that come with titan-tpu.
const SHIPPED: &str = "recipes";

const WANTED: &str = "a recipe is a TOML file, for example recipes/llama3_tiny.toml";

/// Why a data file cannot be used.
#[derive(Clone, Debug)]
pub struct Unusable {
    /// What is wrong with it, such as `no such file`.
    pub why: String,
    /// A file with a similar name beside it.
    pub near: Option<PathBuf>,
}

/// What loading a recipe asks about files; the disk in the product, a stub in tests.
pub trait Files {
    /// The text of a recipe that another one extends.
    ///
    /// # Errors
    /// What is wrong with the file.
    fn recipe(&self, path: &Path) -> Result<String, Box<Diagnostic>>;

    /// Looks at a file that must have something in it.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn file(&self, path: &Path) -> Result<(), Unusable>;

    /// Looks at a source of data: a file, a folder with something in it, or a pattern that a file matches. A path
    /// that exists is no pattern.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn data(&self, path: &Path) -> Result<(), Unusable>;

    /// Whether a path leads somewhere as it is written.
    fn exists(&self, _path: &Path) -> bool {
        false
    }

    /// What a `tokenizer.json` says about its tokens, with the ids of those of `texts` that are tokens.
    ///
    /// # Errors
    /// Why it cannot be used.
    fn tokenizer(&self, path: &Path, texts: &[&str]) -> Result<TokenizerFacts, Unusable>;

    /// Whether a folder can be made, or written to if it is there.
    ///
    /// # Errors
    /// Why it cannot.
    fn folder(&self, path: &Path) -> Result<(), Unusable>;
}

/// The files of this machine.
#[derive(Debug, Default)]
pub struct Disk {
    failures: Cell<usize>,
}

impl Files for Disk {
    fn recipe(&self, path: &Path) -> Result<String, Box<Diagnostic>> {
        read_recipe(path)
    }

    fn file(&self, path: &Path) -> Result<(), Unusable> {
        match self.probe(path, not_a_file)?.len() {
            0 => Err(Unusable { why: "it is empty".to_owned(), near: None }),
            _ => Ok(()),
        }
    }

    fn data(&self, path: &Path) -> Result<(), Unusable> {
        let bad = |why| Unusable { why, near: None };
        if is_pattern(path) && !self.exists(path) {
            return find_a_file(path).map_err(bad);
        }
        let metadata = self.probe(path, |metadata| match metadata.is_dir() {
            true => None,
            false => not_a_file(metadata),
        })?;
        if metadata.is_dir() && fs::read_dir(path).is_ok_and(|mut all| all.next().is_none()) {
            return Err(bad("it is an empty folder".to_owned()));
        }
        Ok(())
    }

    fn exists(&self, path: &Path) -> bool {
        !matches!(fs::symlink_metadata(path), Err(error) if error.kind() == ErrorKind::NotFound)
    }

    fn tokenizer(&self, path: &Path, texts: &[&str]) -> Result<TokenizerFacts, Unusable> {
        self.file(path)?;
        TokenizerFacts::read(path, texts).map_err(|why| Unusable { why, near: None })
    }

    fn folder(&self, path: &Path) -> Result<(), Unusable> {
        usable_folder(path).map_err(|why| Unusable { why, near: None })
    }
}

impl Disk {
    /// Looks at a file or folder without reading it, and never waits on a pipe; `wrong` says what is wrong with its
    /// kind. A similar name is searched only for those failures that a report shows, because it means reading a
    /// folder.
    fn probe(
        &self,
        path: &Path,
        wrong: impl Fn(&Metadata) -> Option<&'static str>,
    ) -> Result<Metadata, Unusable> {
        let failed = |error: Error| {
            let is_shown = self.failures.replace(self.failures.get() + 1) < SHOWN;
            let search = is_shown && error.kind() == ErrorKind::NotFound;
            Unusable { why: reason(&error, path), near: search.then(|| similar(path)).flatten() }
        };
        let metadata = fs::metadata(path).map_err(failed)?;
        match wrong(&metadata) {
            Some(kind) => Err(Unusable { why: format!("it is {kind}"), near: None }),
            None => File::open(path).map(|_| metadata).map_err(failed),
        }
    }
}

/// A folder that is there must take new files; one that is not there must have a parent that does.
fn usable_folder(path: &Path) -> Result<(), String> {
    for ancestor in path.ancestors().filter(|ancestor| !ancestor.as_os_str().is_empty()) {
        match fs::metadata(ancestor) {
            Ok(metadata) if !metadata.is_dir() => {
                return Err(format!("{} is not a folder", ShownPath(ancestor)));
            }
            Ok(_) => {
                let access = rustix::fs::access(ancestor, rustix::fs::Access::WRITE_OK);
                return access.map_err(|error| {
                    format!("{}: {}", ShownPath(ancestor), reason(&error.into(), ancestor))
                });
            }
            Err(error) if error.kind() == ErrorKind::NotFound && !ancestor.is_symlink() => {}
            // The message is about the file that is in the way.
            Err(error) if error.kind() == ErrorKind::NotADirectory => {}
            Err(error) => {
                return Err(format!("{}: {}", ShownPath(ancestor), reason(&error, ancestor)));
            }
        }
    }
    Ok(())
}

/// Reads a recipe file, and says why it cannot be one before its size or kind can do harm.
pub(crate) fn read_recipe(path: &Path) -> Result<String, Box<Diagnostic>> {
    let problem = |what: &str| Box::new(Diagnostic::error(what).help(WANTED));
    if path.as_os_str().is_empty() {
        return Err(problem("the path of the recipe is empty"));
    }
    let failed = |error: Error| {
        let problem = problem(&format!("cannot read the recipe: {}", reason(&error, path)));
        Box::new(match error.kind() {
            ErrorKind::PermissionDenied => problem.help("check its permissions with ls -l"),
            ErrorKind::NotFound => {
                let named = || shipped::near(path).map(PathBuf::from);
                match similar(path).or_else(|| shipped(path)).or_else(named) {
                    Some(near) => problem.help(format!("did you mean {}?", ShownPath(near))),
                    None => *problem,
                }
            }
            _ => *problem,
        })
    };
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        let read = std::io::stdin().take(LARGEST + 1).read_to_end(&mut bytes);
        read.map_err(|error| problem(&format!("cannot read stdin: {}", reason(&error, path))))?;
        return text_of(bytes);
    }
    // Its kind comes first: opening a pipe would wait for a writer.
    let metadata = fs::metadata(path).map_err(failed)?;
    if let Some(kind) = not_a_file(&metadata) {
        return Err(problem(&format!("the recipe is {kind}")));
    }
    // A file may grow, and those of /proc do not know their size.
    let file = File::open(path).map_err(failed)?;
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
    text_of(bytes)
}

fn text_of(bytes: Vec<u8>) -> Result<String, Box<Diagnostic>> {
    let problem = |what: &str| Box::new(Diagnostic::error(what).help(WANTED));
    if bytes.len() as u64 > LARGEST {
        return Err(problem(&format!("the recipe is larger than {LARGEST} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| problem(&not_text(&error)))
}

fn not_a_file(metadata: &Metadata) -> Option<&'static str> {
    match metadata {
        m if m.is_dir() => Some("a directory"),
        m if !m.is_file() => Some("not a regular file"),
        _ => None,
    }
}

fn not_text(error: &FromUtf8Error) -> String {
    let bytes = error.as_bytes();
    if let [0xff, 0xfe, ..] | [0xfe, 0xff, ..] = bytes {
        return "the recipe is UTF-16 text; save it as UTF-8".to_owned();
    }
    let offset = error.utf8_error().valid_up_to();
    let line = 1 + bytes[..offset].iter().filter(|byte| **byte == b'\n').count();
    let byte = bytes[offset];
    format!(
        "the recipe is not text: byte 0x{byte:02x} at offset {offset} (line {line}) is not UTF-8"
    )
}

/// A file of the same folder whose name is close to that of `path`.
fn similar(path: &Path) -> Option<PathBuf> {
    /// A folder of a million data files is not worth a second of waiting.
    const LOOKED_AT: usize = 1000;
    let name = path.file_name()?.to_str()?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let names: Vec<String> = fs::read_dir(folder)
        .ok()?
        .take(LOOKED_AT)
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|other| other != name)
        .collect();
    let near = nearest(name, names.iter().map(String::as_str))?;
    Some(path.with_file_name(near))
}

/// The path of the shipped recipe that was called by its name alone.
fn shipped(path: &Path) -> Option<PathBuf> {
    let near = Path::new(SHIPPED).join(path.file_name()?).with_extension("toml");
    near.is_file().then_some(near)
}

/// Why a path leads nowhere.
pub(crate) const NO_SUCH_FILE: &str = "no such file";

/// The words of an operating-system error about a path, without its number.
fn reason(error: &Error, path: &Path) -> String {
    match error.kind() {
        ErrorKind::NotFound if path.is_symlink() => "it is a link to nothing".to_owned(),
        ErrorKind::NotFound => NO_SUCH_FILE.to_owned(),
        ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => {
            let text = error.to_string();
            text.split(" (os error").next().unwrap_or_default().to_lowercase()
        }
    }
}
