//! The programs of a cluster: their versions stand in the `go.mod` of their sources, and only
//! there.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::tool::{self, Tool};

/// A program, and where its source is.
struct Program {
    name: &'static str,
    package: &'static str,
    /// The module of the package, which says the version.
    module: &'static str,
    source: Source,
}

/// A folder where sources are pinned.
#[derive(Clone, Copy)]
struct Source {
    /// Below the workspace.
    folder: &'static str,
    go_mod: &'static str,
}

const PROGRAMS: [Program; 4] = [
    Program {
        name: "etcd",
        package: "go.etcd.io/etcd/server/v3",
        module: "go.etcd.io/etcd/server/v3",
        source: RELEASE,
    },
    Program::of_release("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    Program::of_release(
        "kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
    ),
    // Whatever one is installed may be too old for this API.
    Program::of_release("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
];

/// The programs of clusters that have nodes.
const NODE_PROGRAMS: [Program; 6] = [
    Program::of_release("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    Program::of_release("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
    Program {
        name: "kubelet",
        package: "k8s.io/kubernetes/cmd/kubelet",
        module: KUBERNETES,
        source: Source {
            folder: "tools/kubelet",
            go_mod: include_str!("../../../../tools/kubelet/go.mod"),
        },
    },
    Program {
        name: "coredns",
        package: ".",
        module: "github.com/coredns/coredns",
        source: Source {
            folder: "tools/coredns",
            go_mod: include_str!("../../../../tools/coredns/go.mod"),
        },
    },
    Program {
        name: "metrics-server",
        package: "sigs.k8s.io/metrics-server/cmd/metrics-server",
        module: "sigs.k8s.io/metrics-server",
        source: Source {
            folder: "tools/metrics-server",
            go_mod: include_str!("../../../../tools/metrics-server/go.mod"),
        },
    },
    Program {
        name: "pause",
        package: ".",
        module: "go",
        source: Source {
            folder: "tools/pause",
            go_mod: include_str!("../../../../tools/pause/go.mod"),
        },
    },
];

const KUBERNETES: &str = "k8s.io/kubernetes";
/// The source of the programs of one release.
const RELEASE: Source = Source {
    folder: "tools/kubernetes",
    go_mod: include_str!("../../../../tools/kubernetes/go.mod"),
};

/// Builds what has not been built yet, which takes several minutes once.
pub(super) fn provide(root: &Path, cache: &Path) -> Result<()> {
    PROGRAMS.iter().try_for_each(|it| it.provide(root, cache))
}

/// Builds what nodes need beside.
pub(super) fn provide_for_nodes(root: &Path, cache: &Path) -> Result<()> {
    NODE_PROGRAMS
        .iter()
        .try_for_each(|it| it.provide(root, cache))
}

/// The path of a program once it has been built.
pub(super) fn path(cache: &Path, name: &str) -> Result<PathBuf> {
    let mut all = PROGRAMS.iter().chain(&NODE_PROGRAMS);
    let program = all.find(|program| program.name == name);
    let program = program.with_context(|| format!("no program `{name}`"))?;
    Ok(program.tool()?.path(cache))
}

impl Program {
    const fn of_release(name: &'static str, package: &'static str) -> Program {
        Program {
            name,
            package,
            module: KUBERNETES,
            source: RELEASE,
        }
    }

    fn provide(&self, root: &Path, cache: &Path) -> Result<()> {
        let tool = self.tool()?;
        let stamp = match self.source.version_of(KUBERNETES) {
            Ok(version) => stamp(version),
            Err(_) => String::new(),
        };
        let flags = format!("-s -w{stamp}");
        tool.provide(cache, |to| {
            let to = to.join("bin").join(tool.name);
            let flags = ["-ldflags", &flags];
            tool::build_go(&root.join(self.source.folder), self.package, &flags, &to)
        })?;
        Ok(())
    }

    fn tool(&self) -> Result<Tool> {
        Ok(Tool {
            name: self.name,
            version: self.source.version_of(self.module)?,
        })
    }
}

impl Source {
    /// The version that is required of a module, without its `v`, or of Go itself.
    fn version_of(&self, module: &str) -> Result<&'static str> {
        let required = self.go_mod.lines().find_map(|line| {
            let line = line.trim();
            let line = line.strip_prefix("require ").unwrap_or(line);
            let (name, version) = line.split_once(' ')?;
            (name == module).then_some(version.strip_prefix('v').unwrap_or(version))
        });
        let required =
            required.with_context(|| format!("{} does not require {module}", self.folder))?;
        Ok(required.split(' ').next().unwrap_or(required))
    }
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
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn every_program_has_a_version_and_one_of_kubernetes_is_of_one_release() {
        for program in PROGRAMS.iter().chain(&NODE_PROGRAMS) {
            let version = program.tool().expect("required").version;
            assert!(version.split('.').count() == 3, "{version}");
        }
        assert!(RELEASE.version_of("k8s.io/kubernetes/cmd").is_err());

        // Its parts are modules of their own, whose major version is 0.
        let kubelet = NODE_PROGRAMS.iter().find(|it| it.name == "kubelet");
        for source in [RELEASE, kubelet.expect("it is there").source] {
            let release = source.version_of(KUBERNETES).expect("required");
            let part = release.replacen("1.", "v0.", 1);
            let replaced = source.go_mod.lines().filter(|line| line.contains(" => "));
            let replaced: Vec<&str> = replaced.collect();
            assert!(replaced.len() > 20);
            for line in replaced {
                assert!(line.ends_with(&part), "{line} is not of release {release}");
            }
        }
    }

    /// The versions of what a source requires.
    fn required(source: &Source) -> BTreeMap<&'static str, &'static str> {
        let lines = source.go_mod.lines().map(str::trim);
        let lines = lines.map(|line| line.strip_prefix("require ").unwrap_or(line));
        let pairs = lines.filter_map(|line| line.split_once(' '));
        let pairs = pairs.filter(|(_, version)| version.starts_with('v'));
        pairs
            .map(|(name, version)| (name, version.split(' ').next().unwrap_or(version)))
            .collect()
    }

    #[test]
    fn what_a_name_server_shares_with_a_release_is_compiled_once() {
        let release = required(&RELEASE);
        assert!(release.len() > 100);
        let program = NODE_PROGRAMS.iter().find(|it| it.name == "coredns");
        let own = required(&program.expect("it is there").source);
        let shared = own.iter().filter(|(name, _)| release.contains_key(*name));
        let differing = shared.filter(|(name, version)| release[*name] != **version);
        assert_eq!(differing.count(), 0);
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
