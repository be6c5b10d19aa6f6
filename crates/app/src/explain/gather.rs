//! Tables of a few resources, where no proxy has made them of all.

use std::collections::BTreeSet;
use std::sync::Arc;

use myriad_model::{
    Action, Endpoints, Form, Host, Key, Kind, Name, SealedArc, Sealer, Snapshot, Value,
    WeightedUpstream,
};
use myriad_proxy::route::edit::Edit;
use myriad_proxy::route::tables::Tables;
use myriad_proxy::upstream::endpoint::EndpointTable;

use super::scene::{Concerned, Scene};

/// Makes tables of the resources that concern these names, and lists every host. Reads through
/// all routes and domains.
pub(super) fn gather(snapshot: &Snapshot, names: &[String]) -> Scene {
    let mut gathered = Gathered::default();
    let mut taken: Vec<SealedArc> = Vec::new();
    for sealed in snapshot.iter().filter(|it| FIRST.contains(&it.key().kind)) {
        let Some(opened) = open(sealed) else {
            continue;
        };
        let value = opened.resource().map(|resource| &resource.value);
        if value.is_some_and(|value| gathered.take(value, names)) {
            taken.push(opened);
        }
    }
    let Gathered { hosts, needed } = gathered;
    let rest = snapshot
        .iter()
        .filter(|sealed| is_needed(&needed, sealed.key()));
    taken.extend(rest.filter_map(open));
    let concerned = Concerned::of(&taken, needed);
    let (mut tables, mut targets) = (Tables::default(), EndpointTable::new());
    let mut edit = Edit::new(&mut tables, &mut targets);
    for sealed in &taken {
        // What a proxy would refuse is not in its tables either.
        let _ = edit.change(None, Some(sealed));
    }
    edit.finish();
    Scene {
        tables: Arc::new(tables),
        hosts,
        trusted_hops: 0,
        concerned,
        at_unix: None,
    }
}

/// The kinds that are looked through; of others only what these need.
const FIRST: [Kind; 7] = [
    Kind::Listener,
    Kind::Domain,
    Kind::Route,
    Kind::StreamRoute,
    Kind::AccessPolicy,
    Kind::Provider,
    Kind::Telemetry,
];

/// The findings of one pass over the snapshot.
#[derive(Default)]
struct Gathered {
    /// Every host.
    hosts: BTreeSet<Box<str>>,
    /// The resources that those which concern the names refer to.
    needed: BTreeSet<Key>,
}

impl Gathered {
    /// Whether a resource concerns any of the names.
    fn take(&mut self, value: &Value, names: &[String]) -> bool {
        let is_covered = |host: &Host| names.iter().any(|name| host.covers(name));
        match value {
            Value::Listener(listener) => {
                let default = listener.default_certificate.as_ref();
                self.needed.extend(default.map(certificate));
            }
            Value::Domain(domain) => {
                self.hosts.insert(domain.host.as_str().into());
                if !is_covered(&domain.host) {
                    return false;
                }
                let names = domain.certificate.iter().chain(&domain.alternatives);
                self.needed.extend(names.map(certificate));
                let auth = domain.client_auth.iter();
                self.needed.extend(auth.map(|auth| trust(&auth.trust)));
            }
            Value::Route(_) | Value::Routes(_) => {
                let hosts = value.route(0).map_or(&[][..], |route| &**route.hosts);
                self.note(hosts);
                if !hosts.iter().any(is_covered) {
                    return false;
                }
                for route in value.routes() {
                    if let Action::Forward(shares) = route.action {
                        self.need(shares);
                    }
                }
                let policies = value.policies().iter();
                let users = policies.clone().filter_map(|policy| policy.users.as_ref());
                self.needed.extend(users.map(trust));
                let inquiries = policies.clone().filter_map(|it| it.inquiry.as_deref());
                let authorizers = policies.filter_map(|it| it.authorizer.as_deref());
                let asked = inquiries.map(|it| &it.upstream);
                let asked = asked.chain(authorizers.map(|it| &it.upstream));
                self.needed.extend(asked.flat_map(upstream));
            }
            Value::StreamRoute(stream_route) => {
                self.note(&stream_route.hosts);
                // One without hosts takes every connection of its listener.
                if !stream_route.hosts.is_empty() && !stream_route.hosts.iter().any(is_covered) {
                    return false;
                }
                self.need(&stream_route.upstreams);
            }
            Value::Provider(provider) => self.needed.extend(upstream(&provider.upstream)),
            // There are few of either.
            Value::AccessPolicy(_) | Value::Telemetry(_) => {}
            // Of no other kind are there any among the first.
            _ => return false,
        }
        true
    }

    fn note(&mut self, hosts: &[Host]) {
        let hosts = hosts.iter().map(|host| host.as_str().into());
        self.hosts.extend(hosts);
    }

    fn need(&mut self, shares: &[WeightedUpstream]) {
        let names = shares.iter().map(|share| &share.upstream);
        self.needed.extend(names.flat_map(upstream));
    }
}

/// Whether a resource is among those, or has some of the endpoints of one.
fn is_needed(needed: &BTreeSet<Key>, key: &Key) -> bool {
    let upstream = Endpoints::upstream_of(&key.name);
    needed.contains(key)
        || key.kind == Kind::Endpoints
            && upstream != key.name.as_str()
            && needed.contains(&Key::new(key.kind, upstream))
}

fn trust(name: &Name) -> Key {
    Key::new(Kind::Trust, name.clone())
}

fn certificate(name: &Name) -> Key {
    Key::new(Kind::Certificate, name.clone())
}

/// An upstream, and its endpoints.
fn upstream(name: &Name) -> [Key; 2] {
    [Kind::Upstream, Kind::Endpoints].map(|kind| Key::new(kind, name.clone()))
}

/// The resource with its value.
fn open(sealed: &SealedArc) -> Option<SealedArc> {
    if sealed.resource().is_some() {
        return Some(sealed.clone());
    }
    // Nobody compares these with others, so the key does not matter.
    let sealer = Sealer::new([0; 32], Form::Value);
    let (key, version) = (sealed.key().clone(), sealed.version());
    let opened = sealer.open_trusted(key, version, sealed.encoded()?).ok()?;
    Some(SealedArc::new(opened))
}
