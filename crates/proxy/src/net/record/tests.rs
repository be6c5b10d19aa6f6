//! Peers that say by TLS what carries nothing, or half a message, and what comes of it.

use std::future::{pending, poll_fn};
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::waste::{RECORD_BYTES, TURN_BYTES, WASTE_BYTES_MAX};
use super::{Tls, first_record};

const PATIENCE: Duration = Duration::from_secs(60);

/// The bytes of a ticket that is kept at the server's, with its header.
const TICKET_BYTES: usize = 81;

/// The tickets in one record, which ends with the last one.
const TICKETS_PER_RECORD: usize = 100;

/// Counts how often somebody was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The configurations of both ends, the server's first, which sends so many tickets.
fn configs(tickets: usize) -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let chain = vec![made.cert.der().clone()];
    let mut roots = RootCertStore::empty();
    roots.add(chain[0].clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut server = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    server.send_tls13_tickets = tickets;
    server.max_fragment_size = Some(5 + TICKETS_PER_RECORD * TICKET_BYTES);
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (Arc::new(server), Arc::new(client))
}

fn name() -> ServerName<'static> {
    ServerName::try_from("a.example").unwrap()
}

/// Both ends of a connection, the server's first.
async fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connected = TcpStream::connect(address).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    (accepted, connected)
}

/// Both ends of a connection over TLS before their handshake, the server's first.
async fn both(tickets: usize) -> (Tls, Tls) {
    let ((server, client), (accepted, connected)) = (configs(tickets), connected().await);
    let server = Tls::server(accepted, server, &[]).unwrap();
    let client = Tls::client(connected, client, name()).unwrap();
    (server, client)
}

async fn shake(tls: &mut Tls) -> io::Result<()> {
    poll_fn(|context| tls.poll_handshake(context, &mut |step| step())).await
}

async fn write(tls: &mut Tls, plain: &[u8]) {
    let written = poll_fn(|context| tls.poll_write(context, plain)).await;
    assert_eq!(written.unwrap(), plain.len());
    poll_fn(|context| tls.poll_flush(context)).await.unwrap();
}

/// Reads until so many plain bytes are there, or something fails. Returns how many there were.
async fn read(tls: &mut Tls, wanted: usize) -> (usize, io::Result<()>) {
    let (mut room, mut count) = (vec![0; 64 << 10], 0);
    while count < wanted {
        match poll_fn(|context| tls.poll_read(context, &mut room)).await {
            Ok(0) => return (count, Err(io::ErrorKind::UnexpectedEof.into())),
            Ok(read) => count += read,
            Err(error) => return (count, Err(error)),
        }
    }
    (count, Ok(()))
}

/// Waits until a socket has so many bytes to read.
async fn arrived(tcp: &TcpStream, bytes: usize) {
    let mut room = vec![0; bytes];
    let waiting = async {
        while tcp.peek(&mut room).await.unwrap() < bytes {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap();
}

fn is_wasteful(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData && error.to_string().contains("too many tickets")
}

#[tokio::test]
async fn tickets_without_end_end_their_connection() {
    let all = 2 * WASTE_BYTES_MAX as usize / TICKET_BYTES;
    let (mut server, mut client) = both(all).await;
    let serving = async {
        // It does not get to the end, unless all of them are taken.
        if shake(&mut server).await.is_ok() {
            write(&mut server, b"x").await;
        }
        pending::<()>().await;
    };
    let reading = async {
        shake(&mut client).await.unwrap();
        read(&mut client, 1).await
    };
    let read = async {
        tokio::select! {
            () = serving => unreachable!(),
            read = reading => read,
        }
    };
    let (count, read) = tokio::time::timeout(PATIENCE, read).await.unwrap();
    assert_eq!(count, 0);
    assert!(is_wasteful(&read.unwrap_err()));
    // Nothing is read behind the failure, and nothing is said.
    let (_, again) = self::read(&mut client, 1).await;
    assert_eq!(again.unwrap_err().kind(), io::ErrorKind::InvalidData);
    let written = poll_fn(|context| client.poll_write(context, b"x")).await;
    assert_eq!(written.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}

#[tokio::test]
async fn others_have_their_turn_between_tickets() {
    let (mut server, mut client) = both(4 * TICKETS_PER_RECORD).await;
    let (of_server, of_client) = tokio::join!(shake(&mut server), shake(&mut client));
    of_server.and(of_client).unwrap();
    // The last byte of the last record is the plain one.
    write(&mut server, b"x").await;
    let record = 22 + TICKETS_PER_RECORD * TICKET_BYTES;
    arrived(client.tcp(), 4 * record + 23).await;
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let (mut turns, mut room) = (0, vec![0; 64 << 10]);
    let read = loop {
        match client.poll_read(&mut Context::from_waker(&waker), &mut room) {
            Poll::Ready(read) => break read,
            Poll::Pending => turns += 1,
        }
        assert_eq!(woken.0.load(Ordering::Relaxed), turns);
        // No more than one record beyond the bytes of a turn was looked at.
        let looked = turns * (TURN_BYTES as usize + record);
        assert!(client.fresh as usize >= (4 * record).saturating_sub(looked));
    };
    assert_eq!(read.unwrap(), 1);
    assert_eq!(turns, 2);
    assert!(client.partial.is_empty());
}

/// They are no waste, so that whatever had arrived was read in one turn.
#[tokio::test]
async fn others_have_their_turn_between_records_of_a_byte() {
    let (mut server, mut client) = both(0).await;
    let (of_server, of_client) = tokio::join!(shake(&mut server), shake(&mut client));
    of_server.and(of_client).unwrap();
    let of_turn = (TURN_BYTES / RECORD_BYTES) as usize;
    for _ in 0..3 * of_turn {
        write(&mut client, b"x").await;
    }
    arrived(server.tcp(), 3 * of_turn * 23).await;
    let (mut read, mut turns, mut room) = (Vec::new(), 0, vec![0; 64 << 10]);
    while read.iter().sum::<usize>() < 3 * of_turn {
        match server.poll_read(&mut Context::from_waker(Waker::noop()), &mut room) {
            Poll::Ready(count) => read.push(count.unwrap()),
            Poll::Pending => turns += 1,
        }
    }
    assert_eq!((read, turns), (vec![of_turn; 3], 2));
}

#[tokio::test]
async fn updates_of_keys_between_plain_bytes_end_their_connection() {
    let (config, of_client) = configs(0);
    let (accepted, mut tcp) = connected().await;
    let mut server = Tls::server(accepted, config, &[]).unwrap();
    let mut session = ClientConnection::new(of_client, name()).unwrap();
    let groups = 1_000;
    let talking = async {
        let (mut bytes, mut room) = (Vec::new(), vec![0; 16 << 10]);
        loop {
            while session.wants_write() {
                session.write_tls(&mut bytes).unwrap();
            }
            tcp.write_all(&bytes).await.unwrap();
            bytes.clear();
            if !session.is_handshaking() {
                break;
            }
            let count = tcp.read(&mut room).await.unwrap();
            session.read_tls(&mut &room[..count]).unwrap();
            session.process_new_packets().unwrap();
        }
        for _ in 0..groups {
            for _ in 0..30 {
                session.refresh_traffic_keys().unwrap();
            }
            session.writer().write_all(b"x").unwrap();
            while session.wants_write() {
                session.write_tls(&mut bytes).unwrap();
            }
            tcp.write_all(&bytes).await.unwrap();
            bytes.clear();
        }
        pending::<()>().await;
    };
    let reading = async {
        shake(&mut server).await.unwrap();
        read(&mut server, groups).await
    };
    let read = async {
        tokio::select! {
            () = talking => unreachable!(),
            read = reading => read,
        }
    };
    let (count, read) = tokio::time::timeout(PATIENCE, read).await.unwrap();
    assert!(is_wasteful(&read.unwrap_err()));
    // What is waste of a group: 30 records of 27 bytes.
    let most = WASTE_BYTES_MAX as usize / (30 * 27) + 1;
    assert!((most / 2..=most).contains(&count), "{count}");
}

#[tokio::test]
async fn plain_bytes_one_by_one_are_no_waste() {
    let (mut server, mut client) = both(2).await;
    let (of_server, of_client) = tokio::join!(shake(&mut server), shake(&mut client));
    of_server.and(of_client).unwrap();
    let all = 2 * WASTE_BYTES_MAX as usize / 22;
    let talking = async {
        for _ in 0..all {
            write(&mut client, b"x").await;
        }
    };
    let both = async { tokio::join!(talking, read(&mut server, all)) };
    let ((), (count, read)) = tokio::time::timeout(PATIENCE, both).await.unwrap();
    read.unwrap();
    assert_eq!(count, all);
}

/// The session looked for what it had of the message where nothing was any more.
#[tokio::test]
async fn a_message_in_part_stands_in_the_way_of_nothing() {
    // No record ends with a ticket, but for the last one.
    let (mut config, of_client) = configs(TICKETS_PER_RECORD);
    Arc::get_mut(&mut config).unwrap().max_fragment_size = Some(5 + TICKET_BYTES * 3 / 2);
    let (accepted, connected) = connected().await;
    let mut server = Tls::server(accepted, config, &[]).unwrap();
    let mut client = Tls::client(connected, of_client, name()).unwrap();
    let (of_server, of_client) = tokio::join!(shake(&mut server), shake(&mut client));
    of_server.and(of_client).unwrap();
    let record = 22 + TICKET_BYTES * 3 / 2;
    // One record, which ends in the middle of a ticket.
    let mut scratch = vec![0; record];
    client.tcp.read_exact(&mut scratch).await.unwrap();
    assert_eq!(first_record(&scratch), record);
    client.fresh = record as u32;
    let opened = client.open_records(Some(scratch.as_mut_slice()), &mut []);
    assert_eq!(opened.unwrap(), 0);
    assert!(!client.partial.is_empty());
    write(&mut client, b"x").await;
    assert_eq!(read(&mut server, 1).await.0, 1);
    poll_fn(|context| client.poll_shutdown(context))
        .await
        .unwrap();
    // And the rest of it is still taken.
    write(&mut server, b"x").await;
    let (count, read) = read(&mut client, 1).await;
    read.unwrap();
    assert_eq!(count, 1);
}

/// The session looked for the message behind its failure, too.
#[tokio::test]
async fn a_handshake_that_fails_within_a_message_only_fails() {
    let (mut accepted, connected) = connected().await;
    let mut client = Tls::client(connected, configs(0).1, name()).unwrap();
    // A part of a ServerHello, and plain bytes.
    let says = [22, 3, 3, 0, 4, 2, 0, 0, 40, 23, 3, 3, 0, 1, 0];
    accepted.write_all(&says).await.unwrap();
    let shaken = tokio::time::timeout(PATIENCE, shake(&mut client))
        .await
        .unwrap();
    assert_eq!(shaken.unwrap_err().kind(), io::ErrorKind::InvalidData);
    let written = poll_fn(|context| client.poll_write(context, b"x")).await;
    assert_eq!(written.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    poll_fn(|context| client.poll_shutdown(context))
        .await
        .unwrap();
}
