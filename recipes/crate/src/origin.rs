//! Where the value of a setting comes from.

use std::fmt;

use crate::shown::ShownPath;
use crate::source::{Loc, Sources};

/// Where the value of a setting comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A recipe or a `--set`.
    Written(Loc),
    /// A preset of `model.size`.
    Preset(String),
    /// Worked out from other settings.
    Derived(&'static str),
    /// The default of titan-tpu.
    Default,
}

impl Origin {
    /// In words, such as `recipes/llama3_8b.toml:12`.
    pub fn describe<'a>(&'a self, sources: &'a Sources) -> impl fmt::Display + 'a {
        Described { origin: self, sources }
    }
}

struct Described<'a> {
    origin: &'a Origin,
    sources: &'a Sources,
}

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.origin {
            Origin::Written(at) => {
                let source = self.sources.get(at.source);
                match source.is_override() {
                    true => f.write_str(&source.name),
                    false => write!(f, "{}:{}", ShownPath(&source.name), source.position(at).0),
                }
            }
            Origin::Preset(preset) => write!(f, "preset {preset}"),
            Origin::Derived(how) => f.write_str(how),
            Origin::Default => f.write_str("default"),
        }
    }
}
