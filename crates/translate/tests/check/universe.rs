//! A small universe of objects, in which generated histories collide often.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bytes::Bytes;
use myriad_api::secret::{ISSUER_TYPE, Users, UsersForm};
use myriad_api::{
    BackendPort, Change, Conditions, Endpoint, EndpointPort, EndpointSlice, HostProof, Ingress,
    IngressBackend, IngressClass, IngressPath, IngressRule, IngressTls, IssuerKeys, Meta, Object,
    ObjectKey, ObjectKind, OnDemand, Order, OrderAnswer, PathType, Secret, SecretProblem, Service,
    ServicePort, TrustDer,
};
use myriad_translate::{CatchAll, CertManager, GatewayCredentials, Settings};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use crate::{gateway, istio, world};

/// The stand-in for a Secret with an authority, which nobody can read.
const ROOT: &str = "root";

/// The settings under which histories run: one namespace may catch all, and classes matter.
pub(crate) fn settings() -> Settings {
    Settings {
        catch_all_namespaces: CatchAll::Only(["one".to_owned()].into()),
        default_gateway_namespaces: ["one".to_owned()].into(),
        gateway_namespace: "one".into(),
        gateway_credentials: GatewayCredentials::Named,
        serve_classless: false,
        issuers: Some(["default".into()].into()),
        issuer_namespace: "two".into(),
        cert_manager: CertManager::Absent,
        sidecars: true,
        host_proof: Some("edge".into()),
        ..Settings::default()
    }
}

/// Batches, each some seconds after the one before; at most one change per key in a batch.
pub(crate) fn history() -> impl Strategy<Value = Vec<(i64, Vec<Change>)>> {
    history_of(object)
}

/// The same of any objects.
pub(crate) fn history_of<S: Strategy<Value = Object>>(
    object: impl Fn() -> S,
) -> impl Strategy<Value = Vec<(i64, Vec<Change>)>> {
    let change = prop_oneof![
        4 => object().prop_map(Change::Put),
        1 => object().prop_map(|object| Change::Remove(object.key().clone())),
    ];
    let batch = vec(change, 1..8).prop_map(|changes| {
        let mut kept: Vec<Change> = Vec::new();
        for change in changes {
            if kept.iter().all(|known| known.key() != change.key()) {
                kept.push(change);
            }
        }
        kept
    });
    vec((select(&[0, 0, 60, 300_000][..]), batch), 1..16)
}

/// Any object of the universe.
pub(crate) fn object() -> impl Strategy<Value = Object> {
    prop_oneof![
        6 => ingress().prop_map(|object| Object::Ingress(Arc::new(object))),
        1 => class().prop_map(|object| Object::IngressClass(Arc::new(object))),
        2 => service().prop_map(|object| Object::Service(Arc::new(object))),
        2 => slice().prop_map(|object| Object::EndpointSlice(Arc::new(object))),
        5 => istio::object(),
        5 => gateway::object(),
        3 => secret().prop_map(|object| Object::Secret(Arc::new(object))),
        1 => order().prop_map(|object| Object::Order(Arc::new(object))),
        1 => on_demand().prop_map(|object| Object::OnDemand(Arc::new(object))),
        1 => issuer(),
        2 => proof().prop_map(|object| Object::HostProof(Arc::new(object))),
        1 => keys().prop_map(|object| Object::Secret(Arc::new(object))),
    ]
}

/// A proof of a host, or of a wildcard as either dialect spells it.
fn proof() -> impl Strategy<Value = HostProof> {
    let hosts = [
        "a.example",
        "b.example",
        "www.a.example",
        "*.example",
        "**.example",
    ];
    let namespaces = select(vec!["one", "two", "three"]);
    let parts = (select(hosts.to_vec()), namespaces);
    parts.prop_map(|(host, namespace)| HostProof::new(host, namespace))
}

/// An issuer of either kind, that can be used or not, with a key of a Secret or without.
fn issuer() -> impl Strategy<Value = Object> {
    let directories = [
        "[{url: letsencrypt}]",
        "[{url: letsencrypt}, {url: \"https://ca.example/dir\"}]",
        "[{url: \"https://ca.example/dir\", externalAccountBinding: \
         {keyID: k, keySecretRef: {name: k}}}]",
        "[{url: \"http://ca.example/dir\"}]",
        "7",
    ];
    let kinds = ["Issuer", "Issuer", "ClusterIssuer"];
    let keys = ["ecdsa-p256", "ecdsa-and-rsa", "ecdsa-and-rsa", "dsa"];
    let parts = (
        select(kinds.to_vec()),
        meta(ObjectKind::Issuer, &["le", "default"]),
        select(directories.to_vec()),
        select(keys.to_vec()),
    );
    parts.prop_map(|(kind, meta, directories, key)| {
        let (namespace, name) = (meta.key.namespace(), meta.key.name());
        let mut object = world::object(&format!(
            "apiVersion: myriad.dev/v1alpha1\nkind: {kind}\nmetadata: {{namespace: {namespace}, \
             name: {name}}}\nspec: {{acme: {{directories: {directories}, keyType: {key}}}}}\n"
        ));
        if let Object::Issuer(issuer) = &mut object {
            Arc::make_mut(issuer).meta.created = meta.created;
        }
        object
    })
}

/// A Secret for issuers, with a key or with none that can be used.
fn keys() -> impl Strategy<Value = Secret> {
    let values = select(vec![None, Some("aHVzaA"), Some("aHVzaB"), Some("!")]);
    (meta(ObjectKind::Secret, &["k"]), values).prop_map(|(meta, value)| {
        let value = value.map(|text| ("key".into(), text.as_bytes().into()));
        Secret {
            meta,
            secret_type: ISSUER_TYPE.into(),
            tls: Err(SecretProblem::OtherType),
            trust: Ok(None),
            keys: Some(Box::new(IssuerKeys::new(value.into_iter().collect()))),
        }
    })
}

/// An order, whose answers may be those of another one too.
fn order() -> impl Strategy<Value = Order> {
    let answer = (
        select(&["a.example", "b.example", "not a host"][..]),
        any::<bool>(),
        select(&["t", "u", "no token"][..]),
    );
    let answer = answer.prop_map(|(host, by_tls, token)| OrderAnswer {
        host: host.into(),
        by_tls,
        token: token.into(),
        text: format!("{token}.k").into(),
    });
    let answers = btree_map(0..2_u8, answer, 0..3);
    (meta(ObjectKind::Order, &["s", "t"]), answers).prop_map(|(meta, answers)| {
        // No order has two answers to one question.
        let mut answers: Vec<OrderAnswer> = answers.into_values().collect();
        answers.dedup_by(|a, b| a.host == b.host);
        Order {
            meta,
            answers: answers.into(),
        }
    })
}

/// A certificate on demand, of a host of its own, that can be served or not.
fn on_demand() -> impl Strategy<Value = OnDemand> {
    (meta(ObjectKind::OnDemand, &["s", "t"]), secret()).prop_map(|(meta, secret)| {
        let (namespace, name) = (meta.key.namespace(), meta.key.name());
        OnDemand {
            host: format!("{name}.{namespace}.example").into(),
            secret: Arc::new(secret),
            meta,
        }
    })
}

fn meta(kind: ObjectKind, names: &'static [&'static str]) -> impl Strategy<Value = Meta> {
    (
        select(&["one", "one", "one", "two"][..]),
        select(names),
        select(&[1, 2, i64::MAX][..]),
    )
        .prop_map(move |(namespace, name, created)| Meta {
            key: ObjectKey::new(kind, namespace, name),
            created,
            annotations: Box::default(),
        })
}

fn ingress() -> impl Strategy<Value = Ingress> {
    let class = select(
        &[
            Some("myriad"),
            Some("myriad"),
            Some("myriad"),
            Some("edge"),
            None,
        ][..],
    );
    let parts = (
        meta(ObjectKind::Ingress, &["a", "b", "c"]),
        class,
        option::weighted(0.3, backend()),
        vec(tls(), 0..3),
        vec(rule(), 0..3),
        annotations(),
    );
    parts.prop_map(
        |(mut meta, class, default_backend, tls, rules, annotations)| {
            meta.annotations = annotations;
            Ingress {
                meta,
                class_name: class.map(Box::from),
                default_backend,
                tls: tls.into(),
                rules: rules.into(),
            }
        },
    )
}

fn host() -> impl Strategy<Value = Box<str>> {
    let hosts = [
        "a.example",
        "A.example.",
        "b.example",
        "www.a.example",
        "*.example",
        "not a host",
    ];
    select(hosts.map(Box::from).to_vec())
}

fn tls() -> impl Strategy<Value = IngressTls> {
    let secret = select(&[None, Some("s"), Some("s"), Some("s"), Some("t")][..]);
    (vec(host(), 0..3), secret).prop_map(|(hosts, secret)| IngressTls {
        hosts: hosts.into(),
        secret_name: secret.map(Box::from),
    })
}

fn rule() -> impl Strategy<Value = IngressRule> {
    (option::weighted(0.9, host()), vec(path(), 0..3)).prop_map(|(host, paths)| IngressRule {
        host,
        paths: paths.into(),
    })
}

fn path() -> impl Strategy<Value = IngressPath> {
    let types = [
        PathType::Exact,
        PathType::Prefix,
        PathType::ImplementationSpecific,
    ];
    let path = select(
        &[
            None,
            Some("/"),
            Some("/a"),
            Some("/a/"),
            Some("/(x|y)"),
            Some("bad"),
        ][..],
    );
    (path, select(types.to_vec()), backend()).prop_map(|(path, path_type, backend)| IngressPath {
        path: path.map(Box::from),
        path_type,
        backend,
    })
}

fn backend() -> impl Strategy<Value = IngressBackend> {
    let port = prop_oneof![
        select(&[80, 81][..]).prop_map(BackendPort::Number),
        select(&["http", "admin"][..]).prop_map(|name| BackendPort::Name(name.into())),
    ];
    (select(&["v", "w"][..]), port).prop_map(|(name, port)| IngressBackend::Service {
        name: name.into(),
        port,
    })
}

/// Few annotations with few values, so that each is met in several states.
fn annotations() -> impl Strategy<Value = Box<[(Box<str>, Box<str>)]>> {
    let pairs = [
        ("myriad.dev/no-such", ""),
        ("myriad.dev/issuer", "default"),
        ("myriad.dev/issuer", "other"),
        ("myriad.dev/issuer", "le"),
        ("cert-manager.io/cluster-issuer", "le"),
        ("cert-manager.io/issuer", "le"),
        ("nginx.ingress.kubernetes.io/affinity", "cookie"),
        ("nginx.ingress.kubernetes.io/app-root", "/start"),
        ("nginx.ingress.kubernetes.io/auth-secret", "s"),
        ("nginx.ingress.kubernetes.io/auth-tls-secret", "one/s"),
        (
            "nginx.ingress.kubernetes.io/auth-tls-verify-client",
            "optional",
        ),
        ("nginx.ingress.kubernetes.io/auth-type", "basic"),
        ("nginx.ingress.kubernetes.io/auth-url", "https://x.example"),
        (
            "nginx.ingress.kubernetes.io/auth-response-headers",
            "x-user",
        ),
        ("higress.io/auth-url", "http://$host/a"),
        ("myriad.dev/auth-url", "http://one.two.svc/"),
        ("nginx.ingress.kubernetes.io/backend-protocol", "HTTPS"),
        ("nginx.ingress.kubernetes.io/canary", "true"),
        ("nginx.ingress.kubernetes.io/canary-weight", "30"),
        ("nginx.ingress.kubernetes.io/enable-cors", "true"),
        ("nginx.ingress.kubernetes.io/from-to-www-redirect", "true"),
        ("nginx.ingress.kubernetes.io/proxy-body-size", "much"),
        (
            "nginx.ingress.kubernetes.io/server-alias",
            "b.example,*.example",
        ),
        ("nginx.ingress.kubernetes.io/use-regex", "true"),
    ];
    let pair = select(pairs.to_vec());
    btree_map(pair, Just(()), 0..3).prop_map(|pairs| {
        let pairs = pairs.into_keys();
        pairs
            .map(|(key, value)| (key.into(), value.into()))
            .collect()
    })
}

fn class() -> impl Strategy<Value = IngressClass> {
    let controllers = select(&["myriad.dev/ingress-controller", "else.example/it"][..]);
    let parts = (
        meta(ObjectKind::IngressClass, &["edge", "else"]),
        controllers,
        any::<bool>(),
    );
    parts.prop_map(|(mut meta, controller, is_default)| {
        let key = "ingressclass.kubernetes.io/is-default-class";
        if is_default {
            meta.annotations = [(key.into(), "true".into())].into();
        }
        IngressClass {
            meta,
            controller: controller.into(),
        }
    })
}

fn service() -> impl Strategy<Value = Service> {
    let ports = vec(
        (select(&["http", "admin"][..]), select(&[80, 81][..])),
        0..3,
    );
    let alias = option::weighted(0.2, Just(Box::from("out.example")));
    const SELECTORS: [&[(&str, &str)]; 3] = [&[], &[("x", "1")], &[("x", "1"), ("y", "2")]];
    let selector = select(&SELECTORS[..]);
    let address = option::of(select(&["10.1.0.1", "10.1.0.2"][..]));
    let exported = (
        meta(ObjectKind::Service, &["v", "w"]),
        option::weighted(0.3, select(&[".", "one", "~"][..])),
    );
    let meta = exported.prop_map(|(mut meta, to)| {
        let pair = |to: &str| -> (Box<str>, Box<str>) {
            ("networking.istio.io/exportTo".into(), to.into())
        };
        meta.annotations = to.map(pair).into_iter().collect();
        meta
    });
    let parts = (meta, alias, ports, selector, address);
    parts.prop_map(|(meta, external_name, ports, selector, address)| Service {
        addresses: address
            .into_iter()
            .filter_map(|text| text.parse().ok())
            .collect(),
        is_headless: address.is_none(),
        meta,
        selector: selector
            .iter()
            .map(|pair| (pair.0.into(), pair.1.into()))
            .collect(),
        external_name,
        ports: ports
            .into_iter()
            .map(|(name, port)| ServicePort {
                name: name.into(),
                port,
                target_port: None,
                app_protocol: None,
                protocol: None,
            })
            .collect(),
    })
}

fn slice() -> impl Strategy<Value = EndpointSlice> {
    let endpoint =
        (0..3_u8, any::<bool>(), any::<bool>()).prop_map(|(last, ready, terminating)| Endpoint {
            address: Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))),
            pod: Some(["p", "q", "r"][usize::from(last)].into()),
            zone: ready.then(|| "a".into()),
            conditions: Conditions {
                ready,
                serving: true,
                terminating,
            },
        });
    let service = select(&[None, Some("v"), Some("w")][..]);
    let port = select(&["http", "admin"][..]).prop_map(|name| EndpointPort {
        name: name.into(),
        port: Some(9000),
        protocol: None,
    });
    let parts = (
        meta(ObjectKind::EndpointSlice, &["x", "y"]),
        service,
        vec(endpoint, 0..3),
        vec(port, 0..2),
    );
    parts.prop_map(|(meta, service, endpoints, ports)| EndpointSlice {
        meta,
        service: service.map(Box::from),
        endpoints: endpoints.into(),
        ports: ports.into(),
    })
}

/// Certificates that fit or not, in all ages, of several algorithms, with a shared issuer or not,
/// and provided by one of ours or not.
fn secret() -> impl Strategy<Value = Secret> {
    let pairs = [
        ("<certificate rsa:a.example>", "<key rsa:a.example>"),
        ("<certificate a.example>", "<key a.example>"),
        ("<certificate a.example ending>", "<key a.example>"),
        (
            "<certificate b.example,*.example>",
            "<key b.example,*.example>",
        ),
        (
            "<certificate b.example,*.example expired>",
            "<key b.example,*.example>",
        ),
        ("<certificate a.example>", "<key b.example,*.example>"),
    ];
    let issued = any::<bool>();
    let lent = option::of(select(&["two", "one, two", "*", "three"][..]));
    let issuer = option::of(select(&["default", "one/le"][..]));
    // Users whose passwords can be verified, those of whom none can, authorities, or none.
    let users = select(vec![
        None,
        Some("{PLAIN}a"),
        Some("{PLAIN}b"),
        Some("{SHA}"),
        Some(ROOT),
    ]);
    (
        meta(ObjectKind::Secret, &["s", "t", "s-rsa"]),
        select(pairs.to_vec()),
        issued,
        (lent, issuer),
        users,
    )
        .prop_map(|(mut meta, (certificate, key), issued, notes, users)| {
            let (lent, issuer) = notes;
            let annotation = "myriad.dev/credential-namespaces";
            let lent = lent.map(|to| (annotation.into(), to.into()));
            let issuer = issuer.map(|name| ("myriad.dev/issuer".into(), name.into()));
            meta.annotations = lent.into_iter().chain(issuer).collect();
            let issuer = if issued { Some(world::issuer()) } else { None };
            let users = users.map(|hash| TrustDer {
                roots: match hash {
                    ROOT => [Bytes::from_static(b"root")].into(),
                    _ => Box::default(),
                },
                crls: Box::default(),
                users: match hash {
                    ROOT => Users::default(),
                    _ => Users::new(UsersForm::File, vec![("ann".into(), hash.into())]),
                },
            });
            Secret {
                meta,
                trust: Ok(users.map(Box::new)),
                ..world::secret(certificate, key, issuer)
            }
        })
}
