//! The rights that the manifests give: what each part needs, and nothing more.

use anyhow::{Result, ensure};

use super::Place;
use crate::cluster::Cluster;
use crate::manifests::{self, NAMESPACE};

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
    (CONTROLLER, "patch", "secrets", NAMESPACE, false),
    (
        CONTROLLER,
        "update",
        "configmaps/myriad-ca",
        NAMESPACE,
        true,
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
    (CONTROLLER, "delete", "secrets", NAMESPACE, false),
    (CONTROLLER, "update", "secrets", NAMESPACE, false),
    (CONTROLLER, "update", "configmaps", "tenant", false),
    (CONTROLLER, "list", "pods", "tenant", true),
    (CONTROLLER, "create", "pods", "tenant", false),
    (CONTROLLER, "list", "namespaces", "", false),
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
    for (account, verb, resource, namespace, is_right) in RIGHTS {
        let account = format!("--as=system:serviceaccount:{NAMESPACE}:{account}");
        let namespace = format!("--namespace={namespace}");
        let (resource, subresource) = resource.split_once('#').unwrap_or((resource, ""));
        let subresource = format!("--subresource={subresource}");
        let question = [
            "auth",
            "can-i",
            verb,
            resource,
            &subresource,
            &account,
            &namespace,
        ];
        // It fails where the answer is no.
        let answer = cluster.kubectl(&question, "");
        let may = answer.is_ok_and(|answer| answer.trim() == "yes");
        ensure!(
            may == *is_right,
            "{verb} {resource} {subresource} {account} {namespace}: {may}, not {is_right}"
        );
    }
    println!("roles: {} rights are as they should be", RIGHTS.len());
    Ok(())
}
