//! Batches of whole lines.

use std::sync::Arc;

use memchr::{memchr, memchr_iter, memmem, memrchr};

use super::batch::{Body, RawBatch};
use super::decode::Feed;
use super::document::{BadRecord, Place, Reason};
use super::reader::{Batches, Limits, Notes};
use super::{Fields, Input, Position, ReadError, Result};

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Cuts a text into batches after the first line that fills one.
pub(super) struct Lines {
    feed: Feed,
    limits: Limits,
    /// The fields to take of each line, if the lines are JSON.
    fields: Option<Arc<Fields>>,
    /// Where the next batch begins.
    at: Position,
    /// The text that was read and is in no batch yet, and the offset of its first byte.
    text: Vec<u8>,
    offset: u64,
    notes: Notes,
    finished: bool,
}

impl Lines {
    /// `fields` are those of JSON lines.
    pub(super) fn open(
        input: &Input,
        fields: Option<Fields>,
        from: Position,
        limits: Limits,
    ) -> Result<Self> {
        let mut feed = Feed::open(input, from.offset)?;
        let mut text = Vec::new();
        let mark = from.offset == 0 && drop_byte_order_mark(&mut feed, &mut text)?;
        Ok(Self {
            feed,
            limits,
            fields: fields.map(Arc::new),
            at: from,
            offset: from.offset + if mark { BYTE_ORDER_MARK.len() as u64 } else { 0 },
            text,
            notes: Notes { byte_order_mark: mark, ..Notes::default() },
            finished: false,
        })
    }

    /// The batch of the first bytes of the text, up to the end of a line.
    fn take(&mut self, bytes: usize) -> RawBatch {
        let mut rest = Vec::with_capacity(self.limits.batch + (self.text.len() - bytes));
        rest.extend_from_slice(&self.text[bytes..]);
        self.text.truncate(bytes);
        let text = std::mem::replace(&mut self.text, rest);

        let unended = !text.is_empty() && !text.ends_with(b"\n");
        let lines = memchr_iter(b'\n', &text).count() as u64 + u64::from(unended);
        if memchr(b'\r', &text).is_some() {
            self.notes.crlf_lines += memmem::find_iter(&text, b"\r\n").count() as u64;
        }
        let (start, offset) = (self.at, self.offset);
        self.offset += bytes as u64;
        self.at = Position { offset: self.offset, record: start.record + lines };
        let body = match &self.fields {
            Some(fields) => Body::Json { bytes: text, offset, fields: Arc::clone(fields) },
            None => Body::Lines { bytes: text, offset },
        };
        RawBatch { start, end: self.at, body, bad: None }
    }

    /// The batch of the lines before one that is too long, which is passed over.
    fn take_before_long(&mut self, line_start: usize) -> Result<RawBatch, ReadError> {
        let mut batch = self.take(line_start);
        let place = Place { record: self.at.record + 1, offset: self.offset };
        let mut length = 0;
        loop {
            if let Some(newline) = memchr(b'\n', &self.text) {
                length += newline as u64;
                self.offset += newline as u64 + 1;
                self.text.drain(..=newline);
                break;
            }
            length += self.text.len() as u64;
            self.offset += self.text.len() as u64;
            self.text.clear();
            if !self.feed.more(&mut self.text)? {
                break;
            }
        }
        let limit = self.limits.line;
        let detail = format!("the line has {length} bytes; at most {limit} can be read");
        batch.bad = Some(BadRecord::new(place, Reason::TooLong, detail));
        self.at = Position { offset: self.offset, record: place.record };
        batch.end = self.at;
        Ok(batch)
    }

    /// The batch of what is left when there is no more to read.
    fn take_last(&mut self) -> Option<RawBatch> {
        self.finished = true;
        let Some(detail) = self.feed.broken().map(str::to_owned) else {
            return (!self.text.is_empty()).then(|| self.take(self.text.len()));
        };
        let end = self.offset + self.text.len() as u64;
        let mut batch = self.take(memrchr(b'\n', &self.text).map_or(0, |newline| newline + 1));
        let place = Place { record: self.at.record + 1, offset: end };
        batch.bad = Some(truncated(place, &detail));
        batch.end = Position { offset: Position::FINISHED, record: place.record };
        Some(batch)
    }
}

impl Batches for Lines {
    fn next_batch(&mut self) -> Result<Option<RawBatch>, ReadError> {
        if self.finished {
            return Ok(None);
        }
        // The line with this byte is the last of the batch.
        let full = self.limits.batch.max(1) - 1;
        let mut searched = full;
        loop {
            let newline = self.text.get(searched..).and_then(|text| memchr(b'\n', text));
            let line_end = newline.map_or(self.text.len(), |at| searched + at);
            if self.text.len() > full {
                let line_start = memrchr(b'\n', &self.text[..full]).map_or(0, |at| at + 1);
                if line_end - line_start > self.limits.line {
                    return self.take_before_long(line_start).map(Some);
                }
            }
            if newline.is_some() {
                return Ok(Some(self.take(line_end + 1)));
            }
            searched = self.text.len().max(full);
            if !self.feed.more(&mut self.text)? {
                return Ok(self.take_last());
            }
        }
    }

    fn notes(&self) -> Notes {
        self.notes
    }
}

/// Reads the first bytes of a text, and drops the mark that they may be.
pub(super) fn drop_byte_order_mark(feed: &mut Feed, text: &mut Vec<u8>) -> Result<bool, ReadError> {
    while text.len() < BYTE_ORDER_MARK.len() && feed.more(text)? {}
    let mark = text.starts_with(BYTE_ORDER_MARK);
    if mark {
        text.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(mark)
}

/// The record that cannot be decompressed.
pub(super) fn truncated(place: Place, detail: &str) -> BadRecord {
    let detail = format!(
        "decompression stopped at byte {} of the text: {detail}; the file is damaged, cut off, or has something behind its \
         end: download or compress it again",
        place.offset
    );
    BadRecord::new(place, Reason::Truncated, detail)
}
