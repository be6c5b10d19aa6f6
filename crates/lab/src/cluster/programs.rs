//! The programs of a cluster: their versions stand in `tools/kubernetes/go.mod`, and only there.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::tool::{self, Tool};

/// A program, and where its source is.
struct Program {
    name: &'static str,
    package: &'static str,
    /// The module of the package, which says the version.
    module: &'static str,
}

const PROGRAMS: [Program; 4] = [
    Program {
        name: "etcd",
        package: "go.etcd.io/etcd/server/v3",
        module: "go.etcd.io/etcd/server/v3",
    },
    Program {
        name: "kube-apiserver",
        package: "k8s.io/kubernetes/cmd/kube-apiserver",
        module: KUBERNETES,
    },
    Program {
        name: "kube-controller-manager",
        package: "k8s.io/kubernetes/cmd/kube-controller-manager",
        module: KUBERNETES,
    },
    // Whatever one is installed may be too old for this API.
    Program {
        name: "kubectl",
        package: "k8s.io/kubernetes/cmd/kubectl",
        module: KUBERNETES,
    },
];

const KUBERNETES: &str = "k8s.io/kubernetes";
/// The folder where the sources are pinned, below the workspace.
const FOLDER: &str = "tools/kubernetes";
const GO_MOD: &str = include_str!("../../../../tools/kubernetes/go.mod");

/// Builds what has not been built yet, which takes several minutes once.
pub(super) fn provide(root: &Path, cache: &Path) -> Result<()> {
    for program in &PROGRAMS {
        let tool = program.tool()?;
        let flags = format!("-s -w{}", stamp(version_of(KUBERNETES)?));
        tool.provide(cache, |to| {
            let to = to.join("bin").join(tool.name);
            let flags = ["-ldflags", &flags];
            tool::build_go(&root.join(FOLDER), program.package, &flags, &to)
        })?;
    }
    Ok(())
}

/// The path of a program once it has been built.
pub(super) fn path(cache: &Path, name: &str) -> Result<PathBuf> {
    let program = PROGRAMS.iter().find(|program| program.name == name);
    let program = program.with_context(|| format!("no program `{name}`"))?;
    Ok(program.tool()?.path(cache))
}

impl Program {
    fn tool(&self) -> Result<Tool> {
        Ok(Tool {
            name: self.name,
            version: version_of(self.module)?,
        })
    }
}

/// The version that is required of a module, without its `v`.
fn version_of(module: &str) -> Result<&'static str> {
    let required = GO_MOD.lines().find_map(|line| {
        let (name, version) = line.trim().split_once(" v")?;
        (name == module).then_some(version)
    });
    let required = required.with_context(|| format!("{FOLDER} does not require {module}"))?;
    Ok(required.split(' ').next().unwrap_or(required))
}

/// Flags of the linker by which the programs know their version, as clients ask for it.
fn stamp(version: &str) -> String {
    let mut numbers = version.split('.');
    let (major, minor) = (numbers.next(), numbers.next());
    let values = [
        ("gitVersion", format!("v{version}")),
        ("gitMajor", major.unwrap_or_default().to_owned()),
        ("gitMinor", minor.unwrap_or_default().to_owned()),
        ("gitTreeState", "archive".to_owned()),
        ("gitCommit", String::new()),
    ];
    let flags = values
        .iter()
        .map(|(name, value)| format!(" -X k8s.io/component-base/version.{name}={value}"));
    flags.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_has_a_version_and_one_of_kubernetes_is_of_one_release() {
        for program in &PROGRAMS {
            let version = program.tool().expect("required").version;
            assert!(version.split('.').count() == 3, "{version}");
        }
        assert!(version_of("k8s.io/kubernetes/cmd").is_err());

        // Its parts are modules of their own, whose major version is 0.
        let release = version_of(KUBERNETES).expect("required");
        let part = release.replacen("1.", "v0.", 1);
        let replaced = GO_MOD.lines().filter(|line| line.contains(" => "));
        let replaced: Vec<&str> = replaced.collect();
        assert!(replaced.len() > 20);
        for line in replaced {
            assert!(line.ends_with(&part), "{line} is not of release {release}");
        }
    }

    #[test]
    fn a_program_knows_its_version() {
        let flags = stamp("1.36.1");
        for value in ["gitVersion=v1.36.1", "gitMajor=1", "gitMinor=36"] {
            assert!(
                flags.split(' ').any(|flag| flag.ends_with(value)),
                "{flags}"
            );
        }
    }
}
