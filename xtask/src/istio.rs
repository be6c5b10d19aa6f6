//! Istio's definitions of its kinds (CRDs), as its Go module has them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use myriad_lab::tool::Tool;

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
        let from = download(root)?.join(FILE);
        let text = fs::read(&from).with_context(|| from.display().to_string())?;
        Ok(fs::write(file, text)?)
    })
}

/// The folder of the module, whose checksum stands in `go.sum`.
fn download(root: &Path) -> Result<PathBuf> {
    let mut command = Command::new("go");
    command.args(["mod", "download", "-json", MODULE]);
    command
        .env("GOTOOLCHAIN", "local")
        .env("GOFLAGS", "-mod=readonly")
        .env("GOWORK", "off");
    let output = command.current_dir(root.join(FOLDER)).output()?;
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let folder = told["Dir"].as_str();
    ensure!(
        output.status.success() && folder.is_some(),
        "{MODULE} cannot be fetched: {told}"
    );
    Ok(folder.map(PathBuf::from).unwrap_or_default())
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
