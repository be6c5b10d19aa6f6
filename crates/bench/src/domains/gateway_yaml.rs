//! The objects of Gateway API as people write them.

use std::fmt::Write;

use super::layout::{DomainObjects, EDITED_PATH, GATEWAY, Layout, Site, WILDCARD_HOST};
use super::{NAMESPACE, SHARED_SECRET};

/// The Gateway of all domains, separator first; empty where they have none.
pub(super) fn gateway_document(objects: DomainObjects) -> String {
    let listeners = match objects {
        DomainObjects::Ingresses => return String::new(),
        DomainObjects::ListenerSets => "  allowedListeners:
    namespaces:
      from: Same
  listeners:
  - name: platform
    hostname: platform.test
    port: 80
    protocol: HTTP
"
        .to_owned(),
        DomainObjects::HttpRoutes => format!(
            "  listeners:
  - name: https
    hostname: \"{WILDCARD_HOST}\"
    port: 443
    protocol: HTTPS
    tls:
      certificateRefs:
      - name: {SHARED_SECRET}
"
        ),
    };
    format!(
        "---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata:
  name: {GATEWAY}
  namespace: {NAMESPACE}
spec:
  gatewayClassName: myriad
{listeners}"
    )
}

/// A ListenerSet with a listener for each of these domains, separator first. Its listeners are
/// the end, so that a further one can be written behind.
pub(super) fn set_document(name: &str, sites: &[Site]) -> String {
    let mut text = format!(
        "---
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata:
  name: {name}
  namespace: {NAMESPACE}
spec:
  parentRef:
    name: {GATEWAY}
  listeners:
"
    );
    text.extend(sites.iter().map(listener));
    text
}

/// The listener of a domain, as a ListenerSet has it.
pub(super) fn listener(site: &Site) -> String {
    let Site {
        name, host, secret, ..
    } = site;
    format!(
        "  - name: {name}
    hostname: {host}
    port: 443
    protocol: HTTPS
    tls:
      certificateRefs:
      - name: {secret}
"
    )
}

/// The HTTPRoute of a domain, separator first: at its listener, or for its host at that of all.
/// An edited one has a path more.
pub(super) fn route_document(objects: DomainObjects, site: &Site, is_edited: bool) -> String {
    let Site {
        number, name, host, ..
    } = site;
    let parent = match objects {
        DomainObjects::ListenerSets => format!(
            "  - kind: ListenerSet
    name: {}
    sectionName: {name}
",
            Layout::set_name(Layout::set_of(*number)),
        ),
        DomainObjects::Ingresses | DomainObjects::HttpRoutes => format!(
            "  - name: {GATEWAY}
    sectionName: https
  hostnames:
  - {host}
"
        ),
    };
    let mut text = format!(
        "---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: {name}
  namespace: {NAMESPACE}
spec:
  parentRefs:
{parent}  rules:
  - matches:
"
    );
    let edited = is_edited.then_some(EDITED_PATH);
    for path in ["/"].into_iter().chain(edited) {
        // Writing to a String does not fail.
        let _ = write!(
            text,
            "    - path:
        type: PathPrefix
        value: {path}
"
        );
    }
    let _ = write!(
        text,
        "    backendRefs:
    - name: {name}
      port: 80
"
    );
    text
}
