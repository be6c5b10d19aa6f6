use std::sync::mpsc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

use super::client::is_complete;
use super::*;
use crate::backend::BODY_BYTES;

fn response(status: &str, body: usize) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {body}\r\n\r\n");
    [head.into_bytes(), vec![b'x'; body]].concat()
}

#[test]
fn an_answer_is_complete_with_its_last_byte() {
    let whole = response("200 OK", BODY_BYTES);
    for end in 0..whole.len() {
        assert_eq!(
            is_complete(&whole[..end], BODY_BYTES),
            Ok(false),
            "{end} bytes"
        );
    }
    assert_eq!(is_complete(&whole, BODY_BYTES), Ok(true));
    let other = is_complete(&response("503 Service Unavailable", 0), BODY_BYTES);
    assert_eq!(
        other,
        Err((Trouble::Answer, "HTTP/1.1 503 Service Unavailable".into()))
    );
    assert!(is_complete(&response("200 OK", BODY_BYTES + 1), BODY_BYTES).is_err());
}

/// A server of one thread, which stands still once for `stall`, when told to.
fn stalling_server(stall: Duration) -> (SocketAddr, mpsc::SyncSender<()>) {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(["stalls.test".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key.into())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let (order, orders) = mpsc::sync_channel(1);
    let orders = Arc::new(std::sync::Mutex::new(orders));
    let serve = async move {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        loop {
            let (socket, _) = listener.accept().await?;
            let (acceptor, orders) = (acceptor.clone(), orders.clone());
            tokio::spawn(async move {
                let mut stream = acceptor.accept(socket).await?;
                let mut buffer = [0; 1 << 10];
                while stream.read(&mut buffer).await? > 0 {
                    let is_told = orders.lock().is_ok_and(|orders| orders.try_recv().is_ok());
                    if is_told {
                        std::thread::sleep(stall);
                    }
                    stream.write_all(&response("200 OK", BODY_BYTES)).await?;
                }
                std::io::Result::Ok(())
            });
        }
    };
    spawn(serve).unwrap();
    (address, order)
}

#[test]
fn a_stall_shows_in_every_request_that_was_due_meanwhile() {
    let stall = Duration::from_millis(500);
    let (address, order) = stalling_server(stall);
    let load = Load::start(address, &["stalls.test".to_owned()], 200.0).unwrap();
    until(|| load.take().requests > 0);
    order.send(()).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let measured = load.take();
    load.stop().unwrap();
    assert!(measured.errors.is_empty(), "{measured:?}");
    // A closed loop would have one slow request in two hundred; half of these were due in it.
    assert!(
        measured.p50_ms < measured.p99_ms && measured.p99_ms > 400.0,
        "{measured:?}"
    );
}

#[test]
fn what_is_not_served_is_counted_by_kind() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let load = Load::start(address, &["nobody.test".to_owned()], 1_000.0).unwrap();
    until(|| load.take().errors.contains_key(&Trouble::Connect));
    load.stop().unwrap();
}

fn until(is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < deadline, "not within ten seconds");
        std::thread::yield_now();
    }
}
