//! Istio's definitions of its kinds (CRDs), as its Go module has them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use myriad_lab::tool::{self, Tool};

/// Kept like a program, by the version that `tools/istio/go.mod` requires.
const DEFINITIONS: Tool = Tool {
    name: "istio-definitions",
    version: "1.31.1",
};

const MODULE: &str = "istio.io/api";
/// The folder where the module is pinned, below the workspace.
const FOLDER: &str = "tools/istio";
/// The file of the definitions, in the module.
const FILE: &str = "kubernetes/customresourcedefinitions.gen.yaml";

/// The file with the definitions, which is fetched where it is not there yet.
pub(crate) fn definitions(root: &Path, cache: &Path) -> Result<PathBuf> {
    DEFINITIONS.provide(cache, |to| {
        let file = to.join("bin").join(DEFINITIONS.name);
        fs::create_dir_all(to.join("bin"))?;
        let from = tool::download_go(&root.join(FOLDER), MODULE)?.join(FILE);
        let text = fs::read(&from).with_context(|| from.display().to_string())?;
        Ok(fs::write(file, text)?)
    })
}

#[cfg(test)]
mod tests {
    use super::{DEFINITIONS, MODULE};

    #[test]
    fn the_version_is_the_one_that_is_required() {
        let required = include_str!("../../tools/istio/go.mod");
        let line = format!("require {MODULE} v{}\n", DEFINITIONS.version);
        assert!(required.ends_with(&line), "{required}");
    }
}
