//! `[checkpoint]`: what is saved, how often and where.

use std::path::Path;

use serde::{Serialize, Serializer};

use crate::diagnostic::Diagnostic;
use crate::location::Location;
use crate::reader::{Context, Section};
use crate::source::{Item, Loc};
use crate::tables::location;
use crate::tables::training::MOST_STEPS;
use crate::tree::Table;
use crate::words::choice;

choice! {
    /// A word for an interval.
    IntervalWord {
        /// Chosen from the time that a save takes and the time between failures.
        Auto = "auto",
    }
}

/// How often a checkpoint is saved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Interval {
    /// Chosen from the time that a save takes and the time between failures.
    Auto,
    /// Every so many steps.
    Steps(u64),
    /// At the end of the first step after so many seconds.
    Seconds(u64),
}

/// What is saved, how often and where.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// The folder of the persistent tier. A relative path starts from the run directory.
    pub directory: Item<Location>,
    /// How often.
    pub interval: Item<Interval>,
    /// Checkpoints of the persistent tier that are kept.
    pub keep_last: Item<u64>,
    /// Checkpoints of the persistent tier whose step it divides are kept for good.
    pub keep_every_steps: Option<Item<u64>>,
    /// The folder of the fast tier, on each host.
    pub local_directory: Option<Item<Location>>,
    /// Steps between two saves to the fast tier.
    pub local_interval_steps: Option<Item<u64>>,
    /// How long a save may take.
    pub timeout_seconds: Item<u64>,
    /// Where the table was written.
    pub at: Option<Loc>,
}

impl Serialize for Checkpoint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Written<'a> {
            directory: &'a Item<Location>,
            #[serde(skip_serializing_if = "Option::is_none")]
            interval: Option<&'static str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            interval_steps: Option<u64>,
            #[serde(skip_serializing_if = "Option::is_none")]
            interval_seconds: Option<u64>,
            keep_last: u64,
            #[serde(skip_serializing_if = "Option::is_none")]
            keep_every_steps: &'a Option<Item<u64>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            local_directory: &'a Option<Item<Location>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            local_interval_steps: &'a Option<Item<u64>>,
            timeout_seconds: u64,
        }
        let (interval, interval_steps, interval_seconds) = match *self.interval {
            Interval::Auto => (Some("auto"), None, None),
            Interval::Steps(steps) => (None, Some(steps), None),
            Interval::Seconds(seconds) => (None, None, Some(seconds)),
        };
        Written {
            directory: &self.directory,
            interval,
            interval_steps,
            interval_seconds,
            keep_last: *self.keep_last,
            keep_every_steps: &self.keep_every_steps,
            local_directory: &self.local_directory,
            local_interval_steps: &self.local_interval_steps,
            timeout_seconds: *self.timeout_seconds,
        }
        .serialize(serializer)
    }
}

/// Keys that say the same thing in different units: of two layers of a recipe, the upper one counts.
pub(crate) const INTERVALS: [&str; 3] = ["interval", "interval_steps", "interval_seconds"];

impl Checkpoint {
    /// Steps between two saves to the fast tier, if there is one.
    pub fn local_steps(&self) -> u64 {
        const DEFAULT: u64 = 10;
        self.local_interval_steps.as_ref().map_or(DEFAULT, |steps| **steps)
    }

    pub(crate) fn read(cx: &mut Context<'_>, root: &Table) -> Option<Self> {
        let mut t = cx.optional_section(root, "checkpoint");
        let (exists, at) = (t.exists(), t.at());
        let directory = read_folder(&mut t, "directory", "directory = \"checkpoints\"");
        let directory = t.or(directory, Location::Local("checkpoints".into()));
        let interval = read_interval(&mut t);
        let keep_last = t.integer("keep_last", 1, 1_000_000);
        let keep_last = t.or(keep_last, 3);
        let keep_every = t.integer("keep_every_steps", 1, MOST_STEPS);
        let keep_every_steps = t.optional(keep_every);
        let local = read_folder(&mut t, "local_directory", "local_directory = \"/dev/shm/titan\"");
        let local = local.filter(|local| {
            let what = match &local.value {
                Location::Remote(_) => "is an address; the fast tier is on each host",
                folder if *folder == *directory => "is the folder of the persistent tier",
                Location::Local(_) => return true,
            };
            let problem = Diagnostic::error(format!("`checkpoint.local_directory` {what}"))
                .at(local.at.clone())
                .label("must be a folder of its own on each host")
                .help("for example: local_directory = \"/dev/shm/titan\"");
            t.reject("local_directory", problem);
            false
        });
        let local_directory = t.optional(local);
        let local_interval = t.integer("local_interval_steps", 1, MOST_STEPS);
        let local_interval_steps = t.optional(local_interval);
        let timeout_seconds = t.integer("timeout_seconds", 1, 1 << 31);
        let timeout_seconds = t.or(timeout_seconds, 1800);
        t.finish();
        exists.then_some(Self {
            directory,
            interval,
            keep_last,
            keep_every_steps,
            local_directory,
            local_interval_steps,
            timeout_seconds,
            at,
        })
    }
}

/// A folder that will be made. Whether that can be done is known where the run is on this machine.
fn read_folder(
    t: &mut Section<'_, '_>,
    key: &'static str,
    example: &str,
) -> Option<Item<Location>> {
    let text = t.text(key)?;
    let read = match location::remote(t.context(), &text, "a checkpoint folder") {
        Ok(Some(url)) => Ok(url),
        Ok(None) if text.is_empty() || text.contains('\0') => {
            Err(Diagnostic::error(format!("`checkpoint.{key}` must name a folder"))
                .label("not a path")
                .help(format!("for example: {example}")))
        }
        Ok(None) => usable_folder(t.context(), key, &text),
        Err(problem) => Err(problem),
    };
    match read {
        Ok(value) => Some(Item { value, at: text.at }),
        Err(problem) => {
            t.reject(key, problem.at(text.at));
            None
        }
    }
}

fn usable_folder(cx: &Context<'_>, key: &str, text: &str) -> Result<Location, Diagnostic> {
    if text.starts_with('~') {
        return Err(Diagnostic::error(format!("`checkpoint.{key}` starts with `~`"))
            .label("`~` has no meaning here")
            .help("write the whole path"));
    }
    location::not_an_address(text, "a checkpoint folder")?;
    let path = Path::new(text);
    if path.is_absolute() && cx.is_here && cx.looks_at_files() {
        cx.files.folder(path).map_err(|unusable| {
            Diagnostic::error(format!("`checkpoint.{key}` cannot be used: {}", unusable.why))
                .label("must be a folder that can be written to, or be made")
        })?;
    }
    Ok(Location::Local(path.to_owned()))
}

fn read_interval(t: &mut Section<'_, '_>) -> Item<Interval> {
    let word = match t.is_integer("interval") {
        Some((number, at)) => {
            let problem =
                Diagnostic::error(format!("`checkpoint.interval` = {number} has no unit"))
                    .at(at)
                    .label("must be \"auto\"")
                    .help(format!(
                        "write interval_steps = {number}, or interval_seconds = {number}"
                    ));
            t.reject("interval", problem);
            None
        }
        None => t.choice::<IntervalWord>("interval"),
    };
    let word = t.optional(word).map(|item| Item { value: Interval::Auto, at: item.at });
    let steps = t.integer("interval_steps", 1, MOST_STEPS);
    let steps = t.optional(steps);
    let steps = steps.map(|item| Item { value: Interval::Steps(item.value), at: item.at });
    let seconds = t.integer("interval_seconds", 1, 1 << 31);
    let seconds = t.optional(seconds);
    let seconds = seconds.map(|item| Item { value: Interval::Seconds(item.value), at: item.at });
    let mut given: Vec<Item<Interval>> = [word, steps, seconds].into_iter().flatten().collect();
    given.sort_by_key(|item| item.at.as_ref().map(Loc::start));
    let mut given = given.into_iter();
    let first = given.next();
    if let (Some(first), Some(second)) = (&first, given.next()) {
        let problem = Diagnostic::error("two intervals for the checkpoints")
            .at(second.at)
            .label("this is the second")
            .context(first.at.clone(), "this is the first")
            .help(format!("keep one of: {}", INTERVALS.join(", ")));
        t.reject("interval", problem);
    }
    first.unwrap_or_else(|| Item::derived(Interval::Auto))
}
