//! Memory that a save is copied to, so that training can go on while it is written.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};
use std::thread;

use memmap2::{Advice, MmapMut, MmapOptions};

use crate::header::PAGE;
use crate::{Error, Result, ShardPlan};

/// Bytes of a piece of a file: of one write, and of one part of an object.
pub(crate) const CHUNK: u64 = 16 << 20;

/// A piece of the image of a file.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// Anonymous memory begins at a page, as direct writes demand.
    memory: MmapMut,
}

impl Chunk {
    fn new(bytes: u64) -> io::Result<Self> {
        let bytes = usize::try_from(bytes.max(1).next_multiple_of(PAGE))
            .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let mut memory = MmapOptions::new().len(bytes).map_anon()?;
        // Fewer and larger pages are touched, copied to and written from in less time. Not every kernel has them.
        let _ = memory.advise(Advice::HugePage);
        memory.iter_mut().step_by(PAGE as usize).for_each(|byte| *byte = 0);
        Ok(Self { memory })
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }
}

/// Memory for the image of a file: kept from save to save, and touched before the first, because a page that is used
/// for the first time costs eight times as much as copying to it.
#[derive(Debug)]
pub struct Image {
    plan: ShardPlan,
    chunks: Vec<Chunk>,
}

/// A piece of an image that is complete, with its number.
pub(crate) type Ready = (usize, Arc<Chunk>);

impl Image {
    /// Memory for a file, all of it touched, by some threads.
    ///
    /// # Errors
    /// There is not so much.
    pub fn new(plan: ShardPlan, threads: usize) -> Result<Self> {
        let chunks = make(plan.bytes(), threads);
        let chunks = chunks.map_err(|error| Error::Memory { bytes: plan.bytes(), error })?;
        Ok(Self { plan, chunks })
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.plan.bytes()
    }

    pub(crate) fn of(plan: ShardPlan, chunks: Vec<Chunk>) -> Self {
        Self { plan, chunks }
    }

    /// What is written of it.
    pub fn plan(&self) -> &ShardPlan {
        &self.plan
    }

    /// Copies the parts of the file, in their order, on some threads; each piece goes to `ready` as soon as it is
    /// complete.
    ///
    /// # Errors
    /// They are not the parts of the plan.
    pub(crate) fn fill(
        self,
        parts: &[&[u8]],
        threads: usize,
        ready: &Sender<Ready>,
    ) -> Result<ShardPlan> {
        let sizes = self.plan.parts().map(|part| part.bytes());
        if !sizes.eq(parts.iter().map(|part| part.len() as u64)) {
            return Err(Error::Misuse { what: "the state has changed its shape".to_owned() });
        }
        let plan = &self.plan;
        let offsets = plan.offsets();
        let todo = Mutex::new(self.chunks.into_iter().enumerate());
        let work = || {
            loop {
                let next = todo.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some((number, mut chunk)) = next else { return };
                copy(&offsets, parts, number as u64 * CHUNK, chunk.bytes_mut());
                // An error says that the writer has failed, which will be told.
                let _ = ready.send((number, Arc::new(chunk)));
            }
        };
        thread::scope(|scope| {
            for _ in 1..threads.max(1) {
                scope.spawn(work);
            }
            work();
        });
        Ok(self.plan)
    }
}

/// Copies what the parts, which begin at `offsets` of the file, have of the bytes from `start` on.
fn copy(offsets: &[u64], parts: &[&[u8]], start: u64, into: &mut [u8]) {
    let end = start + into.len() as u64;
    let first = offsets.partition_point(|offset| *offset <= start).saturating_sub(1);
    let mut filled = start;
    for (offset, part) in offsets[first..].iter().zip(&parts[first..]) {
        let [from, to] = [start.max(*offset), end.min(offset + part.len() as u64)];
        if *offset >= end {
            break;
        }
        if from < to {
            let place = &mut into[(from - start) as usize..(to - start) as usize];
            place.copy_from_slice(&part[(from - offset) as usize..(to - offset) as usize]);
            filled = to;
        }
    }
    // Whole pages are written, and the file is cut off afterwards.
    into[(filled - start) as usize..].fill(0);
}

fn make(bytes: u64, threads: usize) -> io::Result<Vec<Chunk>> {
    let number = bytes.div_ceil(CHUNK).max(1) as usize;
    let next = AtomicUsize::new(0);
    let work = || {
        let mut made = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= number {
                return Ok(made);
            }
            made.push(Chunk::new((bytes - at as u64 * CHUNK).min(CHUNK)).map(|chunk| (at, chunk))?);
        }
    };
    let made: io::Result<Vec<Vec<(usize, Chunk)>>> = thread::scope(|scope| {
        let others: Vec<_> = (1..threads.max(1)).map(|_| scope.spawn(work)).collect();
        let own = work();
        let failed = || Err(io::Error::other("a thread that touches memory failed"));
        others.into_iter().map(|t| t.join().unwrap_or_else(|_| failed())).chain([own]).collect()
    });
    let mut made: Vec<(usize, Chunk)> = made?.into_iter().flatten().collect();
    made.sort_by_key(|(at, _)| *at);
    Ok(made.into_iter().map(|(_, chunk)| chunk).collect())
}

/// The chunks of an image that was written, for the next one; one that somebody still holds is made anew.
pub(crate) fn take_back(plan: ShardPlan, chunks: Vec<Arc<Chunk>>) -> Result<Image> {
    let sizes = |chunk: &Chunk| chunk.bytes().len() as u64;
    let own = |chunk: Arc<Chunk>| match Arc::try_unwrap(chunk) {
        Ok(chunk) => Ok(chunk),
        Err(held) => Chunk::new(sizes(&held)),
    };
    let chunks: io::Result<Vec<Chunk>> = chunks.into_iter().map(own).collect();
    let chunks = chunks.map_err(|error| Error::Memory { bytes: plan.bytes(), error })?;
    Ok(Image::of(plan, chunks))
}
