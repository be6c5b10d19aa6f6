//! One host as its Gateways and VirtualServices see it.

use std::sync::Arc;

use myriad_api::istio::{Gateway, VirtualService};
use myriad_api::{Finding, ObjectKey, ObjectKind, Severity};
use myriad_model::Host;

use super::binding;
use super::entrance::{Door, Entrance};
use super::service_names::ServiceNames;
use crate::resolve::{Above, Claim, Claims, Shade, names, proof};
use crate::settings::Settings;

/// A Gateway as one host sees it.
pub(crate) struct Site {
    /// The object.
    pub gateway: Arc<Gateway>,
    /// Whether a server names exactly this host.
    pub is_own: bool,
}

/// A VirtualService on the host, and the ways in to it.
pub(crate) struct Tenant {
    /// The object.
    pub service: Arc<VirtualService>,
    /// Its hosts and names.
    pub names: Arc<ServiceNames>,
    /// Its claim to the host, or to a broader one: the oldest.
    pub claim: Claim,
    /// The ways in, by Gateway.
    pub entrances: Vec<(Arc<str>, Entrance)>,
    /// By what it is there.
    pub named: Named,
}

impl Tenant {
    /// Its ways in by the Gateways that a match lists, or by all if it lists none.
    pub(crate) fn ways<'a>(
        &'a self,
        written: &'a [Box<str>],
        own: &'a str,
    ) -> impl Iterator<Item = &'a Entrance> {
        // Entrances by one Gateway stand in a row.
        let rows = self.entrances.chunk_by(|one, other| one.0 == other.0);
        let rows = rows.filter(move |row| {
            let (mut named, id) = (written.iter(), row.first().map(|(id, _)| id));
            let is_for_all = written.is_empty() || binding::is_beyond(written);
            is_for_all || id.is_some_and(|id| named.any(|text| names::is_gateway(text, own, id)))
        });
        rows.flatten().map(|(_, way)| way)
    }
}

/// By what a VirtualService is on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// Its hosts, one of which is this one or a broader one.
    Hosts,
    /// The names of its rules for TLS alone: nothing but handshakes that go on as they come.
    Sni,
    /// Its hosts, at sidecars, where names within the host are no hosts of their own.
    Captured,
}

/// A host, and whose it is.
pub(crate) struct HostScene<'a> {
    /// The host.
    pub host: &'a Host,
    /// The objects that claim it.
    pub claims: &'a Claims,
    /// The Gateways that matter to it, the oldest first.
    pub sites: Vec<Site>,
    /// The oldest object that claims it; none where hosts are shared.
    pub owner: Option<Claim>,
    /// The effects of wildcards above it on its handshakes.
    pub above: &'a Above,
}

impl HostScene<'_> {
    /// The wildcard of another namespace that keeps objects of a namespace from a way in. What
    /// shows a certificate of its own, as handshakes that are handed on do, yields to older
    /// wildcards alone.
    pub(crate) fn shade_over(&self, way: &Entrance, namespace: &str) -> Option<&Shade> {
        let mut shades = self.above.shades.iter();
        shades.find(|shade| {
            shade.listener == way.listener
                && !shade.admits(namespace)
                && (way.door != Door::Passing || shade.is_before(self.owner.as_ref()))
        })
    }
}

impl Tenant {
    /// Whether it names exactly this host.
    pub(crate) fn is_exact(&self, host: &Host) -> bool {
        self.names.has_host(host) || self.names.takes(host)
    }

    /// The field by which it is on a host.
    pub(crate) fn field(&self, host: &Host) -> String {
        let of_name = match self.named {
            Named::Sni => self.names.field_of(host),
            Named::Hosts | Named::Captured => None,
        };
        of_name.unwrap_or_else(|| "spec.hosts".to_owned())
    }
}

/// The finding about handshakes for a host, which a wildcard of another namespace keeps.
pub(crate) fn lost_to(key: &ObjectKey, field: &str, host: &Host, shade: &Shade) -> Finding {
    let owner = &shade.claim.key;
    Finding::new(
        Severity::Error,
        key,
        field,
        format!(
            "is without effect on {host}, whose TLS belongs to namespace {} by {} of {owner}",
            owner.namespace(),
            shade.written()
        ),
        "use another host, or let the owner of the wildcard share it: by namespaces in the hosts \
         of its Gateway, or by the annotation myriad.dev/wildcard-sharing of its Ingress",
    )
}

/// The finding about an object on a host of another namespace.
pub(crate) fn foreign(
    key: &ObjectKey,
    field: &str,
    host: &Host,
    owner: &ObjectKey,
    settings: &Settings,
) -> Finding {
    let by = match owner.kind {
        ObjectKind::HostProof => proof::had_by(owner, settings),
        _ => owner.to_string(),
    };
    let remedy = proof::remedy(key.namespace(), host, settings);
    let usual = || "use another host, or serve with --host-sharing=cluster".to_owned();
    Finding::new(
        Severity::Error,
        key,
        field,
        format!(
            "is without effect on {host}, which belongs to namespace {} by {by}",
            owner.namespace()
        ),
        remedy.unwrap_or_else(usual),
    )
}
