//! One or more files as one stream of tokens, read at any position.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::files::{io_error, open_regular};
use crate::{Error, Result, Tokenizer};

/// A file of the data and the size it had when it was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
}

/// The files of a run, read as one stream in the order given, one token per byte.
///
/// Only what is asked for is read, at its position: a stream holds open files and no data, and can
/// be shared by threads.
#[derive(Debug)]
pub struct TokenStream {
    /// In stream order; never empty, and no file is empty.
    files: Vec<OpenFile>,
    tokens: u64,
}

#[derive(Debug)]
struct OpenFile {
    source: SourceFile,
    file: File,
    /// The position in the stream of the file's first byte.
    start: u64,
}

impl TokenStream {
    /// Opens all files, which must have the sizes that [`verify`](crate::verify) found.
    pub fn open(files: &[SourceFile]) -> Result<Self> {
        let mut tokens = 0u64;
        let mut opened = Vec::with_capacity(files.len());
        for source in files {
            let (file, bytes) = open_regular(&source.path)?;
            let open = OpenFile { source: source.clone(), file, start: tokens };
            open.require_size(bytes)?;
            opened.push(open);
            tokens += bytes;
        }
        if opened.is_empty() {
            return Err(Error::NoFiles);
        }
        Ok(Self { files: opened, tokens })
    }

    /// The number of tokens.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// How the text becomes tokens.
    pub fn tokenizer(&self) -> Tokenizer {
        Tokenizer::Bytes
    }

    /// Fills `out` with the tokens from position `start` on, across file borders.
    pub fn read(&self, start: u64, out: &mut [u8]) -> Result<()> {
        if start.checked_add(out.len() as u64).is_none_or(|end| end > self.tokens) {
            return Err(Error::Misuse {
                what: "a position in the token stream",
                value: start.saturating_add(out.len() as u64),
                expected: format!("at most {}", self.tokens),
            });
        }
        let mut position = start;
        let mut rest = out;
        // The last file that starts at or before the position holds it, because no file is empty.
        let first = self.files.partition_point(|file| file.start <= start).saturating_sub(1);
        for file in &self.files[first..] {
            if rest.is_empty() {
                break;
            }
            let offset = position - file.start;
            let count = (file.source.bytes - offset).min(rest.len() as u64);
            let (now, later) = rest.split_at_mut(count as usize);
            file.read(offset, now)?;
            position += count;
            rest = later;
        }
        Ok(())
    }
}

impl OpenFile {
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        match self.file.read_exact_at(out, offset) {
            Ok(()) => self.require_size(self.size_now()?),
            Err(error) => {
                if error.kind() == io::ErrorKind::UnexpectedEof {
                    self.require_size(self.size_now()?)?;
                }
                Err(io_error(&self.source.path, "read", error))
            }
        }
    }

    fn size_now(&self) -> Result<u64> {
        let metadata = self.file.metadata();
        Ok(metadata.map_err(|e| io_error(&self.source.path, "read the size of", e))?.len())
    }

    fn require_size(&self, found: u64) -> Result<()> {
        let SourceFile { path, bytes } = &self.source;
        if found == *bytes {
            return Ok(());
        }
        Err(Error::Changed { path: path.clone(), expected: *bytes, found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Folder;
    use proptest::prelude::*;
    use std::fs::OpenOptions;
    use std::io::Write;

    #[test]
    fn a_file_that_shrank_is_named() {
        let folder = Folder::new(&[b"0123456789", b"abcdefghij"]);
        let stream = TokenStream::open(&folder.sources()).unwrap();
        let path = folder.path(1);
        OpenOptions::new().write(true).open(&path).unwrap().set_len(4).unwrap();
        let mut out = [0; 12];
        stream.read(0, &mut out[..10]).unwrap();
        // Beyond the new end, and within it.
        for start in [6, 2] {
            let error = stream.read(start, &mut out).unwrap_err();
            assert!(
                matches!(&error, Error::Changed { path: p, expected: 10, found: 4 } if *p == path),
                "{error}"
            );
        }
    }

    #[test]
    fn a_file_that_grew_is_named() {
        let folder = Folder::new(&[b"0123456789"]);
        let sources = folder.sources();
        let stream = TokenStream::open(&sources).unwrap();
        OpenOptions::new().append(true).open(folder.path(0)).unwrap().write_all(b"x").unwrap();
        let error = stream.read(0, &mut [0; 3]).unwrap_err();
        assert!(matches!(error, Error::Changed { expected: 10, found: 11, .. }), "{error}");
        let error = TokenStream::open(&sources).unwrap_err();
        assert!(matches!(error, Error::Changed { expected: 10, found: 11, .. }), "{error}");
    }

    #[test]
    fn a_deleted_file_can_still_be_read_but_not_opened_again() {
        let folder = Folder::new(&[b"0123456789"]);
        let sources = folder.sources();
        let stream = TokenStream::open(&sources).unwrap();
        std::fs::remove_file(folder.path(0)).unwrap();
        let mut out = [0; 3];
        stream.read(7, &mut out).unwrap();
        assert_eq!(&out, b"789");
        let error = TokenStream::open(&sources).unwrap_err();
        assert!(matches!(error, Error::Io { action: "find", .. }), "{error}");
    }

    #[test]
    fn no_files_and_no_room() {
        assert!(matches!(TokenStream::open(&[]), Err(Error::NoFiles)));
        let stream = TokenStream::open(&Folder::new(&[b"0123"]).sources()).unwrap();
        assert!(matches!(stream.read(2, &mut [0; 3]), Err(Error::Misuse { value: 5, .. })));
        assert!(matches!(stream.read(u64::MAX, &mut [0; 3]), Err(Error::Misuse { .. })));
        stream.read(4, &mut []).unwrap();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_range_is_that_of_the_files_joined(
            files in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..20), 1..6),
            cut in (0.0..=1.0f64, 0.0..=1.0f64),
        ) {
            let slices: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
            let stream = TokenStream::open(&Folder::new(&slices).sources()).unwrap();
            let joined = files.concat();
            prop_assert_eq!(stream.tokens(), joined.len() as u64);
            let start = (joined.len() as f64 * cut.0) as usize;
            let count = ((joined.len() - start) as f64 * cut.1) as usize;
            let mut out = vec![0; count];
            stream.read(start as u64, &mut out).unwrap();
            prop_assert_eq!(&out, &joined[start..start + count]);
        }
    }
}
