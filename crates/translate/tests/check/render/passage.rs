//! Passages as compact, stable text.

use std::fmt::{Display, Write as _};
use std::time::Duration;

use myriad_model::Passage;

/// A passage: what it takes, and where it leads.
pub fn text(passage: &Passage) -> String {
    let hosts = joined(&passage.hosts);
    let mut text = match (passage.hosts.is_empty(), passage.terminate) {
        (true, _) => "every connection".to_owned(),
        (false, true) => format!("within TLS for {hosts}"),
        (false, false) => format!("TLS for {hosts}"),
    };
    for (word, ranges) in [("from", &passage.sources), ("to", &passage.destinations)] {
        if !ranges.is_empty() {
            let _ = write!(text, " {word} {}", joined(ranges));
        }
    }
    let shares = passage.upstreams.iter();
    let shares: Vec<String> = shares
        .map(|share| format!("{}*{}", share.upstream, share.weight))
        .collect();
    let shares = match shares.is_empty() {
        true => "closed".to_owned(),
        false => shares.join(" "),
    };
    let _ = write!(text, " -> {shares} on [{}]", joined(&passage.listeners));
    let usual = (Duration::from_secs(3_600), Duration::from_secs(10));
    if (passage.idle_timeout, passage.connect_timeout) != usual {
        let (idle, connect) = (passage.idle_timeout, passage.connect_timeout);
        let _ = write!(text, " idle={idle:?} connect={connect:?}");
    }
    text
}

fn joined(values: &[impl Display]) -> String {
    let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
    texts.join(" ")
}
