//! Where shards may be written.

use std::path::Path;

use titan_datasets::shards::ShardIndex;
use titan_datasets::source::{reads_shards_in, remote};

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
        if reads_shards_in(source, &args.output) {
            let text = if path.is_dir() {
                format!("--output {output}: this is in {source}, whose files are read")
            } else {
                format!("--output {output}: the pattern {source} could match files in it")
            };
            return refuse(text, "name a folder that the sources do not reach");
        }
    }
    Ok(())
}
