//! Tables of a few resources, where no proxy has made them of all.

use std::collections::BTreeSet;
use std::sync::Arc;

use myriad_model::{Action, Form, Key, Kind, Name, SealedArc, Sealer, Snapshot, Value};
use myriad_proxy::route::edit::Edit;
use myriad_proxy::route::tables::Tables;
use myriad_proxy::upstream::target::Targets;

use super::Scene;

/// Makes tables of the resources that concern these names, and lists every host. Reads through
/// all routes and domains.
pub fn gather(snapshot: &Snapshot, names: &[String]) -> Scene {
    let mut hosts = BTreeSet::new();
    let mut taken: Vec<SealedArc> = Vec::new();
    let mut needed: BTreeSet<Key> = BTreeSet::new();
    let first = [Kind::Listener, Kind::Domain, Kind::Route];
    for sealed in snapshot.iter().filter(|it| first.contains(&it.key().kind)) {
        let Some(opened) = open(sealed) else {
            continue;
        };
        let Some(resource) = opened.resource() else {
            continue;
        };
        let certificate = |name: &Name| Key::new(Kind::Certificate, name.clone());
        let is_covered = |host: &myriad_model::Host| names.iter().any(|name| host.covers(name));
        match &resource.value {
            Value::Listener(listener) => {
                needed.extend(listener.default_certificate.as_ref().map(certificate));
            }
            Value::Domain(domain) => {
                hosts.insert(domain.host.as_str().into());
                if !is_covered(&domain.host) {
                    continue;
                }
                let names = domain.certificate.iter().chain(&domain.alternatives);
                needed.extend(names.map(certificate));
            }
            Value::Route(route) => {
                hosts.extend(route.hosts.iter().map(|host| host.as_str().into()));
                if !route.hosts.iter().any(is_covered) {
                    continue;
                }
                if let Action::Forward(shares) = &route.action {
                    let upstreams = shares.iter().map(|share| &share.upstream);
                    needed.extend(upstreams.flat_map(|name| {
                        [Kind::Upstream, Kind::Endpoints].map(|kind| Key::new(kind, name.clone()))
                    }));
                }
            }
            Value::Passage(passage) => {
                hosts.extend(passage.hosts.iter().map(|host| host.as_str().into()));
                if !passage.hosts.iter().any(is_covered) {
                    continue;
                }
                let upstreams = passage.upstreams.iter().map(|share| &share.upstream);
                needed.extend(upstreams.flat_map(|name| {
                    [Kind::Upstream, Kind::Endpoints].map(|kind| Key::new(kind, name.clone()))
                }));
            }
            // Of no other kind are there any among the first.
            _ => continue,
        }
        taken.push(opened);
    }
    let rest = snapshot
        .iter()
        .filter(|sealed| needed.contains(sealed.key()));
    taken.extend(rest.filter_map(open));
    let (mut tables, mut targets) = (Tables::default(), Targets::new());
    let mut edit = Edit::new(&mut tables, &mut targets);
    for sealed in &taken {
        // What a proxy would refuse is not in its tables either.
        let _ = edit.change(None, Some(sealed));
    }
    edit.finish();
    Scene {
        tables: Arc::new(tables),
        hosts,
    }
}

/// The resource with its value.
fn open(sealed: &SealedArc) -> Option<SealedArc> {
    if sealed.resource().is_some() {
        return Some(sealed.clone());
    }
    // Nobody compares these with others, so the key does not matter.
    let sealer = Sealer::new([0; 32], Form::Value);
    let (key, version) = (sealed.key().clone(), sealed.version());
    let opened = sealer.open(key, version, sealed.encoded()?).ok()?;
    Some(SealedArc::new(opened))
}
