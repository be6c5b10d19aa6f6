use std::net::SocketAddr;

use myriad_model::ProxyProtocol;
use proptest::prelude::*;

use super::{
    Ends, HEADER_BYTES_MAX, Header, Introductions, MalformedProxyHeader, SIGNATURE, crc32c, parse,
    write,
};

fn ends(client: &str, server: &str) -> Ends {
    Ends {
        client: client.parse().unwrap(),
        server: server.parse().unwrap(),
    }
}

/// A header of version 2.
fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap().to_be_bytes();
    [&SIGNATURE[..], &[command, family], &length, body].concat()
}

const IPV4: &[u8] = &[192, 0, 2, 1, 192, 0, 2, 9, 0x13, 0x88, 1, 0xbb];

#[test]
fn headers_of_version_1_introduce_whom_they_name() {
    let told = |text: &str| parse(text.as_bytes()).map(|it| it.and_then(|it| it.ends));
    assert_eq!(
        told("PROXY TCP4 192.0.2.1 192.0.2.9 5000 443\r\nGET /"),
        Ok(Some(ends("192.0.2.1:5000", "192.0.2.9:443")))
    );
    assert_eq!(
        told("PROXY TCP6 2001:db8::1 ::1 0 65535\r\n"),
        Ok(Some(ends("[2001:db8::1]:0", "[::1]:65535")))
    );
    for text in [
        "PROXY UNKNOWN\r\n",
        "PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n",
    ] {
        let header = Header {
            length: text.len(),
            ends: Some(Ends::UNKNOWN),
        };
        assert_eq!(parse(text.as_bytes()), Ok(Some(header)));
    }
}

#[test]
fn broken_headers_of_version_1_introduce_nobody() {
    let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(92));
    assert_eq!(long.len(), 108);
    for text in [
        "GET / HTTP/1.1\r\n",
        "PRI * HTTP/2.0\r\n",
        "PROXY\r\n",
        "PROXY \r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.9 5000 443\n",
        "PROXY TCP4 192.0.2.1 192.0.2.9 5000 443\r \r\n",
        "PROXY TCP4  192.0.2.1 192.0.2.9 5000 443\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.9 5000 443 \r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.9 5000\r\n",
        "PROXY TCP4 192.0.2.01 192.0.2.9 5000 443\r\n",
        "PROXY TCP4 ::1 ::1 5000 443\r\n",
        "PROXY TCP6 192.0.2.1 192.0.2.9 5000 443\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.9 05000 443\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.9 +500 443\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.9 65536 443\r\n",
        "PROXY UDP4 192.0.2.1 192.0.2.9 5000 443\r\n",
        "PROXY UNKNOWNS\r\n",
        "proxy UNKNOWN\r\n",
        &long,
        &long[..107],
    ] {
        assert_eq!(
            parse(text.as_bytes()),
            Err(MalformedProxyHeader),
            "{text:?}"
        );
    }
    assert_eq!(parse(&long.as_bytes()[..106]), Ok(None));
}

#[test]
fn headers_of_version_2_introduce_whom_they_name() {
    let told = |bytes: &[u8]| parse(bytes).map(|it| it.and_then(|it| it.ends));
    let client = Some(ends("192.0.2.1:5000", "192.0.2.9:443"));
    assert_eq!(told(&v2(0x21, 0x11, IPV4)), Ok(client));
    // One part: the name that the client asked for.
    let named = [IPV4, b"\x02\0\x01a"].concat();
    assert_eq!(told(&v2(0x21, 0x11, &named)), Ok(client));
    // The balancer's own, of whatever family, and those that it cannot tell of.
    let unknown = Some(Ends::UNKNOWN);
    for (command, family, body, ends) in [
        (0x20, 0x11, IPV4, None),
        (0x20, 0x00, b"", None),
        (0x20, 0x77, b"x", None),
        (0x21, 0x00, b"xyz", unknown),
        (0x21, 0x31, &[0; 216], unknown),
    ] {
        let bytes = v2(command, family, body);
        let length = bytes.len();
        let header = Header { length, ends };
        assert_eq!(parse(&bytes), Ok(Some(header)), "{bytes:?}");
    }
}

#[test]
fn broken_headers_of_version_2_introduce_nobody() {
    let cut = [IPV4, b"\x02\0\x02a"].concat();
    let short = [IPV4, b"\x02\0"].concat();
    let long = vec![0; HEADER_BYTES_MAX - 15];
    for (command, family, body) in [
        (0x11, 0x11, IPV4),
        (0x22, 0x11, IPV4),
        (0x21, 0x12, IPV4),
        (0x21, 0x41, IPV4),
        (0x21, 0x11, &IPV4[..11]),
        (0x21, 0x21, &[0; 35]),
        (0x21, 0x31, &[0; 215]),
        (0x21, 0x11, &cut),
        (0x21, 0x11, &short),
        (0x21, 0x00, &long),
    ] {
        let bytes = v2(command, family, body);
        assert_eq!(parse(&bytes), Err(MalformedProxyHeader), "{bytes:?}");
    }
}

#[test]
fn a_checksum_is_checked() {
    // The check value of the algorithm (RFC 3720 names it CRC32C).
    assert_eq!(crc32c(b"123456789", 0..0), 0xe306_9283);
    let mut bytes = v2(0x21, 0x11, &[IPV4, b"\x03\0\x04\0\0\0\0"].concat());
    assert_eq!(parse(&bytes), Err(MalformedProxyHeader));
    let sum = crc32c(&bytes, 0..0).to_be_bytes();
    let at = bytes.len() - 4;
    bytes[at..].copy_from_slice(&sum);
    assert!(parse(&bytes).unwrap().unwrap().ends.is_some());
    bytes[20] ^= 1;
    assert_eq!(parse(&bytes), Err(MalformedProxyHeader));
    // Only four bytes are one.
    let odd = v2(0x21, 0x11, &[IPV4, b"\x03\0\x03\0\0\0"].concat());
    assert_eq!(parse(&odd), Err(MalformedProxyHeader));
}

#[test]
fn senders_and_ports_are_those_that_were_named() {
    let named = Introductions {
        ports: Some([443].into()),
        senders: ["10.0.0.0/8".parse().unwrap()].into(),
    };
    assert!(named.are_asked_at(443) && !named.are_asked_at(80));
    assert!(named.are_taken_from("::ffff:10.1.2.3".parse().unwrap()));
    assert!(!named.are_taken_from("192.0.2.1".parse().unwrap()));
    let all = Introductions {
        ports: None,
        ..named
    };
    assert!(all.are_asked_at(80));
}

#[test]
fn headers_tell_both_ends() {
    let ends = Ends {
        client: "192.0.2.1:5000".parse().unwrap(),
        server: "192.0.2.9:443".parse().unwrap(),
    };
    assert_eq!(
        write(ProxyProtocol::V1, ends),
        b"PROXY TCP4 192.0.2.1 192.0.2.9 5000 443\r\n"
    );
    assert_eq!(
        write(ProxyProtocol::V2, ends),
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\xc0\0\x02\x09\x13\x88\x01\xbb"
    );
    let ends = Ends::of("[2001:db8::1]:5000".parse().unwrap(), 80);
    assert_eq!(
        write(ProxyProtocol::V1, ends),
        b"PROXY TCP6 2001:db8::1 :: 5000 80\r\n"
    );
    assert_eq!(write(ProxyProtocol::V2, ends).len(), 16 + 36);
}

#[test]
fn of_a_client_that_is_not_known_nothing_is_told() {
    for version in [ProxyProtocol::V1, ProxyProtocol::V2] {
        let bytes = write(version, Ends::UNKNOWN);
        let header = parse(&bytes).unwrap().unwrap();
        assert_eq!(
            (header.length, header.ends),
            (bytes.len(), Some(Ends::UNKNOWN))
        );
    }
    for client in ["0.0.0.0:1", "[::]:1", "[::ffff:0.0.0.0]:1"] {
        assert!(ends(client, "192.0.2.9:443").is_unknown(), "{client}");
    }
    assert!(!ends("192.0.2.1:5000", "0.0.0.0:443").is_unknown());
}

fn address() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
    let v4 = any::<([u8; 4], u16, [u8; 4], u16)>()
        .prop_map(|(a, b, c, d)| ((a, b).into(), (c, d).into()));
    let v6 = any::<([u8; 16], u16, [u8; 16], u16)>()
        .prop_map(|(a, b, c, d)| ((a, b).into(), (c, d).into()));
    prop_oneof![v4, v6]
}

proptest! {
    /// A header that the proxy writes to endpoints is read as one that balancers send, however it
    /// is cut.
    #[test]
    fn what_is_written_is_read((client, server) in address(), is_v2: bool, rest: Vec<u8>) {
        let version = if is_v2 { ProxyProtocol::V2 } else { ProxyProtocol::V1 };
        let mut bytes = write(version, Ends { client, server });
        let length = bytes.len();
        for end in 0..length {
            prop_assert_eq!(parse(&bytes[..end]), Ok(None));
        }
        bytes.extend(rest);
        let header = parse(&bytes).unwrap().unwrap();
        prop_assert_eq!(header.length, length);
        let ends = header.ends.unwrap();
        let plain = |it: SocketAddr| (it.ip().to_canonical(), it.port());
        prop_assert_eq!(plain(ends.client), plain(client));
        prop_assert_eq!(plain(ends.server), plain(server));
    }

    /// Whatever comes, a header is within bounds, and more bytes never change what was decided.
    #[test]
    fn any_bytes_are_decided_once(
        start in 0_usize..4,
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        cut in 0_usize..300,
    ) {
        let head = [&SIGNATURE[..], b"\x21\x11\0"].concat();
        let starts: [&[u8]; 4] = [b"", b"PROXY TCP4 ", SIGNATURE, &head];
        let bytes = [starts[start], &bytes].concat();
        let whole = parse(&bytes);
        if let Ok(Some(header)) = whole {
            prop_assert!(header.length <= bytes.len() && header.length <= HEADER_BYTES_MAX);
        }
        let part = parse(&bytes[..cut.min(bytes.len())]);
        if part != Ok(None) {
            prop_assert_eq!(part, whole);
        }
    }
}
