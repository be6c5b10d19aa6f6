use tokio::io::DuplexStream;

use super::*;

/// A server's message.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + LENGTH_BYTES).unwrap();
    [&[kind][..], &length.to_be_bytes(), body].concat()
}

fn greeting() -> Vec<u8> {
    [
        message(b'R', &[0; 4]),
        message(b'S', b"server_version\x0015\0"),
        message(b'K', &[7; 8]),
        message(b'Z', b"I"),
    ]
    .concat()
}

/// A connection to a server that says all of this, whatever it is asked, and then goes; beside it
/// what it was asked.
async fn served(says: &[u8]) -> (anyhow::Result<Connection<DuplexStream>>, DuplexStream) {
    let (near, mut far) = tokio::io::duplex(4 * MESSAGE_BYTES_MAX);
    far.write_all(says).await.unwrap();
    // Its side ends, and can still be read.
    far.shutdown().await.unwrap();
    (Connection::open(near).await, far)
}

#[tokio::test]
async fn rows_are_counted_and_an_error_leaves_the_connection_ready() {
    let answer = [
        message(b'T', b"\0\x01"),
        message(b'D', b"\0\x01\0\0\0\x017"),
        message(b'N', b"Mnote\0\0"),
        message(b'D', b"\0\x01\0\0\0\x018"),
        message(b'C', b"SELECT 2\0"),
        message(b'Z', b"I"),
    ];
    let error = message(b'E', b"SERROR\0C42703\0Mno such column\0\0");
    let says = [
        greeting(),
        answer.concat(),
        error,
        message(b'Z', b"I"),
        message(b'C', b"UPDATE 1\0"),
        message(b'Z', b"I"),
    ];
    let (connection, mut asked) = served(&says.concat()).await;
    let mut connection = connection.unwrap();
    assert_eq!(connection.query("SELECT 7").await.unwrap(), 2);
    let error = connection.query("SELECT x").await.unwrap_err().to_string();
    assert_eq!(error, "the database says 42703: no such column");
    assert_eq!(connection.query("UPDATE x").await.unwrap(), 0);
    assert!(connection.query("SELECT 7").await.is_err(), "it has gone");
    let mut heard = [0; 41 + 14];
    asked.read_exact(&mut heard).await.unwrap();
    let hello = b"\0\0\0\x29\0\x03\0\0user\0postgres\0database\0postgres\0\0";
    assert_eq!(heard[..41], hello[..]);
    assert_eq!(heard[41..], *b"Q\0\0\0\x0dSELECT 7\0");
}

#[tokio::test]
async fn a_refusal_at_the_door_is_told() {
    let error = message(b'E', b"SFATAL\0C53300\0Mtoo many clients\0\0");
    let (connection, _) = served(&error).await;
    let error = connection.err().unwrap().to_string();
    assert_eq!(error, "the database says 53300: too many clients");
}

#[tokio::test]
async fn a_server_that_asks_for_more_or_says_too_much_is_left() {
    let length = |length: usize| u32::try_from(length).unwrap().to_be_bytes();
    let long = [&b"S"[..], &length(MESSAGE_BYTES_MAX + LENGTH_BYTES + 1)].concat();
    let longest = message(b'S', &b"x".repeat(MESSAGE_BYTES_MAX));
    let rows = usize::try_from(ROWS_MAX).unwrap();
    let row = message(b'D', b"\0\0");
    let cases = [
        (
            message(b'R', &3_u32.to_be_bytes()),
            "it asks for a password",
        ),
        (message(b'?', b""), "an unknown message, '?'"),
        (long, "a message of 1048581 bytes"),
        ([&b"S"[..], &length(3)].concat(), "a message of 3 bytes"),
        (row.repeat(rows + 1), "more than 10000 rows"),
    ];
    for (says, expected) in cases {
        let (connection, _) = served(&says).await;
        let error = connection.err().unwrap().to_string();
        assert_eq!(error, expected);
    }
    for says in [longest, row.repeat(rows)] {
        let (connection, _) = served(&[says, greeting()].concat()).await;
        assert!(connection.is_ok(), "{:?}", connection.err());
    }
}
