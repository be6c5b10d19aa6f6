//! The turns of handshakes behind their first step: what a peer shows is verified in turns as well,
//! and nobody holds one while a peer is waited for.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use myriad_base::task;
use myriad_model::{ClientAuth, ClientAuthMode, TlsSettings, Trust, UpstreamTls, Users, Value};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, ProtocolVersion, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::overload::{asked_again, begin, until_answered};
use super::world::{Backend, Client, PATIENCE, World, certificate, domain, route, trust};
use crate::limits::Limits;
use crate::net::stream::PARTS_MAX;

const GET: &str = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";

/// A world in which one handshake goes on at a time.
fn world() -> World {
    world_by(Limits::default())
}

fn world_by(limits: Limits) -> World {
    let mut world = World::limited(Limits {
        handshakes_max: 1,
        ..limits
    });
    world.put_domain("quiet.example", &["quiet.example"], TlsSettings::default());
    world
}

/// Takes the only slot, and keeps it for a second.
async fn take_slot(world: &World) -> TcpStream {
    let mut half = begin(world, "quiet.example").await;
    until_answered(&mut half).await;
    half
}

async fn queued(world: &World, count: usize) {
    let counted = format!("handshakes_queued_total {count}\n");
    world.counts(&counted).await;
}

/// A client in the middle of a handshake: it has all that the proxy says before its own
/// certificate.
struct Half {
    tcp: TcpStream,
    tls: ClientConnection,
}

impl Half {
    /// One that has said hello.
    async fn begin(world: &World, config: Arc<ClientConfig>) -> Self {
        let tcp = TcpStream::connect(world.address("https")).await.unwrap();
        let name = ServerName::try_from("a.example").unwrap();
        let tls = ClientConnection::new(config, name).unwrap();
        let mut half = Half { tcp, tls };
        half.say().await;
        half
    }

    async fn new(world: &World, config: Arc<ClientConfig>) -> Self {
        let mut half = Half::begin(world, config).await;
        // By TLS 1.2 the proxy has another word behind that.
        let is_last = |tls: &ClientConnection| {
            tls.protocol_version() == Some(ProtocolVersion::TLSv1_2) && tls.wants_write()
        };
        while half.tls.is_handshaking() && !is_last(&half.tls) {
            half.hear().await;
        }
        half
    }

    /// Sends all that it has to say.
    async fn say(&mut self) {
        let said = self.said();
        self.tcp.write_all(&said).await.unwrap();
    }

    /// All that it has to say.
    fn said(&mut self) -> Vec<u8> {
        let mut said = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut said).unwrap();
        }
        said
    }

    /// Ends the handshake, and has a request answered.
    async fn go_on(&mut self) {
        while self.tls.is_handshaking() {
            self.hear().await;
        }
        self.tls.writer().write_all(GET.as_bytes()).unwrap();
        self.say().await;
        assert_eq!(self.read(12).await, "HTTP/1.1 200");
    }

    async fn hear(&mut self) {
        let mut bytes = [0; 4_096];
        let heard = tokio::time::timeout(PATIENCE, self.tcp.read(&mut bytes));
        let count = heard.await.unwrap().unwrap();
        assert!(count > 0, "the proxy has closed");
        let mut rest = &bytes[..count];
        while !rest.is_empty() {
            self.tls.read_tls(&mut rest).unwrap();
            self.tls.process_new_packets().unwrap();
        }
    }

    /// So many bytes of the answer.
    async fn read(&mut self, count: usize) -> String {
        let mut answer = vec![0; count];
        let mut length = 0;
        while length < count {
            match self.tls.reader().read(&mut answer[length..]) {
                Ok(0) => panic!("the answer has ended early"),
                Ok(read) => length += read,
                Err(_) => self.hear().await,
            }
        }
        String::from_utf8(answer).unwrap()
    }
}

/// An authority, and a client that shows a certificate of it.
fn authority() -> (Bytes, Arc<ClientConfig>) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["client.example".to_owned()]).unwrap();
    let leaf = params.signed_by(&key, &authority).unwrap();
    let chain = vec![CertificateDer::from(leaf.der().to_vec())];
    let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(trust())
        .with_client_auth_cert(chain, key)
        .unwrap();
    (Bytes::from(authority.der().to_vec()), Arc::new(config))
}

/// A thousand clients that had held back their certificates until then had them verified one after
/// the other, before anybody else was served.
#[tokio::test]
async fn certificates_of_clients_are_verified_in_a_turn_of_their_own() {
    let backend = Backend::saying("ok").await;
    for mode in [ClientAuthMode::Required, ClientAuthMode::Shown] {
        let (root, config) = authority();
        let mut world = world();
        world.put_upstream("u", &[backend.address]);
        world.put_route("r", route("a.example", "/", "u"));
        let mut asking = domain("a.example", Some("cert"), TlsSettings::default());
        asking.client_auth = Some(Arc::new(ClientAuth {
            trust: "ca".into(),
            mode,
            subject_alt_names: Box::default(),
            key_hashes: Box::default(),
            certificate_hashes: Box::default(),
            depth: 0,
        }));
        let authorities = Trust {
            roots: [root].into(),
            crls: Box::default(),
            users: Users::default(),
        };
        world.put_all(vec![
            (
                "cert",
                Value::Certificate(Box::new(certificate(&["a.example"]))),
            ),
            ("ca", Value::Trust(Box::new(authorities))),
            ("a.example", Value::Domain(Box::new(asking))),
        ]);
        let mut client = Half::new(&world, config).await;
        // Its slot was given back meanwhile.
        let _slot = take_slot(&world).await;
        queued(&world, 0).await;
        client.say().await;
        queued(&world, 1).await;
        client.tls.writer().write_all(GET.as_bytes()).unwrap();
        client.say().await;
        assert_eq!(client.read(12).await, "HTTP/1.1 200", "{mode:?}");
        world.counts("connections_shed_total 0\n").await;
    }
}

/// A world of one domain and its endpoint, in which one handshake goes on at a time.
async fn world_of_one() -> (World, Backend) {
    let backend = Backend::saying("ok").await;
    let mut world = world();
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("a.example", "/", "u"));
    world.put_domain("a.example", &["a.example"], TlsSettings::default());
    (world, backend)
}

/// A client of TLS 1.2.
fn old() -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(trust())
        .with_no_client_auth();
    Arc::new(config)
}

/// By TLS 1.2 keys are agreed on when the client has said its part: a thousand that had held that
/// back had it done one after the other.
#[tokio::test]
async fn keys_of_old_handshakes_are_agreed_on_in_a_turn_of_their_own() {
    let (world, _backend) = world_of_one().await;
    let mut client = Half::new(&world, old()).await;
    // Its slot was given back meanwhile.
    let _slot = take_slot(&world).await;
    queued(&world, 0).await;
    client.say().await;
    queued(&world, 1).await;
    client.go_on().await;
    world.counts("connections_shed_total 0\n").await;
}

/// The turn of a second hello was for whatever came first, and its signature was made outside of
/// any turn where that was less.
#[tokio::test]
async fn a_second_hello_has_a_turn_of_its_own_whatever_comes_before_it() {
    let (world, _backend) = world_of_one().await;
    let mut client = Half::begin(&world, asked_again()).await;
    while !client.tls.wants_write() {
        client.hear().await;
    }
    let said = client.said();
    // A record that says nothing, and the beginning of another.
    let (early, hello) = said.split_at(7);
    assert_eq!(early, [20, 3, 3, 0, 1, 1, 22]);
    client.tcp.write_all(early).await.unwrap();
    let _slot = take_slot(&world).await;
    queued(&world, 0).await;
    client.tcp.write_all(hello).await.unwrap();
    queued(&world, 1).await;
    client.go_on().await;
    world.counts("connections_shed_total 0\n").await;
}

/// Each byte stood in line for a turn.
#[tokio::test]
async fn less_than_a_record_takes_no_turn() {
    let (world, _backend) = world_of_one().await;
    let mut client = Half::new(&world, old()).await;
    let _slot = take_slot(&world).await;
    let said = client.said();
    client.tcp.write_all(&said[..1]).await.unwrap();
    // Whoever comes behind it waits until the slot is given back, and nobody else does.
    let _second = take_slot(&world).await;
    queued(&world, 1).await;
    client.tcp.write_all(&said[1..]).await.unwrap();
    queued(&world, 2).await;
    client.go_on().await;
    queued(&world, 2).await;
}

/// A message that never ends, in records of one byte, had a turn for each of them.
#[tokio::test]
async fn a_handshake_in_very_many_parts_is_closed() {
    let (world, _backend) = world_of_one().await;
    let mut client = Half::new(&world, old()).await;
    // The header of a key exchange, and then a byte of it at a time.
    let mut part = vec![22, 3, 3, 0, 4, 16, 0, 4, 0];
    let mut parts = 0;
    while client.tcp.write_all(&part).await.is_ok() {
        part = vec![22, 3, 3, 0, 1, 7];
        parts += 1;
        assert!(parts < 500, "it is still there");
        // Somebody else is answered once that was looked at.
        let answer = world.ask(GET).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert!(parts >= PARTS_MAX - 1, "{parts}");
    let failed = "handshakes_total{outcome=\"failed\"} 1\n";
    world.counts(failed).await;
}

/// A handshake of many steps waited for each of its turns as long as for one.
#[tokio::test]
async fn all_turns_of_a_handshake_with_an_endpoint_are_waited_for_together() {
    let endpoint = TcpListener::bind("127.0.0.1:0").await.unwrap();
    // Longer than a slot is held.
    let mut world = world_by(Limits {
        turn_timeout: Duration::from_millis(1_500),
        ..Limits::default()
    });
    let tls = Some(UpstreamTls::unverified());
    world.put_upstream_with("u", &[endpoint.local_addr().unwrap()], tls);
    world.put_route("r", route("a.example", "/", "u"));
    let mut slots = vec![take_slot(&world).await];
    let mut client = world.client().await;
    client.send(GET).await;
    queued(&world, 1).await;
    let accepted = tokio::time::timeout(PATIENCE, endpoint.accept()).await;
    let (mut tcp, _) = accepted.unwrap().unwrap();
    let hello = tokio::time::timeout(PATIENCE, tcp.peek(&mut [0; 1])).await;
    assert_eq!(hello.unwrap().unwrap(), 1);
    let answered = task::spawn("answer", async move { client.response().await.0 });
    // Each byte of its answer is a record, and waits for as long as a slot is held.
    for byte in [2, 0, 4, 0, 0, 0, 0, 0] {
        if answered.is_finished() {
            break;
        }
        slots.push(take_slot(&world).await);
        // Nobody reads it any more once that was for too long.
        let _ = tcp.write_all(&[22, 3, 3, 0, 1, byte]).await;
    }
    assert!(
        answered.is_finished(),
        "each of its turns is waited for anew"
    );
    let head = answered.await.unwrap().unwrap();
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    let failed = "upstream_connections_total{event=\"failed\"} 0\n";
    world.counts(failed).await;
}

/// The same with endpoints that hold back their part of handshakes.
#[tokio::test]
async fn each_step_of_a_handshake_with_an_endpoint_has_a_turn() {
    let endpoint = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = world();
    let tls = Some(UpstreamTls::unverified());
    world.put_upstream_with("u", &[endpoint.local_addr().unwrap()], tls);
    world.put_route("r", route("a.example", "/", "u"));
    let first = take_slot(&world).await;
    let mut client = world.client().await;
    client.send(GET).await;
    // The hello waits until the slot was given back.
    queued(&world, 1).await;
    let accepted = tokio::time::timeout(PATIENCE, endpoint.accept()).await;
    let (tcp, _) = accepted.unwrap().unwrap();
    let hello = tokio::time::timeout(PATIENCE, tcp.peek(&mut [0; 1])).await;
    assert_eq!(hello.unwrap().unwrap(), 1);
    // Nothing is held while the endpoint is waited for.
    let second = take_slot(&world).await;
    queued(&world, 1).await;
    let made = certificate(&["u.example"]);
    let key = PrivatePkcs8KeyDer::from(made.key.expose().to_vec()).into();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.chain[0].to_vec().into()], key)
        .unwrap();
    task::spawn("endpoint", async move {
        let tls = TlsAcceptor::from(Arc::new(config)).accept(tcp).await;
        let mut asking = Client::new(tls.unwrap());
        asking.read_until("\r\n\r\n").await;
        asking
            .send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            .await;
        asking.read_bytes_to_end().await;
    });
    queued(&world, 2).await;
    let (head, _) = client.response().await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    drop((first, second));
}
