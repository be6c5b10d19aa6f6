//! The plumbing of stories: a proxy, resources, endpoints and clients.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use myriad_base::metrics::Metrics;
use myriad_base::task;
use myriad_model::{
    Action, Certificate, Commit, Domain, Endpoint, Endpoints, Form, Host, Key, KeyEncoding, Kind,
    Listener, ListenerProtocol, Name, Origin, OriginKind, PathMatch, Policy, Position, PrivateKey,
    Protocol, Resource, Route, Sealer, TlsSettings, Upstream, UpstreamTls, Value, WeightedUpstream,
    Writer,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::codec::body::{BodyDecoder, BodyLength};
use crate::limits::Limits;
use crate::{Applied, Proxy, Settings};

/// How long a story waits for anything before it fails.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// A running proxy, and the writer of what it obeys.
pub(super) struct World {
    pub proxy: Proxy,
    pub metrics: Metrics,
    writer: Writer,
}

/// The route that stories start from.
pub(super) fn route(host: &str, path: &str, upstream: &str) -> Route {
    Route {
        listeners: [Name::from("http"), Name::from("https")].into(),
        hosts: [Host::parse(host).unwrap()].into(),
        path: PathMatch::Prefix(path.into()),
        conditions: Box::default(),
        rank: 1_000 - path.len() as u64,
        action: Action::Forward(
            [WeightedUpstream {
                upstream: upstream.into(),
                weight: 1,
                headers: None,
                filters: None,
            }]
            .into(),
        ),
        policy: Arc::default(),
    }
}

pub(super) fn with_policy(mut route: Route, change: impl FnOnce(&mut Policy)) -> Route {
    let mut policy = Policy::default();
    change(&mut policy);
    route.policy = Arc::new(policy);
    route
}

impl World {
    /// A proxy with one worker that listens in plain text (`http`) and on TLS (`https`).
    pub(super) fn start() -> Self {
        World::start_with(Settings {
            workers: 1,
            drain_timeout: PATIENCE,
            ..Settings::default()
        })
    }

    /// A world with limits of its own.
    pub(super) fn limited(limits: Limits) -> Self {
        World::start_with(Settings {
            workers: 1,
            limits,
            ..Settings::default()
        })
    }

    pub(super) fn start_with(settings: Settings) -> Self {
        let metrics = Metrics::new();
        let proxy = Proxy::start(settings, &metrics).unwrap();
        let mut world = World {
            proxy,
            metrics,
            writer: Writer::new(Sealer::new([7; 32], Form::Value)),
        };
        for (name, tls) in [("http", false), ("https", true)] {
            let listener = Listener {
                address: ([127, 0, 0, 1], 0).into(),
                tls,
                default_certificate: tls.then(|| "default".into()),
                protocol: ListenerProtocol::Http,
                capture: None,
            };
            world.put(name, Value::Listener(Box::new(listener)));
        }
        world
    }

    /// Waits until the metrics have this text: what a client has seen is counted after it.
    pub(super) async fn counts(&self, text: &str) {
        let counted = async {
            while !self.metrics.encode().contains(text) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, counted).await;
        assert!(in_time.is_ok(), "no {text} in {}", self.metrics.encode());
    }

    /// Puts one resource in.
    pub(super) fn put(&mut self, name: &str, value: Value) -> Applied {
        self.put_all(vec![(name, value)])
    }

    /// Puts resources in with one commit.
    pub(super) fn put_all(&mut self, resources: Vec<(&str, Value)>) -> Applied {
        self.put_all_of("ns", resources)
    }

    /// Puts resources of an object in a namespace.
    pub(super) fn put_all_of(&mut self, namespace: &str, resources: Vec<(&str, Value)>) -> Applied {
        let origin = Origin {
            kind: OriginKind::Ingress,
            id: format!("{namespace}/story").into(),
        };
        let outputs = resources.into_iter().map(|(name, value)| {
            let origin = origin.clone();
            (Name::from(name), Resource { origin, value })
        });
        self.replace(&[], outputs.collect())
    }

    /// Takes a resource out.
    pub(super) fn remove(&mut self, kind: Kind, name: &str) -> Applied {
        let key = Key::new(kind, name);
        self.replace(&[key], Vec::new())
    }

    fn replace(&mut self, former: &[Key], outputs: Vec<(Name, Resource)>) -> Applied {
        let mut delta = myriad_model::Delta::default();
        let changes = self.writer.replace(former, outputs, &mut delta);
        let changes = changes.to_vec();
        self.proxy.apply(&Commit {
            changes,
            position: Position::default(),
        })
    }

    pub(super) fn put_route(&mut self, name: &str, route: Route) -> Applied {
        self.put(name, Value::Route(Box::new(route)))
    }

    /// An upstream in plain text.
    pub(super) fn put_upstream(&mut self, name: &str, endpoints: &[SocketAddr]) {
        self.put_upstream_with(name, endpoints, None);
    }

    pub(super) fn put_upstream_with(
        &mut self,
        name: &str,
        endpoints: &[SocketAddr],
        tls: Option<UpstreamTls>,
    ) {
        let upstream = Upstream {
            protocol: match tls {
                Some(_) => Protocol::Https1,
                None => Protocol::Http1,
            },
            dns: None,
            tls: tls.map(Box::new),
            options: None,
            original_destination: false,
            source_address: None,
        };
        let mut endpoints: Vec<Endpoint> = endpoints
            .iter()
            .map(|address| Endpoint::even(*address))
            .collect();
        endpoints.sort_by_key(|endpoint| endpoint.address);
        let endpoints = endpoints.into();
        self.put_all(vec![
            (name, Value::Upstream(Box::new(upstream))),
            (name, Value::Endpoints(Box::new(Endpoints::new(endpoints)))),
        ]);
    }

    /// A domain with a certificate of its own, and returns the leaf.
    pub(super) fn put_domain(&mut self, host: &str, names: &[&str], tls: TlsSettings) -> Bytes {
        let certificate = certificate(names);
        let leaf = certificate.chain[0].clone();
        let domain = domain(host, Some(host), tls);
        self.put_all(vec![
            (host, Value::Certificate(Box::new(certificate))),
            (host, Value::Domain(Box::new(domain))),
        ]);
        leaf
    }

    pub(super) fn address(&self, listener: &str) -> SocketAddr {
        let addresses = self.proxy.addresses();
        let found = addresses.iter().find(|(name, _)| name.as_str() == listener);
        found.unwrap().1
    }

    /// A client in plain text.
    pub(super) async fn client(&self) -> Client<TcpStream> {
        Client::new(TcpStream::connect(self.address("http")).await.unwrap())
    }

    /// A client on TLS.
    pub(super) async fn tls_client(&self, name: &str) -> io::Result<Client<TlsStream<TcpStream>>> {
        self.tls_client_with(name, &trusting()).await
    }

    pub(super) async fn tls_client_with(
        &self,
        name: &str,
        config: &Arc<ClientConfig>,
    ) -> io::Result<Client<TlsStream<TcpStream>>> {
        let tcp = TcpStream::connect(self.address("https")).await?;
        let connector = TlsConnector::from(config.clone());
        let name = ServerName::try_from(name.to_owned()).unwrap();
        Ok(Client::new(connector.connect(name, tcp).await?))
    }

    /// One request in plain text, and the whole answer.
    pub(super) async fn ask(&self, request: &str) -> String {
        let mut client = self.client().await;
        client.send(request).await;
        client.read_to_end().await
    }

    /// Sees to it that so many clients of a host are answered, each beside those before.
    pub(super) async fn answers_all(&self, host: &str, count: usize) {
        let mut answered = Vec::new();
        for _ in 0..count {
            let mut client = self.client().await;
            client
                .send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"))
                .await;
            let (head, _) = client.response().await;
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
            answered.push(client);
        }
    }
}

pub(super) fn domain(host: &str, certificate: Option<&str>, tls: TlsSettings) -> Domain {
    Domain {
        listeners: [Name::from("https")].into(),
        host: Host::parse(host).unwrap(),
        certificate: certificate.map(Name::from),
        alternatives: Box::default(),
        tls: Arc::new(tls),
        client_auth: None,
        mesh: false,
        section: None,
        by_name: false,
    }
}

pub(super) fn certificate(names: &[&str]) -> Certificate {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let key = Bytes::from(made.signing_key.serialize_der());
    Certificate {
        chain: [Bytes::from(made.cert.der().to_vec())].into(),
        key: PrivateKey::new(KeyEncoding::Pkcs8, key),
    }
}

/// A client of raw bytes.
pub(super) struct Client<S> {
    pub stream: S,
    read: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub(super) fn new(stream: S) -> Self {
        Client {
            stream,
            read: Vec::new(),
        }
    }

    pub(super) async fn send(&mut self, text: impl AsRef<[u8]>) {
        let sent = self.stream.write_all(text.as_ref());
        tokio::time::timeout(PATIENCE, sent).await.unwrap().unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Everything until the proxy closes.
    pub(super) async fn read_to_end(&mut self) -> String {
        while self.fill().await > 0 {}
        String::from_utf8(std::mem::take(&mut self.read)).unwrap()
    }

    /// Reads until the proxy closes, whatever it says.
    pub(super) async fn read_bytes_to_end(&mut self) {
        while self.fill().await > 0 {}
    }

    /// Everything up to and with a text.
    pub(super) async fn read_until(&mut self, text: &str) -> String {
        loop {
            let found = self
                .read
                .windows(text.len())
                .position(|at| at == text.as_bytes());
            if let Some(at) = found {
                let rest = self.read.split_off(at + text.len());
                let read = std::mem::replace(&mut self.read, rest);
                return String::from_utf8(read).unwrap();
            }
            if self.fill().await == 0 {
                let read = String::from_utf8_lossy(&self.read).into_owned();
                panic!("the proxy closed before {text:?}, after {read:?}");
            }
        }
    }

    /// Reads so many bytes.
    pub(super) async fn read_exact(&mut self, count: usize) -> Vec<u8> {
        while self.read.len() < count {
            assert!(self.fill().await > 0, "the proxy closed early");
        }
        let rest = self.read.split_off(count);
        std::mem::replace(&mut self.read, rest)
    }

    /// Head and body of one response with a length.
    pub(super) async fn response(&mut self) -> (String, String) {
        let head = self.read_until("\r\n\r\n").await;
        let length = header(&head, "content-length").map_or(0, |value| value.parse().unwrap());
        while self.read.len() < length {
            assert!(self.fill().await > 0, "the body ended early");
        }
        let rest = self.read.split_off(length);
        let body = std::mem::replace(&mut self.read, rest);
        (head, String::from_utf8(body).unwrap())
    }

    /// Reads something, however long it takes; none at the end.
    async fn read_some(&mut self) -> Option<()> {
        let mut bytes = [0; 4_096];
        let count = self.stream.read(&mut bytes).await.ok()?;
        self.read.extend_from_slice(&bytes[..count]);
        (count > 0).then_some(())
    }

    async fn fill(&mut self) -> usize {
        let mut bytes = vec![0; 16_384];
        let read = tokio::time::timeout(PATIENCE, self.stream.read(&mut bytes)).await;
        // A reset is an end for a client that has all it waits for.
        let count = read.expect("the proxy says nothing").unwrap_or(0);
        self.read.extend_from_slice(&bytes[..count]);
        count
    }
}

/// The value of a field of a head.
pub(super) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// An endpoint that answers each request by what a function makes of its head.
pub(super) struct Backend {
    pub address: SocketAddr,
    pub connections: Arc<AtomicUsize>,
    pub requests: Arc<AtomicUsize>,
}

impl Backend {
    /// Answers every request with its head as the body.
    pub(super) async fn echo() -> Self {
        Backend::answering(|request| {
            let end = request.find("\r\n\r\n").unwrap();
            let head = &request[..end + 4];
            let length = head.len();
            format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{head}")
        })
        .await
    }

    /// Answers every request with a fixed text.
    pub(super) async fn saying(text: &'static str) -> Self {
        Backend::answering(move |_| {
            format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}",
                text.len()
            )
        })
        .await
    }

    /// Answers every request, once it is complete, with the bytes that a function makes of its
    /// head and its body; an empty answer closes.
    pub(super) async fn answering(
        answer: impl Fn(&str) -> String + Send + Sync + Clone + 'static,
    ) -> Self {
        Backend::answering_at(([127, 0, 0, 1], 0).into(), answer).await
    }

    /// An endpoint that answers, at an address.
    pub(super) async fn answering_at(
        address: SocketAddr,
        answer: impl Fn(&str) -> String + Send + Sync + Clone + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let backend = Backend {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
            requests: Arc::default(),
        };
        let (connections, requests) = (backend.connections.clone(), backend.requests.clone());
        task::spawn("backend", async move {
            while let Ok((tcp, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                let (requests, answer) = (requests.clone(), answer.clone());
                task::spawn("backend connection", async move {
                    let mut client = Client::new(tcp);
                    while let Some(head) = read_request(&mut client).await {
                        requests.fetch_add(1, Ordering::SeqCst);
                        let answer = answer(&head);
                        if answer.is_empty() {
                            return;
                        }
                        client.send(answer).await;
                    }
                });
            }
        });
        backend
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(super) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// A head and the body behind it, without its framing.
async fn read_request(client: &mut Client<TcpStream>) -> Option<String> {
    let mut request = loop {
        let found = client.read.windows(4).position(|at| at == b"\r\n\r\n");
        if let Some(at) = found {
            let rest = client.read.split_off(at + 4);
            let head = std::mem::replace(&mut client.read, rest);
            break String::from_utf8_lossy(&head).into_owned();
        }
        client.read_some().await?;
    };
    let length = header(&request, "content-length").map(|length| length.parse().unwrap());
    let mut decoder = BodyDecoder::new(match (length, header(&request, "transfer-encoding")) {
        (Some(length), _) => BodyLength::Exact(length),
        (None, Some(_)) => BodyLength::Chunked,
        (None, None) => BodyLength::None,
    });
    while !decoder.is_done() {
        if client.read.is_empty() {
            client.read_some().await?;
        }
        let step = decoder.step(&client.read).unwrap();
        request += &String::from_utf8_lossy(step.data);
        let consumed = step.consumed;
        client.read.drain(..consumed);
    }
    Some(request)
}

/// A client configuration that takes any certificate, without resumption.
pub(super) fn trusting() -> Arc<ClientConfig> {
    let mut config = trusting_config();
    config.resumption = rustls::client::Resumption::disabled();
    Arc::new(config)
}

pub(super) fn trusting_config() -> ClientConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trusting))
        .with_no_client_auth()
}

/// A verifier that trusts any certificate.
pub(super) fn trust() -> Arc<dyn ServerCertVerifier> {
    Arc::new(Trusting)
}

#[derive(Debug)]
struct Trusting;

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
