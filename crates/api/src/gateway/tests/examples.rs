//! The meaning of fields that are read.

use std::time::Duration;

use super::*;

#[test]
fn the_kinds_are_told_apart_by_their_groups() {
    let find = ObjectKind::find;
    let gateway = find("gateway.networking.k8s.io/v1", "Gateway");
    assert_eq!(gateway, Some(ObjectKind::Gateway));
    let istio = find("networking.istio.io/v1", "Gateway");
    assert_eq!(istio, Some(ObjectKind::IstioGateway));
    for (version, kind) in [
        ("v1beta1", ObjectKind::HttpRoute),
        ("v1alpha2", ObjectKind::TcpRoute),
        ("v1alpha3", ObjectKind::TlsRoute),
        ("v1alpha3", ObjectKind::BackendTlsPolicy),
        ("v1beta1", ObjectKind::ReferenceGrant),
    ] {
        let api_version = format!("{GROUP}/{version}");
        assert_eq!(find(&api_version, kind.as_str()), Some(kind));
    }
    assert_eq!(find("gateway.networking.k8s.io/v1alpha2", "Gateway"), None);
    assert_eq!(
        find("gateway.networking.k8s.io/v1beta1", "ListenerSet"),
        None
    );
}

#[test]
fn an_object_has_its_generation_and_the_annotations_that_matter() {
    let Ok(Object::Gateway(gateway)) = read(&example(ObjectKind::Gateway)) else {
        panic!("a Gateway");
    };
    let key = ObjectKey::new(ObjectKind::Gateway, "platform", "web");
    assert_eq!((&gateway.meta.key, gateway.generation), (&key, 12));
    assert_eq!(gateway.meta.annotations.len(), 1);
    assert!(gateway.bytes > 0);
    let Ok(Object::GatewayClass(class)) = read(&example(ObjectKind::GatewayClass)) else {
        panic!("a GatewayClass");
    };
    assert_eq!(&**class.meta.key.id(), "/edge");
    let Ok(Object::ListenerSet(set)) = read(&example(ObjectKind::ListenerSet)) else {
        panic!("a ListenerSet");
    };
    assert_eq!(set.generation, 0, "a file has none");
}

#[test]
fn defaults_are_those_of_the_definitions() {
    let route = route(&json!([{"backendRefs": [{"name": "b", "port": 80}]}]));
    let [rule] = &*route.spec.rules else {
        panic!("a rule");
    };
    assert!(rule.matches.is_empty());
    let reference = &rule.backends[0].reference;
    assert_eq!((reference.group(), reference.kind()), ("", "Service"));
    assert_eq!((reference.weight, reference.weight()), (None, 1));
    assert_eq!((&reference.namespace, reference.port), (&None, Some(80)));
    let parent = ParentReference::default();
    assert_eq!((parent.group(), parent.kind()), (GROUP, "Gateway"));
    let set = ParentGateway::default();
    assert_eq!((set.group(), set.kind()), (GROUP, "Gateway"));
    let secret = ObjectReference::default();
    assert_eq!((secret.group(), secret.kind()), ("", "Secret"));
    assert_eq!(RouteGroupKind::default().group(), GROUP);
    let path = PathMatch::default();
    assert_eq!(
        (path.value(), path.kind.known()),
        ("/", Some(PathMatchKind::PathPrefix))
    );
    assert_eq!(MirrorFraction::default().denominator(), 100);
    assert_eq!(CorsFilter::default().max_age(), Duration::from_secs(5));
    let session = SessionPersistence::default();
    assert_eq!(session.kind.known(), Some(SessionKind::Cookie));
}

#[test]
fn a_route_without_rules_has_one_that_takes_all() {
    for rules in [json!([]), Value::Null] {
        assert_eq!(*route(&rules).spec.rules, [HttpRouteRule::default()]);
    }
    let value = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GRPCRoute",
        "metadata": {"name": "a", "namespace": "n"},
    });
    let Ok(Object::GrpcRoute(route)) = read(&value) else {
        panic!("a GRPCRoute");
    };
    assert!(route.spec.rules.is_empty(), "whose calls nobody answers");
}

#[test]
fn a_route_keeps_all_that_it_says() {
    let Ok(Object::HttpRoute(route)) = read(&example(ObjectKind::HttpRoute)) else {
        panic!("an HTTPRoute");
    };
    let [parent, service] = &*route.spec.parents else {
        panic!("two parents");
    };
    assert_eq!(parent.section_name.as_deref(), Some("shops"));
    assert_eq!((service.group(), service.kind()), ("", "Service"));
    assert_eq!(&*route.spec.use_default_gateways, "All");
    let rule = &route.spec.rules[0];
    let matched = &rule.matches[0];
    let path = matched.path.as_ref().expect("a path");
    assert_eq!(
        (path.kind.known(), path.value()),
        (Some(PathMatchKind::Exact), "/checkout")
    );
    let header = &matched.headers[0];
    assert_eq!(header.kind.known(), Some(ValueMatchKind::RegularExpression));
    assert_eq!(matched.method.as_deref(), Some("POST"));
    let kinds: Vec<&str> = rule.filters.iter().map(RouteFilter::kind).collect();
    let expected = [
        "RequestHeaderModifier",
        "ResponseHeaderModifier",
        "RequestMirror",
        "RequestMirror",
        "RequestRedirect",
        "RequestRedirect",
        "URLRewrite",
        "URLRewrite",
        "CORS",
        "ExternalAuth",
        "ExternalAuth",
        "ExtensionRef",
    ];
    assert_eq!(kinds, expected);
    assert_eq!(rule.backends[0].filters, rule.filters);
    assert_eq!(rule.backends[0].reference.weight(), 3);
    let timeouts = rule.timeouts.as_ref().expect("timeouts");
    assert_eq!(timeouts.backend_request, Some(Duration::from_millis(1_500)));
    let retry = rule.retry.as_ref().expect("retries");
    assert_eq!((&*retry.codes, retry.attempts), (&[502, 503][..], Some(2)));
    let session = rule.session_persistence.as_ref().expect("a session");
    assert_eq!(session.absolute_timeout, Some(Duration::from_secs(3_600)));
    let [
        ..,
        RouteFilter::ExternalAuth(http),
        RouteFilter::ExternalAuth(grpc),
        _,
    ] = &*rule.filters
    else {
        panic!("authorizers");
    };
    assert_eq!(http.forward_body, Some(ForwardBody { max_size: 1024 }));
    let allowed_headers: Box<[Box<str>]> = Box::new(["cookie".into()]);
    assert_eq!(grpc.grpc, Some(GrpcAuth { allowed_headers }));
}

#[test]
fn filters_that_grpc_does_not_have_are_unknown_there() {
    let mut value = example(ObjectKind::GrpcRoute);
    let rewrite = json!({"type": "URLRewrite", "urlRewrite": {"hostname": "a.test"}});
    value["spec"]["rules"][0]["filters"] = json!([rewrite]);
    value["spec"]["rules"][0]["backendRefs"][0]["filters"] = json!([rewrite]);
    let Ok(Object::GrpcRoute(route)) = read(&value) else {
        panic!("a GRPCRoute");
    };
    let unknown = [RouteFilter::Other("URLRewrite".into())];
    assert_eq!(*route.spec.rules[0].filters, unknown);
    assert_eq!(*route.spec.rules[0].backends[0].filters, unknown);
}

/// Newer definitions have words that a condition has to name.
#[test]
fn words_that_are_not_known_are_kept() {
    let route = route(&json!([{
        "matches": [{
            "path": {"type": "Glob", "value": "no/path"},
            "headers": [{"type": "Contains", "name": "a", "value": "b"}],
        }],
        "filters": [{"type": "Compress", "compress": {"level": 3}}],
    }]));
    let rule = &route.spec.rules[0];
    let path = rule.matches[0].path.as_ref().expect("a path");
    assert_eq!((path.kind.known(), path.kind.as_str()), (None, "Glob"));
    let header = &rule.matches[0].headers[0];
    assert_eq!(header.kind, Choice::Other("Contains".into()));
    assert_eq!(*rule.filters, [RouteFilter::Other("Compress".into())]);
    let notes = route.notes.iter().map(|note| &*note.field);
    let notes: Vec<&str> = notes.collect();
    assert_eq!(notes, ["spec.rules[0].filters[0].compress"]);
}

/// Without it the backend would be asked without TLS.
#[test]
fn a_policy_whose_validation_cannot_be_read_keeps_its_targets() {
    let mut value = example(ObjectKind::BackendTlsPolicy);
    value["spec"]["validation"]["hostname"] = json!(7);
    let Ok(Object::BackendTlsPolicy(policy)) = read(&value) else {
        panic!("a policy");
    };
    assert_eq!(&*policy.spec.targets[0].name, "cart");
    let problem = policy.spec.validation.as_ref().expect_err("a problem");
    assert_eq!(&*problem.field, "spec.validation.hostname");
    value["spec"]["validation"] = Value::Null;
    let Ok(Object::BackendTlsPolicy(policy)) = read(&value) else {
        panic!("a policy");
    };
    let problem = policy.spec.validation.as_ref().expect_err("a problem");
    assert_eq!(&*problem.message, "it is missing");
}

/// An API server keeps them as they were stored.
#[test]
fn stream_routes_of_former_versions_are_read() {
    let rule = json!({"backendRefs": [{"name": "a", "port": 1}]});
    for kind in ["TLSRoute", "TCPRoute", "UDPRoute"] {
        let value = json!({
            "apiVersion": "gateway.networking.k8s.io/v1alpha2", "kind": kind,
            "metadata": {"name": "a"}, "spec": {"rules": [rule, rule]},
        });
        read(&value).expect("a route");
    }
}

/// Figures that a new field must not raise unseen.
#[test]
fn the_parts_of_a_route_keep_their_sizes() {
    let sizes = [
        size_of::<HttpRouteRule>(),
        size_of::<HttpRouteMatch>(),
        size_of::<HttpBackendRef>(),
        size_of::<RouteFilter>(),
        size_of::<Listener>(),
    ];
    assert!(
        sizes
            .iter()
            .zip([104, 96, 112, 24, 72])
            .all(|(is, most)| *is <= most),
        "{sizes:?}"
    );
}
