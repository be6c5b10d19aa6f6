use std::os::fd::AsFd;

use proptest::prelude::*;
use socket2::{Domain, Socket, Type};

use super::message::{MalformedMessage, Message, Role, SOCKETS_PER_MESSAGE_MAX};
use super::wire;

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
