//! cert-manager: a program of our own that is made of its packages, and its definitions.
//!
//! Its own program speaks to all clouds. This one has the controllers that provide certificates of
//! issuers whose keys are in a cluster.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

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
        Ok(fs::write(file, tool::documents(&folder)?)?)
    })?;
    Ok([program, definitions])
}

#[cfg(test)]
mod tests {
    use super::{CERT_MANAGER, MODULE};

    #[test]
    fn the_version_is_the_one_that_is_pinned() {
        let named = format!("require {MODULE} v{}\n", CERT_MANAGER.version);
        assert!(include_str!("../../../tools/cert-manager/go.mod").contains(&named));
    }
}
