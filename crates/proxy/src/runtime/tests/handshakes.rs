//! The turns of handshakes behind their first step: what a peer shows is verified in turns as well,
//! and nobody holds one while a peer is waited for.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use bytes::Bytes;
use myriad_base::task;
use myriad_model::{ClientAuth, ClientAuthMode, TlsSettings, Trust, UpstreamTls, Users, Value};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::overload::{begin, until_answered};
use super::world::{Backend, Client, PATIENCE, World, certificate, domain, route, trust};
use crate::limits::Limits;

const GET: &str = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";

/// A world in which one handshake goes on at a time.
fn world() -> World {
    let mut world = World::limited(Limits {
        handshakes_max: 1,
        ..Limits::default()
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
    async fn new(world: &World, config: Arc<ClientConfig>) -> Self {
        let tcp = TcpStream::connect(world.address("https")).await.unwrap();
        let name = ServerName::try_from("a.example").unwrap();
        let tls = ClientConnection::new(config, name).unwrap();
        let mut half = Half { tcp, tls };
        half.say().await;
        while half.tls.is_handshaking() {
            half.hear().await;
        }
        half
    }

    /// Sends all that it has to say.
    async fn say(&mut self) {
        let mut said = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut said).unwrap();
        }
        self.tcp.write_all(&said).await.unwrap();
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
