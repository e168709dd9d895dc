//! An object as stored bytes: one stream from a place on, or blocks from anywhere.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use object_store::{GetOptions, GetRange, ObjectMeta};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::{Failure, Store, change, innermost, runtime};
use crate::source::error::ItChanged;
use crate::source::open::Stored;

/// Pieces of an answer that wait to be read, of some 10 to 400 KB each.
const WAITING: usize = 16;

/// Bytes of one request of a reader that goes to and fro: about a tenth of a second.
const BLOCK: u64 = 4 << 20;

/// Blocks that are kept for one input. Each column of a table is read in a place of its own.
const BLOCKS: usize = 8;

/// An object of a store, as it was when it was found.
#[derive(Clone)]
pub struct Object {
    store: Arc<Store>,
    meta: Arc<ObjectMeta>,
}

impl Object {
    pub(super) fn new(store: &Arc<Store>, meta: &ObjectMeta) -> Self {
        Self { store: Arc::clone(store), meta: Arc::new(meta.clone()) }
    }

    /// Its address.
    pub fn name(&self) -> String {
        self.store.bucket().address(self.meta.location.as_ref())
    }

    pub(super) fn bytes(&self) -> u64 {
        self.meta.size
    }

    /// A text that changes when the object does.
    pub(super) fn identity(&self) -> String {
        let bytes = self.meta.size;
        match &self.meta.e_tag {
            Some(tag) => format!("{bytes} bytes, ETag {tag}"),
            None => format!("{bytes} bytes, modified {}", self.meta.last_modified.to_rfc3339()),
        }
    }

    pub(in crate::source) fn open(&self) -> Arc<dyn Stored> {
        Arc::new(Opened { object: self.clone(), blocks: Mutex::new(VecDeque::new()) })
    }

    /// All of it.
    pub(super) fn read(&self) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        Download::start(self, 0..self.bytes())?.read_to_end(&mut all)?;
        Ok(all)
    }

    fn options(&self, range: Range<u64>) -> GetOptions {
        // A weak tag matches nothing.
        let tag = self.meta.e_tag.clone().filter(|tag| !tag.starts_with("W/"));
        GetOptions { if_match: tag, range: Some(GetRange::Bounded(range)), ..Default::default() }
    }

    /// That an answer is of this object and not of one that took its place.
    fn check(&self, found: &ObjectMeta) -> Result<(), String> {
        let expected = &*self.meta;
        if found.size != expected.size {
            return Err(format!("it had {} bytes, now {}", expected.size, found.size));
        }
        let same = match (&expected.e_tag, &found.e_tag) {
            (Some(expected), Some(found)) => expected == found,
            // Headers have whole seconds.
            _ => expected.last_modified.timestamp() == found.last_modified.timestamp(),
        };
        if same { Ok(()) } else { Err("it was written again".to_owned()) }
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.store.bucket() == other.store.bucket() && self.meta == other.meta
    }
}

impl Eq for Object {}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({}, {})", self.name(), self.identity())
    }
}

/// An object that is being read.
struct Opened {
    object: Object,
    /// The latest, by number.
    blocks: Mutex<VecDeque<(u64, Bytes)>>,
}

impl Opened {
    fn block(&self, number: u64) -> io::Result<Bytes> {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let known = blocks.iter().position(|(known, _)| *known == number);
        let block = match known.and_then(|place| blocks.remove(place)) {
            Some((_, block)) => block,
            None => {
                let range = number * BLOCK..((number + 1) * BLOCK).min(self.object.bytes());
                let mut block = Vec::new();
                Download::start(&self.object, range)?.read_to_end(&mut block)?;
                block.into()
            }
        };
        blocks.truncate(BLOCKS - 1);
        blocks.push_front((number, block.clone()));
        Ok(block)
    }
}

impl Stored for Opened {
    fn read_from(&self, offset: u64) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(Download::start(&self.object, offset..self.object.bytes())?))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if buffer.is_empty() || offset >= self.object.bytes() {
            return Ok(0);
        }
        let block = self.block(offset / BLOCK)?;
        let rest = block.get((offset % BLOCK) as usize..).unwrap_or_default();
        let read = rest.len().min(buffer.len());
        buffer[..read].copy_from_slice(&rest[..read]);
        Ok(read)
    }
}

/// Why an answer ended before its end.
enum Break {
    /// It did not begin, though it was asked for several times.
    NoAnswer(object_store::Error),
    /// The connection broke, or the store sent less than it said.
    BrokenOff(String),
    Changed(String),
}

/// What a [`Download`] has to give.
pub(super) enum Step {
    Bytes(Bytes),
    /// Nothing yet.
    Waiting,
    End,
}

/// A part of an object that is on its way. Where an answer breaks off, another is asked for that goes on there.
pub(super) struct Download {
    object: Object,
    /// What was not given yet.
    range: Range<u64>,
    answer: Receiver<Result<Bytes, Break>>,
    /// Breaks, and time that was waited, since the last byte came.
    breaks: u32,
    waited: Duration,
    /// What came and was not read yet.
    rest: Bytes,
}

impl Download {
    pub(super) fn start(object: &Object, range: Range<u64>) -> io::Result<Self> {
        let range = range.start.min(range.end)..range.end;
        let answer = ask(object, range.clone(), Duration::ZERO)?;
        let object = object.clone();
        Ok(Self { object, range, answer, breaks: 0, waited: Duration::ZERO, rest: Bytes::new() })
    }

    /// The next bytes, waited for no longer than `limit`.
    pub(super) fn step(&mut self, limit: Duration) -> io::Result<Step> {
        if self.range.is_empty() {
            return Ok(Step::End);
        }
        let begun = Instant::now();
        let answer = &mut self.answer;
        let came = runtime::wait(async { tokio::time::timeout(limit, answer.recv()).await.ok() })?;
        self.waited += begun.elapsed();
        match came {
            None => return Ok(Step::Waiting),
            Some(Some(Ok(bytes))) => return self.take(bytes).map(Step::Bytes),
            Some(Some(Err(Break::Changed(detail)))) => return Err(changed(detail)),
            Some(Some(Err(Break::NoAnswer(error)))) => {
                return Err(Failure::of(&self.object.store, &error).into_io());
            }
            Some(Some(Err(Break::BrokenOff(why)))) => self.go_on(&why)?,
            Some(None) => self.go_on("it ended too early")?,
        }
        Ok(Step::Waiting)
    }

    fn take(&mut self, bytes: Bytes) -> io::Result<Bytes> {
        let left = self.range.end - self.range.start;
        if bytes.len() as u64 > left {
            return Err(io::Error::other("the store sent more than was asked for; try again"));
        }
        self.range.start += bytes.len() as u64;
        (self.breaks, self.waited) = (0, Duration::ZERO);
        Ok(bytes)
    }

    fn go_on(&mut self, why: &str) -> io::Result<()> {
        let patience = self.object.store.patience();
        if self.breaks >= patience.resumes || self.waited > patience.ask_for {
            return Err(Failure::broken_off(&self.object.store, why).into_io());
        }
        let pause = patience.pause * (1 << self.breaks.min(6));
        self.breaks += 1;
        self.answer = ask(&self.object, self.range.clone(), pause)?;
        Ok(())
    }
}

impl Read for Download {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.step(Duration::from_secs(3600))? {
                Step::Bytes(bytes) => self.rest = bytes,
                Step::Waiting => {}
                Step::End => return Ok(0),
            }
        }
        let read = self.rest.len().min(buffer.len());
        buffer[..read].copy_from_slice(&self.rest.split_to(read));
        Ok(read)
    }
}

fn changed(detail: String) -> io::Error {
    io::Error::other(ItChanged(detail))
}

/// Asks for a part of an object after a pause. The answer ends when its reader is dropped.
fn ask(
    object: &Object,
    range: Range<u64>,
    pause: Duration,
) -> io::Result<Receiver<Result<Bytes, Break>>> {
    let (sender, receiver) = channel(WAITING);
    if !range.is_empty() {
        let object = object.clone();
        runtime::handle()?.spawn(async move {
            tokio::time::sleep(pause).await;
            if let Err(why) = send_all(&object, range, &sender).await {
                // An error says that nobody waits for it.
                drop(sender.send(Err(why)).await);
            }
        });
    }
    Ok(receiver)
}

async fn send_all(
    object: &Object,
    range: Range<u64>,
    sender: &Sender<Result<Bytes, Break>>,
) -> Result<(), Break> {
    let of_answer = |error| match change(&error) {
        Some(why) => Break::Changed(why.to_owned()),
        None => Break::NoAnswer(error),
    };
    let of_body = |error| match change(&error) {
        Some(why) => Break::Changed(why.to_owned()),
        None => Break::BrokenOff(innermost(&error)),
    };
    let options = object.options(range);
    let asked = object.store.client().get_opts(&object.meta.location, options);
    let answer = asked.await.map_err(of_answer)?;
    object.check(&answer.meta).map_err(Break::Changed)?;
    let mut body = answer.into_stream();
    // To its very end, so that the connection can be used again.
    while let Some(bytes) = poll_fn(|context| body.as_mut().poll_next(context)).await {
        if sender.send(Ok(bytes.map_err(of_body)?)).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}
