//! Addresses that a process listens on.

use std::net::{Ipv4Addr, SocketAddr};

/// Reads a setting: a port on every IPv4 address, ADDRESS:PORT or localhost:PORT.
pub(super) fn address(name: &str, text: &str, problems: &mut Vec<String>) -> SocketAddr {
    if let Ok(port) = text.parse::<u16>() {
        return (Ipv4Addr::UNSPECIFIED, port).into();
    }
    // Of names only this one means the same everywhere; others are answered by somebody else.
    let local = text
        .strip_prefix("localhost:")
        .and_then(|port| port.parse::<u16>().ok());
    if let Some(port) = local {
        return (Ipv4Addr::LOCALHOST, port).into();
    }
    text.parse().unwrap_or_else(|_| {
        problems.push(format!(
            "{name} is {text:?}, not a port, ADDRESS:PORT or localhost:PORT"
        ));
        (Ipv4Addr::LOCALHOST, 0).into()
    })
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn a_port_an_address_and_localhost_are_understood_and_no_other_name() {
        for (text, expected) in [
            ("8080", "0.0.0.0:8080"),
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("[::1]:80", "[::1]:80"),
            ("localhost:8080", "127.0.0.1:8080"),
        ] {
            let mut problems = Vec::new();
            let read = address("--http", text, &mut problems);
            assert_eq!((read.to_string().as_str(), problems.len()), (expected, 0));
        }
        for text in ["localhost", "localhost:", "a.example:80", "localhost:99999"] {
            let mut problems = Vec::new();
            address("--http", text, &mut problems);
            assert!(problems[0].contains("localhost:PORT"), "{problems:?}");
        }
    }
}
