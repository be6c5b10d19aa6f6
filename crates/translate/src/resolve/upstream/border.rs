//! The addresses that gateways do not lead to: their own machine, link or cloud, and their
//! listeners.
//!
//! The addresses that DNS tells of a name are known to proxies alone, which hold them to the same
//! rule.

use std::net::SocketAddr;

use myriad_model::Unreachable;

use crate::engine::Reader;
use crate::settings::Settings;

/// The rule for one view.
#[derive(Clone, Copy)]
pub(crate) struct Border<'a> {
    /// The settings; none for a sidecar: its workload could reach all of that itself.
    settings: Option<&'a Settings>,
}

impl<'a> Border<'a> {
    /// The border of the view that is translated for.
    pub(crate) fn of(reader: &Reader<'a>) -> Self {
        Border::new(reader.settings(), !is_beside(reader))
    }

    /// The border of a gateway, or none.
    pub(crate) fn new(settings: &'a Settings, is_gateway: bool) -> Self {
        Border {
            settings: is_gateway.then_some(settings),
        }
    }

    /// Why an address is left out; `None` where it is not.
    pub(crate) fn refusal(self, at: SocketAddr) -> Option<Unreachable> {
        self.settings?.refusal(at)
    }

    /// Why a host is left out, as far as it can be told without DNS; `None` where it is not.
    pub(crate) fn refusal_of_host(self, host: &str, port: u16) -> Option<Unreachable> {
        self.settings?.refusal_of_host(host, port)
    }
}

/// The remedy for an address that is left out.
pub(crate) fn remedy(why: Unreachable) -> &'static str {
    match why {
        Unreachable::Own => "name an address and port where the gateway does not listen",
        Unreachable::Denied => "name another address, or change --endpoint-deny",
        _ => "name an address of another machine; the setting --endpoint-allow admits more",
    }
}

/// Whether it is translated for a sidecar, which reaches many that it never asks for.
pub(crate) fn is_beside(reader: &Reader<'_>) -> bool {
    reader.settings().sidecars && reader.view().is_sidecar()
}
