//! The effects of wildcards on the hosts below them.

use std::sync::Arc;

use myriad_api::ObjectKind;
use myriad_model::{Host, Name, host::Pattern};

use super::claim::{Claim, EVERYBODY, suffix_of};
use super::names;
use crate::engine::{Reader, Shared};

/// The deed of an object at a listener for all names below a wildcard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shade {
    /// The listener.
    pub listener: Name,
    /// The wildcard.
    pub pattern: Host,
    /// The claim of the object to the wildcard.
    pub claim: Claim,
    /// The namespaces that may answer there too. There may be many, and each host below has them.
    pub admitted: Namespaces,
    /// The deed.
    pub deed: Deed,
    /// The claim of whose the wildcard is, where the certificate that is shown is neither their own
    /// nor lent to them.
    pub borrower: Option<Claim>,
    /// Whether it is what routes, or rules for TLS, of a namespace do at a listener of another one,
    /// beside what the listener itself does there.
    pub is_of_guest: bool,
}

/// Namespaces as objects list them, of which one may be [`EVERYBODY`]. Copies share them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Namespaces(Arc<[Box<str>]>);

impl Namespaces {
    /// The same with others.
    #[must_use]
    pub fn and(&self, others: impl IntoIterator<Item = Box<str>>) -> Self {
        self.0.iter().cloned().chain(others).collect()
    }

    /// Whether a namespace is one of them.
    pub fn has(&self, namespace: &str) -> bool {
        let is_listed = |name: &str| {
            let found = self.0.binary_search_by(|known| (**known).cmp(name));
            found.is_ok()
        };
        is_listed(EVERYBODY) || is_listed(namespace)
    }
}

impl FromIterator<Box<str>> for Namespaces {
    fn from_iter<T: IntoIterator<Item = Box<str>>>(listed: T) -> Self {
        let mut all: Vec<Box<str>> = listed.into_iter().collect();
        all.sort_unstable();
        all.dedup();
        Namespaces(all.into())
    }
}

/// The treatment, at a listener, of connections and requests for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Deed {
    /// TLS ends, and a certificate is shown.
    EndsTls,
    /// Handshakes go on as they come.
    PassesOn,
    /// Requests are answered, once TLS has ended where it is spoken.
    Answers,
    /// The bytes within TLS are handed on, once it has ended.
    Streams,
}

impl Deed {
    /// Whether it is done with what comes once TLS has ended, and not with handshakes.
    pub(crate) fn is_within(self) -> bool {
        matches!(self, Deed::Answers | Deed::Streams)
    }
}

/// The effects of the wildcards above a host.
#[derive(Debug, Default)]
pub(crate) struct Above {
    /// The narrowest that take its handshakes and may, once for each listener.
    pub shades: Vec<Shade>,
    /// The narrowest that would take its handshakes and may not, once for each listener.
    pub strangers: Vec<Shade>,
    /// The oldest of others at each listener, for each wildcard, that are older than the host:
    /// below them, a certificate that nobody lent counts as none.
    pub keepers: Vec<Shade>,
    /// The listeners where requests would be answered by those who may not.
    pub astray: Vec<Name>,
    /// The listeners among them where an older and broader wildcard redirects to HTTPS, by Gateway.
    pub redirected: Vec<(Name, Arc<str>)>,
    /// The listeners where what comes out of TLS would be handed on by those who may not.
    pub astray_streams: Vec<Name>,
}

impl Above {
    /// The older wildcard that keeps handshakes at a listener from what a Gateway of a namespace
    /// shows there, where that is not its own.
    pub(crate) fn keeper(&self, listener: &Name, namespace: &str) -> Option<&Shade> {
        let mut keepers = self.keepers.iter();
        keepers.find(|it| it.listener == *listener && !it.claim.is_of(namespace))
    }
}

impl Shade {
    /// Whether it is older than the claim to a host below it, and of another namespace: what shows
    /// no certificate of its own there is served as it says, if it shares that at all. Without a
    /// claim to a host of its own it keeps none.
    pub(crate) fn keeps_from(&self, owner: &Claim) -> bool {
        self.pattern.pattern() != Pattern::Any
            && self.is_before(Some(owner))
            && !self.claim.is_of(owner.key.namespace())
    }

    /// Whether one of the holders of broader wildcards keeps its handshakes from it, because it
    /// shows a certificate that nobody lent.
    pub(crate) fn is_kept_by(&self, holders: &[&Shade]) -> bool {
        let Some(owner) = &self.borrower else {
            return false;
        };
        let breadth = |shade: &Shade| suffix_of(&shade.pattern).map(str::len);
        holders.iter().any(|holder| {
            holder.listener == self.listener
                && breadth(holder) < breadth(self)
                && holder.keeps_from(owner)
                && !holder.claim.is_of(self.claim.key.namespace())
        })
    }

    /// Whether it is older than the claim to a host.
    pub(crate) fn is_before(&self, owner: Option<&Claim>) -> bool {
        owner.is_none_or(|owner| self.claim.age() < owner.age())
    }

    /// Whether objects of a namespace may answer in it.
    pub(crate) fn admits(&self, namespace: &str) -> bool {
        self.claim.is_of(namespace) || self.admitted.has(namespace)
    }

    /// Whether every request is sent to HTTPS. A Gateway answers nothing else: other requests find
    /// its VirtualServices.
    pub(crate) fn is_redirect(&self) -> bool {
        self.deed == Deed::Answers && self.claim.key.kind == ObjectKind::IstioGateway
    }

    /// The wildcard as people write it.
    pub(crate) fn written(&self) -> &str {
        names::written(&self.pattern)
    }
}

/// Whether a listener shows the default certificate for names that no domain covers.
pub(crate) fn has_default(reader: &Reader<'_>, shared: &Shared, listener: &Name) -> bool {
    shared.default_certificate.is_some()
        && *listener == shared.tls_listeners[0]
        && reader.view().is_ingress()
}

/// The listeners among some that are open to a namespace.
pub(crate) fn open_to(listeners: &Arc<[Name]>, shades: &[Shade], namespace: &str) -> Arc<[Name]> {
    let is_open = |listener: &Name| {
        let mut shades = shades.iter();
        !shades.any(|shade| shade.listener == *listener && !shade.admits(namespace))
    };
    match listeners.iter().all(is_open) {
        true => listeners.clone(),
        false => listeners.iter().filter(|it| is_open(it)).cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_found_however_they_are_listed() {
        let list = |names: &[&str]| {
            let names = names.iter().map(|name| Box::<str>::from(*name));
            names.collect::<Namespaces>()
        };
        let some = list(&["c", "a", "b", "a"]);
        assert!(some.has("a") && some.has("b") && some.has("c"));
        assert!(!some.has("d") && !Namespaces::default().has("a"));
        assert_eq!(some, list(&["a", "b", "c"]));
        let more = some.and([Box::from(EVERYBODY)]);
        assert!(more.has("d") && more.has("a"));
        assert!(Arc::ptr_eq(&some.0, &some.clone().0), "copies share them");
    }
}
