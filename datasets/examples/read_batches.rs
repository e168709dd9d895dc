//! Reads packed batches as fast as they come, for benchmarks.
//!
//!     cargo run --release -p titan-datasets --example read_batches -- SHARDS SEQUENCE_LENGTH BATCH STEPS [FIRST_STEP]
//!     cargo run --release -p titan-datasets --example read_batches -- --sparse FOLDER TOKENS
//!
//! The first prints one JSON object: tokens read and their number per second, seconds until the first batch was there,
//! and the most memory that the process held. The second makes shards of 4-byte tokens that are all zero and take no
//! room on the disk, of any size.

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use titan_datasets::shards::{BLOCK, DataKind, Shard, ShardIndex, Split, TokenizerFacts};
use titan_datasets::{
    BatchPlan, Fingerprint, Loader, LoaderConfig, Prefetcher, SourceConfig, SplitPath,
};
use xxhash_rust::xxh3::xxh3_64;

/// Tokens of a shard.
const SHARD: u64 = 1 << 28;

#[allow(clippy::print_stdout, reason = "an example has nothing else to say it with")]
fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let text: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match text.as_slice() {
        ["--sparse", folder, tokens] => sparse(Path::new(folder), tokens.parse()?),
        [shards, length, batch, steps, first @ ..] => {
            let first = first.first().map_or(Ok(0), |first| first.parse())?;
            println!(
                "{}",
                read(shards.into(), length.parse()?, batch.parse()?, steps.parse()?, first)?
            );
            Ok(())
        }
        _ => {
            Err("say SHARDS SEQUENCE_LENGTH BATCH STEPS [FIRST_STEP], or --sparse FOLDER TOKENS"
                .into())
        }
    }
}

fn read(
    folder: PathBuf,
    sequence_length: u64,
    batch: u64,
    steps: u64,
    first_step: u64,
) -> Result<String, Box<dyn Error>> {
    let start = Instant::now();
    let split = SplitPath { folder, split: "train".to_owned() };
    let plan = BatchPlan {
        global_batch: batch,
        accumulation: 1,
        data_parallel_degree: 1,
        local_batch: batch,
        first_step,
        first_sample: first_step * batch,
    };
    let loader = Loader::open(&LoaderConfig {
        sources: vec![SourceConfig { name: "shards".to_owned(), splits: vec![split], weight: 1.0 }],
        sequence_length,
        seed: 1,
        plan,
    })?;
    let samples = loader.samples().samples_of(0);
    let mut first_batch = None;
    let mut sum = 0i64;
    for batch in Prefetcher::start(loader, 0, first_step..first_step + steps, 2)? {
        first_batch.get_or_insert_with(|| start.elapsed().as_secs_f64());
        sum += batch?.tokens.iter().map(|token| i64::from(*token)).sum::<i64>();
    }
    let seconds = start.elapsed().as_secs_f64();
    let tokens = steps * batch * sequence_length;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let memory = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    let memory: u64 = memory.trim().trim_end_matches(" kB").parse()?;
    Ok(serde_json::json!({
        "samples": samples,
        "tokens": tokens,
        "seconds": seconds,
        "tokens_per_second": tokens as f64 / seconds,
        "first_batch_seconds": first_batch,
        "memory_mib": memory as f64 / 1024.0,
        "sum": sum,
    })
    .to_string())
}

fn sparse(folder: &Path, tokens: u64) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(folder)?;
    let facts = TokenizerFacts { name: "zeros".to_owned(), fingerprint: None, largest_id: 1 << 17 };
    let mut index = ShardIndex::new(facts, DataKind::Text);
    let mut shards = Vec::new();
    for first in (0..tokens).step_by(SHARD as usize) {
        let count = SHARD.min(tokens - first);
        let name = format!("train-{:05}", shards.len());
        let bytes = count * u64::from(index.token_bytes);
        File::create(folder.join(format!("{name}.tokens")))?.set_len(bytes)?;
        // One document, then the hash of each block.
        let mut numbers = vec![0u64];
        let zeros = vec![0; BLOCK as usize];
        numbers.extend(std::iter::repeat_n(xxh3_64(&zeros), (bytes / BLOCK) as usize));
        if !bytes.is_multiple_of(BLOCK) {
            numbers.push(xxh3_64(&zeros[..(bytes % BLOCK) as usize]));
        }
        let content: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
        File::create(folder.join(format!("{name}.index")))?.write_all(&content)?;
        let fingerprint = Fingerprint::of(&content).to_string();
        shards.push(Shard { name, tokens: count, documents: 1, extra_bytes: 0, fingerprint });
    }
    let documents = shards.len() as u64;
    let fingerprints: Vec<&str> = shards.iter().map(|shard| shard.fingerprint.as_str()).collect();
    let fingerprint = Fingerprint::of(fingerprints.join("\n").as_bytes()).to_string();
    let split =
        Split { tokens, targets: tokens, documents, largest_id: Some(0), fingerprint, shards };
    index.splits.insert("train".to_owned(), split);
    std::fs::write(folder.join("index.json"), index.to_text())?;
    Ok(())
}
