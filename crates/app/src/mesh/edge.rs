//! What of MeshConfig concerns how connections and paths are taken. Proxies have flags for it, so
//! that it holds in a process that reads the file and serves; whoever only tells others what to
//! serve says which flags those need.

use std::collections::BTreeMap;

use myriad_proxy::PathRule;
use serde::Deserialize;
use serde_json::Value;

use crate::settings::path_rule;

/// What it says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edge {
    /// What becomes of paths that servers understand differently, by its name as well.
    pub paths: Option<(PathRule, Box<str>)>,
    /// Proxies in front that are believed about the client's address.
    pub trusted_hops: Option<usize>,
    /// Whether load balancers introduce clients. It does not say which.
    pub wants_introductions: bool,
}

/// What to do about a field that has no effect in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// The field.
    pub field: &'static str,
    /// What to do.
    pub remedy: String,
}

/// The paths as written.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct RawPaths {
    normalization: Option<String>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// What is in front of gateways, as written.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct RawTopology {
    num_trusted_proxies: Option<usize>,
    proxy_protocol: Option<Value>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// Reads the fields. What has no effect is named in `unheard`.
pub fn read(
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
        // What only this proxy knows is no value of Istio's.
        let is_istio = |rule: &PathRule| !matches!(rule, PathRule::Strict | PathRule::Dialect);
        let rule = path_rule(name).filter(is_istio);
        if rule.is_none() {
            problems.push(format!(
                "--mesh-config: pathNormalization.normalization is {name:?}, not DEFAULT, NONE, \
                 BASE, MERGE_SLASHES or DECODE_AND_MERGE_SLASHES"
            ));
        }
        rule.map(|rule| (rule, name.into()))
    });
    Edge {
        paths,
        trusted_hops: topology.num_trusted_proxies,
        wants_introductions: topology.proxy_protocol.is_some(),
    }
}

impl Edge {
    /// What proxies have to be told by flags, since nobody else tells them: the field, and what to
    /// do about it.
    pub fn remedies(&self) -> Vec<Remedy> {
        let paths = self.paths.as_ref().map(|(_, name)| Remedy {
            field: "pathNormalization",
            remedy: format!(
                "start gateways with --path-normalization={name} (chart: proxy.pathNormalization)"
            ),
        });
        let hops = self.trusted_hops.map(|hops| Remedy {
            field: "defaultConfig.gatewayTopology.numTrustedProxies",
            remedy: format!("start gateways with --trusted-hops={hops} (chart: proxy.trustedHops)"),
        });
        let all = [paths, hops, self.introductions()];
        all.into_iter().flatten().collect()
    }

    /// The same of load balancers alone, which this process has no flag about.
    pub fn introductions(&self) -> Option<Remedy> {
        self.wants_introductions.then(|| Remedy {
            field: "defaultConfig.gatewayTopology.proxyProtocol",
            remedy: "it does not say who is believed: start gateways with --proxy-protocol and \
                     --proxy-protocol-from (chart: proxy.proxyProtocol)"
                .to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use myriad_proxy::PathRule;

    use crate::mesh::tests::read;

    #[test]
    fn paths_and_load_balancers_are_read_and_what_else_is_there_is_told() {
        let (mesh, problems) = read(
            "pathNormalization: {normalization: MERGE_SLASHES, other: 1}\ndefaultConfig:\n  \
             gatewayTopology: {numTrustedProxies: 2, proxyProtocol: {}, \
             forwardClientCertDetails: SANITIZE}\n  concurrency: 2\n  tracing: {sampling: 5}\n",
        );
        assert_eq!(problems, [""; 0]);
        let (rule, _) = mesh.edge.paths.as_ref().unwrap();
        assert_eq!(*rule, PathRule::MergeSlashes);
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
        let remedies: Vec<_> = mesh.edge.remedies().into_iter().collect();
        let expected = [
            ("pathNormalization", "--path-normalization=MERGE_SLASHES "),
            ("numTrustedProxies", "--trusted-hops=2 "),
            ("proxyProtocol", "--proxy-protocol-from "),
        ];
        assert_eq!(remedies.len(), expected.len());
        for (told, (field, remedy)) in remedies.iter().zip(expected) {
            assert!(told.field.ends_with(field), "{told:?}");
            assert!(told.remedy.contains(remedy), "{told:?}");
        }
        assert_eq!(read("rootNamespace: a\n").0.edge.remedies(), []);
    }

    #[test]
    fn istios_default_is_its_base_and_other_names_are_problems() {
        let of = |name: &str| read(&format!("pathNormalization: {{normalization: {name}}}\n"));
        let (mesh, problems) = of("DEFAULT");
        assert_eq!(problems, [""; 0]);
        assert_eq!(mesh.edge.paths, Some((PathRule::Base, "BASE".into())));
        for name in ["STRICT", "base", "''"] {
            let (mesh, problems) = of(name);
            assert_eq!((mesh.edge.paths, problems.len()), (None, 1), "{name}");
        }
    }
}
