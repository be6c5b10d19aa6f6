//! The Gateways that lead to Services with policies, as routes claim them.

use std::collections::BTreeSet;
use std::sync::Arc;

use myriad_api::gateway::{BackendRef, HttpBackendRef, RouteFilter, StreamRule};

use super::has_policy;
use crate::dialect::gateway::attach::{Attachment, ParentAnswer};
use crate::dialect::gateway::entity::terminates;
use crate::dialect::gateway::facts::GatewayFact;
use crate::dialect::gateway::grants::{self, Reference};
use crate::dialect::gateway::route::RouteObject;
use crate::engine::{Reader, Stake, StakeClaim};

/// The claims of a route that its Gateways lead to those of its Services that have a policy.
pub(crate) fn stakes(
    reader: &mut Reader<'_>,
    route: &RouteObject,
    attachments: &[Attachment],
) -> Vec<Stake> {
    let gateways = gateways(route, attachments);
    if gateways.is_empty() {
        return Vec::new();
    }
    let references: BTreeSet<&BackendRef> = references(route).into_iter().collect();
    let mut services = BTreeSet::new();
    for reference in references {
        services.extend(service_of(reader, route, reference));
    }
    let mut stakes = Vec::new();
    for service in services {
        if !has_policy(reader, &service) {
            continue;
        }
        let seat = reader.hash(GatewayFact::Ancestors(&service));
        let claims = gateways.iter().map(|gateway| StakeClaim {
            order: 0,
            created: 0,
            id: gateway.clone(),
            value: 0,
        });
        stakes.extend(claims.map(|claim| Stake { seat, claim }));
    }
    stakes
}

/// The Gateways where a route has a listener whose connections to backends policies are about.
fn gateways(route: &RouteObject, attachments: &[Attachment]) -> BTreeSet<Arc<str>> {
    let mut gateways = BTreeSet::new();
    if matches!(route, RouteObject::Udp(_)) {
        return gateways;
    }
    let is_passed = matches!(route, RouteObject::Tls(_));
    for attachment in attachments {
        let ParentAnswer::Taken(taken) = &attachment.answer else {
            continue;
        };
        let taken = taken.iter().filter(|attached| {
            let listener = attached.listener();
            !is_passed || listener.is_some_and(terminates)
        });
        gateways.extend(taken.map(|it| it.standing.gateway.meta.key.id().clone()));
    }
    gateways
}

/// The Service that a reference of a route leads to; none where it may not.
fn service_of(
    reader: &mut Reader<'_>,
    route: &RouteObject,
    reference: &BackendRef,
) -> Option<Arc<str>> {
    if !reference.group().is_empty() || reference.kind() != "Service" {
        return None;
    }
    let own = route.key().namespace();
    let namespace = reference.namespace.as_deref().unwrap_or(own);
    let asked = Reference {
        from: route.key().kind,
        from_namespace: own,
        group: "",
        kind: "Service",
        namespace,
        name: &reference.name,
    };
    let is_permitted = asked.is_nameable() && grants::permit(reader, &asked);
    is_permitted.then(|| format!("{namespace}/{}", reference.name).into())
}

/// All references of a route to backends.
fn references(route: &RouteObject) -> Vec<&BackendRef> {
    let mut found = Vec::new();
    match route {
        RouteObject::Http(route) => {
            for rule in &route.spec.rules {
                add(&rule.backends, &rule.filters, &mut found);
            }
        }
        RouteObject::Grpc(route) => {
            for rule in &route.spec.rules {
                add(&rule.backends, &rule.filters, &mut found);
            }
        }
        RouteObject::Tls(route) => found.extend(of_first(&route.spec.rules)),
        RouteObject::Tcp(route) => found.extend(of_first(&route.spec.rules)),
        RouteObject::Udp(_) => {}
    }
    found
}

/// Adds the references of a rule for requests.
fn add<'a>(
    backends: &'a [HttpBackendRef],
    filters: &'a [RouteFilter],
    found: &mut Vec<&'a BackendRef>,
) {
    found.extend(backends.iter().map(|backend| &backend.reference));
    let of_backends = backends.iter().flat_map(|backend| &backend.filters);
    for filter in filters.iter().chain(of_backends) {
        match filter {
            RouteFilter::RequestMirror(mirror) => found.push(&mirror.backend),
            RouteFilter::ExternalAuth(auth) => found.push(&auth.backend),
            _ => {}
        }
    }
}

/// The references of the rule of connections that takes all.
fn of_first(rules: &[StreamRule]) -> &[BackendRef] {
    rules.first().map_or(&[], |rule| &rule.backends)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use myriad_api::gateway::{HttpRoute, TcpRoute};
    use serde::de::DeserializeOwned;

    use super::references;
    use crate::dialect::gateway::route::RouteObject;

    fn object<T: DeserializeOwned>(spec: &str) -> T {
        let text = format!("metadata: {{name: route, namespace: shop}}\nspec: {spec}\n");
        serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{error} in:\n{text}"))
    }

    fn names(route: &RouteObject) -> Vec<&str> {
        let references = references(route).into_iter();
        references.map(|reference| &*reference.name).collect()
    }

    #[test]
    fn backends_of_filters_are_backends() {
        let mirror = |name: &str| {
            let backend = format!("backendRef: {{name: {name}, port: 80}}");
            format!("{{type: RequestMirror, requestMirror: {{{backend}}}}}")
        };
        let auth = "{type: ExternalAuth, externalAuth: {protocol: HTTP, http: {}, \
                    backendRef: {name: auth, port: 80}}}";
        let spec = format!(
            "{{rules: [{{filters: [{}, {auth}], backendRefs: [{{name: web, port: 80, filters: \
             [{}]}}]}}, {{backendRefs: [{{name: other, port: 80}}]}}]}}",
            mirror("copy"),
            mirror("copy-of-one")
        );
        let route: HttpRoute = object(&spec);
        let route = RouteObject::Http(Arc::new(route));
        assert_eq!(
            names(&route),
            ["web", "copy", "auth", "copy-of-one", "other"]
        );
    }

    #[test]
    fn rules_of_connections_that_take_nothing_lead_nowhere() {
        let route: TcpRoute = object(
            "{rules: [{backendRefs: [{name: web, port: 80}]}, \
             {backendRefs: [{name: other, port: 80}]}]}",
        );
        assert_eq!(names(&RouteObject::Tcp(Arc::new(route))), ["web"]);
    }
}
