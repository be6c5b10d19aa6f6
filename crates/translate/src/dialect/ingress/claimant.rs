//! An Ingress on a host.

use std::sync::Arc;

use myriad_model::{Origin, OriginKind};

use super::annotations::Options;
use super::opened::Opened;

/// An Ingress on a host.
pub(crate) struct Claimant {
    /// The object.
    pub ingress: Arc<Opened>,
    /// The options that its annotations ask for.
    pub options: Arc<Options>,
}

impl Claimant {
    /// Whether it only takes a share of what others serve.
    pub(crate) fn is_canary(&self) -> bool {
        self.options.canary.is_some()
    }

    /// Its namespace.
    pub(crate) fn namespace(&self) -> &str {
        self.ingress.meta.key.namespace()
    }

    /// It as the origin of a resource.
    pub(crate) fn origin(&self) -> Origin {
        Origin {
            kind: OriginKind::Ingress,
            id: self.ingress.meta.key.id().clone(),
        }
    }
}
