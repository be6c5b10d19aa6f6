//! cert-manager: a program of our own that is made of its packages, and its definitions.
//!
//! Its own program speaks to all clouds. This one has the controllers that provide certificates of
//! issuers whose keys are in a cluster.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::tool::{self, Tool};

/// The program. Its version is pinned in `tools/cert-manager`.
pub const CERT_MANAGER: Tool = Tool {
    name: "cert-manager",
    version: "1.21.2",
};

/// The definitions of its kinds, kept like a program.
pub const CERT_MANAGER_DEFINITIONS: Tool = Tool {
    name: "cert-manager-definitions",
    version: CERT_MANAGER.version,
};

const MODULE: &str = "github.com/cert-manager/cert-manager";
/// The folder where the module is pinned, below the workspace.
const FOLDER: &str = "tools/cert-manager";
/// The folder of the definitions, in the module.
const DEFINITIONS: &str = "deploy/crds";

/// Builds the program and fetches the definitions where they are not there yet.
///
/// # Errors
/// They cannot be had.
pub fn provide(root: &Path, cache: &Path) -> Result<[PathBuf; 2]> {
    let program = CERT_MANAGER.provide(cache, |to| {
        let program = to.join("bin").join(CERT_MANAGER.name);
        let flags = ["-ldflags", "-s -w"];
        tool::build_go(&root.join(FOLDER), ".", &flags, &program)
    })?;
    let definitions = CERT_MANAGER_DEFINITIONS.provide(cache, |to| {
        let folder = tool::download_go(&root.join(FOLDER), MODULE)?.join(DEFINITIONS);
        fs::create_dir_all(to.join("bin"))?;
        let file = to.join("bin").join(CERT_MANAGER_DEFINITIONS.name);
        Ok(fs::write(file, all(&folder)?)?)
    })?;
    Ok([program, definitions])
}

/// The documents of all files of a folder, as one text.
fn all(folder: &Path) -> Result<String> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|it| it == "yaml"));
    paths.sort();
    let mut text = String::new();
    for path in paths {
        let file = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        text.push_str("---\n");
        text.push_str(&file);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{CERT_MANAGER, MODULE, all};

    #[test]
    fn the_version_is_the_one_that_is_pinned() {
        let named = format!("require {MODULE} v{}\n", CERT_MANAGER.version);
        assert!(include_str!("../../../tools/cert-manager/go.mod").contains(&named));
    }

    #[test]
    fn definitions_are_the_files_of_their_folder_in_order() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in [("b.yaml", "b: 1\n"), ("a.yaml", "a: 1\n"), ("c.txt", "c")] {
            fs::write(folder.path().join(name), text).expect("a file");
        }
        let text = all(folder.path()).expect("definitions");
        assert_eq!(text, "---\na: 1\n---\nb: 1\n");
    }
}
