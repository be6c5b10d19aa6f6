//! Sessions of TLS with endpoints: how long they are resumed.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use myriad_base::{clock, task};
use myriad_model::{Endpoint, Endpoints, Protocol, Trust, Upstream, UpstreamTls, Users, Value};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{HandshakeKind, ServerConfig, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::world::{World, route};

const NAME: &str = "backend.example";

const GET: &str = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Authority(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    fn trust(&self) -> Value {
        Value::Trust(Box::new(Trust {
            roots: [Bytes::from(self.0.der().to_vec())].into(),
            crls: Box::default(),
            users: Users::default(),
        }))
    }

    /// A certificate of the endpoint, until so many seconds after the epoch.
    fn certificate(&self, end: i64) -> Arc<CertifiedKey> {
        let mut params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
        params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(end.unsigned_abs());
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &self.0).unwrap();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let key = provider.key_provider.load_private_key(key).unwrap();
        Arc::new(CertifiedKey::new(vec![leaf.der().clone()], key))
    }
}

/// The certificate that an endpoint shows, which is renewed without a restart.
#[derive(Debug)]
struct Shown(Mutex<Arc<CertifiedKey>>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.lock().unwrap().clone())
    }
}

/// An endpoint that answers one request of a connection, and tells of each whether it came by a
/// session that was resumed.
struct Resuming {
    address: SocketAddr,
    shown: Arc<Shown>,
    served: Arc<Mutex<Vec<bool>>>,
}

impl Resuming {
    async fn new(version: &'static SupportedProtocolVersion, shown: Arc<CertifiedKey>) -> Self {
        let shown = Arc::new(Shown(Mutex::new(shown)));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(shown.clone());
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = Arc::<Mutex<Vec<bool>>>::default();
        let told = served.clone();
        task::spawn("resuming endpoint", async move {
            while let Ok((tcp, _)) = listener.accept().await {
                if let Ok(tls) = acceptor.accept(tcp).await {
                    task::spawn("resuming connection", answer(tls, told.clone()));
                }
            }
        });
        Resuming {
            address,
            shown,
            served,
        }
    }

    /// Whether each of the requests that were served came by a session that was resumed.
    fn served(&self) -> Vec<bool> {
        self.served.lock().unwrap().clone()
    }
}

/// Answers one request, and tells whether it came by a session that was resumed. A client that asks
/// for nothing is not told of.
async fn answer(mut tls: TlsStream<TcpStream>, told: Arc<Mutex<Vec<bool>>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if tls.read_buf(&mut head).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let kind = tls.get_ref().1.handshake_kind();
    told.lock()
        .unwrap()
        .push(kind == Some(HandshakeKind::Resumed));
    let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
    let _ = tls.write_all(answer).await;
    let _ = tls.shutdown().await;
}

/// Leads to an endpoint that is verified.
fn put(world: &mut World, address: SocketAddr, change: impl FnOnce(&mut UpstreamTls)) {
    let mut tls = UpstreamTls {
        server_name: NAME.into(),
        verify: true,
        trust: Some("ca".into()),
        ..UpstreamTls::unverified()
    };
    change(&mut tls);
    let upstream = Upstream {
        tls: Some(Box::new(tls)),
        ..Upstream::plain(Protocol::Https1)
    };
    let endpoints = Endpoints::new([Endpoint::even(address)].into());
    world.put_all(vec![
        ("u", Value::Upstream(Box::new(upstream))),
        ("u", Value::Endpoints(Box::new(endpoints))),
    ]);
}

fn world(authority: &Authority, endpoint: &Resuming) -> World {
    let mut world = World::start();
    world.put("ca", authority.trust());
    world.put_route("r", route("a.example", "/", "u"));
    put(&mut world, endpoint.address, |_| {});
    world
}

/// The status of an answer.
async fn status(world: &World) -> String {
    let answer = world.ask(GET).await;
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

/// An endpoint with the key of a certificate that has ended was believed for as long as sessions
/// went on that it had begun, since each makes the next.
#[tokio::test]
async fn no_session_with_an_endpoint_is_resumed_once_its_certificate_has_ended() {
    let authority = Authority::new();
    let mut cases = Vec::new();
    for version in [&TLS12, &TLS13] {
        for is_renewed in [false, true] {
            let case = format!("{version:?} {is_renewed}");
            let end = clock::unix_seconds() + 3;
            let endpoint = Resuming::new(version, authority.certificate(end)).await;
            let world = world(&authority, &endpoint);
            for _ in 0..2 {
                assert_eq!(status(&world).await, "200", "{case}");
            }
            assert_eq!(endpoint.served(), [false, true], "{case}");
            cases.push((case, is_renewed, end, endpoint, world));
        }
    }
    for (case, is_renewed, end, endpoint, world) in cases {
        while clock::unix_seconds() <= end {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        if !is_renewed {
            assert_eq!(status(&world).await, "502", "{case}");
            assert_eq!(endpoint.served(), [false, true], "{case}");
            continue;
        }
        *endpoint.shown.0.lock().unwrap() = authority.certificate(end + 3_600);
        for _ in 0..2 {
            assert_eq!(status(&world).await, "200", "{case}");
        }
        // The certificate is verified that it shows now, and begins a session of its own.
        let served = endpoint.served();
        assert_eq!(served[..3], [false, true, false], "{case}");
    }
}

#[tokio::test]
async fn no_session_is_resumed_where_trust_or_names_are_others() {
    let (authority, other) = (Authority::new(), Authority::new());
    for version in [&TLS12, &TLS13] {
        let end = clock::unix_seconds() + 3_600;
        let endpoint = Resuming::new(version, authority.certificate(end)).await;
        let mut world = world(&authority, &endpoint);
        for _ in 0..2 {
            assert_eq!(status(&world).await, "200");
        }
        world.put("ca", other.trust());
        assert_eq!(status(&world).await, "502", "{version:?}");
        world.put("ca", authority.trust());
        put(&mut world, endpoint.address, |tls| {
            tls.server_name = "other.example".into();
        });
        assert_eq!(status(&world).await, "502", "{version:?}");
        put(&mut world, endpoint.address, |tls| {
            tls.subject_alt_names = ["x.example".into()].into();
        });
        assert_eq!(status(&world).await, "502", "{version:?}");
        assert_eq!(endpoint.served(), [false, true], "{version:?}");
    }
}
