//! The protocol of a port, as far as its name or protocol says it.

use myriad_api::ServicePort;

/// The protocol of connections that are captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Spoken {
    /// HTTP in plain text.
    Http,
    /// TLS, whatever is within.
    Tls,
    /// Any bytes; the server may speak first.
    Tcp,
    /// Unknown: nobody says.
    Unknown,
}

/// Ports whose servers speak first, which Istio takes for TCP where nobody says otherwise: SMTP,
/// DNS, MySQL and MongoDB.
const USUALLY_TCP: [u16; 4] = [25, 53, 3306, 27017];

impl Spoken {
    /// All that there are.
    pub const ALL: [Spoken; 4] = [Spoken::Http, Spoken::Tls, Spoken::Tcp, Spoken::Unknown];

    /// The protocol of a port of a Service: `appProtocol`, or else the start of its name.
    pub fn of_port(port: &ServicePort) -> Self {
        let said = match &port.app_protocol {
            Some(word) => Spoken::of_word(word),
            None if port.name.starts_with("grpc-web") => Some(Spoken::Http),
            None => Spoken::of_word(port.name.split('-').next().unwrap_or_default()),
        };
        said.unwrap_or(match USUALLY_TCP.contains(&port.port) {
            true => Spoken::Tcp,
            false => Spoken::Unknown,
        })
    }

    /// The speech of a protocol as written, in any case.
    pub fn of_word(word: &str) -> Option<Self> {
        let known = [
            (
                Spoken::Http,
                &[
                    "http",
                    "http2",
                    "grpc",
                    "grpc-web",
                    "kubernetes.io/h2c",
                    "kubernetes.io/ws",
                ][..],
            ),
            (Spoken::Tls, &["https", "tls", "kubernetes.io/wss"]),
            (Spoken::Tcp, &["tcp", "mongo", "mysql", "redis"]),
        ];
        let is_one = |words: &[&str]| words.iter().any(|known| word.eq_ignore_ascii_case(known));
        let found = known.into_iter().find(|(_, words)| is_one(words));
        found.map(|(spoken, _)| spoken)
    }
}

#[cfg(test)]
mod tests {
    use myriad_api::ServicePort;

    use super::Spoken;

    #[test]
    fn a_port_says_what_is_spoken_by_its_protocol_then_by_its_name() {
        let spoken = |name: &str, app: Option<&str>, port| {
            Spoken::of_port(&ServicePort {
                name: name.into(),
                port,
                target_port: None,
                app_protocol: app.map(Into::into),
                protocol: None,
            })
        };
        assert_eq!(spoken("http-web", None, 80), Spoken::Http);
        assert_eq!(spoken("grpc-web-x", None, 80), Spoken::Http);
        assert_eq!(spoken("httpx", None, 80), Spoken::Unknown);
        assert_eq!(spoken("http", Some("tcp"), 80), Spoken::Tcp);
        assert_eq!(spoken("", Some("kubernetes.io/h2c"), 80), Spoken::Http);
        assert_eq!(spoken("https", None, 443), Spoken::Tls);
        assert_eq!(spoken("mongo-x", None, 1), Spoken::Tcp);
        assert_eq!(spoken("", None, 3306), Spoken::Tcp);
        assert_eq!(spoken("", None, 8080), Spoken::Unknown);
    }
}
