//! Records of TLS that the socket of an endpoint takes only in part.

use std::rc::Rc;
use std::sync::Arc;

use myriad_model::UpstreamTls;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{LocalSet, yield_now};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::memory::{serve_by, worker};
use super::world::{PATIENCE, World, certificate, route};
use crate::http::worker::Worker;
use crate::limits::Limits;

/// The bytes of a body that are sent at once, which are a record.
const PIECE_BYTES: usize = 4 << 10;

/// More than sockets take of what nobody reads.
const SENT_MAX: usize = 64 << 20;

/// The room of an endpoint's socket for what it has not read.
const SOCKET_BYTES: u32 = 16 << 10;

const HEAD: &[u8] = b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1000000000\r\n\r\n";

/// A client and an endpoint that has read nothing, once the last record for it was taken only in
/// part, and how much of its body the client has sent by then.
struct Stuck {
    client: TcpStream,
    endpoint: TlsStream<TcpStream>,
    sent: usize,
}

/// An endpoint's socket, and a world with a route to it.
fn listening() -> (TcpListener, World) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(SOCKET_BYTES).unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let listener = socket.listen(1).unwrap();
    let mut world = World::start();
    let address = listener.local_addr().unwrap();
    world.put_upstream_with("u", &[address], Some(UpstreamTls::unverified()));
    world.put_route("r", route("a.example", "/", "u"));
    (listener, world)
}

fn acceptor() -> TlsAcceptor {
    let made = certificate(&["a.example"]);
    let key = PrivateKeyDer::Pkcs8(made.key.expose().to_vec().into());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.chain[0].to_vec().into()], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// The bytes that are held, once the worker has done all that it can.
async fn held(worker: &Worker) -> usize {
    for _ in 0..32 {
        yield_now().await;
    }
    worker.local.fairness.holdings.own()
}

impl Stuck {
    async fn new(worker: &Rc<Worker>, listener: &TcpListener) -> Stuck {
        let mut client = serve_by(worker).await;
        client.write_all(HEAD).await.unwrap();
        let (tcp, _) = listener.accept().await.unwrap();
        let endpoint = acceptor().accept(tcp).await.unwrap();
        let before = held(worker).await;
        let mut sent = 0;
        let kept = loop {
            assert!(sent < SENT_MAX, "the sockets take everything");
            client.write_all(&[b'x'; PIECE_BYTES]).await.unwrap();
            sent += PIECE_BYTES;
            let more = held(worker).await.saturating_sub(before);
            if more > 0 {
                break more;
            }
        };
        // Nothing but the rest of a record: all of the body that came was taken for it.
        assert!(kept <= PIECE_BYTES + 256, "{kept} bytes");
        Stuck {
            client,
            endpoint,
            sent,
        }
    }
}

/// Nobody else would send the rest: the client waits for an answer, and the endpoint for what it
/// is to answer.
#[tokio::test]
async fn the_rest_of_a_record_is_sent_though_nothing_follows_it() {
    let story = async {
        let (listener, world) = listening();
        let worker = worker(&world, Limits::default());
        let mut stuck = Stuck::new(&worker, &listener).await;
        let mut read = Vec::new();
        let reading = async {
            loop {
                let head = memchr::memmem::find(&read, b"\r\n\r\n").map(|at| at + 4);
                if head.is_some_and(|head| read.len() - head == stuck.sent) {
                    return;
                }
                assert!(stuck.endpoint.read_buf(&mut read).await.unwrap() > 0);
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, reading).await;
        assert!(in_time.is_ok(), "{} of {} bytes", read.len(), stuck.sent);
    };
    Box::pin(LocalSet::new().run_until(story)).await;
}

#[tokio::test]
async fn an_answer_is_read_while_the_rest_of_a_record_waits() {
    let story = async {
        let (listener, world) = listening();
        let worker = worker(&world, Limits::default());
        let mut stuck = Stuck::new(&worker, &listener).await;
        let answer = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n";
        stuck.endpoint.write_all(answer).await.unwrap();
        stuck.endpoint.flush().await.unwrap();
        let mut head = [0; 12];
        let reading = stuck.client.read_exact(&mut head);
        let in_time = tokio::time::timeout(PATIENCE, reading).await;
        in_time.unwrap().unwrap();
        assert_eq!(&head, b"HTTP/1.1 413");
    };
    Box::pin(LocalSet::new().run_until(story)).await;
}
