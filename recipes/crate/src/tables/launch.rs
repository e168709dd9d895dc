//! `[launch]`: how the run is started on a cluster.

use serde::Serialize;

use crate::diagnostic::Diagnostic;
use crate::reader::{Context, Section};
use crate::shown::Shown;
use crate::source::{Item, Loc};
use crate::tree::Table;
use crate::words::choice;
use crate::workload::is_label;

choice! {
    /// What starts the processes of a run.
    #[allow(missing_docs, reason = "the words say it")]
    Backend {
        /// This machine.
        Local = "local",
        /// A JobSet on Google Kubernetes Engine.
        Gke = "gke",
        /// A job on a Ray cluster.
        Ray = "ray",
        /// A Slurm job.
        Slurm = "slurm",
        /// Hosts that are reached by ssh.
        Ssh = "ssh",
    }
}

/// How the run is started on a cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Launch {
    /// What starts the processes.
    pub on: Item<Backend>,
    /// The container image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<Item<String>>,
    /// The namespace of a Kubernetes cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Item<String>>,
    /// The queue that the job waits in: a Kueue queue, or a Slurm partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<Item<String>>,
    /// Where the table was written.
    #[serde(skip)]
    pub at: Option<Loc>,
}

impl Launch {
    pub(crate) fn read(cx: &mut Context<'_>, root: &Table) -> Option<Self> {
        let mut t = cx.optional_section(root, "launch");
        let (exists, at) = (t.exists(), t.at());
        let on = t.choice::<Backend>("on");
        let on = t.or(on, Backend::Local);
        let image = read_word(&mut t, "image", is_plain);
        let namespace = read_word(&mut t, "namespace", is_label);
        let queue = read_word(&mut t, "queue", is_plain);
        t.finish();
        exists.then_some(Self { on, image, namespace, queue, at })
    }
}

/// No address: an image has none, and its password would be shown.
fn is_plain(word: &str) -> bool {
    !word.contains(char::is_whitespace) && !word.contains("://")
}

/// A name that the cluster will take.
fn read_word(
    t: &mut Section<'_, '_>,
    key: &'static str,
    is_legal: impl Fn(&str) -> bool,
) -> Option<Item<String>> {
    let text = t.text(key);
    let word = text.and_then(|text| {
        if !text.is_empty() && is_legal(&text) {
            return Some(text);
        }
        let what =
            format!("`launch.{key}` = \"{}\" is no name that a cluster takes", Shown(&*text));
        let rule = match key {
            "namespace" => "lower-case letters, digits and `-`, the first a letter",
            _ => "must not be empty, have spaces, or be an address",
        };
        t.reject(key, Diagnostic::error(what).at(text.at.clone()).label(rule));
        None
    });
    t.optional(word)
}
