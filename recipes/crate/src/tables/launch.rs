//! `[launch]`: how the run is started on a cluster.

use serde::Serialize;

use crate::reader::Context;
use crate::source::{Item, Loc};
use crate::tree::Table;
use crate::words::choice;

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
        let mut text = |key| {
            let item = t.text(key);
            t.optional(item)
        };
        let (image, namespace, queue) = (text("image"), text("namespace"), text("queue"));
        t.finish();
        exists.then_some(Self { on, image, namespace, queue, at })
    }
}
