//! All requests, made before they are sent.

use super::traffic::streams;
use crate::istio;

/// The requests of each host, one for each of its paths.
pub(super) struct Requests {
    hosts: Vec<String>,
    paths: usize,
    bytes: Vec<u8>,
    /// The end of each request, host by host.
    ends: Vec<usize>,
}

impl Requests {
    /// Requests for a proxy, which rewrites every path to `/`.
    pub(super) fn new(hosts: Vec<String>, paths: u32) -> Requests {
        Requests::with(
            hosts,
            &(0..paths).map(istio::path).collect::<Vec<_>>(),
            text,
        )
    }

    /// Requests for a proxy, as frames of HTTP/2.
    pub(super) fn framed(hosts: Vec<String>, paths: u32) -> Requests {
        let paths: Vec<_> = (0..paths).map(istio::path).collect();
        Requests::with(hosts, &paths, streams::frame)
    }

    /// Requests for the backend itself, which has nothing but `/`.
    pub(super) fn direct(hosts: Vec<String>) -> Requests {
        Requests::with(hosts, &["/".to_owned()], text)
    }

    fn with(
        hosts: Vec<String>,
        paths: &[String],
        make: impl Fn(&str, &str) -> Vec<u8>,
    ) -> Requests {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for host in &hosts {
            for path in paths {
                bytes.append(&mut make(host, path));
                ends.push(bytes.len());
            }
        }
        Requests {
            hosts,
            paths: paths.len(),
            bytes,
            ends,
        }
    }

    /// The host of a connection. Neighbours lie far apart; a prime number of steps meets all.
    pub(super) fn host(&self, connection: usize) -> usize {
        connection.wrapping_mul(7_919) % self.hosts.len()
    }

    /// Its name.
    pub(super) fn name(&self, host: usize) -> &str {
        &self.hosts[host]
    }

    /// A request for a host by any number.
    pub(super) fn get(&self, host: usize, number: usize) -> &[u8] {
        let at = host * self.paths + number % self.paths;
        let begin = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[begin..self.ends[at]]
    }
}

fn text(host: &str, path: &str) -> Vec<u8> {
    let text =
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n");
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_has_each_path_and_connections_meet_all_hosts() {
        let hosts: Vec<_> = (0..10).map(|number| format!("h{number}")).collect();
        let requests = Requests::new(hosts, 3);
        let text = |host, number| String::from_utf8(requests.get(host, number).to_vec()).unwrap();
        assert!(text(0, 0).starts_with("GET /path-0 HTTP/1.1\r\nHost: h0\r\n"));
        assert!(text(9, 5).starts_with("GET /path-2 HTTP/1.1\r\nHost: h9\r\n"));
        assert!(text(4, 1).ends_with("\r\n\r\n"));
        let mut met: Vec<_> = (0..10).map(|number| requests.host(number)).collect();
        met.sort_unstable();
        assert_eq!(met, (0..10).collect::<Vec<_>>());
    }
}
