//! By what name the pages are called.
//!
//! A browser of somebody within reach of this address shows it whatever a stranger's page says,
//! under the stranger's own name, once that name's zone leads here (DNS rebinding). The name is in
//! the `Host` of the request, and no browser lets a page change it.

use std::net::IpAddr;

use http::{Request, header};

/// Names by which the pages may be called, beside IP addresses and `localhost`.
#[derive(Clone, Debug, Default)]
pub struct Hosts(Box<[Box<str>]>);

impl Hosts {
    /// These names.
    pub fn new(names: impl IntoIterator<Item = impl Into<Box<str>>>) -> Self {
        Hosts(names.into_iter().map(Into::into).collect())
    }

    /// Whether a request calls by one of them. One that names no host at all is no browser's.
    pub fn admit<B>(&self, request: &Request<B>) -> bool {
        let written = request.headers().get_all(header::HOST).iter();
        let mut written = written.map(|host| host.to_str().ok());
        let target = request.uri().host();
        written.all(|host| host.is_some_and(|host| self.has(without_port(host))))
            && target.is_none_or(|host| self.has(host))
    }

    fn has(&self, host: &str) -> bool {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let name = host.strip_suffix('.').unwrap_or(host);
        let mut known = self.0.iter();
        bare.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || known.any(|known| known.eq_ignore_ascii_case(name))
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::Hosts;

    fn admits(uri: &str, hosts: &[&str]) -> bool {
        let mut request = Request::builder().uri(uri);
        for host in hosts {
            request = request.header("host", *host);
        }
        Hosts::new(["myriad.internal"]).admit(&request.body(()).unwrap())
    }

    #[test]
    fn addresses_localhost_and_configured_names_are_taken() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:9901",
            "10.0.0.5:9901",
            "[::1]:9901",
            "[::1]",
            "localhost",
            "LOCALHOST:9901",
            "localhost.:9901",
            "myriad.internal:9901",
            "Myriad.Internal",
        ] {
            assert!(admits("/metrics", &[host]), "{host}");
        }
        assert!(admits("/metrics", &[]));
    }

    #[test]
    fn the_name_of_a_stranger_is_refused() {
        for host in [
            "rebind.example",
            "rebind.example:9901",
            "127.0.0.1.rebind.example:9901",
            "localhost.rebind.example",
            "myriad.internal.rebind.example",
            "",
            ":9901",
            "127.0.0.1@rebind.example",
        ] {
            assert!(!admits("/metrics", &[host]), "{host}");
        }
        assert!(!admits("/metrics", &["127.0.0.1", "rebind.example"]));
        assert!(!admits("http://rebind.example/metrics", &["127.0.0.1"]));
    }
}
