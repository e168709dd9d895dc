//! Where shards may be written.

use std::path::{Path, PathBuf};

use titan_datasets::shards::ShardIndex;
use titan_datasets::source::remote;

use crate::cli::TokenizeArgs;
use crate::exit::Exit;
use crate::failure::Failure;

/// Refuses an output that is no local folder or that would be read as data the next time, and shards as a source.
pub(super) fn check(args: &TokenizeArgs) -> Result<(), Failure> {
    let output = args.output.display();
    let refuse = |text: String, help: &str| Err(Failure::new(Exit::Usage, text).help(help));
    if args.output.to_str().is_some_and(|path| path.contains("://")) {
        let text = format!("--output {output}: shards are written to a local folder");
        return refuse(text, "name a folder here and copy it there when it is finished");
    }
    for source in args.sources.iter().filter(|source| !remote::is_address(source)) {
        let path = Path::new(source);
        if ShardIndex::is_for(path) {
            let text = format!("{source}: these are token shards already");
            return refuse(text, "name them in data.sources of a recipe");
        }
        if path.is_dir() && is_within(&args.output, path) {
            let text = format!("--output {output}: this is in {source}, whose files are read");
            return refuse(text, "name a folder outside of it");
        }
    }
    Ok(())
}

/// Whether a path, of which only the beginning has to exist, is a folder or is in it.
fn is_within(path: &Path, folder: &Path) -> bool {
    let (Ok(path), Ok(folder)) = (std::path::absolute(path), folder.canonicalize()) else {
        return false;
    };
    let existing = path.ancestors().find_map(|ancestor| {
        let rest = path.strip_prefix(ancestor).ok()?;
        Some(ancestor.canonicalize().ok()?.join(rest))
    });
    existing.is_some_and(|path: PathBuf| path.starts_with(folder))
}
