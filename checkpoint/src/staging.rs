//! Memory that a save is copied to, so that training can go on while it is written.

use std::io;
use std::thread;

use memmap2::{MmapMut, MmapOptions};

use crate::header::PAGE;

/// Memory for the image of a file: kept from save to save, and touched before the first, because a page that is used
/// for the first time costs eight times as much as copying to it.
#[derive(Debug)]
pub struct Staging {
    /// Anonymous memory begins at a page, as direct writes demand.
    memory: MmapMut,
}

impl Staging {
    /// Memory of so many bytes, rounded up to whole pages, all of it touched.
    ///
    /// # Errors
    /// There is not so much.
    pub fn new(bytes: u64, threads: usize) -> io::Result<Self> {
        let bytes = usize::try_from(bytes.max(1).next_multiple_of(PAGE))
            .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let mut memory = MmapOptions::new().len(bytes).map_anon()?;
        let share = bytes.div_ceil(threads.max(1)).next_multiple_of(PAGE as usize);
        thread::scope(|scope| {
            for part in memory.chunks_mut(share) {
                scope.spawn(|| part.iter_mut().step_by(PAGE as usize).for_each(|byte| *byte = 0));
            }
        });
        Ok(Self { memory })
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.memory.len() as u64
    }

    /// The first bytes of it, which begin at a page.
    pub fn page_aligned(&self, bytes: usize) -> &[u8] {
        &self.memory[..bytes]
    }

    pub(crate) fn memory_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }
}
