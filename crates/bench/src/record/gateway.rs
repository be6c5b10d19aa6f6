//! Typed objects of Gateway API.

use myriad_api::ObjectKind;
use myriad_api::gateway::{
    BackendRef, Choice, Gateway, GatewayObject, GatewaySpec, HttpBackendRef, HttpRoute,
    HttpRouteMatch, HttpRouteRule, HttpRouteSpec, Listener, ListenerSet, ListenerSetSpec,
    ListenerTls, ObjectReference, ParentGateway, ParentReference, PathMatch, PathMatchKind,
    RouteNamespaces,
};

use super::meta;
use crate::domains::{
    DomainObjects, EDITED_PATH, GATEWAY, Layout, SHARED_SECRET, Site, WILDCARD_HOST,
};

/// The Gateway of all domains; none where they have Ingresses.
pub(super) fn gateway(objects: DomainObjects) -> Option<Gateway> {
    let (listener, allowed_listeners) = match objects {
        DomainObjects::Ingresses => return None,
        DomainObjects::ListenerSets => {
            let listener = Listener {
                name: "platform".into(),
                hostname: Some("platform.test".into()),
                port: 80,
                protocol: "HTTP".into(),
                ..Listener::default()
            };
            let same = RouteNamespaces {
                from: Some("Same".into()),
                selector: None,
            };
            (listener, Some(same))
        }
        DomainObjects::HttpRoutes => (listener("https", WILDCARD_HOST, SHARED_SECRET), None),
    };
    let spec = GatewaySpec {
        class: "myriad".into(),
        listeners: [listener].into(),
        allowed_listeners,
        ..GatewaySpec::default()
    };
    Some(object(ObjectKind::Gateway, GATEWAY, spec))
}

/// A ListenerSet with a listener for each of these domains.
pub(super) fn listener_set(set: u64, sites: &[Site]) -> ListenerSet {
    let listeners = sites.iter();
    let listeners = listeners.map(|site| listener(&site.name, &site.host, &site.secret));
    let spec = ListenerSetSpec {
        parent: ParentGateway {
            name: GATEWAY.into(),
            ..ParentGateway::default()
        },
        listeners: listeners.collect(),
    };
    object(ObjectKind::ListenerSet, &Layout::set_name(set), spec)
}

/// The HTTPRoute of a domain; an edited one has a path more.
pub(super) fn http_route(objects: DomainObjects, site: &Site, is_edited: bool) -> HttpRoute {
    let (parent, hostnames): (_, Box<[Box<str>]>) = match objects {
        DomainObjects::ListenerSets => {
            let parent = ParentReference {
                kind: Some("ListenerSet".into()),
                name: Layout::set_name(Layout::set_of(site.number)).into(),
                section_name: Some(site.name.as_str().into()),
                ..ParentReference::default()
            };
            (parent, Box::default())
        }
        DomainObjects::Ingresses | DomainObjects::HttpRoutes => {
            let parent = ParentReference {
                name: GATEWAY.into(),
                section_name: Some("https".into()),
                ..ParentReference::default()
            };
            (parent, [site.host.as_str().into()].into())
        }
    };
    let edited = is_edited.then_some(EDITED_PATH);
    let paths = ["/"].into_iter().chain(edited);
    let matches = paths.map(|path| HttpRouteMatch {
        path: Some(PathMatch {
            kind: Choice::Known(PathMatchKind::PathPrefix),
            value: Some(path.into()),
        }),
        ..HttpRouteMatch::default()
    });
    let backend = HttpBackendRef {
        reference: BackendRef {
            name: site.name.as_str().into(),
            port: Some(80),
            ..BackendRef::default()
        },
        ..HttpBackendRef::default()
    };
    let rule = HttpRouteRule {
        matches: matches.collect(),
        backends: [backend].into(),
        ..HttpRouteRule::default()
    };
    let spec = HttpRouteSpec {
        parents: [parent].into(),
        hostnames,
        rules: [rule].into(),
        ..HttpRouteSpec::default()
    };
    object(ObjectKind::HttpRoute, &site.name, spec)
}

fn listener(name: &str, host: &str, secret: &str) -> Listener {
    let certificate = ObjectReference {
        name: secret.into(),
        ..ObjectReference::default()
    };
    Listener {
        name: name.into(),
        hostname: Some(host.into()),
        port: 443,
        protocol: "HTTPS".into(),
        tls: Some(Box::new(ListenerTls {
            certificate_refs: [certificate].into(),
            ..ListenerTls::default()
        })),
        allowed_routes: None,
    }
}

/// An object as a source would have read it, but that its memory is not counted.
fn object<S>(kind: ObjectKind, name: &str, spec: S) -> GatewayObject<S> {
    GatewayObject {
        meta: meta(kind, name),
        generation: 0,
        spec,
        notes: Box::default(),
        bytes: 0,
    }
}
