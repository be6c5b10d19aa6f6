//! A controller of a story's own, without a cluster: it tells proxies what the story says.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use myriad_base::drain::Drain;
use myriad_base::hold::{HoldLimits, Holds};
use myriad_model::{
    Action, Certificate, Delta, Domain, Endpoint, Endpoints, Form, Host, KeyEncoding, Listener,
    ListenerProtocol, Name, Origin, PathMatch, PrivateKey, Protocol, Resource, Route, Sealer,
    Snapshot, TlsSettings, Upstream, Value, WeightedUpstream, Writer,
};
use myriad_sync::{
    Authenticate, Identity, Owner, Refused, Server, ServerCounters, ServerSettings, Views,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use crate::authority::{Authority, Pair};

const KEY: [u8; 32] = [5; 32];

const VIEW: &str = "gateway";

/// How many events may wait; more than any story has.
const EVENTS_MAX: usize = 1_024;

/// A controller, and what it says.
pub struct Controller {
    address: SocketAddr,
    tls: Arc<ServerConfig>,
    writer: Writer,
    newest: watch::Sender<Snapshot>,
    serving: Option<Drain>,
}

/// Believes everybody.
struct Anybody;

type Answer<'a> = Pin<Box<dyn Future<Output = Result<Identity, Refused>> + Send + 'a>>;

impl Authenticate for Anybody {
    fn authenticate<'a>(&'a self, _: &'a str) -> Answer<'a> {
        Box::pin(async {
            Ok(Identity {
                subject: "story".into(),
                view: VIEW.into(),
                owner: Owner {
                    is_gateway: true,
                    ..Owner::default()
                },
            })
        })
    }
}

impl Controller {
    /// One that will listen at an address, and has nothing to say yet but where proxies listen.
    pub fn new(authority: &Authority, address: SocketAddr, listeners: &[(&str, Listener)]) -> Self {
        let pair = authority.issue(&[&address.ip().to_string()]);
        let (chain, key) = (certificate(&pair), private_key(&pair));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![chain], key)
            .expect("a certificate");
        let (newest, _) = watch::channel(Snapshot::new());
        let mut controller = Controller {
            address,
            tls: Arc::new(tls),
            writer: Writer::new(Sealer::new(KEY, Form::Encoded)),
            newest,
            serving: None,
        };
        for (name, listener) in listeners {
            controller.put(vec![(name, Value::Listener(Box::new(listener.clone())))]);
        }
        controller
    }

    /// A listener at an address.
    pub fn listener(address: SocketAddr, tls: bool) -> Listener {
        Listener {
            address,
            tls,
            default_certificate: None,
            protocol: ListenerProtocol::Http,
            capture: None,
        }
    }

    /// Says that a host is served at the listeners `http` and `https`, by this endpoint.
    pub fn say(&mut self, host: &str, endpoint: SocketAddr, pair: &Pair) {
        let upstream = Upstream {
            protocol: Protocol::Http1,
            dns: None,
            tls: None,
            options: None,
            original_destination: false,
            source_address: None,
        };
        let parsed = Host::parse(host).expect("a host");
        let target = WeightedUpstream {
            upstream: host.into(),
            weight: 1,
            headers: None,
            filters: None,
        };
        let route = Route {
            listeners: [Name::from("http"), Name::from("https")].into(),
            hosts: [parsed.clone()].into(),
            path: PathMatch::Prefix("/".into()),
            conditions: Box::default(),
            rank: 0,
            action: Action::Forward([target].into()),
            policy: Arc::default(),
        };
        let domain = Domain {
            listeners: [Name::from("https")].into(),
            host: parsed,
            certificate: Some(host.into()),
            alternatives: Box::default(),
            tls: Arc::new(TlsSettings::default()),
            client_auth: None,
            mesh: false,
            section: None,
            by_name: false,
        };
        let key = Bytes::copy_from_slice(private_key(pair).secret_der());
        let certificate = Certificate {
            chain: [Bytes::copy_from_slice(&certificate(pair))].into(),
            key: PrivateKey::new(KeyEncoding::Pkcs8, key),
        };
        let endpoints = Endpoints::new([Endpoint::even(endpoint)].into());
        self.put(vec![
            (host, Value::Upstream(Box::new(upstream))),
            (host, Value::Endpoints(Box::new(endpoints))),
            (host, Value::Certificate(Box::new(certificate))),
            (host, Value::Domain(Box::new(domain))),
            (host, Value::Route(Box::new(route))),
        ]);
    }

    fn put(&mut self, resources: Vec<(&str, Value)>) {
        let outputs = resources.into_iter().map(|(name, value)| {
            let origin = Origin::settings();
            (Name::from(name), Resource { origin, value })
        });
        let mut delta = Delta::default();
        self.writer.replace(&[], outputs.collect(), &mut delta);
        self.newest.send_replace(self.writer.snapshot().clone());
    }

    /// Answers from now on.
    ///
    /// # Panics
    /// Where somebody else listens at its address.
    pub async fn come(&mut self) {
        let listener = TcpListener::bind(self.address).await;
        let listener = listener.expect("nobody else listens there");
        let (drain, (events, mut happened)) = (Drain::new(), mpsc::channel(EVENTS_MAX));
        let settings = ServerSettings {
            key: KEY,
            tls: Some(self.tls.clone()),
            streams_max: 8,
            unauthenticated_max: 8,
            greeting_timeout: Duration::from_secs(10),
            answer_timeout: myriad_sync::server::ANSWER_TIMEOUT,
            holds: Holds::new(HoldLimits::NONE),
            lost: None,
        };
        let server = Server::new(
            settings,
            Arc::new(Anybody),
            Views::one(VIEW, self.newest.subscribe()),
            events,
            ServerCounters::default(),
            drain.holder(),
        );
        tokio::spawn(async move { while happened.recv().await.is_some() {} });
        tokio::spawn(server.serve(listener));
        self.serving = Some(drain);
    }

    /// Is gone, and answers nobody.
    pub async fn go(&mut self) {
        if let Some(drain) = self.serving.take() {
            drain.start();
            drain.finished().await;
        }
    }
}

fn certificate(pair: &Pair) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pair.certificate.as_bytes()).expect("a certificate")
}

fn private_key(pair: &Pair) -> PrivateKeyDer<'static> {
    PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("a key")
}
