//! One host pattern: what all dialects that claim it add up to.

mod kept;

use std::sync::Arc;

use myriad_model::Host;

use crate::engine::{Reader, Shared};
use crate::output::Output;
use crate::ownership::Above;
use crate::{ingress, istio, ownership};

/// The objects that claim a host, by `namespace/name`.
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
    let mut output = Output::default();
    let mut claimants = ingress::gather(reader, &claims.ingresses);
    ingress::admit_unnamed(reader, host, &mut claimants, &mut output.findings);
    let owner = ownership::owner(reader, host, &claimants, claims);
    if let Some(owner) = &owner {
        ingress::keep_owner(host, owner, &mut claimants, &mut output.findings);
    }
    let is_istio = !claims.gateways.is_empty() || !claims.services.is_empty();
    let sites = match is_istio {
        true => istio::gather_sites(reader, host, claims, owner.as_ref(), &mut output.findings),
        false => Vec::new(),
    };
    let mut own = istio::tls_listeners(reader, host, &sites);
    if ingress::tls_claimant(host, &claimants).is_some() {
        own.extend(shared.tls_listeners.iter().cloned());
    }
    // Those that end TLS at the one listener there is for it are in nobody's shade.
    let above = match is_istio || !own.contains(&shared.tls_listeners[0]) {
        true => ownership::shades(reader, shared, host, (claims, owner.as_ref()), &own),
        false => Above::default(),
    };
    if !claimants.is_empty() {
        let is_closed = ingress::is_closed(reader, &claims.ingresses, &claimants);
        let scene = (&*claimants, &*above.shades, is_closed);
        ingress::translate_host(reader, shared, host, scene, &mut output);
    }
    if is_istio {
        let scene = istio::HostScene {
            host,
            sites,
            owner: owner.clone(),
            above: &above,
        };
        istio::add_host(reader, shared, scene, &mut output);
    }
    istio::keep_claimed(shared, host, (owner.as_ref(), &above.shades), &mut output);
    if let Some(owner) = owner.as_ref().filter(|_| is_istio || !claimants.is_empty()) {
        let whose = (owner, &*claimants);
        kept::add(reader, shared, host, whose, &above, &mut output);
    }
    output
}
