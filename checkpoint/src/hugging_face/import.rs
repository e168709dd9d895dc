//! From a folder to a checkpoint.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use serde_json::Value;

use super::Folder;
use crate::{
    Dtype, Error, Part, Place, Result, ShardPlan, Staged, TensorFacts, Wanted, cut, shard_name,
    write_whole,
};

/// Bytes of one file of the checkpoint, about: they are in memory twice.
const SHARD: u64 = 256 << 20;

/// Tells what is being written from what runs write.
const WRITER: &str = "import";

/// The same in the names of files in an object store.
const MARK: &str = "import-1";

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The checkpoint.
    pub place: Place,
    /// Its files, without the manifest.
    pub files: u64,
    /// Their size.
    pub bytes: u64,
}

/// Makes the checkpoint of step 0 in `into`: the weights of `folder`, as the tensors of a model, all of float32. `run` is
/// what it says about itself; `progress` is told the bytes that are written, and those that will be.
///
/// # Errors
/// Then there is no such checkpoint.
pub fn import(
    folder: &Folder,
    tensors: &BTreeMap<String, TensorFacts>,
    into: &Place,
    run: Value,
    threads: usize,
    stop: &AtomicBool,
    progress: &dyn Fn(u64, u64),
) -> Result<Imported> {
    import_in_shards(folder, tensors, (into, SHARD), run, (threads, stop), progress)
}

pub(super) fn import_in_shards(
    folder: &Folder,
    tensors: &BTreeMap<String, TensorFacts>,
    (into, shard_bytes): (&Place, u64),
    run: Value,
    (threads, stop): (usize, &AtomicBool),
    progress: &dyn Fn(u64, u64),
) -> Result<Imported> {
    let is_weight = |(_, facts): &(&String, &TensorFacts)| facts.dtype == Dtype::F32;
    if let Some((name, _)) = tensors.iter().find(|tensor| !is_weight(tensor)) {
        return Err(Error::Misuse { what: format!("{name} is no weight of F32") });
    }
    let files = cut(tensors.iter().map(|(name, facts)| (name.as_str(), facts)), shard_bytes);
    let plans: Vec<ShardPlan> = files.into_iter().map(ShardPlan::new).collect::<Result<_>>()?;
    let total = plans.iter().map(ShardPlan::bytes).sum();
    let staged = Staged::begin(into, 0, WRITER)?;
    let write = || -> Result<Imported> {
        let (mut files, mut written) = (Vec::new(), 0);
        for (number, plan) in (0..).zip(plans) {
            let contents = read(folder, &plan, threads, stop)?;
            let contents: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
            let name = shard_name(staged.place(), number, MARK);
            written += plan.bytes();
            let target = (staged.place().clone(), name);
            files.push(write_whole(target, plan, &contents, threads, stop)?);
            progress(written, total);
        }
        let count = files.len() as u64;
        Ok(Imported { place: staged.commit(run, files)?, files: count, bytes: written })
    };
    let made = write();
    if made.is_err() {
        // The error says more than what this may say.
        let _ = staged.abandon();
    }
    made
}

/// Reads the parts of a file.
fn read(
    folder: &Folder,
    plan: &ShardPlan,
    threads: usize,
    stop: &AtomicBool,
) -> Result<Vec<Vec<u8>>> {
    let mut contents: Vec<Vec<u8>> =
        plan.parts().map(|part| vec![0; part.bytes() as usize]).collect();
    let wanted = plan.parts().zip(&mut contents).map(|(part, into)| {
        let Part { name, tensor, region } = part.clone();
        Wanted { name, tensor, region, into }
    });
    folder.read(wanted.collect(), threads, stop)?;
    Ok(contents)
}
