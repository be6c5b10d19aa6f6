//! How the proxies of single Gateways are deployed: the file of `--gateway-deployments`.
//!
//! ```yaml
//! roots: myriad-gateway-ca
//! labels: {app.kubernetes.io/name: myriad}
//! replicas: 2
//! service: {type: LoadBalancer, annotations: {}, externalTrafficPolicy: Local}
//! metadata: {allow: [example.com/]}
//! addresses: [192.0.2.0/24]
//! networkPolicy: {adminFrom: [{namespaceSelector: {}}]}
//! pod: {containers: [{name: proxy, image: myriad}]}
//! ```

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use myriad_base::file;
use serde::Deserialize;
use serde_json::Value;

use super::names;
use crate::cli::deployments::RawDeployments;

/// The largest file in bytes.
const BYTES_MAX: u64 = 256 << 10;

/// The name of the port at which a proxy is asked how it is.
const ADMIN_PORT: &str = "admin";

/// The types of Services that carry traffic.
const SERVICE_TYPES: [&str; 3] = ["ClusterIP", "NodePort", "LoadBalancer"];

/// How the proxies of a Gateway are deployed that has some of its own.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GatewayTemplate {
    /// The name of the ConfigMap with the roots that proxies know controllers by, which is kept in
    /// the namespace of each such Gateway.
    pub roots: String,
    /// Labels of all that is made, which no Gateway can change.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// How many proxies a Gateway has; none where somebody else says so.
    #[serde(default)]
    pub replicas: Option<u32>,
    /// How they are reached.
    pub service: ServiceTemplate,
    /// The labels and annotations that a Gateway may have put on what is made for it.
    #[serde(default)]
    pub metadata: MetadataTemplate,
    /// The addresses that Gateways may ask for, as blocks or single ones; none without any.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Who reaches the admin addresses of the proxies; none lets everybody who reaches their Pods.
    #[serde(default)]
    pub network_policy: Option<NetworkPolicyTemplate>,
    /// The spec of their Pods. The first container is the proxy.
    pub pod: Value,
}

/// How the proxies of a Gateway are reached.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceTemplate {
    /// The type of the Service.
    #[serde(rename = "type")]
    pub kind: String,
    /// Annotations of the Service, which no Gateway can change.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// `externalTrafficPolicy`, where traffic comes from outside.
    #[serde(default)]
    pub external_traffic_policy: Option<String>,
}

/// The labels and annotations that a Gateway may have put on what is made for it. One without a
/// prefix (`team`) has no meaning but its own; one with a prefix (`example.com/team`) may be an
/// order to a cloud, a balancer, a network or this project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MetadataTemplate {
    /// The starts of those with a prefix that are allowed.
    #[serde(default)]
    pub allow: Vec<String>,
}

/// Who reaches the admin addresses of the proxies.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkPolicyTemplate {
    /// Peers, as a NetworkPolicy has them. Nobody without any.
    #[serde(default)]
    pub admin_from: Vec<Value>,
}

impl MetadataTemplate {
    /// Whether a Gateway may have this label or annotation put on what is made for it.
    pub fn allows(&self, key: &str) -> bool {
        !key.contains('/') || self.allow.iter().any(|start| key.starts_with(&**start))
    }
}

impl GatewayTemplate {
    /// Whether Gateways may ask for an address.
    pub fn allows_address(&self, address: IpAddr) -> bool {
        let blocks = names::blocks("addresses", &self.addresses, &mut Vec::new());
        blocks.iter().any(|block: &IpNet| block.contains(&address))
    }

    /// The number of the port at which a proxy is asked how it is, if it has one.
    pub fn admin_port(&self) -> Option<u16> {
        let ports = self.pod["containers"][0]["ports"].as_array()?;
        let admin = ports.iter().find(|port| port["name"] == ADMIN_PORT)?;
        u16::try_from(admin["containerPort"].as_u64()?).ok()
    }

    /// Reads the file, where there is one.
    pub(super) fn read(
        raw: &RawDeployments,
        problems: &mut Vec<String>,
    ) -> Option<GatewayTemplate> {
        let path = raw.gateway_deployments.as_deref()?;
        let read = file::whole(path, BYTES_MAX).map_err(|error| error.to_string());
        match read.and_then(|text| parse(&text)) {
            Ok(template) => Some(template),
            Err(problem) => {
                let path = path.display();
                problems.push(format!("--gateway-deployments {path}: {problem}"));
                None
            }
        }
    }
}

fn parse(text: &str) -> Result<GatewayTemplate, String> {
    let template: GatewayTemplate =
        serde_saphyr::from_str(text).map_err(|error| error.without_snippet().to_string())?;
    if template.roots.is_empty() {
        return Err("roots is empty".to_owned());
    }
    let kind = &template.service.kind;
    if !SERVICE_TYPES.contains(&kind.as_str()) {
        let known = SERVICE_TYPES.join(", ");
        return Err(format!("service.type is {kind:?}, none of {known}"));
    }
    if template
        .metadata
        .allow
        .iter()
        .any(|start| !start.contains('/'))
    {
        return Err("metadata.allow has a start without a slash".to_owned());
    }
    let mut problems = Vec::new();
    drop(names::blocks(
        "addresses",
        &template.addresses,
        &mut problems,
    ));
    if let Some(problem) = problems.pop() {
        return Err(problem);
    }
    let pod = &template.pod;
    let has_proxy = pod["containers"][0].is_object();
    let security = &pod["securityContext"];
    if !pod.is_object() || !has_proxy || !(security.is_object() || security.is_null()) {
        return Err("pod is not the spec of a Pod with a container".to_owned());
    }
    Ok(template)
}

#[cfg(test)]
mod tests {
    use super::{GatewayTemplate, RawDeployments, parse};

    const TEMPLATE: &str = "roots: myriad-gateway-ca\nlabels: {app.kubernetes.io/name: myriad}\n\
                            metadata: {allow: [example.com/]}\naddresses: [192.0.2.0/24]\n\
                            networkPolicy: {adminFrom: [{podSelector: {}}]}\n\
                            replicas: 2\nservice:\n  type: LoadBalancer\n  annotations: {a: b}\n  \
                            externalTrafficPolicy: Local\n\
                            pod:\n  containers:\n  - name: proxy\n    \
                            args: [proxy, --log=info]\n";

    #[test]
    fn a_template_has_a_service_and_a_pod_with_a_proxy() {
        let template = parse(TEMPLATE).unwrap();
        assert_eq!(template.replicas, Some(2));
        assert_eq!(template.service.annotations["a"], "b");
        let proxy = &template.pod["containers"][0];
        assert_eq!(proxy["args"][1], "--log=info");
        assert_eq!(template.admin_port(), None);
        let metadata = &template.metadata;
        for key in ["team", "example.com/team"] {
            assert!(metadata.allows(key), "{key}");
        }
        for key in [
            "eks.amazonaws.com/role-arn",
            "external-dns.alpha.kubernetes.io/hostname",
            "metallb.universe.tf/allow-shared-ip",
            "myriad.dev/inject",
            "not.example.com/team",
        ] {
            assert!(!metadata.allows(key), "{key}");
        }
        let is_allowed = |address: &str| template.allows_address(address.parse().unwrap());
        assert!(is_allowed("192.0.2.9") && !is_allowed("192.0.3.9") && !is_allowed("::1"));
        let policy = template.network_policy.clone().unwrap();
        assert_eq!(policy.admin_from.len(), 1);
        let bare = "roots: a\nservice: {type: ClusterIP}\npod: {containers: [{name: p}]}\n";
        let bare = parse(bare).unwrap();
        assert_eq!((bare.replicas, &bare.network_policy), (None, &None));
        assert!(bare.metadata.allows("team") && !bare.metadata.allows("example.com/team"));
        assert!(!bare.allows_address([192, 0, 2, 9].into()));
    }

    #[test]
    fn what_no_pod_could_be_made_of_is_told() {
        for (from, to, problem) in [
            ("roots: myriad-gateway-ca", "roots: \"\"", "roots"),
            ("LoadBalancer", "ExternalName", "service.type"),
            (
                "  containers:\n  - name: proxy\n    args",
                "  args",
                "a container",
            ),
            ("replicas: 2", "replica: 2", "replica"),
            ("example.com/]", "example.com]", "metadata.allow"),
            ("192.0.2.0/24", "192.0.2.0/240", "addresses"),
            ("replicas: 2", "replicas: many", "line 6, column 11"),
        ] {
            let text = TEMPLATE.replacen(from, to, 1);
            assert_ne!(text, TEMPLATE, "{from}");
            let told = parse(&text).unwrap_err();
            assert!(told.contains(problem), "{problem} is not in: {told}");
        }
        let odd = TEMPLATE.replace("pod:\n", "pod:\n  securityContext: none\n");
        assert!(parse(&odd).is_err());
        let mut problems = Vec::new();
        let mut raw = RawDeployments {
            gateway_deployments: Some("/nowhere/at/all".into()),
            live_annotations: false,
        };
        assert_eq!(GatewayTemplate::read(&raw, &mut problems), None);
        let start = "--gateway-deployments /nowhere";
        assert!(problems[0].starts_with(start), "{problems:?}");
        raw.gateway_deployments = None;
        assert_eq!(GatewayTemplate::read(&raw, &mut problems), None);
        assert_eq!(problems.len(), 1);
    }
}
