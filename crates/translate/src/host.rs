//! One host pattern: what all dialects that claim it add up to.

use std::sync::Arc;

use myriad_model::Host;

use crate::engine::{Reader, Shared};
use crate::output::Output;
use crate::{ingress, istio};

/// Who claims a host, by `namespace/name`.
#[derive(Debug, Default)]
pub struct Claims {
    /// Ingresses.
    pub ingresses: Vec<Arc<str>>,
    /// Istio Gateways with a server for exactly this pattern.
    pub gateways: Vec<Arc<str>>,
    /// VirtualServices for exactly this pattern that are bound to a Gateway which covers it.
    pub services: Vec<Arc<str>>,
}

/// Translates one host. The routes of Ingresses go before those of VirtualServices.
pub fn translate(reader: &mut Reader<'_>, shared: &Shared, host: &Host, claims: &Claims) -> Output {
    let mut output = match claims.ingresses.is_empty() {
        true => Output::default(),
        false => ingress::translate_host(reader, shared, host, &claims.ingresses),
    };
    if !claims.gateways.is_empty() || !claims.services.is_empty() {
        istio::add_host(reader, shared, host, claims, &mut output);
    }
    output
}
