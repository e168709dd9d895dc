//! The weights of a folder, as the tensors of a model.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::header::Stored;
use super::names::{EMBEDDING, HEAD, Single, is_superfluous, singles};
use super::{Folder, number, parallel};
use crate::{Dtype, Error, Region, Result, TensorFacts, Wanted};

/// Bytes that are read at once, about.
const SPAN: u64 = 4 << 20;

/// A tensor of the folder that is some rows of one of the model.
struct Piece<'a> {
    file: usize,
    stored: &'a Stored,
    format: Dtype,
    rows: [u64; 2],
}

impl Folder {
    /// Where the tensors of a model and those of the folder differ, a line each.
    pub fn differences(&self, tensors: &BTreeMap<String, TensorFacts>) -> Vec<String> {
        let mut differences = Vec::new();
        let mut used = BTreeSet::new();
        for (name, facts) in tensors {
            let (pieces, problems) = self.pieces(name, facts);
            differences.extend(problems);
            used.extend(pieces.iter().map(|piece| (piece.file, piece.stored.offset)));
            // Where one is wrong, the others belong to the model all the same.
            used.extend(self.singles_there(name, facts));
        }
        let is_used = |(file, stored): &(usize, Stored)| used.contains(&(*file, stored.offset));
        let strange = self.tensors.iter().filter(|(name, place)| {
            let is_known = tensors.contains_key(*name) || is_superfluous(name);
            !is_known && !is_used(place)
        });
        let is_there = |name| self.tensors.contains_key(name);
        if tensors.contains_key(HEAD) && is_there(HEAD) && !is_there(EMBEDDING) {
            // The model has both, and the one cannot stand for the other.
            differences.push(format!("{EMBEDDING} is not there"));
        }
        let text = |(name, _): (&String, _)| format!("{name} is there, and this model has none");
        differences.extend(strange.map(text));
        differences
    }

    fn singles_there(&self, name: &str, facts: &TensorFacts) -> Vec<(usize, u64)> {
        let singles = singles(name, &facts.shape).unwrap_or_default();
        let there = singles.iter().filter_map(|single| self.tensors.get(&single.name));
        there.map(|(file, stored)| (*file, stored.offset)).collect()
    }

    /// The tensors of the folder that make up one of a model, in the order of its rows, and what is wrong with them.
    fn pieces(&self, name: &str, facts: &TensorFacts) -> (Vec<Piece<'_>>, Vec<String>) {
        let whole = || Single { name: name.to_owned(), shape: facts.shape.clone(), first_row: 0 };
        let parts = match singles(name, &facts.shape) {
            Some(parts) if !self.tensors.contains_key(name) => parts,
            _ => vec![whole()],
        };
        let (mut pieces, mut problems) = (Vec::new(), Vec::new());
        for part in parts {
            match self.piece(&part) {
                Ok(piece) => pieces.push(piece),
                Err(problem) => problems.push(problem),
            }
        }
        (pieces, problems)
    }

    fn piece(&self, part: &Single) -> Result<Piece<'_>, String> {
        let Single { name, shape, first_row } = part;
        let found = self.tensors.get(name).or_else(|| {
            // A model whose head is its embedding may have been saved with the one or the other.
            self.tensors.get(HEAD).filter(|_| name == EMBEDDING)
        });
        let (file, stored) = found.ok_or_else(|| format!("{name} is not there"))?;
        if stored.shape != *shape {
            let there = &stored.shape;
            return Err(format!("{name} has the shape {there:?}, and this model has {shape:?}"));
        }
        let format = stored.format().ok_or_else(|| {
            format!("{name} is of {}, and F32, BF16 and F16 are what can be read", stored.dtype)
        })?;
        let facts = TensorFacts { dtype: format, shape: shape.clone() };
        let rows = facts.rows().ok_or_else(|| format!("{name} is too large"))?;
        Ok(Piece { file: *file, stored, format, rows: [*first_row, first_row + rows] })
    }

    /// Reads parts of the tensors of a model as float32, on some threads: of a file just the bytes that they are made of.
    /// Returns the number of bytes that were read.
    ///
    /// # Errors
    /// A tensor is not there or another, or a file cannot be read: then nothing may be done with what was read.
    /// [`Error::Stopped`] once `stop` is set.
    pub fn read(&self, wanted: Vec<Wanted<'_>>, threads: usize, stop: &AtomicBool) -> Result<u64> {
        let mut spans = Vec::new();
        for wanted in wanted {
            let (pieces, problems) = self.pieces(&wanted.name, &wanted.tensor);
            if let Some(problem) = problems.into_iter().next() {
                return Err(Error::Lacks { path: self.path.clone(), what: problem });
            }
            self.add_spans(&mut spans, &pieces, wanted)?;
        }
        let read = AtomicU64::new(0);
        parallel::share(spans, threads, stop, |span, memory| {
            read.fetch_add(span.read(memory)?, Ordering::Relaxed);
            Ok(())
        })?;
        Ok(read.into_inner())
    }

    /// Cuts what is wanted into spans, which follow each other in its memory.
    fn add_spans<'a, 'b>(
        &'a self,
        spans: &mut Vec<Span<'a, 'b>>,
        pieces: &[Piece<'a>],
        wanted: Wanted<'b>,
    ) -> Result<()> {
        let Wanted { name, tensor, region, into } = wanted;
        let misuse = |what: &str| Error::Misuse { what: format!("{name}: {what}") };
        if tensor.dtype != Dtype::F32 || into.len() as u64 != region.elements() * 4 {
            return Err(misuse("weights are read as float32, into memory of the size of a part"));
        }
        let (width, mut rest) = (tensor.width(), into);
        for piece in pieces {
            let both = Region { rows: piece.rows, columns: [0, width] }.meet(&region);
            let Some(both) = both else { continue };
            let (path, file) = &self.files[piece.file];
            let rows_at_once = (SPAN / (both.width() * piece.format.bytes())).max(1);
            for first in (both.rows[0]..both.rows[1]).step_by(rows_at_once as usize) {
                let last = (first + rows_at_once).min(both.rows[1]);
                let rows = [first, last].map(|row| row - piece.rows[0]);
                let own = Region { rows, columns: both.columns };
                let into = rest.split_off_mut(..(own.elements() * 4) as usize);
                let into = into.ok_or_else(|| misuse("its memory is too small"))?;
                let (offset, format) = (piece.stored.offset, piece.format);
                let place = Place { path, file, offset, format, width, region: own };
                spans.push(Span { place, into });
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(misuse("it has no such part")) }
    }
}

/// Something that one thread reads by itself.
struct Span<'a, 'b> {
    place: Place<'a>,
    into: &'b mut [u8],
}

/// A part of a tensor of the folder.
struct Place<'a> {
    path: &'a Path,
    file: &'a File,
    /// Where the tensor begins in the file.
    offset: u64,
    format: Dtype,
    /// Columns of the tensor.
    width: u64,
    /// Which part of the tensor.
    region: Region,
}

impl Span<'_, '_> {
    fn read(self, memory: &mut Vec<u8>) -> Result<u64> {
        let Self { place, into } = self;
        let bytes = place.region.elements() * place.format.bytes();
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Error::corrupt(place.path, "it has become shorter"),
            _ => Error::file(place.path, "read", error),
        };
        if place.format == Dtype::F32 {
            place.fetch(into).map_err(failed)?;
        } else {
            memory.resize(bytes as usize, 0);
            place.fetch(memory).map_err(failed)?;
            number::widen(place.format, memory, into);
        }
        Ok(bytes)
    }
}

impl Place<'_> {
    /// Reads the bytes of the region, row by row unless the rows are whole.
    fn fetch(&self, into: &mut [u8]) -> io::Result<()> {
        let Region { rows, columns } = self.region;
        let element = self.format.bytes();
        if columns == [0, self.width] {
            return self.file.read_exact_at(into, self.offset + rows[0] * self.width * element);
        }
        let row_bytes = (self.region.width() * element) as usize;
        for (row, into) in (rows[0]..rows[1]).zip(into.chunks_exact_mut(row_bytes)) {
            let first = row * self.width + columns[0];
            self.file.read_exact_at(into, self.offset + first * element)?;
        }
        Ok(())
    }
}
