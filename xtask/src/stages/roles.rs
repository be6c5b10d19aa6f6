//! The rights that the manifests give: what each part needs, and nothing more.

use anyhow::{Result, ensure};
use serde_json::json;

use super::Place;
use crate::manifests::{self, NAMESPACE};
use myriad_lab::cluster::Cluster;

/// Service account, verb, resource (with `#` before a subresource and `/` before a name),
/// namespace, and whether it may.
type Right = (&'static str, &'static str, &'static str, &'static str, bool);

const CONTROLLER: &str = "myriad-controller";
const PROXY: &str = "myriad-proxy";

const RIGHTS: &[Right] = &[
    (
        CONTROLLER,
        "watch",
        "ingresses.networking.k8s.io",
        "tenant",
        true,
    ),
    (
        CONTROLLER,
        "list",
        "ingressclasses.networking.k8s.io",
        "",
        true,
    ),
    (CONTROLLER, "watch", "services", "tenant", true),
    (
        CONTROLLER,
        "list",
        "endpointslices.discovery.k8s.io",
        "tenant",
        true,
    ),
    (CONTROLLER, "watch", "secrets", "tenant", true),
    (
        CONTROLLER,
        "patch",
        "ingresses.networking.k8s.io#status",
        "tenant",
        true,
    ),
    (
        CONTROLLER,
        "watch",
        "virtualservices.networking.istio.io",
        "tenant",
        true,
    ),
    (
        CONTROLLER,
        "list",
        "authorizationpolicies.security.istio.io",
        "tenant",
        true,
    ),
    (
        CONTROLLER,
        "update",
        "virtualservices.networking.istio.io",
        "tenant",
        false,
    ),
    (CONTROLLER, "create", "events.events.k8s.io", "tenant", true),
    (CONTROLLER, "get", "namespaces/kube-system", "", true),
    (
        CONTROLLER,
        "patch",
        "leases.coordination.k8s.io/myriad",
        NAMESPACE,
        true,
    ),
    (CONTROLLER, "create", "secrets", NAMESPACE, true),
    (CONTROLLER, "patch", "secrets/myriad-ca", NAMESPACE, true),
    (
        CONTROLLER,
        "patch",
        "secrets/myriad-tickets",
        NAMESPACE,
        true,
    ),
    (CONTROLLER, "patch", "secrets", NAMESPACE, false),
    (
        CONTROLLER,
        "update",
        "configmaps/myriad-ca",
        NAMESPACE,
        true,
    ),
    (
        CONTROLLER,
        "patch",
        "configmaps/myriad-claims-7",
        NAMESPACE,
        true,
    ),
    (
        CONTROLLER,
        "patch",
        "configmaps/myriad-ca",
        NAMESPACE,
        false,
    ),
    (CONTROLLER, "get", "services/myriad-proxy", NAMESPACE, true),
    (CONTROLLER, "get", "/openid/v1/jwks", "", true),
    (
        CONTROLLER,
        "update",
        "ingresses.networking.k8s.io",
        "tenant",
        false,
    ),
    (CONTROLLER, "create", "secrets", "tenant", false),
    (CONTROLLER, "patch", "secrets", "tenant", false),
    (CONTROLLER, "delete", "secrets", NAMESPACE, false),
    (CONTROLLER, "update", "secrets", NAMESPACE, false),
    (CONTROLLER, "update", "configmaps", "tenant", false),
    (CONTROLLER, "watch", "configmaps", "tenant", true),
    (CONTROLLER, "create", "configmaps", "tenant", false),
    (CONTROLLER, "list", "pods", "tenant", true),
    (CONTROLLER, "create", "pods", "tenant", false),
    (CONTROLLER, "list", "namespaces", "", true),
    (CONTROLLER, "patch", "namespaces", "", false),
    (
        CONTROLLER,
        "list",
        "gatewayclasses.gateway.networking.k8s.io",
        "",
        true,
    ),
    (
        CONTROLLER,
        "watch",
        "httproutes.gateway.networking.k8s.io",
        "tenant",
        true,
    ),
    (
        CONTROLLER,
        "list",
        "backendtlspolicies.gateway.networking.k8s.io",
        "tenant",
        true,
    ),
    (
        CONTROLLER,
        "update",
        "httproutes.gateway.networking.k8s.io",
        "tenant",
        false,
    ),
    (
        CONTROLLER,
        "patch",
        "httproutes.gateway.networking.k8s.io",
        "tenant",
        false,
    ),
    (
        CONTROLLER,
        "patch",
        "httproutes.gateway.networking.k8s.io#status",
        "tenant",
        true,
    ),
    (
        CONTROLLER,
        "patch",
        "gatewayclasses.gateway.networking.k8s.io#status",
        "",
        true,
    ),
    (
        CONTROLLER,
        "patch",
        "ingresses.networking.k8s.io",
        "tenant",
        false,
    ),
    (CONTROLLER, "create", "deployments.apps", "tenant", false),
    (CONTROLLER, "list", "deployments.apps", "tenant", false),
    (CONTROLLER, "create", "services", "tenant", false),
    (CONTROLLER, "create", "serviceaccounts", "tenant", false),
    (
        CONTROLLER,
        "patch",
        "configmaps/myriad-live",
        NAMESPACE,
        true,
    ),
    (
        CONTROLLER,
        "patch",
        "leases.coordination.k8s.io/other",
        NAMESPACE,
        false,
    ),
    (
        CONTROLLER,
        "create",
        "serviceaccounts#token",
        NAMESPACE,
        false,
    ),
    (PROXY, "get", "secrets", NAMESPACE, false),
    (PROXY, "list", "secrets", "tenant", false),
    (
        PROXY,
        "list",
        "ingresses.networking.k8s.io",
        "tenant",
        false,
    ),
    (PROXY, "get", "configmaps", NAMESPACE, false),
    (PROXY, "list", "pods", NAMESPACE, false),
];

/// Installs the manifests and asks, by impersonation, who may do what.
pub(super) fn check(place: &Place, cluster: &Cluster) -> Result<()> {
    cluster.kubectl(&["create", "namespace", NAMESPACE], "")?;
    let manifests = manifests::read(&place.root)?;
    let namespace = format!("--namespace={NAMESPACE}");
    cluster.kubectl(&["apply", &namespace, "--filename=-"], &manifests)?;
    for right in RIGHTS {
        let may = ask(cluster, right)?;
        ensure!(may == right.4, "{right:?}: the answer is {may}");
    }
    println!("roles: {} rights are as they should be", RIGHTS.len());
    Ok(())
}

/// Whether an account may. The question is put to the API itself: `kubectl auth can-i` knows only
/// resources that have a definition, and Istio's have none here.
fn ask(cluster: &Cluster, right: &Right) -> Result<bool> {
    let &(account, verb, resource, namespace, _) = right;
    let attributes = if resource.starts_with('/') {
        json!({"nonResourceAttributes": {"verb": verb, "path": resource}})
    } else {
        let (resource, subresource) = resource.split_once('#').unwrap_or((resource, ""));
        let (resource, name) = resource.split_once('/').unwrap_or((resource, ""));
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        json!({"resourceAttributes": {
            "verb": verb,
            "group": group,
            "resource": resource,
            "subresource": subresource,
            "name": name,
            "namespace": namespace,
        }})
    };
    let mut spec = attributes;
    spec["user"] = format!("system:serviceaccount:{NAMESPACE}:{account}").into();
    spec["groups"] = json!(["system:serviceaccounts", "system:authenticated"]);
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": spec,
    });
    let line = [
        "create",
        "--output=jsonpath={.status.allowed}",
        "--filename=-",
    ];
    let answer = cluster.kubectl(&line, &review.to_string())?;
    Ok(answer.trim() == "true")
}
