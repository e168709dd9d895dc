//! What a recipe may ask for and the engine of this version cannot do yet: checked before a run, and only then, so
//! that such recipes can be checked and reckoned with today.

use crate::accelerators::Accelerator;
use crate::diagnostic::Diagnostic;
use crate::location::Location;
use crate::recipe::Recipe;
use crate::source::Loc;
use crate::tables::launch::Backend;
use crate::tables::model::{Family, Init};

/// Something that cannot be done: the setting, how the recipe asks for it, and what to write instead.
struct Wish {
    key: &'static str,
    asked: String,
    at: Option<Loc>,
    instead: &'static str,
}

/// Every wish of a recipe that this version cannot fulfil.
pub(crate) fn unable(r: &Recipe, is_broken: impl Fn(&str) -> bool) -> Vec<Diagnostic> {
    let wishes = [model(r), machine(r), restarts(r), tables(r)];
    let wishes = wishes.into_iter().flatten().filter(|wish| !is_broken(wish.key));
    wishes.map(Wish::report).collect()
}

impl Wish {
    fn new(
        key: &'static str,
        asked: impl Into<String>,
        at: &Option<Loc>,
        instead: &'static str,
    ) -> Self {
        Self { key, asked: asked.into(), at: at.clone(), instead }
    }

    fn report(self) -> Diagnostic {
        Diagnostic::error(format!("this version cannot train with {}", self.asked))
            .at(self.at)
            .label("not supported yet")
            .help(format!("{}; `recipe check`, `plan` and `mfu` take it as it is", self.instead))
    }
}

fn model(r: &Recipe) -> Vec<Wish> {
    let m = &r.model;
    let mut wishes = Vec::new();
    if *m.family == Family::Flux {
        let asked = format!("`model.family` = \"{}\"", *m.family);
        wishes.push(Wish::new("model.family", asked, &m.family.at, "train a language model"));
    }
    if let Init::Folder(Location::Remote(_)) = *m.init {
        let asked = "weights from an object store (`model.init`)";
        wishes.push(Wish::new("model.init", asked, &m.init.at, "name a local folder"));
    }
    wishes
}

fn machine(r: &Recipe) -> Vec<Wish> {
    let h = &r.hardware;
    let mut wishes = Vec::new();
    if *h.accelerator != Accelerator::Cpu {
        let asked = format!("`hardware.accelerator` = \"{}\"", *h.accelerator);
        let instead = "train on accelerator = \"cpu\"";
        wishes.push(Wish::new("hardware.accelerator", asked, &h.accelerator.at, instead));
    }
    if *h.slices > 1 {
        let asked = format!("`hardware.slices` = {}", *h.slices);
        wishes.push(Wish::new("hardware.slices", asked, &h.slices.at, "leave slices out"));
    }
    wishes
}

fn restarts(r: &Recipe) -> Vec<Wish> {
    let mut wishes = Vec::new();
    if let Some(least) = &r.elastic.min_slices {
        let asked = format!("`elastic.min_slices` = {}", **least);
        wishes.push(Wish::new("elastic.min_slices", asked, &least.at, "leave min_slices out"));
    }
    wishes
}

/// Tables that ask for something by being there.
fn tables(r: &Recipe) -> Vec<Wish> {
    const LEAVE: &str = "leave the table out";
    let rl = r.rl.as_ref().map(|t| ("rl", "reinforcement learning", &t.at));
    let mut wishes: Vec<Wish> = rl
        .map(|(table, what, at)| Wish::new(table, format!("{what} ([{table}])"), at, LEAVE))
        .into_iter()
        .collect();
    if let Some(launch) = r.launch.as_ref().filter(|launch| *launch.on != Backend::Local) {
        let asked = format!("`launch.on` = \"{}\"", *launch.on);
        wishes.push(Wish::new("launch.on", asked, &launch.on.at, "write on = \"local\""));
    }
    wishes
}
