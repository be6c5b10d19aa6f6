//! Resources that TLS with an endpoint needs.

use myriad_model::{MeshTls, Name};

use super::tables::Tables;
use crate::failure::FailureKind;
use crate::upstream::dial::Credentials;
use crate::upstream::entry::UpstreamEntry;

/// Looks up what TLS with the endpoints of an upstream needs.
///
/// # Errors
/// [`FailureKind::UpstreamTrust`] where something is missing: then no connection is made, because
/// one without it would be less than what was asked for.
pub fn credentials(tables: &Tables, upstream: &UpstreamEntry) -> Result<Credentials, FailureKind> {
    const MISSING: FailureKind = FailureKind::UpstreamTrust;
    let Some(tls) = &upstream.manner.tls else {
        return Ok(Credentials::default());
    };
    if tls.mesh != MeshTls::None {
        // Endpoints that are spoken to in plain text need none, so who connects finds out.
        let identity = tables.identity();
        return Ok(Credentials {
            trust: identity.map(|identity| identity.trust.servers.clone()),
            certificate: identity.map(|identity| identity.certificate.sealed.clone()),
            trust_domains: identity.map(|identity| identity.trust_domains.clone()),
        });
    }
    let trust = |name: &Name| tables.trust(name).map(|entry| entry.servers.clone());
    let certificate = |name: &Name| tables.certificate(name).map(|entry| entry.sealed.clone());
    Ok(Credentials {
        trust: match &tls.trust {
            Some(name) if tls.verify => Some(trust(name).ok_or(MISSING)?),
            _ => None,
        },
        certificate: match &tls.certificate {
            Some(name) => Some(certificate(name).ok_or(MISSING)?),
            None => None,
        },
        trust_domains: None,
    })
}
