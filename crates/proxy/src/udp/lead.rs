//! The way to an endpoint for a flow.

use std::net::IpAddr;
use std::rc::Rc;

use arc_swap::ArcSwap;

use super::account::FlowAccount;
use super::flow::Led;
use crate::admission::silent::source_of;
use crate::balance::outlier::EndpointOutcome;
use crate::balance::{Choice, Flight};
use crate::failure::FailureKind;
use crate::local::Local;
use crate::policy::sameness;
use crate::route::downstream_connection::DownstreamConnection;
use crate::route::stream_route::StreamRouteEntry;
use crate::route::tables::Tables;
use crate::telemetry::count::Count;
use crate::upstream::attempt;
use crate::upstream::datagrams;
use crate::upstream::entry::UpstreamEntry;
use crate::upstream::resolve::DnsAnswer;

/// The parts that a flow needs to find its endpoint.
pub(super) struct Leading<'a> {
    /// Limits, counts and dice.
    pub local: &'a Local,
    /// The tables.
    pub tables: &'a ArcSwap<Tables>,
    /// The client.
    pub visit: &'a DownstreamConnection,
    /// The stream route that takes it.
    pub entry: &'a StreamRouteEntry,
}

impl Leading<'_> {
    /// Chooses an endpoint, and where that cannot be sent anything, once another. Where no port is
    /// free to send from, `make_room` may give one up.
    ///
    /// # Errors
    /// The reason why there is none.
    pub(super) async fn lead(
        &self,
        account: &mut FlowAccount,
        make_room: impl Fn() -> bool,
    ) -> Result<Led, FailureKind> {
        let local = self.local;
        let upstream = {
            let tables = self.tables.load();
            let drawn = tables.draw_upstream(self.entry, &local.dice);
            drawn.ok_or(FailureKind::NoUpstream)?.clone()
        };
        account.set_upstream(&upstream);
        let asker = source_of(self.visit.client.ip());
        let answer = upstream.answer(&local.names, ("", asker), None).await;
        let answer = answer.map_err(|failure| failure.kind)?;
        let pool = answer.as_ref().map_or(&upstream.pool, |it| &it.pool);
        if comes_from_endpoint(&upstream, answer.as_deref(), self.visit.client.ip()) {
            return Err(FailureKind::LoopDetected);
        }
        let choice = Choice {
            dice: &local.dice,
            tried: None,
            hash: sameness::of_stream(&upstream, self.visit),
            now_ms: None,
        };
        let (mut tried, mut has_made_room) = (None, false);
        loop {
            let target = attempt::choose(pool, &Choice { tried, ..choice })?;
            account.set_endpoint(target);
            match datagrams::open(target, local) {
                Ok(socket) => {
                    let flight = Flight::start(target.clone());
                    let socket = Rc::new(socket);
                    return Ok(Led {
                        refusal: Box::pin(datagrams::refusal(socket.clone())),
                        socket,
                        answer: answer.clone(),
                        upstream: upstream.clone(),
                        flight,
                    });
                }
                Err(FailureKind::NoPort) if !has_made_room && make_room() => has_made_room = true,
                Err(kind) => {
                    let is_only = tried.is_some() || pool.len() <= 1;
                    if kind == FailureKind::ConnectFailed {
                        let failed = EndpointOutcome::Failure;
                        attempt::note(&local.counts, pool, target, failed);
                    }
                    if kind != FailureKind::ConnectFailed || is_only {
                        return Err(kind);
                    }
                    local.counts.add(Count::UpstreamRetried);
                    tried = Some(target.id);
                }
            }
        }
    }
}

/// Whether a client's address is that of an endpoint. Nothing in a datagram says how often it was
/// handed on, so replicas, or two gateways, that lead to each other would never end. Nobody else
/// has this machine's own address, by which nothing comes from another gateway.
///
/// Forged addresses begin a flow each, so that few endpoints are looked at for one.
fn comes_from_endpoint(
    upstream: &UpstreamEntry,
    answer: Option<&DnsAnswer>,
    client: IpAddr,
) -> bool {
    let client = client.to_canonical();
    let mapped = match client {
        IpAddr::V4(ip) => IpAddr::V6(ip.to_ipv6_mapped()),
        IpAddr::V6(_) => client,
    };
    let has = |ip| match answer {
        Some(answer) => answer.has_ip(ip),
        None => upstream.has_ip(ip),
    };
    !client.is_loopback() && (has(client) || has(mapped))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::Arc;

    use super::{DnsAnswer, UpstreamEntry, comes_from_endpoint};
    use crate::balance::{Endpoint, Member, Pool, TransportSettings};
    use crate::upstream::endpoint::EndpointTable;
    use crate::upstream::entry::Parts;

    #[test]
    fn an_endpoint_is_no_client_of_its_own_upstream() {
        let member = |address: &str| Member {
            target: Arc::new(Endpoint::new(
                address.parse().unwrap(),
                TransportSettings::shared(None),
            )),
            weight: 1,
            priority: 0,
        };
        let endpoints = [
            "192.0.2.1:53",
            "192.0.2.2:53",
            "[2001:db8::1]:53",
            "127.0.0.1:53",
            "[::ffff:192.0.2.9]:53",
        ];
        let pool = Pool::new(endpoints.into_iter().map(member));
        let answer = DnsAnswer::lasting(pool);
        let mut targets = EndpointTable::new();
        let upstream = UpstreamEntry::new("u".into(), None, Parts::new(), &mut targets, None);
        let comes = |client: &str| {
            let client = client.parse::<IpAddr>().unwrap();
            assert!(!comes_from_endpoint(&upstream, None, client), "it has none");
            comes_from_endpoint(&upstream, Some(&answer), client)
        };
        assert!(comes("192.0.2.9"));
        for client in ["192.0.2.1", "192.0.2.2", "2001:db8::1", "::ffff:192.0.2.1"] {
            assert!(comes(client), "{client}");
        }
        for client in ["192.0.2.3", "2001:db8::2", "127.0.0.1"] {
            assert!(!comes(client), "{client}");
        }
    }
}
