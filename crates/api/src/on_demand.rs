//! A certificate that was obtained on demand, for a host that nobody wrote. Nobody writes one: the
//! process itself makes them, so that they take the way of all objects.

use std::sync::Arc;

use crate::{Meta, Secret};

/// A certificate that was obtained on demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnDemand {
    /// Key and age.
    pub meta: Meta,
    /// The host that it is shown for, in lower case.
    pub host: Box<str>,
    /// The Secret that it is kept as.
    pub secret: Arc<Secret>,
}
