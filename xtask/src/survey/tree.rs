//! The text files of the work tree, by path.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Folders that hold nothing written by hand.
const SKIPPED: [&str; 3] = [".git", ".cache", "target"];

/// The extensions that are read as text; everything else (certificates, archives, images) is data.
const EXTENSIONS: [&str; 8] = ["go", "md", "proto", "rs", "sh", "toml", "txt", "yaml"];

/// Scripts without an extension.
const SCRIPTS: [&str; 1] = [".ci/run"];

/// Folders whose files are expectations or samples, which have the form that they must have.
const DATA: [&str; 4] = ["corpus", "golden", "goldens", "testdata"];

/// Text files by path, relative to the workspace, with `/`.
#[derive(Default)]
pub(crate) struct Tree(BTreeMap<String, String>);

impl Tree {
    /// Reads all text files below `root`.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        tree.add_folder(root, "")?;
        Ok(tree)
    }

    /// The text of one file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// Path and text of each file, in order of the paths.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(path, text)| (&**path, &**text))
    }

    fn add_folder(&mut self, root: &Path, folder: &str) -> Result<()> {
        let full = root.join(folder);
        let entries = fs::read_dir(&full).with_context(|| full.display().to_string())?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let path = if folder.is_empty() {
                name.to_owned()
            } else {
                format!("{folder}/{name}")
            };
            let kind = entry.file_type()?;
            if kind.is_dir() && !SKIPPED.contains(&name) {
                self.add_folder(root, &path)?;
            } else if kind.is_file() && is_text(&path) {
                self.add_file(&entry.path(), path)?;
            }
        }
        Ok(())
    }

    fn add_file(&mut self, full: &Path, path: String) -> Result<()> {
        let text = fs::read_to_string(full).with_context(|| full.display().to_string())?;
        self.0.insert(path, text);
        Ok(())
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Tree {
    fn from(files: [(&str, &str); N]) -> Self {
        let files = files.iter();
        Self(
            files
                .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
                .collect(),
        )
    }
}

/// Whether a path lies in a folder of expectations or samples.
pub(crate) fn is_data(path: &str) -> bool {
    path.split('/').any(|part| DATA.contains(&part))
}

fn is_text(path: &str) -> bool {
    let extension = Path::new(path).extension().and_then(|e| e.to_str());
    let known = extension.is_some_and(|e| EXTENSIONS.contains(&e));
    (known || SCRIPTS.contains(&path)) && !is_data(path)
}
