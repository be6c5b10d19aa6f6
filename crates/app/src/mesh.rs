//! The file of `--mesh-config`, and what a process says of fields that have no effect in it.
//!
//! The file is mounted, so that one setting serves a directory and a cluster alike. It is read
//! once, at the start.

use std::path::Path;

use myriad_api::finding::cut;
use myriad_api::one_line;
use myriad_base::file;
use myriad_translate::mesh_config::{self, Edge, MeshConfig};

/// The largest file in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// The most fields without effect that are named.
const UNHEARD_MAX: usize = 100;

/// A field that has no effect in this process, and its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// The field.
    pub field: &'static str,
    /// The remedy.
    pub remedy: String,
}

/// Reads the file.
pub fn read(path: &Path, problems: &mut Vec<String>) -> MeshConfig {
    match file::whole(path, BYTES_MAX) {
        Ok(text) => mesh_config::parse(&text, problems),
        Err(error) => {
            problems.push(format!("--mesh-config {}: {error}", path.display()));
            MeshConfig::default()
        }
    }
}

/// Names what has no effect in the log, and what has none here, with what to do about it.
pub fn warn(mesh: &MeshConfig, elsewhere: impl IntoIterator<Item = Remedy>) {
    for field in unheard(mesh) {
        tracing::warn!(%field, "of --mesh-config has no effect");
    }
    for Remedy { field, remedy } in elsewhere {
        tracing::warn!(%field, %remedy, "of --mesh-config has no effect here");
    }
}

/// The fields without effect as they are named: people write their names, in any length.
fn unheard(mesh: &MeshConfig) -> impl Iterator<Item = String> {
    let more = mesh.unheard.len().saturating_sub(UNHEARD_MAX);
    let first = mesh.unheard.iter().take(UNHEARD_MAX);
    let more = (more > 0).then(|| format!("one of {more} more"));
    first
        .map(|field| one_line(&cut(field.as_str())))
        .chain(more)
}

/// The remedies for fields that proxies have to be told by flags, since nobody else tells them.
pub fn remedies(edge: &Edge) -> Vec<Remedy> {
    let paths = edge.paths.map(|paths| Remedy {
        field: "pathNormalization",
        remedy: format!(
            "start gateways with --path-normalization={} (chart: proxy.pathNormalization)",
            paths.as_str()
        ),
    });
    let hops = edge.trusted_hops.map(|hops| Remedy {
        field: "defaultConfig.gatewayTopology.numTrustedProxies",
        remedy: format!("start gateways with --trusted-hops={hops} (chart: proxy.trustedHops)"),
    });
    let all = [paths, hops, introductions(edge)];
    all.into_iter().flatten().collect()
}

/// The remedy for load balancers alone, which a process that serves has no flag about.
pub fn introductions(edge: &Edge) -> Option<Remedy> {
    edge.wants_introductions.then(|| Remedy {
        field: "defaultConfig.gatewayTopology.proxyProtocol",
        remedy: "it does not say who is believed: start gateways with --proxy-protocol and \
                 --proxy-protocol-from (chart: proxy.proxyProtocol)"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use myriad_translate::mesh_config::{Edge, MeshConfig, PathNormalization};

    use super::{remedies, unheard};

    #[test]
    fn a_file_of_many_long_fields_names_a_hundred_of_them_in_short() {
        let named = |unheard: Vec<String>| MeshConfig {
            unheard,
            ..MeshConfig::default()
        };
        let mesh = named(vec!["x".repeat(100_000), "a\nb".to_owned()]);
        let told: Vec<String> = unheard(&mesh).collect();
        assert!(told[0].len() <= 1 << 10, "{} bytes", told[0].len());
        assert_eq!(told[1..], ["a\\nb"]);
        let mesh = named((0..1_000).map(|at| at.to_string()).collect());
        let told: Vec<String> = unheard(&mesh).collect();
        assert_eq!((told.len(), &*told[100]), (101, "one of 900 more"));
    }

    #[test]
    fn what_gateways_are_told_by_flags_is_told_with_the_flag() {
        let edge = Edge {
            paths: Some(PathNormalization::MergeSlashes),
            trusted_hops: Some(2),
            wants_introductions: true,
        };
        let told = remedies(&edge);
        let expected = [
            ("pathNormalization", "--path-normalization=MERGE_SLASHES "),
            ("numTrustedProxies", "--trusted-hops=2 "),
            ("proxyProtocol", "--proxy-protocol-from "),
        ];
        assert_eq!(told.len(), expected.len());
        for (told, (field, remedy)) in told.iter().zip(expected) {
            assert!(told.field.ends_with(field), "{told:?}");
            assert!(told.remedy.contains(remedy), "{told:?}");
        }
        assert_eq!(remedies(&Edge::default()), []);
    }
}
