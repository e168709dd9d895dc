//! Files for the tests.

use std::fs;
use std::path::PathBuf;

use crate::SourceFile;

/// A temporary folder of numbered files, removed when dropped.
pub(crate) struct Folder {
    folder: tempfile::TempDir,
    sizes: Vec<u64>,
}

impl Folder {
    pub(crate) fn new(contents: &[&[u8]]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (number, content) in contents.iter().enumerate() {
            fs::write(folder.path().join(format!("{number}.txt")), content).unwrap();
        }
        Self { folder, sizes: contents.iter().map(|content| content.len() as u64).collect() }
    }

    pub(crate) fn path(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("{number}.txt"))
    }

    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        (0..self.sizes.len()).map(|number| self.path(number)).collect()
    }

    pub(crate) fn sources(&self) -> Vec<SourceFile> {
        let sizes = self.sizes.iter().copied();
        self.paths()
            .into_iter()
            .zip(sizes)
            .map(|(path, bytes)| SourceFile { path, bytes })
            .collect()
    }
}
