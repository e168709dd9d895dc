//! The check of all data, run once by the launcher before any worker starts.

use std::fmt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::files::{io_error, open_regular};
use crate::scan::{Problem, scan};
use crate::{BadFiles, Error, Result, SourceFile, Tokenizer};

/// Large enough that a read costs little, small enough to stay in the second-level cache for all
/// passes over it.
const CHUNK: usize = 256 * 1024;

/// The XXH3-128 hash of bytes, shown as 32 hexadecimal digits, as `xxhsum -H2` does.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(u128);

/// Data that was found to be good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corpus {
    /// In the order given.
    pub files: Vec<FileReport>,
    /// Of the whole stream: it does not depend on names, nor on where the stream is cut into files.
    pub fingerprint: Fingerprint,
}

/// What was found in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReport {
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// LF bytes in it.
    pub newlines: u64,
    /// Of its content.
    pub fingerprint: Fingerprint,
    /// What is unusual in it, but allowed.
    pub notes: Vec<Note>,
}

/// Something that is unusual in a text file, but allowed: a byte-level model learns it like any
/// other text, and a tool that silently removed it would train on other data than it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// It begins with a byte order mark.
    ByteOrderMark,
    /// It has NUL bytes.
    Nul {
        /// How many.
        count: u64,
    },
    /// It has lines that end in CR LF.
    CrLf {
        /// How many.
        count: u64,
    },
}

/// Checks that each file is a regular, readable file that is not empty and is UTF-8 from end to
/// end.
///
/// A file is checked by itself: a character must not span two files.
/// Memory is constant, and a pipe or device is refused without being opened.
pub fn verify(paths: &[PathBuf]) -> Result<Corpus, BadFiles> {
    if paths.is_empty() {
        return Err(BadFiles(vec![Error::NoFiles]));
    }
    let mut buffer = vec![0; CHUNK];
    let mut stream = Xxh3::new();
    let mut files = Vec::with_capacity(paths.len());
    let mut bad = Vec::new();
    for path in paths {
        match verify_file(path, &mut buffer, &mut stream) {
            Ok(report) => files.push(report),
            Err(error) => bad.push(error),
        }
    }
    if !bad.is_empty() {
        return Err(BadFiles(bad));
    }
    Ok(Corpus { files, fingerprint: Fingerprint(stream.digest128()) })
}

impl Corpus {
    /// The size of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// The number of tokens in the stream.
    pub fn tokens(&self, tokenizer: Tokenizer) -> u64 {
        match tokenizer {
            Tokenizer::Bytes => self.bytes(),
        }
    }

    /// What a worker needs to open the same files.
    pub fn sources(&self) -> Vec<SourceFile> {
        self.files.iter().map(|f| SourceFile { path: f.path.clone(), bytes: f.bytes }).collect()
    }
}

impl Fingerprint {
    /// The fingerprint of bytes in memory.
    pub fn of(bytes: &[u8]) -> Self {
        Self(xxh3_128(bytes))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByteOrderMark => {
                write!(f, "begins with a byte order mark, which is trained on as three bytes")
            }
            Self::Nul { count } => write!(f, "has {count} NUL bytes; is it UTF-16?"),
            Self::CrLf { count } => {
                write!(f, "has {count} lines that end in CR LF; both bytes are trained on")
            }
        }
    }
}

fn verify_file(path: &Path, buffer: &mut [u8], stream: &mut Xxh3) -> Result<FileReport> {
    let (file, size) = open_regular(path)?;
    let mut content = Xxh3::new();
    let scan = scan(&file, buffer, |text| {
        content.update(text);
        stream.update(text);
    });
    let counts = scan.map_err(|problem| match problem {
        Problem::Read(error) => io_error(path, "read", error),
        Problem::BadByte { line, offset, byte, rule } => {
            let mut head = [0; 4];
            // A file too short to fill this has no signature either.
            let _ = file.read_at(&mut head, 0);
            Error::InvalidUtf8 { path: path.to_owned(), line, offset, byte, rule, hint: hint(head) }
        }
    })?;
    if counts.bytes != size {
        return Err(Error::Changed { path: path.to_owned(), expected: size, found: counts.bytes });
    }

    let mut notes = Vec::new();
    if counts.byte_order_mark {
        notes.push(Note::ByteOrderMark);
    }
    if counts.nuls > 0 {
        notes.push(Note::Nul { count: counts.nuls });
    }
    if counts.crlfs > 0 {
        notes.push(Note::CrLf { count: counts.crlfs });
    }
    Ok(FileReport {
        path: path.to_owned(),
        bytes: size,
        newlines: counts.newlines,
        fingerprint: Fingerprint(content.digest128()),
        notes,
    })
}

/// What to do about a file that is not UTF-8, from its first bytes.
fn hint(head: [u8; 4]) -> &'static str {
    match head {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
            "the file looks like UTF-16: convert it with iconv -f UTF-16 -t UTF-8"
        }
        [0x1f, 0x8b, ..] => "the file looks like gzip: decompress it first",
        [0x28, 0xb5, 0x2f, 0xfd] => "the file looks like zstd: decompress it first",
        [b'P', b'A', b'R', b'1'] => "the file looks like Parquet: export its text column first",
        _ => "convert the file to UTF-8 with iconv -f ENCODING -t UTF-8",
    }
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
