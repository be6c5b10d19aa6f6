//! The gateway's account of what it sent to servers: its access log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde_json::Value;

/// A request that has a server, as the gateway tells of it.
#[derive(Debug)]
pub(super) struct Forwarded {
    /// The method and the target.
    pub head: String,
    /// The bytes of the body that were handed on.
    pub body: u64,
    /// The end of the request.
    pub end: End,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The server answered 200, which it does once it has seen all of the request.
    Answered,
    /// The server answered something else, which only its parser does.
    Refused,
    /// Its body is not what its framing says, so that no server may have seen all of it.
    Malformed,
    /// It broke off otherwise, by its client for the most part. Its server may have seen all of
    /// it, its head or nothing.
    Broken,
}

/// All that the access log tells of requests that have a server, by the server's address. There
/// is one line for each, however often it was tried: it is tried again only where the server had
/// ended an idle connection, and so has not seen it.
pub(super) fn read(log: &Path) -> BTreeMap<String, Vec<Forwarded>> {
    let mut all: BTreeMap<String, Vec<Forwarded>> = BTreeMap::new();
    // By lines, because of a hundred thousand requests to five servers it is long.
    let file = File::open(log).expect("the access log");
    for line in BufReader::new(file).lines() {
        let line = line.expect("a line");
        let line: Value = serde_json::from_str(&line).expect("a line in JSON");
        if let Some(endpoint) = line["endpoint"].as_str() {
            let of_server = all.entry(endpoint.to_owned()).or_default();
            of_server.push(forwarded(&line));
        }
    }
    all
}

fn forwarded(line: &Value) -> Forwarded {
    let text = |name: &str| line[name].as_str().expect("a text");
    let number = |name: &str| line[name].as_u64().expect("a number");
    let end = match (line["flag"].as_str(), number("status")) {
        (None, 200) => End::Answered,
        (None, _) => End::Refused,
        (Some("bad_body"), _) => End::Malformed,
        (Some(_), _) => End::Broken,
    };
    Forwarded {
        head: format!("{} {}", text("method"), text("path")),
        body: number("bytes_received"),
        end,
    }
}
