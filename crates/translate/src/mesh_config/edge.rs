//! The part of MeshConfig that says how connections and paths are taken. It holds in a process that
//! reads the text and serves; no resource tells it to others.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// The settings of how connections and paths are taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edge {
    /// The treatment of paths that servers understand differently.
    pub paths: Option<PathNormalization>,
    /// Proxies in front that are believed about the client's address.
    pub trusted_hops: Option<usize>,
    /// Whether load balancers introduce clients. It does not say which.
    pub wants_introductions: bool,
}

/// The treatment of paths that servers understand differently, as Istio names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathNormalization {
    /// They go on as they came.
    None,
    /// They are read by RFC 3986: escapes that say nothing, and dot segments, are resolved.
    Base,
    /// As `Base`, and many slashes are one.
    MergeSlashes,
    /// As `MergeSlashes`, and escaped slashes are slashes.
    DecodeAndMergeSlashes,
}

impl PathNormalization {
    /// Every one.
    pub const ALL: [PathNormalization; 4] = [
        PathNormalization::None,
        PathNormalization::Base,
        PathNormalization::MergeSlashes,
        PathNormalization::DecodeAndMergeSlashes,
    ];

    /// Its name, in MeshConfig and in settings of proxies.
    pub fn as_str(self) -> &'static str {
        match self {
            PathNormalization::None => "NONE",
            PathNormalization::Base => "BASE",
            PathNormalization::MergeSlashes => "MERGE_SLASHES",
            PathNormalization::DecodeAndMergeSlashes => "DECODE_AND_MERGE_SLASHES",
        }
    }
}

/// The paths as written.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawPaths {
    normalization: Option<String>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// The proxies in front of gateways, as written.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawTopology {
    num_trusted_proxies: Option<usize>,
    proxy_protocol: Option<Value>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// Reads the fields. What has no effect is named in `unheard`.
pub(super) fn read(
    paths: &RawPaths,
    topology: RawTopology,
    unheard: &mut Vec<String>,
    problems: &mut Vec<String>,
) -> Edge {
    let rest = paths.rest.keys();
    unheard.extend(rest.map(|key| format!("pathNormalization.{key}")));
    let rest = topology.rest.keys();
    unheard.extend(rest.map(|key| format!("defaultConfig.gatewayTopology.{key}")));
    let rule = paths.normalization.as_deref().map(|name| match name {
        "DEFAULT" => "BASE",
        other => other,
    });
    let paths = rule.and_then(|name| {
        let mut known = PathNormalization::ALL.into_iter();
        let rule = known.find(|rule| rule.as_str() == name);
        if rule.is_none() {
            problems.push(format!(
                "--mesh-config: pathNormalization.normalization is {name:?}, not DEFAULT, NONE, \
                 BASE, MERGE_SLASHES or DECODE_AND_MERGE_SLASHES"
            ));
        }
        rule
    });
    Edge {
        paths,
        trusted_hops: topology.num_trusted_proxies,
        wants_introductions: topology.proxy_protocol.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::PathNormalization;
    use crate::mesh_config::{MeshConfig, parse};

    fn read(text: &str) -> (MeshConfig, Vec<String>) {
        let mut problems = Vec::new();
        (parse(text, &mut problems), problems)
    }

    #[test]
    fn paths_and_load_balancers_are_read_and_what_else_is_there_is_told() {
        let (mesh, problems) = read(
            "pathNormalization: {normalization: MERGE_SLASHES, other: 1}\ndefaultConfig:\n  \
             gatewayTopology: {numTrustedProxies: 2, proxyProtocol: {}, \
             forwardClientCertDetails: SANITIZE}\n  concurrency: 2\n  tracing: {sampling: 5}\n",
        );
        assert_eq!(problems, [""; 0]);
        assert_eq!(mesh.edge.paths, Some(PathNormalization::MergeSlashes));
        assert_eq!(mesh.edge.trusted_hops, Some(2));
        let topology = "defaultConfig.gatewayTopology";
        assert_eq!(
            mesh.unheard,
            [
                "defaultConfig.concurrency".to_owned(),
                "pathNormalization.other".to_owned(),
                format!("{topology}.forwardClientCertDetails"),
            ]
        );
    }

    #[test]
    fn istios_default_is_its_base_and_other_names_are_problems() {
        let of = |name: &str| read(&format!("pathNormalization: {{normalization: {name}}}\n"));
        let (mesh, problems) = of("DEFAULT");
        assert_eq!(problems, [""; 0]);
        assert_eq!(mesh.edge.paths, Some(PathNormalization::Base));
        for name in ["STRICT", "base", "''"] {
            let (mesh, problems) = of(name);
            assert_eq!((mesh.edge.paths, problems.len()), (None, 1), "{name}");
        }
    }
}
