//! Checkpoints in object stores, where nothing can be renamed: what makes one of its files is its manifest, which is
//! written last, and only where there is none.

use bytes::Bytes;
use titan_objects::Created;

use crate::place::Prefix;
use crate::{Error, MANIFEST, Manifest, Place, Result, StepName};

fn prefix(place: &Place) -> Result<&Prefix> {
    match place {
        Place::Objects(prefix) => Ok(prefix),
        Place::Folder(_) => Err(Error::Misuse { what: format!("{place} is a folder") }),
    }
}

/// Makes a checkpoint of the files in `place`.
pub(crate) fn publish(manifest: &str, place: &Place) -> Result<()> {
    let prefix = prefix(place)?;
    let text = Bytes::copy_from_slice(manifest.as_bytes());
    match prefix.store()?.create(&prefix.key(MANIFEST), &text)? {
        Created::Here => Ok(()),
        Created::Exists => Err(Error::Exists { path: place.path() }),
    }
}

/// Gives the manifest another name.
pub(crate) fn set_aside(place: &Place, mark: &str) -> Result<Place> {
    let prefix = prefix(place)?;
    let store = prefix.store()?;
    let text = Bytes::from(place.read(MANIFEST)?);
    let name = format!("manifest.{mark}.json");
    if store.create(&prefix.key(&name), &text)? == Created::Exists {
        return Err(Error::Exists { path: place.join(&name).path() });
    }
    store.delete(&prefix.key(MANIFEST))?;
    Ok(place.join(&name))
}

/// Removes the manifest, then the files that it names.
pub(crate) fn remove_checkpoint(place: &Place) -> Result<()> {
    let prefix = prefix(place)?;
    let store = prefix.store()?;
    let path = place.join(MANIFEST).path();
    let manifest = Manifest::parse(&path, &place.read(MANIFEST)?)?;
    store.delete(&prefix.key(MANIFEST))?;
    for file in &manifest.files {
        store.delete(&prefix.key(&file.name))?;
    }
    Ok(())
}

/// Removes the files of `writer` where there is no manifest, and none that was set aside.
pub(crate) fn remove_abandoned(root: &Place, writer: &str) -> Result<u64> {
    let mut removed = 0;
    for step in root.names()? {
        if StepName::parse(step.as_ref()).is_none() {
            continue;
        }
        let removed_here = remove_files(&root.join(&step), writer)?;
        removed += u64::from(removed_here > 0);
    }
    Ok(removed)
}

/// The same for one step: the files that were removed.
pub(crate) fn remove_files(place: &Place, writer: &str) -> Result<u64> {
    let (prefix, own) = (prefix(place)?, format!(".{writer}-"));
    let names = place.names()?;
    if names.iter().any(|name| name.starts_with("manifest.")) {
        return Ok(0);
    }
    let is_own = |name: &&String| name.starts_with("rank-") && name.contains(&own);
    let files: Vec<&String> = names.iter().filter(is_own).collect();
    for name in &files {
        prefix.store()?.delete(&prefix.key(name))?;
    }
    Ok(files.len() as u64)
}

/// Writes an object, reads it, and removes it.
pub(crate) fn probe(place: &Place) -> Result<()> {
    let prefix = prefix(place)?;
    let store = prefix.store()?;
    let key = prefix.key(&format!(".probe-{}", std::process::id()));
    let content = Bytes::from_static(b"probe");
    store.put(&key, content.clone())?;
    let read = store.get(&key)?;
    store.delete(&key)?;
    if read != content {
        return Err(Error::corrupt(&place.path(), "what is read there is not what was written"));
    }
    Ok(())
}
