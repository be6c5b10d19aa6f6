//! The meaning of a wildcard to the hosts below it: what is done for them, and the certificate that
//! they may show.

use std::sync::Arc;

use myriad_model::{Host, host::Pattern};

use super::shade::Shade;
use crate::engine::{Noted, Reader, Told, Unit, Wish, namespace_of};

/// The meaning of a wildcard in a view.
pub(crate) struct Found {
    /// The deeds for the names below it at each listener, the oldest first; of those that nobody
    /// tells apart, the oldest alone.
    pub deeds: Box<[Shade]>,
    /// The certificate that an issuer has provided for it.
    pub provided: Option<Provided>,
    /// The questions to the view by which the deeds were found.
    pub asked: Noted,
}

/// A certificate that an issuer has provided for a wildcard, as an Ingress asks it to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Provided {
    /// Its Secret.
    pub secret: Arc<str>,
    /// The Secret of the one beside it, where its issuer provides two.
    pub second: Option<Arc<str>>,
    /// The name of the issuer.
    pub issuer: Box<str>,
}

impl Reader<'_> {
    /// The certificate of the wildcard above a host that is there and stands for the one that is
    /// wished for: of the same namespace, by the same issuer. None where the Secret of the wish is
    /// there, which is then shown and renewed. A host reads what the wildcard meant when its unit
    /// ran last, however many are above or below it.
    pub(crate) fn provided_above(&mut self, wish: &Wish) -> Option<(Host, Provided)> {
        let wildcard = wildcard_above(&wish.host)?;
        if self.is_held(&wish.secret) {
            return None;
        }
        self.note_above(&wildcard);
        let Told::Here(found) = self.meaning::<Found>(&Unit::host_of(wildcard.clone())) else {
            // Where an Ingress of the view has the wildcard, its unit has run for it.
            return None;
        };
        let provided = found.provided.as_ref()?;
        let is_alike = provided.issuer == wish.issuer
            && provided.secret != wish.secret
            && namespace_of(&provided.secret) == namespace_of(&wish.secret);
        is_alike.then(|| (wildcard, provided.clone()))
    }
}

/// The wildcard whose certificates cover a host.
pub(crate) fn wildcard_above(host: &Host) -> Option<Host> {
    let Pattern::Exact(name) = host.pattern() else {
        return None;
    };
    let (_, parent) = name.split_once('.')?;
    Host::parse(&format!("*.{parent}")).ok()
}
