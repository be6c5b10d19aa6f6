//! Header fields that are the proxy's, which no value of an annotation has a say in.

use crate::resolve::client_fields::tells_of_client;

/// Fields that frame a message or belong to a connection, in lower case.
const FRAMING: [&str; 13] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "status",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Fields that tell how a request came beside those.
const OF_WAY: [&str; 10] = [
    "front-end-https",
    "x-envoy-internal",
    "x-envoy-original-path",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-forwarded-scheme",
    "x-forwarded-ssl",
    "x-request-id",
    "x-scheme",
];

/// Whether a field, in lower case, frames a message or belongs to a connection.
pub(crate) fn is_framing(name: &str) -> bool {
    FRAMING.contains(&name)
}

/// Whether a field, in lower case, is none that a service is told in place of the proxy's: it
/// frames the question, or tells whom the request comes from.
pub(crate) fn is_of_client(name: &str) -> bool {
    tells_of_client(name) || is_framing(&name.replace('_', "-"))
}

/// Whether a field, in lower case, is none that the answer of a service sets: it frames the
/// request, or tells how and from whom it came.
pub(crate) fn is_of_way(name: &str) -> bool {
    is_of_client(name) || OF_WAY.contains(&&*name.replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use super::{FRAMING, OF_WAY, is_framing, is_of_client, is_of_way, tells_of_client};

    #[test]
    fn what_the_proxy_tells_is_its_own_and_what_a_service_knows_is_not() {
        assert!(FRAMING.is_sorted() && OF_WAY.is_sorted());
        assert!(FRAMING.iter().all(|it| is_framing(it) && is_of_client(it)));
        for name in ["forwarded", "ssl-client-verify", "x_real_ip", "x.real.ip"] {
            assert!(is_of_client(name) && is_of_way(name), "{name}");
            assert!(tells_of_client(name) && !is_framing(name), "{name}");
        }
        for name in ["host", "content-length", "authorization"] {
            assert!(!tells_of_client(name), "{name}");
        }
        for name in OF_WAY {
            assert!(is_of_way(name) && !is_of_client(name), "{name}");
        }
        for name in [
            "authorization",
            "cookie",
            "remote-user",
            "set-cookie",
            "x-auth-request-email",
            "x-auth-request-user",
            "x-forwarded-groups",
            "x-forwarded-user",
        ] {
            assert!(!is_of_way(name), "{name}");
        }
    }
}
