//! Standard metrics of both ends of the mesh. Both ends are the same proxy here.

use myriad_model::{ListenerProtocol, MutualTls, Protocol, Value, WorkloadNames};
use rcgen::{CertificateParams, CustomExtension};

use super::super::world::{PATIENCE, World};
use super::mutual::{Authority, meshed, put_secured, uri};
use super::{ask, ask_again, connect, is_inside, listener, said, server_first, stream_route};

/// The sum of a metric over all series whose labels hold all of these parts.
fn sum(world: &World, name: &str, parts: &[(&str, &str)]) -> f64 {
    let text = world.metrics.encode();
    let start = format!("{name}{{");
    let lines = text.lines().filter_map(|line| line.strip_prefix(&start));
    let fitting = lines.filter(|line| {
        let has = |(name, value): &(&str, &str)| line.contains(&format!("{name}=\"{value}\""));
        parts.iter().all(has)
    });
    let values = fitting.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum()
}

/// Waits until a stream or request that has ended is counted too.
async fn counts(world: &World, name: &str, parts: &[(&str, &str)], expected: f64) {
    let counted = async {
        while sum(world, name, parts) != expected {
            tokio::task::yield_now().await;
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, counted).await;
    assert!(
        in_time.is_ok(),
        "{name} {parts:?} {}",
        world.metrics.encode()
    );
}

/// A mesh whose only workload is called by all its names.
pub(super) async fn identified() -> World {
    let detected = ListenerProtocol::Detected;
    let mut world = meshed(detected, MutualTls::Permissive).await;
    let authority = Authority::new();
    let names = WorkloadNames {
        workload: "b-v1".into(),
        app: "b".into(),
        version: "v1".into(),
        service: "bee".into(),
        revision: "v1".into(),
    };
    let mut params = CertificateParams::default();
    let extension = CustomExtension::from_oid_content(&WorkloadNames::OID, names.to_der());
    params.custom_extensions.push(extension);
    let identity = authority.identity_of("b", &[&authority], params);
    world.proxy.identify(identity).unwrap();
    world
}

#[tokio::test]
async fn both_ends_tell_who_spoke_with_whom() {
    if !is_inside("counted::both_ends_tell_who_spoke_with_whom") {
        return;
    }
    let world = identified().await;
    let b = uri("b");
    let known = said("200", &format!("{b} http"));
    for _ in 0..2 {
        assert_eq!(ask("10.9.0.10:80", "b").await, known);
    }
    let mut plain = connect("10.9.1.20:80").await;
    assert_eq!(ask_again(&mut plain, "b").await.0, "200");

    let requests = "istio_requests_total";
    let source = [
        ("reporter", "source"),
        ("source_workload", "b-v1"),
        ("source_principal", &b),
        ("source_canonical_service", "bee"),
        ("destination_workload", "b-v1"),
        ("destination_workload_namespace", "shop"),
        ("destination_principal", &b),
        ("destination_version", "v1"),
        ("destination_service", "story.ns.svc.cluster.local"),
        ("connection_security_policy", "unknown"),
        ("response_code", "200"),
    ];
    counts(&world, requests, &source, 2.0).await;
    let destination = [
        ("reporter", "destination"),
        ("source_app", "b"),
        ("source_principal", &b),
        ("source_workload_namespace", "shop"),
        ("destination_workload", "b-v1"),
        ("destination_canonical_service", "bee"),
        ("connection_security_policy", "mutual_tls"),
    ];
    counts(&world, requests, &destination, 2.0).await;
    let duration = "istio_request_duration_milliseconds_count";
    assert_eq!(sum(&world, duration, &destination), 2.0);
    let stranger = [
        ("reporter", "destination"),
        ("source_principal", "unknown"),
        ("source_workload", "unknown"),
        ("destination_workload", "b-v1"),
        ("connection_security_policy", "none"),
    ];
    counts(&world, requests, &stranger, 1.0).await;
    assert_eq!(sum(&world, requests, &[]), 5.0);

    bytes_are_told_while_they_flow(world).await;
}

async fn bytes_are_told_while_they_flow(mut world: World) {
    server_first("10.9.1.20:25").await;
    let mutual = Some(MutualTls::Permissive);
    let tcp = ListenerProtocol::Tcp;
    world.put("inbound/any:25", listener("0.0.0.0:25", tcp, mutual));
    let all = stream_route("inbound/any:25", &[], "0.0.0.0/0", "stream");
    world.put("mail in", all);
    world.put("outbound/any:25", listener("0.0.0.0:25", tcp, None));
    put_secured(&mut world, "mail", Protocol::Https1, &["b"]);
    let endpoint = myriad_model::Endpoint {
        mesh: true,
        ..myriad_model::Endpoint::even(super::address("10.9.1.20:25"))
    };
    let endpoints = myriad_model::Endpoints::new([endpoint].into());
    world.put("mail", Value::Endpoints(Box::new(endpoints)));
    let all = stream_route("outbound/any:25", &[], "0.0.0.0/0", "mail");
    world.put("mail out", all);
    let mut client = connect("10.9.0.10:25").await;
    assert_eq!(client.read_until("\n").await, "hello 127.0.0.6\n");
    let secured = [
        ("reporter", "destination"),
        ("source_workload", "b-v1"),
        ("request_protocol", "tcp"),
        ("connection_security_policy", "mutual_tls"),
    ];
    for ends in [
        &secured[..],
        &[("reporter", "source"), ("destination_workload", "b-v1")],
    ] {
        counts(&world, "istio_tcp_connections_opened_total", ends, 1.0).await;
        counts(&world, "istio_tcp_sent_bytes_total", ends, 16.0).await;
        assert_eq!(sum(&world, "istio_tcp_connections_closed_total", ends), 0.0);
    }
    drop(client);
    counts(&world, "istio_tcp_connections_closed_total", &secured, 1.0).await;
    counts(&world, "istio_tcp_sent_bytes_total", &secured, 16.0).await;
}

/// Identities that are no good, with what is counted of them.
async fn refuses(world: &mut World, identity: crate::Identity, reason: &str) {
    let refused = |world: &World| {
        let parts = [("reason", reason)];
        sum(world, "myriad_mesh_peers_refused_total", &parts)
    };
    let before = refused(world);
    world.proxy.identify(identity).unwrap();
    assert_ne!(ask("10.9.0.10:80", "b").await.0, "200", "{reason}");
    let counted = async {
        while refused(world) == before {
            tokio::task::yield_now().await;
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, counted).await;
    assert!(in_time.is_ok(), "{reason} {}", world.metrics.encode());
}

#[tokio::test]
async fn who_is_not_believed_is_told_by_reason() {
    if !is_inside("counted::who_is_not_believed_is_told_by_reason") {
        return;
    }
    let mut world = meshed(ListenerProtocol::Http, MutualTls::Strict).await;
    let (authority, other) = (Authority::new(), Authority::new());
    let dated = |from: i32, until: i32| {
        let mut params = CertificateParams::default();
        params.not_before = rcgen::date_time_ymd(from, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        authority.identity_of("b", &[&authority], params)
    };
    // A clock that is behind takes a certificate for one of the future, and one that is ahead for
    // one of the past.
    let ended = dated(2001, 2002);
    refuses(&mut world, ended, "ended").await;
    let not_begun = dated(2400, 2401);
    refuses(&mut world, not_begun, "not_begun").await;
    let foreign = authority.identity("b", &[&other]);
    refuses(&mut world, foreign, "authority").await;
    let mut stranger = authority.identity("b", &[&authority]);
    stranger.trust_domains = [Box::from("other.example")].into();
    refuses(&mut world, stranger, "identity").await;
    // With a good one all is well again, at once.
    let good = authority.identity("b", &[&authority]);
    world.proxy.identify(good).unwrap();
    assert_eq!(ask("10.9.0.10:80", "b").await.0, "200");
    let anonymous = super::mutual::offering(b"istio-http/1.1");
    let tcp = tokio::net::TcpStream::connect("10.9.1.20:80")
        .await
        .unwrap();
    let server = rustls::pki_types::ServerName::try_from("b.example").unwrap();
    drop(
        tokio_rustls::TlsConnector::from(anonymous)
            .connect(server, tcp)
            .await,
    );
    let parts = [("reason", "no_certificate")];
    counts(&world, "myriad_mesh_peers_refused_total", &parts, 1.0).await;
}
