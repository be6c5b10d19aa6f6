//! Names in the rules for TLS of a VirtualService, where few are asked for.

use myriad_api::istio::VirtualService;
use myriad_model::Host;

use crate::resolve::names::{broader, is_host};

/// Whether a rule for TLS of a VirtualService names exactly this host, which is within its hosts.
pub fn takes(service: &VirtualService, host: &Host) -> bool {
    let matches = service.spec.tls.iter().flat_map(|tls| tls.matches.iter());
    let mut names = matches.flat_map(|matched| matched.sni_hosts.iter());
    let is_it = |text: &str, host: &Host| !text.starts_with("**") && is_host(text, host);
    if !names.any(|sni| is_it(sni, host)) {
        return false;
    }
    let above = broader(host);
    let mut hosts = service.spec.hosts.iter();
    hosts.any(|text| is_it(text, host) || above.iter().any(|it| is_it(text, it)))
}

/// Whether a pattern covers nothing that another does not.
pub fn is_within(inner: &Host, outer: &Host) -> bool {
    inner == outer || broader(inner).contains(outer)
}
