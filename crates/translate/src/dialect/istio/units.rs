//! The units of Istio's objects at gateways.

use std::collections::BTreeMap;
use std::sync::Arc;

use myriad_api::{Object, ObjectKey, ObjectKind};
use myriad_model::{Key, Kind, Name};

use super::facts::IstioFact;
use super::touch::{gateway_claims, service_claims, streams};
use super::{access_policy, port, telemetry};
use crate::engine::{
    Claimed, NewlyClaimed, Output, Own, PortKey, Reader, Stays, Unit, UnitKey, UnitKind, Viewers,
};
use crate::resolve::entry_owner::{self, claimed_names};
use crate::resolve::names::is_exported;
use crate::settings::{Settings, first_names};

/// The hosts of one Istio Gateway, by `namespace/name`, and what is wrong with it alone.
pub(crate) static GATEWAY: UnitKind = UnitKind {
    ports: Some(|object, view, settings| match object {
        Object::IstioGateway(gateway) => port::claims(Some(gateway), view, settings),
        _ => BTreeMap::new(),
    }),
    claim_fact: Some(|hasher, id, host| hasher.fact(IstioFact::Server(id, host.as_str()))),
    ..UnitKind::of_object("gateway", 4, Own::Of(ObjectKind::IstioGateway))
};

/// The hosts of one VirtualService, by `namespace/name`, and what is wrong with it alone.
pub(crate) static VIRTUAL_SERVICE: UnitKind = UnitKind {
    claim_fact: Some(|hasher, id, host| hasher.fact(IstioFact::ServiceClaim(id, host.as_str()))),
    is_let_in: true,
    ..UnitKind::of_object("virtual service", 5, Own::Of(ObjectKind::VirtualService))
};

/// One policy over the gateway as a whole.
pub(crate) static ACCESS_POLICY: UnitKind = UnitKind {
    viewers: |_, _| Viewers::Namespace,
    makes: |key, keys| {
        if let UnitKey::Object(kind, id) = key {
            let key = ObjectKey::from_id(*kind, id.clone());
            keys.push(Key::new(Kind::AccessPolicy, access_policy::name(&key)));
        }
    },
    ..UnitKind::of_object("access policy", 6, Own::Key)
};

/// An object that no host claims: what is wrong with it, or that it is not honoured.
pub(crate) static REFUSED: UnitKind = UnitKind {
    viewers: |unit, _| match unit.own_kind() {
        Some(ObjectKind::Telemetry) => Viewers::Namespace,
        _ => Viewers::Gateways,
    },
    claim_fact: Some(|hasher, _, host| entry_owner::fact(hasher, host)),
    claim_seat: Some(entry_owner::seat),
    ..UnitKind::of_object("refused", 7, Own::Key)
};

/// The telemetry of the gateway's proxies.
pub(crate) static TELEMETRY: UnitKind = UnitKind {
    stays: |_, settings| match telemetry::is_always(settings) {
        true => Stays::Always,
        false => Stays::WhileNeeded,
    },
    viewers: |_, settings| match telemetry::is_always(settings) {
        true => Viewers::All,
        false => Viewers::Needed,
    },
    makes: |_, keys| keys.push(Key::new(Kind::Telemetry, Name::from(telemetry::NAME))),
    ..UnitKind::needed("telemetry", 8)
};

/// A provider of the mesh settings, by its name.
pub(crate) static PROVIDER: UnitKind = UnitKind {
    stays: |_, _| Stays::Always,
    viewers: |_, _| Viewers::All,
    makes: |key, keys| {
        if let UnitKey::Name(id) = key {
            keys.push(Key::new(Kind::Provider, Name::new(id.clone())));
        }
    },
    ..UnitKind::needed("provider", 17)
};

/// The listener of a port of Istio's Gateways.
pub(crate) static LISTENER: UnitKind = UnitKind {
    makes: |key, keys| {
        if let UnitKey::Port(port) = key {
            keys.push(Key::new(Kind::Listener, port.name()));
        }
    },
    ..UnitKind::needed("listener", 19)
};

impl Unit {
    /// A Gateway, by `namespace/name`.
    pub fn gateway(id: Arc<str>) -> Unit {
        Unit::named(&GATEWAY, id)
    }

    /// A VirtualService, by `namespace/name`.
    pub fn virtual_service(id: Arc<str>) -> Unit {
        Unit::named(&VIRTUAL_SERVICE, id)
    }

    /// A policy over the gateway as a whole.
    pub fn access_policy(key: &ObjectKey) -> Unit {
        Unit::of_object(&ACCESS_POLICY, key)
    }

    /// An object that no host claims.
    pub fn refused(key: &ObjectKey) -> Unit {
        Unit::of_object(&REFUSED, key)
    }

    /// The telemetry of the gateway's proxies.
    pub fn telemetry() -> Unit {
        Unit::new(&TELEMETRY, UnitKey::Alone)
    }

    /// A provider of the mesh settings.
    pub fn provider(name: Arc<str>) -> Unit {
        Unit::named(&PROVIDER, name)
    }

    /// The listener of a port.
    pub fn listener(port: PortKey) -> Unit {
        Unit::new(&LISTENER, UnitKey::Port(port))
    }
}

/// The unit that an object is there with, for kinds that make claims.
pub(crate) fn claimant(key: &ObjectKey) -> Option<Unit> {
    match key.kind {
        ObjectKind::IstioGateway => Some(Unit::gateway(key.id().clone())),
        ObjectKind::VirtualService => Some(Unit::virtual_service(key.id().clone())),
        ObjectKind::ServiceEntry => Some(Unit::refused(key)),
        _ => None,
    }
}

/// The claims of an object, and those of them that may be new.
pub(crate) fn newly(old: &Object, new: &Object, settings: &Settings) -> Option<NewlyClaimed> {
    match (old, new) {
        (Object::IstioGateway(old), Object::IstioGateway(new)) => {
            let is_same = old.spec.selector == new.spec.selector;
            let named = gateway_claims(old);
            let hosts = NewlyClaimed::new(named, gateway_claims(new), |_| is_same);
            let named = port::named(old, settings);
            let is_named = |port: &Claimed| is_same && named.contains(port);
            Some(hosts.and(named.clone(), port::named(new, settings), is_named))
        }
        (Object::VirtualService(old), Object::VirtualService(new)) => {
            let is_same = old.spec.export_to == new.spec.export_to;
            let (before, after) = (service_claims(old), service_claims(new));
            let named = before.keys().cloned().collect();
            let hosts = after.keys().cloned().collect();
            let hosts = NewlyClaimed::new(named, hosts, |host| {
                is_same && before.get(host) == after.get(host)
            });
            let is_seen = no_more_see(&old.meta.key, (&old.spec.export_to, &new.spec.export_to));
            let named = streams(old);
            let is_named = |stream: &Claimed| {
                let at_any = match stream {
                    Claimed::Stream(gateway, _) => Claimed::stream(gateway, 0),
                    Claimed::Host(_) | Claimed::Entered(..) | Claimed::Port(..) => None,
                };
                let at_any = at_any.is_some_and(|at_any| named.contains(&at_any));
                is_seen && (at_any || named.contains(stream))
            };
            Some(hosts.and(named.clone(), streams(new), is_named))
        }
        (Object::ServiceEntry(old), Object::ServiceEntry(new)) => {
            let is_seen = no_more_see(&old.meta.key, (&old.spec.export_to, &new.spec.export_to));
            let (named, hosts) = (claimed_names(old), claimed_names(new));
            Some(NewlyClaimed::new(named, hosts, |_| is_seen))
        }
        _ => None,
    }
}

/// Whether nobody sees an object that is exported to the latter who did not by the former.
fn no_more_see(key: &ObjectKey, (former, latter): (&[Box<str>], &[Box<str>])) -> bool {
    let own = key.namespace();
    let mut first = first_names(former).iter();
    if former.is_empty() || former == latter || first.any(|to| **to == *"*") {
        return true;
    }
    let mut names = latter.iter();
    let is_same = names.all(|to| match &**to {
        "*" => false,
        "~" => true,
        "." => is_exported(former, own, own),
        namespace => is_exported(former, own, namespace),
    });
    !latter.is_empty() && is_same
}

/// The providers of the settings.
pub(crate) fn providers(settings: &Settings) -> impl Iterator<Item = Unit> {
    let providers = settings.providers.iter();
    providers.map(|it| Unit::provider((&*it.name).into()))
}

/// The units that are there because of the settings.
pub(crate) fn roots(settings: &Settings) -> impl Iterator<Item = Unit> {
    let telemetry = telemetry::is_always(settings).then(Unit::telemetry);
    providers(settings).chain(telemetry)
}

/// Translates a policy over the gateway as a whole.
pub(crate) fn translate_access_policy(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    let key = unit.object_key();
    key.map_or_else(Output::default, |key| {
        access_policy::translate(reader, &key)
    })
}

/// Translates a provider.
pub(crate) fn translate_provider(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    let name = unit.name();
    name.map_or_else(Output::default, |name| {
        super::provider::translate(reader, name)
    })
}

/// Translates the listener of a port.
pub(crate) fn translate_listener(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    match unit.key() {
        UnitKey::Port(key) => port::translate(reader, key),
        _ => Output::default(),
    }
}
