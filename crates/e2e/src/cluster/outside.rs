//! The world outside of a mesh: a machine with a public address in a network of its own, where a
//! server of MongoDB's protocol stands behind TLS, and a proxy that opens tunnels.

use std::net::{IpAddr, SocketAddr};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio_rustls::TlsAcceptor;

use super::{Cluster, Pod};
use crate::authority::Authority;
use crate::world::eventually;

/// The port that the server listens on, on the machine itself in plain text, and to others behind
/// TLS.
const PORT: u16 = 27_017;

/// The port for clients that show a certificate.
const MUTUAL_PORT: u16 = 27_018;

/// The port that the proxy listens on.
const PROXY_PORT: u16 = 3_128;

/// The longest head that the proxy reads.
const HEAD_BYTES_MAX: usize = 4 << 10;

/// The machine; it is gone when this is dropped.
pub struct Outside {
    pod: Pod,
    seen: Seen,
    _server: Child,
}

/// A connection that came to the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The address that it came from.
    pub peer: IpAddr,
    /// The port that it came to.
    pub port: u16,
    /// The name in the handshake, or what the proxy was asked for.
    pub name: String,
    /// Whether a certificate was shown.
    pub is_known: bool,
}

type Seen = Arc<Mutex<Vec<Arrival>>>;

impl Outside {
    /// Starts the server, which shows a certificate of this authority for these names.
    ///
    /// # Panics
    /// Where it does not listen.
    pub async fn start(cluster: &Cluster, authority: &Authority, names: &[&str]) -> Outside {
        let program = std::env::var_os("MYRIAD_MONGO_SERVER").expect(
            "MYRIAD_MONGO_SERVER is a program; `cargo xtask test --stage node` sets it, \
             `cargo xtask peer mongo` provides it",
        );
        let pod = Pod::outside(cluster).await;
        let mut command = Command::from(pod.network().command(program));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let server = command.spawn().expect("nsenter starts");
        let seen = Seen::default();
        let [simple, mutual] = configs(authority, names);
        let doors = Doors {
            address: pod.address(),
            simple,
            mutual,
            seen: seen.clone(),
        };
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        let door = pod.network().door().expect("the network is there");
        std::thread::spawn(move || {
            door.enter().expect("the network can be entered");
            let mut builder = tokio::runtime::Builder::new_current_thread();
            let runtime = builder.enable_all().build().expect("a runtime");
            runtime.block_on(doors.open(ready));
        });
        is_ready.await.expect("the server listens");
        Outside {
            pod,
            seen,
            _server: server,
        }
    }

    /// The address of the machine.
    pub fn address(&self) -> IpAddr {
        self.pod.address()
    }

    /// The arrivals since this was last asked.
    pub fn take_seen(&self) -> Vec<Arrival> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *seen)
    }
}

/// The listeners on the machine.
struct Doors {
    address: IpAddr,
    simple: Arc<ServerConfig>,
    mutual: Arc<ServerConfig>,
    seen: Seen,
}

impl Doors {
    /// Serves until the process ends.
    async fn open(self, ready: tokio::sync::oneshot::Sender<()>) {
        let server = SocketAddr::from(([127, 0, 0, 1], PORT));
        let listens = eventually(async || TcpStream::connect(server).await.ok());
        drop(listens.await.expect("the server of the database listens"));
        let at = async |port| {
            let listener = TcpListener::bind((self.address, port)).await;
            listener.expect("the port is free")
        };
        let (simple, mutual) = (at(PORT).await, at(MUTUAL_PORT).await);
        let proxy = at(PROXY_PORT).await;
        // Who waits may have given up, and nothing is lost then.
        let _ = ready.send(());
        tokio::join!(
            accept(simple, |tcp, peer| tokio::spawn(end_tls(
                tcp,
                (peer, PORT),
                self.simple.clone(),
                self.seen.clone()
            ))),
            accept(mutual, |tcp, peer| tokio::spawn(end_tls(
                tcp,
                (peer, MUTUAL_PORT),
                self.mutual.clone(),
                self.seen.clone()
            ))),
            accept(proxy, |tcp, peer| tokio::spawn(tunnel(
                tcp,
                peer,
                SocketAddr::new(self.address, PORT),
                self.seen.clone()
            ))),
        );
    }
}

async fn accept<T>(listener: TcpListener, serve: impl Fn(TcpStream, IpAddr) -> T) {
    while let Ok((tcp, peer)) = listener.accept().await {
        serve(tcp, peer.ip());
    }
}

async fn end_tls(
    tcp: TcpStream,
    (peer, port): (IpAddr, u16),
    config: Arc<ServerConfig>,
    seen: Seen,
) {
    let Ok(mut tls) = TlsAcceptor::from(config).accept(tcp).await else {
        return;
    };
    let (_, session) = tls.get_ref();
    let arrival = Arrival {
        peer,
        port,
        name: session.server_name().unwrap_or_default().to_owned(),
        is_known: session.peer_certificates().is_some(),
    };
    seen.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(arrival);
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", PORT)).await else {
        return;
    };
    // How either side ends is its own affair.
    let _ = tokio::io::copy_bidirectional(&mut tls, &mut server).await;
}

/// A proxy that leads to the database, whatever it is asked for.
async fn tunnel(mut tcp: TcpStream, peer: IpAddr, to: SocketAddr, seen: Seen) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD_BYTES_MAX {
        let Ok(byte) = tcp.read_u8().await else {
            return;
        };
        head.push(byte);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let arrival = Arrival {
        peer,
        port: PROXY_PORT,
        name: head.lines().next().unwrap_or_default().to_owned(),
        is_known: false,
    };
    seen.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(arrival);
    let Ok(mut further) = TcpStream::connect(to).await else {
        return;
    };
    if tcp.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.is_ok() {
        let _ = tokio::io::copy_bidirectional(&mut tcp, &mut further).await;
    }
}

/// How TLS is ended: for everybody, and for those who show a certificate of the authority.
fn configs(authority: &Authority, names: &[&str]) -> [Arc<ServerConfig>; 2] {
    let pair = authority.issue(names);
    let chain = || {
        let chain = CertificateDer::from_pem_slice(pair.certificate.as_bytes());
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes());
        (vec![chain.expect("a certificate")], key.expect("a key"))
    };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = || {
        ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("the versions of every build")
    };
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(authority.root().as_bytes());
    roots.add(root.expect("a root")).expect("a root");
    let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    let clients = clients.build().expect("a verifier");
    let (certificates, key) = chain();
    let simple = builder().with_no_client_auth();
    let simple = simple.with_single_cert(certificates, key);
    let (certificates, key) = chain();
    let mutual = builder().with_client_cert_verifier(clients);
    let mutual = mutual.with_single_cert(certificates, key);
    [simple, mutual].map(|config| Arc::new(config.expect("a certificate and its key")))
}
