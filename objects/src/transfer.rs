//! Objects as wholes: read, written once, written in parts, removed.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use object_store::multipart::PartId;
use object_store::path::Path as ObjectPath;
use object_store::{MultipartId, ObjectStoreExt, PutMode, PutOptions, PutPayload};

use crate::failure::{is_not_found, is_transient};
use crate::{Error, Result, Store};

/// The longest pause before something is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// What became of an object that was only to be written if there was none of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// It is there, with these bytes.
    Here,
    /// There is another of this name.
    Exists,
}

impl Store {
    /// All of an object.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is none, or the store does not give it.
    pub fn get(&self, key: &str) -> Result<Bytes> {
        let path = self.path(key)?;
        self.outlast(key, || async { self.client().get(&path).await?.bytes().await })
    }

    /// Some bytes of an object, as many as `into` has.
    ///
    /// # Errors
    /// It has not so many; [`Error::NotFound`] if there is none, or the store does not give it.
    pub fn get_range(&self, key: &str, range: Range<u64>, into: &mut [u8]) -> Result<()> {
        if into.is_empty() {
            return Ok(());
        }
        let path = self.path(key)?;
        let found = self.outlast(key, || self.client().get_range(&path, range.clone()))?;
        if found.len() != into.len() {
            return Err(Error::Store {
                name: self.bucket().address(key),
                problem: format!(
                    "{} bytes came of the {} from {} on",
                    found.len(),
                    into.len(),
                    range.start
                ),
                hint: "the object is shorter than it was, or the store is not one".to_owned(),
            });
        }
        into.copy_from_slice(&found);
        Ok(())
    }

    /// Writes an object, whatever was there.
    ///
    /// # Errors
    /// The store does not take it.
    pub fn put(&self, key: &str, bytes: Bytes) -> Result<()> {
        let path = self.path(key)?;
        self.outlast(key, || self.client().put(&path, bytes.clone().into())).map(drop)
    }

    /// Writes an object if there is none of its name. An answer that is lost changes nothing: whoever asks again learns
    /// that the object is there, and what it is.
    ///
    /// # Errors
    /// The store does not take it.
    pub fn create(&self, key: &str, bytes: &Bytes) -> Result<Created> {
        let path = self.path(key)?;
        let options = || PutOptions::from(PutMode::Create);
        let asked = self.outlast(key, || async {
            match self.client().put_opts(&path, bytes.clone().into(), options()).await {
                Err(object_store::Error::AlreadyExists { .. }) => Ok(Created::Exists),
                result => result.map(|_| Created::Here),
            }
        })?;
        Ok(match asked {
            Created::Exists if self.get(key)? == *bytes => Created::Here,
            asked => asked,
        })
    }

    /// Removes an object, if it is there.
    ///
    /// # Errors
    /// The store does not do it.
    pub fn delete(&self, key: &str) -> Result<()> {
        let path = self.path(key)?;
        let removed = self.outlast(key, || self.client().delete(&path));
        if let Err(Error::NotFound { .. }) = removed { Ok(()) } else { removed }
    }

    /// Asks until the store answers or has been silent for long: what was begun is not lost to an outage of minutes.
    fn outlast<T, F>(&self, key: &str, ask: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        self.outlast_until(key, &AtomicBool::new(false), ask)
    }

    fn outlast_until<T, F>(&self, key: &str, stop: &AtomicBool, ask: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let began = Instant::now();
        let mut pause = self.patience().pause;
        loop {
            let error = match self.wait(key, ask())? {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if is_not_found(&error) {
                return Err(Error::NotFound { name: self.bucket().address(key) });
            }
            let is_over = began.elapsed() + pause > self.patience().outlast;
            if is_over || stop.load(Ordering::Relaxed) || !is_transient(&error) {
                return Err(self.failed(key, &error));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// An object that is being written in parts, of which each is asked for again alone. Dropping it leaves the parts to the
/// rule by which the bucket removes what was not finished.
#[derive(Debug)]
pub struct Upload {
    store: Arc<Store>,
    key: String,
    path: ObjectPath,
    id: MultipartId,
    parts: Mutex<Vec<(u64, PartId, u64)>>,
}

impl Upload {
    /// The smallest part that is not the last one.
    pub const SMALLEST_PART: u64 = 5 << 20;

    /// Parts of one object.
    pub const MOST_PARTS: u64 = 10_000;

    /// Begins.
    ///
    /// # Errors
    /// The store does not take it.
    pub fn begin(store: &Arc<Store>, key: &str) -> Result<Self> {
        let path = store.path(key)?;
        let id = store.outlast(key, || store.multipart().create_multipart(&path))?;
        let (store, key) = (Arc::clone(store), key.to_owned());
        Ok(Self { store, key, path, id, parts: Mutex::default() })
    }

    /// Writes part `number`, from 0; they may come in any order, and from several threads. Gives up once `stop` is set.
    ///
    /// # Errors
    /// The store does not take it.
    pub fn part(&self, number: u64, bytes: &Bytes, stop: &AtomicBool) -> Result<()> {
        let place = number as usize;
        let part = self.store.outlast_until(&self.key, stop, || {
            let payload = PutPayload::from(bytes.clone());
            self.store.multipart().put_part(&self.path, &self.id, place, payload)
        })?;
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.push((number, part, bytes.len() as u64));
        Ok(())
    }

    /// Makes an object of the parts. It is there as a whole or not at all.
    ///
    /// # Errors
    /// The store does not do it.
    pub fn complete(self) -> Result<()> {
        let mut parts = self.parts.into_inner().unwrap_or_else(PoisonError::into_inner);
        parts.sort_by_key(|(number, ..)| *number);
        let bytes: u64 = parts.iter().map(|(.., bytes)| bytes).sum();
        let ids: Vec<PartId> = parts.into_iter().map(|(_, id, _)| id).collect();
        let (store, key) = (&self.store, self.key.as_str());
        let completed = store.outlast(key, || {
            store.multipart().complete_multipart(&self.path, &self.id, ids.clone())
        });
        match completed {
            Ok(_) => Ok(()),
            // Where the first answer was lost there is no such upload any more, but the object.
            Err(error) => match store.head(key) {
                Ok(Some(found)) if found.size == bytes => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Gives up; the store forgets the parts.
    pub fn abort(self) {
        // A store that does not answer keeps them for its own rule.
        let abort = self.store.multipart().abort_multipart(&self.path, &self.id);
        drop(self.store.wait(&self.key, abort));
    }
}
