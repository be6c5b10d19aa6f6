//! The listeners of connections that sidecars capture on their way out, and what becomes of
//! those that are for nobody who is known.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use myriad_api::istio::virtual_service::HttpRoute;
use myriad_model::{
    Action, Capture, CaptureDirection, Host, Listener, ListenerProtocol, MutualTls, Name, Origin,
    PathMatch, Protocol, Resource, Route, StreamRoute, Underscores, Upstream, Value,
    WeightedUpstream,
};

use crate::dialect::istio::{policy, stream};
use crate::engine::{Output, Reader};
use crate::resolve::Spoken;

/// The original destination of connections.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CaptureKey {
    /// None for any address.
    pub address: Option<IpAddr>,
    /// The port.
    pub port: u16,
}

/// The words about one listener: what an object says that is spoken there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Voice {
    /// The protocol.
    pub spoken: Spoken,
    /// Whether it is that of a stranger, on a listener that all addresses share.
    pub is_strangers: bool,
}

/// The bit of strangers in the number of a voice.
const STRANGERS: u8 = 1 << 7;

/// The upstream of what goes where it was meant to go.
const ELSEWHERE: &str = "elsewhere";

/// The rank of what is for nobody who is known: behind all others.
const LAST_RANK: u64 = u64::MAX;

impl CaptureKey {
    /// The name of the listener.
    pub fn name(&self) -> Name {
        Name::new(match self.address {
            Some(address) => format!("outbound/{}", SocketAddr::new(address, self.port)),
            None => format!("outbound/any:{}", self.port),
        })
    }
}

impl Voice {
    /// All that there may be.
    pub(super) fn all() -> impl Iterator<Item = Voice> {
        Spoken::ALL.into_iter().flat_map(|spoken| {
            let whose = [false, true].into_iter();
            whose.map(move |is_strangers| Voice {
                spoken,
                is_strangers,
            })
        })
    }

    /// The number among those of a listener.
    pub(super) fn number(self) -> u8 {
        self.spoken as u8 | if self.is_strangers { STRANGERS } else { 0 }
    }
}

/// The protocol of a listener; none where nobody has a say. Strangers open it to what they speak,
/// and close it to nothing: where they alone speak HTTP, bytes pass as they did before. Where the
/// caller and the operator speak bytes alone, TLS of strangers makes nobody's server wait.
fn protocol(voices: &[Voice]) -> Option<ListenerProtocol> {
    let is_all = |one: Spoken| voices.iter().all(|it| it.spoken == one);
    let mut own = voices.iter().filter(|it| !it.is_strangers).peekable();
    let is_owned = own.peek().is_some();
    let is_kept = is_owned && own.all(|it| it.spoken == Spoken::Tcp);
    let is_passed = |voice: &Voice| matches!(voice.spoken, Spoken::Tcp | Spoken::Tls);
    if voices.is_empty() {
        return None;
    }
    if is_all(Spoken::Tcp) || is_kept && voices.iter().all(is_passed) {
        return Some(ListenerProtocol::Tcp);
    }
    Some(match is_owned && is_all(Spoken::Http) {
        true => ListenerProtocol::Http,
        false => ListenerProtocol::Detected,
    })
}

/// Whether strangers alone have HTTP spoken where all would be bytes without them. It is looked for
/// at the addresses of their Services then, and nobody else's server waits until it is.
fn detects_hosts(voices: &[Voice]) -> bool {
    let is_strangers = |it: &&Voice| it.is_strangers && it.spoken == Spoken::Http;
    let others = voices.iter().filter(|it| !is_strangers(it));
    let others: Vec<Voice> = others.copied().collect();
    let is_bytes = matches!(protocol(&others), None | Some(ListenerProtocol::Tcp));
    is_bytes && protocol(voices) == Some(ListenerProtocol::Detected)
}

/// Translates a listener by all that is said of it.
pub(super) fn translate(reader: &mut Reader<'_>, key: &CaptureKey, voices: &[Voice]) -> Output {
    let mut output = Output::default();
    let Some(protocol) = protocol(voices) else {
        return output;
    };
    let address = key.address.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
    let address = SocketAddr::new(address, key.port);
    let name = key.name();
    let mut value = listener(
        address,
        protocol,
        CaptureDirection::Outbound,
        MutualTls::None,
    );
    if let Value::Listener(listener) = &mut value
        && let Some(capture) = &mut listener.capture
    {
        capture.detects_hosts = detects_hosts(voices);
    }
    push(&mut output, name.clone(), value);
    // An address of its own is for those who have it alone.
    if key.address.is_some() || !reader.allows_any() {
        return output;
    }
    let listeners: Arc<[Name]> = [name.clone()].into();
    if protocol != ListenerProtocol::Tcp {
        let upstreams = [weighted(Name::from(ELSEWHERE))];
        let route = route(
            listeners.clone(),
            [Host::any()].into(),
            LAST_RANK,
            upstreams,
            reader.settings().underscores(Underscores::Colliding),
        );
        push(&mut output, elsewhere(&name), Value::Route(Box::new(route)));
    }
    if protocol != ListenerProtocol::Http {
        let upstreams = [weighted(Name::from(ELSEWHERE))];
        let stream_route = stream_route(listeners, LAST_RANK, upstreams);
        push(
            &mut output,
            elsewhere(&name),
            Value::StreamRoute(Box::new(stream_route)),
        );
    }
    output
}

/// Translates what becomes of connections to ports that nobody has.
pub(super) fn translate_elsewhere(reader: &mut Reader<'_>) -> Output {
    let mut output = Output::default();
    if !reader.view().is_sidecar() {
        return output;
    }
    let address = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
    let name = Name::from("outbound/any:any");
    // Where nothing goes anywhere, a request at least is told so.
    let protocol = match reader.allows_any() {
        true => ListenerProtocol::Tcp,
        false => ListenerProtocol::Detected,
    };
    let value = listener(
        address,
        protocol,
        CaptureDirection::Outbound,
        MutualTls::None,
    );
    push(&mut output, name.clone(), value);
    if !reader.allows_any() {
        return output;
    }
    let upstream = Upstream {
        original_destination: true,
        ..Upstream::plain(Protocol::Http1)
    };
    push(
        &mut output,
        Name::from(ELSEWHERE),
        Value::Upstream(Box::new(upstream)),
    );
    let upstreams = [weighted(Name::from(ELSEWHERE))];
    let stream_route = stream_route([name.clone()].into(), LAST_RANK, upstreams);
    push(
        &mut output,
        elsewhere(&name),
        Value::StreamRoute(Box::new(stream_route)),
    );
    output
}

/// A listener of captured connections.
pub(super) fn listener(
    address: SocketAddr,
    protocol: ListenerProtocol,
    direction: CaptureDirection,
    mutual: MutualTls,
) -> Value {
    Value::Listener(Box::new(Listener {
        address,
        tls: false,
        default_certificate: None,
        protocol,
        capture: Some(Capture {
            direction,
            mutual,
            detects_hosts: false,
        }),
    }))
}

/// A route for all requests, with what Istio does where no rule says otherwise.
pub(super) fn route(
    listeners: Arc<[Name]>,
    hosts: Arc<[Host]>,
    rank: u64,
    upstreams: [WeightedUpstream; 1],
    underscores: Underscores,
) -> Route {
    let mut policy = policy::build(&HttpRoute::default(), &mut Vec::new());
    policy.underscores = underscores;
    Route {
        listeners,
        hosts,
        path: PathMatch::Prefix("/".into()),
        conditions: Box::default(),
        rank,
        action: Action::Forward(upstreams.into()),
        policy: Arc::new(policy),
    }
}

/// A stream route for all connections.
pub(super) fn stream_route(
    listeners: Arc<[Name]>,
    rank: u64,
    upstreams: [WeightedUpstream; 1],
) -> StreamRoute {
    StreamRoute {
        listeners,
        rank,
        upstreams: upstreams.into(),
        ..stream::blank()
    }
}

/// All of what is there goes to one upstream.
pub(super) fn weighted(upstream: Name) -> WeightedUpstream {
    WeightedUpstream {
        upstream,
        weight: 1,
        headers: None,
        filters: None,
    }
}

fn elsewhere(listener: &Name) -> Name {
    Name::new(format!("{ELSEWHERE}/{listener}"))
}

fn push(output: &mut Output, name: Name, value: Value) {
    let origin = Origin::settings();
    output.resources.push((name, Resource { origin, value }));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use myriad_model::ListenerProtocol;

    use super::{Voice, detects_hosts, protocol};
    use crate::resolve::Spoken;

    fn voices(own: &[Spoken], strangers: &[Spoken]) -> Vec<Voice> {
        let voice = |spoken: &Spoken, is_strangers| Voice {
            spoken: *spoken,
            is_strangers,
        };
        let own = own.iter().map(|it| voice(it, false));
        let all = own.chain(strangers.iter().map(|it| voice(it, true)));
        all.collect()
    }

    #[test]
    fn http_of_strangers_alone_is_looked_for_at_their_addresses() {
        use Spoken::{Http, Tcp, Tls, Unknown};
        let of = |own: &[Spoken], strangers: &[Spoken]| detects_hosts(&voices(own, strangers));
        assert!(of(&[], &[Http]) && of(&[], &[Http, Tcp]) && of(&[Tcp], &[Http, Tcp]));
        for own in [&[Http][..], &[Unknown], &[Tls], &[Http, Tcp]] {
            assert!(!of(own, &[Http]), "{own:?}");
        }
        assert!(!of(&[], &[]) && !of(&[], &[Tcp]) && !of(&[], &[Tcp, Tls]) && !of(&[Http], &[]));
    }

    #[test]
    fn strangers_decide_for_nobody_what_a_port_speaks() {
        use ListenerProtocol::{Detected, Http, Tcp};
        let of = |own: &[Spoken], strangers: &[Spoken]| protocol(&voices(own, strangers));
        assert_eq!(of(&[], &[]), None);
        assert_eq!(of(&[Spoken::Http], &[]), Some(Http));
        assert_eq!(of(&[Spoken::Http], &[Spoken::Http]), Some(Http));
        assert_eq!(of(&[], &[Spoken::Http]), Some(Detected));
        assert_eq!(of(&[Spoken::Http], &[Spoken::Tcp]), Some(Detected));
        assert_eq!(of(&[Spoken::Tcp], &[]), Some(Tcp));
        assert_eq!(of(&[], &[Spoken::Tcp]), Some(Tcp));
        assert_eq!(of(&[Spoken::Tcp], &[Spoken::Tls]), Some(Tcp));
        assert_eq!(of(&[Spoken::Tcp, Spoken::Tls], &[]), Some(Detected));
        assert_eq!(of(&[], &[Spoken::Tcp, Spoken::Tls]), Some(Detected));
        // At the ports of HTTP theirs is looked for, at their addresses.
        assert_eq!(of(&[Spoken::Tcp], &[Spoken::Http]), Some(Detected));
    }

    #[test]
    fn each_voice_has_a_number_of_its_own() {
        let numbers: BTreeSet<u8> = Voice::all().map(Voice::number).collect();
        assert_eq!(numbers.len(), Voice::all().count());
        assert_eq!(numbers.len(), 2 * Spoken::ALL.len());
    }
}
