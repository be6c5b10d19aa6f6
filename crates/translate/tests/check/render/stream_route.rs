//! Stream routes as compact, stable text.

use std::fmt::{Display, Write as _};
use std::time::Duration;

use myriad_model::StreamRoute;

/// A stream route: what it takes, and where it leads.
pub(super) fn text(stream_route: &StreamRoute) -> String {
    let hosts = joined(&stream_route.hosts);
    let mut text = match (stream_route.hosts.is_empty(), stream_route.terminate) {
        (true, _) => "every connection".to_owned(),
        (false, true) => format!("within TLS for {hosts}"),
        (false, false) => format!("TLS for {hosts}"),
    };
    for (word, ranges) in [
        ("from", &stream_route.sources),
        ("to", &stream_route.destinations),
    ] {
        if !ranges.is_empty() {
            let _ = write!(text, " {word} {}", joined(ranges));
        }
    }
    let shares = stream_route.upstreams.iter();
    let shares: Vec<String> = shares
        .map(|share| format!("{}*{}", share.upstream, share.weight))
        .collect();
    let shares = match shares.is_empty() {
        true => "closed".to_owned(),
        false => shares.join(" "),
    };
    let _ = write!(
        text,
        " -> {shares} on [{}]",
        joined(&stream_route.listeners)
    );
    if stream_route.behind > 0 {
        text.push_str(" behind addresses");
    }
    let usual = (Duration::from_secs(3_600), Duration::from_secs(10));
    if (stream_route.idle_timeout, stream_route.connect_timeout) != usual {
        let (idle, connect) = (stream_route.idle_timeout, stream_route.connect_timeout);
        let _ = write!(text, " idle={idle:?} connect={connect:?}");
    }
    text
}

fn joined(values: &[impl Display]) -> String {
    let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
    texts.join(" ")
}
