//! A plain text file as one document.

use memchr::memchr_iter;

use super::batch::{Body, RawBatch, checked_text};
use super::decode::Feed;
use super::document::{BadRecord, Place};
use super::lines::{drop_byte_order_mark, truncated};
use super::reader::{Batches, Limits, Notes};
use super::{Input, Position, ReadError, Result};

/// The most bytes of a character, and so what has to be known behind a cut.
const CHARACTER: usize = 4;

/// Gives a file as it is, or in pieces if it is large.
pub(super) struct Text {
    feed: Feed,
    limits: Limits,
    /// Where the next piece begins.
    at: Position,
    /// The text that was read and is in no piece yet, and the offset of its first byte.
    text: Vec<u8>,
    offset: u64,
    /// No more can be read into `text`.
    complete: bool,
    finished: bool,
    notes: Notes,
}

impl Text {
    pub(super) fn open(input: &Input, from: Position, limits: Limits) -> Result<Self> {
        let mut feed = Feed::open(input, from.offset)?;
        let mut text = Vec::new();
        let mark = from.offset == 0 && drop_byte_order_mark(&mut feed, &mut text)?;
        let offset = if mark { 3 } else { from.offset };
        let notes = Notes { byte_order_mark: mark, ..Notes::default() };
        Ok(Self { feed, limits, at: from, text, offset, complete: false, finished: false, notes })
    }

    /// Reads on until there is this much text, or the file ends.
    fn fill(&mut self, bytes: usize) -> Result<(), ReadError> {
        while !self.complete && self.text.len() < bytes {
            self.complete = !self.feed.more(&mut self.text)?;
        }
        Ok(())
    }

    /// All of the file.
    fn take_whole(&mut self) -> Option<RawBatch> {
        if let Some(bad) = self.cut_off() {
            return Some(self.end_with(bad));
        }
        self.finished = true;
        let bytes = std::mem::take(&mut self.text);
        if bytes.is_empty() {
            return None;
        }
        let (start, offset) = (self.at, self.offset);
        let end = Position { offset: offset + bytes.len() as u64, record: lines(&bytes) };
        Some(RawBatch { start, end, body: Body::File { bytes, offset }, bad: None })
    }

    fn take_piece(&mut self) -> Result<Option<RawBatch>, ReadError> {
        let mut wanted = self.limits.piece + CHARACTER;
        let cut = loop {
            self.fill(wanted)?;
            match place_to_cut(&self.text, self.complete, self.limits) {
                Some(cut) => break cut,
                None => wanted = 2 * self.text.len().max(1),
            }
        };
        let last = self.complete && cut == self.text.len();
        if let (true, Some(bad)) = (last, self.cut_off()) {
            return Ok(Some(self.end_with(bad)));
        }
        self.finished = last;
        if cut == 0 {
            return Ok(None);
        }
        let rest = self.text.split_off(cut);
        let bytes = std::mem::replace(&mut self.text, rest);
        let (start, offset) = (self.at, self.offset);
        let place = Place { record: start.record + 1, offset };
        let text = match checked_text(&bytes, place) {
            Ok(text) => text.to_owned(),
            Err(bad) => return Ok(Some(self.end_with(bad))),
        };
        self.offset += cut as u64;
        self.at = Position { offset: self.offset, record: start.record + newlines(&bytes) };
        let body = Body::Piece { text, first: start.offset == 0, last, offset };
        Ok(Some(RawBatch { start, end: self.at, body, bad: None }))
    }

    /// The bad record at the end of a file that could not be decompressed to its end.
    fn cut_off(&self) -> Option<BadRecord> {
        let detail = self.feed.broken()?;
        let record = self.at.record + newlines(&self.text) + 1;
        Some(truncated(Place { record, offset: self.offset + self.text.len() as u64 }, detail))
    }

    /// The last batch of a document that is bad.
    fn end_with(&mut self, bad: BadRecord) -> RawBatch {
        self.finished = true;
        let end = Position { offset: Position::FINISHED, record: bad.place.record };
        RawBatch { start: self.at, end, body: Body::Empty, bad: Some(bad) }
    }
}

impl Batches for Text {
    fn next_batch(&mut self) -> Result<Option<RawBatch>, ReadError> {
        if self.finished {
            return Ok(None);
        }
        if self.at.offset == 0 {
            self.fill(self.limits.whole + 1)?;
            if self.text.len() <= self.limits.whole {
                return Ok(self.take_whole());
            }
        }
        self.take_piece()
    }

    fn notes(&self) -> Notes {
        self.notes
    }
}

fn newlines(bytes: &[u8]) -> u64 {
    memchr_iter(b'\n', bytes).count() as u64
}

/// The lines of a text, one that no LF ends included.
fn lines(bytes: &[u8]) -> u64 {
    newlines(bytes) + u64::from(!bytes.is_empty() && !bytes.ends_with(b"\n"))
}

/// How many of the first bytes make the next piece; nothing if more text is needed to know.
///
/// The cut is after a line end with no whitespace on either side: there the tokenizers that split
/// at whitespace before they merge bytes always split, and see no difference to the end of a text.
fn place_to_cut(text: &[u8], complete: bool, limits: Limits) -> Option<usize> {
    let known = if complete { text.len() } else { text.len().saturating_sub(CHARACTER) };
    let first = limits.piece.max(1) - 1;
    let end = known.min(limits.uncut);
    if let Some(window) = text.get(first..end) {
        let mut cuts = memchr_iter(b'\n', window).map(|at| first + at + 1);
        if let Some(cut) = cuts.find(|cut| is_lone_line_end(text, *cut)) {
            return Some(cut);
        }
    }
    if text.len() <= limits.uncut {
        return complete.then_some(text.len());
    }
    if known < limits.uncut {
        return None;
    }
    // Back to the start of a character. In text that is not UTF-8 there may be none.
    let is_start = |at: &usize| text[*at] & 0xc0 != 0x80;
    let near = end.saturating_sub(CHARACTER - 1).max(1)..=end;
    Some(near.rev().find(is_start).unwrap_or(end))
}

/// Whether the line end (LF or CR LF) before this place stands between two characters that are not
/// whitespace.
fn is_lone_line_end(text: &[u8], after: usize) -> bool {
    let line = &text[..after - 1];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let before = &line[line.len().saturating_sub(CHARACTER)..];
    let next = &text[after..text.len().min(after + CHARACTER)];
    let before = String::from_utf8_lossy(before).chars().next_back();
    let next = String::from_utf8_lossy(next).chars().next();
    matches!((before, next), (Some(a), Some(b)) if !a.is_whitespace() && !b.is_whitespace())
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
