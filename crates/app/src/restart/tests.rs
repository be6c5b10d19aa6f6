use std::future::{pending, ready};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use socket2::{Domain, SockAddr, Socket, Type};

use super::message::{MalformedMessage, Message, Role, SOCKETS_PER_MESSAGE_MAX};
use super::{Counters, asker, is_late, listen, newer, outlast, succeed, wire};

fn role() -> impl Strategy<Value = Role> {
    prop_oneof![
        Just(Role::Listener),
        Just(Role::Outbound),
        Just(Role::Inbound),
        Just(Role::Admin),
        Just(Role::Probes),
        Just(Role::Http),
        Just(Role::Https),
        Just(Role::Datagrams),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let roles = prop::collection::vec(role(), 1..=SOCKETS_PER_MESSAGE_MAX);
    let secrets = prop::collection::vec(any::<(i64, [u8; 32])>(), 0..=2);
    prop_oneof![
        Just(Message::Hello),
        roles.prop_map(Message::Sockets),
        (0..65_536_u32, secrets).prop_map(|(sockets, secrets)| Message::End { sockets, secrets }),
        Just(Message::Live),
        Just(Message::Draining),
    ]
}

fn files_of(message: &Message) -> usize {
    match message {
        Message::Sockets(roles) => roles.len(),
        _ => 0,
    }
}

proptest! {
    #[test]
    fn messages_come_back_as_they_went(message in message()) {
        let files = files_of(&message);
        let bytes = message.encode();
        prop_assert!(bytes.len() <= super::message::MESSAGE_BYTES_MAX);
        prop_assert_eq!(Message::decode(&bytes, files), Ok(message));
    }

    #[test]
    fn a_message_that_is_cut_off_or_goes_on_or_lacks_a_file_is_refused(
        message in message(), more in any::<u8>(),
    ) {
        let files = files_of(&message);
        let mut bytes = message.encode();
        for length in 0..bytes.len() {
            prop_assert!(Message::decode(&bytes[..length], files).is_err());
        }
        prop_assert!(Message::decode(&bytes, files + 1).is_err());
        bytes.push(more);
        prop_assert!(Message::decode(&bytes, files).is_err());
    }

    #[test]
    fn whatever_bytes_come_are_read_as_written_or_refused(
        kind in any::<u8>(),
        rest in prop::collection::vec(any::<u8>(), 0..260),
        files in 0..70_usize,
    ) {
        prop_assert!(Message::decode(&rest, files).is_err());
        let mut bytes = b"MYRS\x01".to_vec();
        bytes.push(kind % 7);
        bytes.extend(rest);
        if let Ok(message) = Message::decode(&bytes, files) {
            prop_assert_eq!(message.encode(), bytes);
        }
    }
}

#[test]
fn another_version_is_told_from_nonsense() {
    assert_eq!(
        Message::decode(b"MYRS\x02\x01", 0),
        Err(MalformedMessage::Version)
    );
    assert_eq!(
        Message::decode(b"MYRS\x01\x00", 0),
        Err(MalformedMessage::Message)
    );
}

#[test]
fn files_travel_with_their_message_and_are_not_taken_without_one() {
    let (one, other) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).unwrap();
    let file = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let sent = Message::Sockets(vec![Role::Listener, Role::Admin]);
    wire::send(&one, &sent, &[file.as_fd(), file.as_fd()]).unwrap();
    let (message, files) = wire::receive(&other).unwrap();
    assert!(message == sent && files.len() == 2);
    for copy in &files {
        super::check(Role::Listener, copy).unwrap();
        assert!(super::check(Role::Http, copy).is_err());
        assert!(super::check(Role::Datagrams, copy).is_err());
    }
    let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into();
    super::check(Role::Datagrams, &datagrams).unwrap();
    assert!(super::check(Role::Listener, &datagrams).is_err());
    assert!(super::check(Role::Http, &datagrams).is_err());
    // One that is not spoken of, and more than fit.
    wire::send(&one, &Message::Live, &[file.as_fd()]).unwrap();
    assert!(wire::receive(&other).is_err());
    one.send(&[0; 4_096]).unwrap();
    assert!(wire::receive(&other).is_err());
    wire::send(&one, &Message::Live, &[]).unwrap();
    assert!(wire::receive(&other).unwrap().0 == Message::Live);
    drop(one);
    assert!(wire::receive(&other).is_err());
}

/// A process that connects, and says that it wants the sockets where it `asks`.
fn connected(path: &Path, asks: bool) -> Socket {
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
    socket.connect(&SockAddr::unix(path).unwrap()).unwrap();
    if asks {
        wire::send(&socket, &Message::Hello, &[]).unwrap();
    }
    socket
}

/// Whether what is said by a connection comes to the other end of it.
async fn hears(socket: &tokio::net::UnixStream, other: &Socket) -> bool {
    super::send(socket, &Message::Draining, &[]).await.unwrap();
    other
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    wire::receive(other).is_ok_and(|(message, _)| message == Message::Draining)
}

#[tokio::test]
async fn one_that_connects_and_says_nothing_keeps_no_other_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("restart.sock");
    let (listening, counters) = (listen(&path).unwrap(), Counters::default());
    let _silent = connected(&path, false);
    let asking = connected(&path, true);
    let found = tokio::time::timeout(super::ANSWER_TIMEOUT, asker(&listening, &counters)).await;
    assert!(hears(&found.unwrap().unwrap(), &asking).await);
    assert_eq!(counters.failed.get(), 1);
}

#[tokio::test]
async fn a_newer_one_takes_the_place_of_one_that_hangs_and_not_of_one_that_is_live() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("restart.sock");
    let (listening, counters) = (listen(&path).unwrap(), Counters::default());
    let silence_max = Duration::from_millis(50);
    let asking = connected(&path, true);
    let others = newer(&listening, &counters, silence_max);
    let found = outlast(pending(), others).await.unwrap().unwrap();
    assert!(hears(&found, &asking).await);
    let _asking = connected(&path, true);
    let others = newer(&listening, &counters, silence_max);
    assert!(outlast(ready(Ok(())), others).await.unwrap().is_none());
    // Where no other asks, one that is slow has its time.
    let slow = async {
        tokio::time::sleep(4 * silence_max).await;
        Ok(())
    };
    let listening = listen(&path).unwrap();
    let others = newer(&listening, &counters, silence_max);
    assert!(outlast(slow, others).await.unwrap().is_none());
}

#[tokio::test]
async fn one_that_comes_back_late_leaves_the_place_to_who_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("restart.sock");
    let listening = listen(&path).unwrap();
    let given_up = || {
        let (own, other) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).unwrap();
        drop(other);
        succeed(&own).unwrap_err()
    };
    assert!(is_late(&path, &given_up()));
    let slow = std::io::Error::from(std::io::ErrorKind::WouldBlock);
    assert!(!is_late(&path, &slow.into()), "it may drain");
    drop(listening);
    assert!(!is_late(&path, &given_up()), "it is gone");
}
