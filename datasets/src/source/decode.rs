//! The text of a file in chunks, decompressed.
//!
//! What is given before a fault in compressed bytes must not depend on where reading started. So
//! the decoders are fed, and asked, in blocks of one size that begin at the start of the file.

use std::fmt;
use std::io::{self, BufRead, Read};
use std::ops::Range;

use flate2::bufread::MultiGzDecoder;

use super::open::open;
use super::{Compression, Error, Input, ReadError, Result};

/// Bytes that a decoder is fed, and asked for, at a time.
const BLOCK: usize = 64 << 10;

/// The largest window of a zstd frame, as a power of two: what `zstd --long=31` writes.
const ZSTD_WINDOW: u32 = 31;

/// The bytes of a text file, decompressed.
pub(super) struct Feed {
    name: String,
    source: Box<dyn Read + Send>,
    block: Vec<u8>,
    /// The bytes of the block that were not given yet.
    ready: Range<usize>,
    ended: bool,
    broken: Option<String>,
}

impl Feed {
    /// Opens the text at a byte offset.
    pub(super) fn open(input: &Input, offset: u64) -> Result<Self> {
        let stored = open(input)?;
        let compressed = input.compression != Compression::None;
        if !compressed && offset > input.bytes {
            return Err(ends_before(input, offset));
        }
        let start = if compressed { 0 } else { offset };
        let raw = stored.read_from(start).map_err(|e| ReadError::io(&input.name, "read", e))?;
        let raw = Raw { source: raw, block: vec![0; BLOCK], ready: 0..0 };
        let mut feed = Self {
            name: input.name.clone(),
            source: decoder(raw, input.compression)
                .map_err(|e| ReadError::io(&input.name, "decompress", e))?,
            block: vec![0; BLOCK],
            ready: 0..0,
            ended: false,
            broken: None,
        };
        if compressed {
            feed.skip(input, offset)?;
        }
        Ok(feed)
    }

    /// Appends the next bytes, and says whether there were any.
    pub(super) fn more(&mut self, into: &mut Vec<u8>) -> Result<bool, ReadError> {
        if self.ready.is_empty() && !self.refill()? {
            return Ok(false);
        }
        into.extend_from_slice(&self.block[self.ready.clone()]);
        self.ready = 0..0;
        Ok(true)
    }

    /// What the decoder said, if it could not go on to the end of the file.
    pub(super) fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    fn skip(&mut self, input: &Input, offset: u64) -> Result<()> {
        let mut bytes = offset;
        while bytes > 0 {
            if self.ready.is_empty() && !self.refill()? {
                return Err(ends_before(input, offset));
            }
            let step = (self.ready.len() as u64).min(bytes);
            self.ready.start += step as usize;
            bytes -= step;
        }
        Ok(())
    }

    fn refill(&mut self) -> Result<bool, ReadError> {
        if self.ended {
            return Ok(false);
        }
        match self.source.read(&mut self.block) {
            Ok(read) => self.ready = 0..read,
            Err(error) => {
                if error.get_ref().is_some_and(|inner| inner.is::<OfStorage>()) {
                    return Err(ReadError::io(&self.name, "read", error));
                }
                self.broken = Some(error.to_string());
            }
        }
        self.ended = self.ready.is_empty();
        Ok(!self.ended)
    }
}

fn ends_before(input: &Input, offset: u64) -> Error {
    let detail = format!("its text ends before byte {offset}, where reading was to go on");
    ReadError::changed(&input.name, detail).into()
}

fn decoder(raw: Raw, compression: Compression) -> io::Result<Box<dyn Read + Send>> {
    Ok(match compression {
        Compression::None => Box::new(raw),
        Compression::Gzip => Box::new(MultiGzDecoder::new(raw)),
        Compression::Zstd => {
            let mut decoder = zstd::Decoder::with_buffer(raw)?;
            decoder.window_log_max(ZSTD_WINDOW)?;
            Box::new(decoder)
        }
    })
}

/// Stored bytes in blocks that are full up to the last one, however they arrive.
struct Raw {
    source: Box<dyn Read + Send>,
    block: Vec<u8>,
    ready: Range<usize>,
}

impl BufRead for Raw {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.ready.is_empty() {
            self.ready = 0..fill(&mut self.source, &mut self.block)
                .map_err(|error| io::Error::other(OfStorage(error)))?;
        }
        Ok(&self.block[self.ready.clone()])
    }

    fn consume(&mut self, amount: usize) {
        self.ready.start += amount;
    }
}

impl Read for Raw {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let ready = self.fill_buf()?;
        let read = ready.len().min(buffer.len());
        buffer[..read].copy_from_slice(&ready[..read]);
        self.consume(read);
        Ok(read)
    }
}

/// Reads until the buffer is full or the source ends.
fn fill(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Marks an error of the storage, to tell it from one of the decoder that it passes through.
#[derive(Debug)]
struct OfStorage(io::Error);

impl fmt::Display for OfStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for OfStorage {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}
