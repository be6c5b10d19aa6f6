//! Stream routes from the rules of one VirtualService.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use myriad_api::istio::Labels;
use myriad_api::istio::virtual_service::{RouteDestination, TcpMatch, TlsMatch, TlsRoute};
use myriad_api::{Finding, Severity};
use myriad_model::{Host, Name, OriginKind, Resource, StreamRoute, Value, WeightedUpstream};

use super::{Holders, origin};
use crate::dialect::istio::entrance::Door;
use crate::dialect::istio::matching::SourceFit;
use crate::dialect::istio::narrower::{Narrower, STREAM_ROUTE_BYTES};
use crate::dialect::istio::scene::{Named, Tenant};
use crate::dialect::istio::sni::is_within;
use crate::dialect::istio::{binding, destination, matching, narrower, texts, touch};
use crate::engine::{Output, Reader, Unit};
use crate::resolve::names::{self, broader};

/// The longest silence where no DestinationRule says otherwise, as in Istio.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3_600);

/// The longest time to connect where no DestinationRule says otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The most ranges of a match, as of any list of a stream route.
const RANGES_MAX: usize = 4_096;

/// The problem with ranges, and the remedy.
pub(super) type RangeProblem = (&'static str, &'static str);

const NO_RANGE: RangeProblem = (
    "has an entry that is no range of IP addresses, so the match has no effect",
    "write addresses such as 10.0.0.0/8 or 2001:db8::1",
);

const TOO_MANY_RANGES: RangeProblem = (
    "has more than 4096 entries, so the match has no effect",
    "write fewer, or larger ranges",
);

/// Ranges of addresses; none for all.
pub(super) type Ranges = Box<[IpNet]>;

/// The place of a rule among all of its host.
#[derive(Clone, Copy)]
struct RulePosition {
    tenant: usize,
    rule: usize,
    matched: usize,
}

/// The properties that the stream routes of one VirtualService on a host share.
struct Scene<'a> {
    host: &'a Host,
    /// The word for it in names.
    label: &'a str,
    /// The host, and the patterns above it.
    covering: Vec<Host>,
    /// The place of the VirtualService among those on the host.
    number: usize,
    tenant: &'a Tenant,
    holders: &'a Holders,
}

/// The stream route of a match, but for what it leads to.
struct Matched {
    name: Name,
    stream_route: StreamRoute,
    /// Whether it leads nowhere, whatever its rule says.
    is_closed: bool,
    /// Whether nobody can tell whether the workload is the one that it is for.
    is_unknown: bool,
}

/// Which connections a match is about.
struct Asked<'a> {
    port: u16,
    gateways: &'a [Box<str>],
    labels: &'a Labels,
    namespace: &'a str,
    sources: Ranges,
    destinations: Ranges,
}

/// Adds the stream routes of a VirtualService on a host.
pub(super) fn add(
    reader: &mut Reader<'_>,
    (host, label): (&Host, &str),
    (number, tenant): (usize, &Tenant),
    (holders, narrower): (&Holders, &mut Narrower),
    output: &mut Output,
) {
    let spec = &tenant.service.spec;
    if spec.tls.is_empty() && spec.tcp.is_empty() {
        return;
    }
    let mut covering = vec![host.clone()];
    covering.extend(broader(host));
    let scene = Scene {
        host,
        label,
        covering,
        number,
        tenant,
        holders,
    };
    let is_within = scene.add_tls(reader, narrower, output);
    if is_within {
        scene.add_tcp(reader, narrower, output);
    }
}

/// A stream route that takes nothing and leads nowhere.
pub(crate) fn blank() -> StreamRoute {
    StreamRoute {
        listeners: Arc::from([]),
        hosts: Box::default(),
        sources: Box::default(),
        destinations: Box::default(),
        rank: 0,
        behind: 0,
        terminate: false,
        upstreams: Box::default(),
        idle_timeout: IDLE_TIMEOUT,
        connect_timeout: CONNECT_TIMEOUT,
    }
}

/// The ranges of a match of connections: of clients, and of what they connect to.
///
/// # Errors
/// The field that has no effect, and the problem with it.
pub(super) fn both_ranges(
    written: &TcpMatch,
) -> Result<(Ranges, Ranges), (&'static str, RangeProblem)> {
    let destinations =
        ranges(&written.destination_subnets).map_err(|it| ("destinationSubnets", it))?;
    let sources = match written.source_subnet.is_empty() {
        true => Box::default(),
        false => ranges(std::slice::from_ref(&written.source_subnet))
            .map_err(|it| ("sourceSubnet", it))?,
    };
    Ok((sources, destinations))
}

/// Ranges as written.
///
/// # Errors
/// When one cannot be read, or there are too many.
pub(super) fn ranges(written: &[Box<str>]) -> Result<Ranges, RangeProblem> {
    if written.len() > RANGES_MAX {
        return Err(TOO_MANY_RANGES);
    }
    let range = |text: &str| match text.parse::<IpAddr>() {
        Ok(address) => Some(IpNet::from(address)),
        Err(_) => text.parse::<IpNet>().ok().map(|range| range.trunc()),
    };
    let ranges: Option<Ranges> = written.iter().map(|text| range(text)).collect();
    ranges.ok_or(NO_RANGE)
}

/// The places of all matches of rules for TLS.
fn all_places(rules: &[TlsRoute]) -> Vec<(usize, usize)> {
    let rules = rules.iter().enumerate();
    let places = rules.flat_map(|(at, rule)| {
        let matches = 0..rule.matches.len();
        matches.map(move |matched| (at, matched))
    });
    places.collect()
}

impl Scene<'_> {
    /// Adds the stream routes of the rules for TLS with matches for the host. Whether there may be
    /// more.
    fn add_tls(
        &self,
        reader: &mut Reader<'_>,
        narrower: &mut Narrower,
        output: &mut Output,
    ) -> bool {
        let rules = &self.tenant.service.spec.tls;
        let places = match self.tenant.named {
            Named::Captured => all_places(rules),
            Named::Hosts | Named::Sni => self.tenant.names.places(&self.covering),
        };
        for places in places.chunk_by(|one, other| one.0 == other.0) {
            let at = places.first().map_or(0, |(at, _)| *at);
            let Some(rule) = rules.get(at) else {
                continue;
            };
            let matches = places
                .iter()
                .filter_map(|(_, matched)| Some((*matched, rule.matches.get(*matched)?)));
            let mut found = Vec::new();
            let mut bytes = 0;
            for (matched, written) in matches {
                let place = self.place(at, matched);
                let matched = self.passed(reader, written, place);
                bytes += matched.as_ref().map_or(0, |_| {
                    STREAM_ROUTE_BYTES + texts::of_tls(written, &rule.route)
                });
                found.extend(matched);
            }
            let field = format!("tls[{at}]");
            if !self.is_within(reader, narrower, (&field, bytes), output) {
                return false;
            }
            self.push(reader, found, (&field, &rule.route), output);
        }
        true
    }

    /// Adds the stream routes of the rules for plain TCP.
    fn add_tcp(&self, reader: &mut Reader<'_>, narrower: &mut Narrower, output: &mut Output) {
        for (at, rule) in self.tenant.service.spec.tcp.iter().enumerate() {
            let mut found = Vec::new();
            let mut bytes = 0;
            let all = TcpMatch::default();
            let matches = match rule.matches.is_empty() {
                true => std::slice::from_ref(&all),
                false => &*rule.matches,
            };
            for (matched, written) in matches.iter().enumerate() {
                let streamed = self.streamed(reader, written, self.place(at, matched));
                let each = STREAM_ROUTE_BYTES + texts::of_tcp(written, &rule.route);
                bytes += streamed.len() * each;
                found.extend(streamed);
            }
            let field = format!("tcp[{at}]");
            if !self.is_within(reader, narrower, (&field, bytes), output) {
                return;
            }
            self.push(reader, found, (&field, &rule.route), output);
        }
    }

    /// Whether a rule is within what there may be on a host below a wildcard. What is closed where
    /// it is not stays so.
    fn is_within(
        &self,
        reader: &mut Reader<'_>,
        narrower: &mut Narrower,
        (field, bytes): (&str, usize),
        output: &mut Output,
    ) -> bool {
        let taken = narrower.take(reader, (self.host, self.tenant), bytes);
        let Err(max) = taken else {
            return true;
        };
        let (service, field) = (&self.tenant.service, format!("spec.{field}"));
        let finding = narrower::says_too_much(service, &field, max);
        output.findings.push(finding);
        false
    }

    fn place(&self, rule: usize, matched: usize) -> RulePosition {
        RulePosition {
            tenant: self.number,
            rule,
            matched,
        }
    }

    /// The stream route of a match of names.
    fn passed(
        &self,
        reader: &Reader<'_>,
        written: &TlsMatch,
        place: RulePosition,
    ) -> Option<Matched> {
        let asked = Asked {
            port: written.port,
            gateways: &written.gateways,
            labels: &written.source_labels,
            namespace: &written.source_namespace,
            sources: Box::default(),
            destinations: ranges(&written.destination_subnets).ok()?,
        };
        let hosts = self.meeting(written, place);
        if hosts.is_empty() {
            return None;
        }
        let fit = self.source_fit(reader, &asked);
        let mut stream_route = self.stream_route(fit, asked, &Door::Passing, place)?;
        stream_route.hosts = hosts.into();
        Some(Matched {
            name: self.name("tls", place, ""),
            stream_route,
            is_closed: binding::is_beyond(&written.gateways),
            is_unknown: fit == SourceFit::Unknown,
        })
    }

    /// The stream routes of a match of connections: of plain ones, and of what comes out of TLS.
    fn streamed(
        &self,
        reader: &Reader<'_>,
        written: &TcpMatch,
        place: RulePosition,
    ) -> Vec<Matched> {
        let mut found = Vec::new();
        for door in [Door::Stream, Door::TlsStream] {
            let Ok((sources, destinations)) = both_ranges(written) else {
                return found;
            };
            let asked = Asked {
                port: written.port,
                gateways: &written.gateways,
                labels: &written.source_labels,
                namespace: &written.source_namespace,
                sources,
                destinations,
            };
            let fit = self.source_fit(reader, &asked);
            let late = self.late(reader, &asked, &door);
            let Some(mut stream_route) = self.stream_route(fit, asked, &door, place) else {
                continue;
            };
            stream_route.rank = self.rank(place, late);
            let mut end = "";
            if door == Door::TlsStream {
                stream_route.hosts = [self.host.clone()].into();
                stream_route.terminate = true;
                end = "+tls";
            }
            found.push(Matched {
                name: self.name("tcp", place, end),
                stream_route,
                is_closed: binding::is_beyond(&written.gateways),
                is_unknown: fit == SourceFit::Unknown,
            });
        }
        found
    }

    /// A stream route for the listeners that a match admits; `None` where there is none.
    fn stream_route(
        &self,
        fit: SourceFit,
        asked: Asked<'_>,
        door: &Door,
        place: RulePosition,
    ) -> Option<StreamRoute> {
        if fit == SourceFit::Other {
            return None;
        }
        let own = self.tenant.service.meta.key.namespace();
        let ways = self.tenant.ways(asked.gateways, own).filter(|way| {
            way.door == *door
                && (asked.port == 0 || asked.port == way.port)
                && self.holders.admits(&way.listener, door)
        });
        let mut listeners: Vec<Name> = ways.map(|way| way.listener.clone()).collect();
        listeners.sort_unstable();
        listeners.dedup();
        (!listeners.is_empty()).then(|| StreamRoute {
            listeners: listeners.into(),
            sources: asked.sources,
            destinations: asked.destinations,
            rank: self.rank(place, None),
            ..blank()
        })
    }

    /// Since when a match takes plain connections, where that is later than the VirtualService
    /// claims the host: since the last of its Gateways is named.
    fn late(&self, reader: &Reader<'_>, asked: &Asked<'_>, door: &Door) -> Option<i64> {
        let service = &self.tenant.service;
        let may_be = || reader.is_late(&service.meta.key) || touch::has_many_streams(service);
        if *door != Door::Stream || !may_be() {
            return None;
        }
        let own = service.meta.key.namespace();
        let rows = self
            .tenant
            .entrances
            .chunk_by(|one, other| one.0 == other.0);
        let ids = rows.filter_map(|row| row.first().map(|(id, _)| id));
        let named = ids.filter(|id| touch::is_taken(asked.gateways, own, id));
        named
            .filter_map(|id| reader.stream_since(service, id, asked.port))
            .max()
    }

    /// Whether the workload that is served here is the source that a match names.
    fn source_fit(&self, reader: &Reader<'_>, asked: &Asked<'_>) -> SourceFit {
        let own = self.tenant.service.meta.key.namespace();
        let asked = matching::SourceAsked {
            labels: asked.labels,
            namespace: asked.namespace,
            by: [own, own],
        };
        asked.fit(reader)
    }

    /// The names that both a match and the host are about, sorted. At gateways a name within the
    /// host is a host of its own, which may be somebody else's.
    fn meeting(&self, written: &TlsMatch, place: RulePosition) -> Vec<Host> {
        let known = &self.tenant.names;
        let mut covering = self.covering.iter();
        let is_whole = covering.any(|it| known.is_matched(it, place.rule, place.matched));
        let mut hosts: Vec<Host> = Vec::new();
        hosts.extend(is_whole.then(|| self.host.clone()));
        if self.tenant.named == Named::Captured {
            let names = written.sni_hosts.iter();
            let names = names.filter_map(|sni| names::host(sni).ok());
            let is_met = |sni: &Host| {
                known.takes(sni) && !self.covering.contains(sni) && is_within(sni, self.host)
            };
            hosts.extend(names.filter(is_met));
        }
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }

    /// Gives stream routes what their rule leads to.
    fn push(
        &self,
        reader: &mut Reader<'_>,
        found: Vec<Matched>,
        (field, shares): (&str, &[RouteDestination]),
        output: &mut Output,
    ) {
        if found.is_empty() {
            return;
        }
        let upstreams = self.upstreams(reader, (field, shares), output);
        let key = &self.tenant.service.meta.key;
        if found.iter().any(|matched| matched.is_unknown) {
            let field = format!("spec.{field}.match");
            let finding = matching::unknown_source(reader, key, field);
            output.findings.push(finding);
        }
        for matched in found {
            let stream_route = StreamRoute {
                upstreams: match matched.is_closed || matched.is_unknown {
                    true => Box::default(),
                    false => upstreams.clone(),
                },
                ..matched.stream_route
            };
            let resource = Resource {
                origin: origin(OriginKind::VirtualService, key),
                value: Value::StreamRoute(Box::new(stream_route)),
            };
            output.resources.push((matched.name, resource));
        }
    }

    fn upstreams(
        &self,
        reader: &mut Reader<'_>,
        (field, shares): (&str, &[RouteDestination]),
        output: &mut Output,
    ) -> Box<[WeightedUpstream]> {
        let key = &self.tenant.service.meta.key;
        let mut say = |end: String, message: String, remedy: &str| {
            let field = format!("spec.{field}.{end}");
            let finding = Finding::new(Severity::Error, key, field, message, remedy);
            output.findings.push(finding);
        };
        if shares.is_empty() {
            let message = "is empty, so its connections are closed".to_owned();
            say("route".into(), message, "name a destination");
        }
        let mut upstreams = Vec::with_capacity(shares.len());
        for (at, share) in shares.iter().enumerate() {
            let found = destination::resolve(reader, &share.destination, key.namespace());
            let upstream = match found {
                Ok(upstream) => {
                    output.needs.push(Unit::upstream(upstream.clone()));
                    Name::new(upstream)
                }
                Err(lost) => {
                    say(
                        format!("route[{at}].destination.{}", lost.field),
                        format!("{}, so its connections are closed", lost.problem),
                        lost.remedy,
                    );
                    // The name of what is not there, which keeps its share.
                    Name::new(format!("{}/{field}.{at}/missing", key.id()))
                }
            };
            let weight = match (share.weight, shares.len()) {
                (0, 1) => 1,
                (weight, _) => weight,
            };
            upstreams.push(WeightedUpstream {
                upstream,
                weight,
                headers: None,
                filters: None,
            });
        }
        upstreams.into()
    }

    fn name(&self, kind: &str, place: RulePosition, end: &str) -> Name {
        let (id, host) = (self.tenant.service.meta.key.id(), self.label);
        let (rule, matched) = (place.rule, place.matched);
        Name::new(format!("{id}/{host}/{kind}{rule}.{matched}{end}"))
    }

    /// The rank: the age of the claim of the VirtualService, or of the match where that came later,
    /// then its place. The age goes first, since stream routes of several hosts meet on a listener.
    fn rank(&self, place: RulePosition, late: Option<i64>) -> u64 {
        let part = |number: usize, bits: u32| (number as u64).min((1 << bits) - 1);
        let since = self.tenant.claim.since();
        let since = since.max(late.unwrap_or(since)).clamp(0, (1 << 34) - 1);
        since.unsigned_abs() << 30
            | part(place.tenant, 8) << 22
            | part(place.rule, 11) << 11
            | part(place.matched, 11)
    }
}

#[cfg(test)]
mod tests {
    use myriad_api::istio::virtual_service::TcpMatch;

    use super::{NO_RANGE, RANGES_MAX, TOO_MANY_RANGES, both_ranges};

    #[test]
    fn ranges_of_a_match_are_bounded_by_their_number() {
        let matched = |count: usize, source: &str| TcpMatch {
            destination_subnets: vec![Box::<str>::from("10.0.0.0/8"); count].into(),
            source_subnet: source.into(),
            ..TcpMatch::default()
        };
        let (_, most) = both_ranges(&matched(RANGES_MAX, "")).unwrap();
        assert_eq!(most.len(), RANGES_MAX);
        let beyond = both_ranges(&matched(RANGES_MAX + 1, ""));
        assert_eq!(beyond, Err(("destinationSubnets", TOO_MANY_RANGES)));
        assert!(TOO_MANY_RANGES.0.contains(&RANGES_MAX.to_string()));
        let unread = both_ranges(&matched(1, "here"));
        assert_eq!(unread, Err(("sourceSubnet", NO_RANGE)));
    }
}
