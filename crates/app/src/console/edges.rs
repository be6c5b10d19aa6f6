//! The edges of the mesh: requests between workloads as this process has counted them, or those
//! that proxies of a controller may send.

use std::collections::BTreeMap;
use std::time::Duration;

use myriad_base::clock::Instant;
use myriad_model::{Kind, MeshTls, Value};

use super::samples::samples;
use crate::board::Board;
use crate::catalog;

/// The most edges that are held.
pub(super) const EDGES_MAX: usize = 2_048;

/// The most views, and the most resources of all of them, that are read.
const VIEWS_MAX: usize = 64;
const RESOURCES_MAX: usize = 20_000;

/// The least time between two counts that a rate is made of.
const RATE_OVER_MIN: Duration = Duration::from_secs(1);

/// How long one count is compared with.
const RATE_OVER: Duration = Duration::from_secs(10);

/// The name of who is not known.
const UNKNOWN: &str = "unknown";

/// An edge's ends: who sends, and where to.
pub(super) type Ends = (String, String);

/// The state of an edge.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Edge {
    /// Requests so far; none where nobody counts.
    pub(super) requests: Option<f64>,
    /// Of those, answered with an error.
    pub(super) errors: f64,
    /// Whether all of it is over mutual TLS; none where that is not known.
    pub(super) is_mutual: Option<bool>,
    /// Requests per second; none where that is not known yet.
    pub(super) rate: Option<f64>,
}

/// Edges by their ends.
#[derive(Debug, Default)]
pub(super) struct Edges {
    /// The edges.
    pub(super) edges: BTreeMap<Ends, Edge>,
    /// Whether there were more of them.
    pub(super) has_more: bool,
}

/// Earlier counts.
#[derive(Default)]
pub(super) struct Rates {
    before: Option<Counts>,
    last: Option<Counts>,
}

/// Requests by edge, at a time.
struct Counts {
    at: Instant,
    requests: BTreeMap<Ends, f64>,
}

impl Edges {
    /// The edges that a process with a proxy has counted, in the text of its metrics.
    pub(super) fn counted(text: &str) -> Edges {
        let mut edges = Edges::default();
        for sample in samples(text, "istio_requests_total") {
            let name = |namespace: &str, name: &str| {
                let (namespace, name) = (sample.label(namespace), sample.label(name));
                match matches!(namespace, "" | UNKNOWN) {
                    true => name.to_owned(),
                    false => format!("{namespace}/{name}"),
                }
            };
            let ends = (
                name("source_workload_namespace", "source_workload"),
                name("destination_service_namespace", "destination_service_name"),
            );
            let policy = sample.label("connection_security_policy");
            let is_named = sample
                .label("destination_principal")
                .starts_with("spiffe://");
            let is_mutual = match policy {
                "mutual_tls" => Some(true),
                "none" => Some(false),
                _ => is_named.then_some(true),
            };
            let Some(edge) = edges.edge(ends) else {
                continue;
            };
            let is_first = edge.requests.is_none();
            *edge.requests.get_or_insert(0.0) += sample.value;
            if sample.label("response_code").starts_with('5') {
                edge.errors += sample.value;
            }
            edge.is_mutual = match (is_first, edge.is_mutual, is_mutual) {
                (true, _, new) => new,
                (false, Some(one), Some(other)) => Some(one && other),
                (false, ..) => None,
            };
        }
        edges
    }

    /// The edges that the sidecars of a controller may have, of some of their views.
    pub(super) fn reachable(board: &Board) -> Edges {
        let mut edges = Edges::default();
        let views = board.views();
        let sidecars = views.iter().filter(|view| view.contains('/'));
        let mut left = RESOURCES_MAX;
        for (number, view) in sidecars.enumerate() {
            if number >= VIEWS_MAX || left == 0 {
                edges.has_more = true;
                break;
            }
            let Some(snapshot) = board.snapshot_of(view) else {
                continue;
            };
            let from = view.split('#').next().unwrap_or_default();
            edges.has_more |= snapshot.len() > left;
            for sealed in snapshot.iter().take(left) {
                if sealed.key().kind != Kind::Upstream {
                    continue;
                }
                let resource = catalog::resource(sealed);
                let value = resource.as_deref().map(|resource| &resource.value);
                let Some(Value::Upstream(upstream)) = value else {
                    continue;
                };
                let ends = (from.to_owned(), sealed.name().to_string());
                if let Some(edge) = edges.edge(ends) {
                    let mesh = upstream.tls.as_deref().map(|tls| tls.mesh);
                    edge.is_mutual = match mesh {
                        Some(MeshTls::All) => Some(true),
                        Some(MeshTls::Flagged) => None,
                        Some(MeshTls::None) | None => Some(false),
                    };
                }
            }
            left = left.saturating_sub(snapshot.len());
        }
        edges
    }

    /// The edge with these ends, unless there are too many.
    fn edge(&mut self, ends: Ends) -> Option<&mut Edge> {
        if self.edges.len() >= EDGES_MAX && !self.edges.contains_key(&ends) {
            self.has_more = true;
            return None;
        }
        Some(self.edges.entry(ends).or_default())
    }
}

impl Rates {
    /// Fills in the rates of what is counted now, and keeps the counts.
    pub(super) fn fill(&mut self, edges: &mut Edges, now: Instant) {
        let is_ripe = |counts: &Counts| now.saturating_duration_since(counts.at) >= RATE_OVER_MIN;
        let before = self.before.as_ref().or(self.last.as_ref());
        if let Some(before) = before.filter(|counts| is_ripe(counts)) {
            let seconds = now.saturating_duration_since(before.at).as_secs_f64();
            for (ends, edge) in &mut edges.edges {
                let then = before.requests.get(ends).copied().unwrap_or_default();
                let counted = edge.requests.map(|requests| (requests - then).max(0.0));
                edge.rate = counted.map(|counted| counted / seconds);
            }
        }
        let is_old = |counts: &Counts| now.saturating_duration_since(counts.at) >= RATE_OVER;
        if self.last.as_ref().is_none_or(is_old) {
            let counted = edges.edges.iter();
            let counted = counted.filter_map(|(ends, edge)| Some((ends.clone(), edge.requests?)));
            let counts = Counts {
                at: now,
                requests: counted.collect(),
            };
            self.before = self.last.replace(counts);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::time::Duration;

    use myriad_base::clock;

    use super::{EDGES_MAX, Edges, Rates};

    fn line(from: &str, to: &str, (code, policy): (u16, &str), value: u64) -> String {
        format!(
            "istio_requests_total{{source_workload=\"{from}\",source_workload_namespace=\"shop\",\
             destination_service_name=\"{to}\",destination_service_namespace=\"shop\",\
             response_code=\"{code}\",connection_security_policy=\"{policy}\"}} {value}\n"
        )
    }

    #[test]
    fn requests_are_added_up_by_their_ends() {
        let text = line("web", "cart", (200, "mutual_tls"), 7)
            + &line("web", "cart", (503, "mutual_tls"), 3)
            + &line("web", "search", (200, "mutual_tls"), 1)
            + &line("web", "search", (200, "none"), 1);
        let counted = Edges::counted(&text);
        let ends = |to: &str| ("shop/web".to_owned(), format!("shop/{to}"));
        let cart = counted.edges[&ends("cart")];
        assert_eq!((cart.requests, cart.errors), (Some(10.0), 3.0));
        assert_eq!(cart.is_mutual, Some(true));
        assert_eq!(counted.edges[&ends("search")].is_mutual, Some(false));
        assert_eq!(counted.edges.len(), 2);
    }

    #[test]
    fn no_more_edges_are_held_than_may_be() {
        let mut text = String::new();
        for number in 0..2 * EDGES_MAX {
            let line = line(&format!("w{number}"), "cart", (200, "none"), 1);
            write!(text, "{line}").unwrap();
        }
        let counted = Edges::counted(&text);
        assert_eq!(counted.edges.len(), EDGES_MAX);
        assert!(counted.has_more);
    }

    #[test]
    fn rates_are_of_the_last_seconds() {
        let (mut rates, start) = (Rates::default(), clock::now());
        let mut rate = |requests, seconds| {
            let mut edges = Edges::counted(&line("web", "cart", (200, "none"), requests));
            rates.fill(&mut edges, start + Duration::from_secs(seconds));
            edges.edges.values().next().unwrap().rate
        };
        assert_eq!(rate(100, 0), None);
        assert_eq!(rate(150, 5), Some(10.0));
        assert_eq!(rate(300, 10), Some(20.0));
        // The first counts are still those that are compared with.
        assert_eq!(rate(400, 20), Some(15.0));
        assert_eq!(rate(400, 30), Some(5.0));
        // A proxy that has begun anew counts from nothing.
        assert_eq!(rate(1, 40), Some(0.0));
    }
}
