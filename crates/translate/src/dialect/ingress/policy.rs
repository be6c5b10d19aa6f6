//! The policy of a route, from the annotations of its Ingress and the host that it is on.

use myriad_model::{
    Affinity, CertificateDemand, PathReading, PathRewrite, Policy, Rewrite, TlsRedirect,
    Underscores,
};

use super::annotations::values::is_cookie_path;
use super::annotations::{self, Options};

/// Requests of the ACME protocol (RFC 8555, section 8.3), which come without TLS.
const ACME_PREFIX: &str = "/.well-known/acme-challenge/";

/// The part of a route's policy that its host adds.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostFacts<'a> {
    /// Whether the host has TLS.
    pub has_tls: bool,
    /// Whether it has a certificate of its own, and not that of last resort.
    pub has_certificate: bool,
    /// The port of HTTPS URLs.
    pub https_port: u16,
    /// The treatment of header fields with underscores in their names.
    pub underscores: Underscores,
    /// The certificates that its clients have to have shown.
    pub demand: Option<&'a CertificateDemand>,
}

/// The policy of a route with this path; the path is where its affinity cookie holds.
pub(super) fn build(options: &Options, host: HostFacts<'_>, path: &str) -> Policy {
    let redirects = options.force_ssl_redirect || (options.ssl_redirect && host.has_tls);
    Policy {
        tls_redirect: redirects.then(|| TlsRedirect {
            status: 308,
            port: host.https_port,
            except_prefix: ACME_PREFIX.into(),
        }),
        rewrite: read_rewrite(options),
        sources_allowed: options.sources_allowed.clone(),
        sources_denied: options.sources_denied.clone(),
        satisfies_any: options.satisfies_any,
        request_body_bytes_max: options.request_body_bytes_max,
        connect_timeout: options.connect_timeout,
        read_timeout: options.read_timeout,
        send_timeout: options.send_timeout,
        cors: options.cors.clone(),
        affinity: options
            .affinity
            .as_ref()
            .map(|affinity| Box::new(read_affinity(affinity, host, path))),
        rate_limits: options.rate_limits.clone(),
        underscores: host.underscores,
        path_reading: PathReading::Decoded,
        hsts: read_hsts(options, host),
        client_certificate: read_demand(host, path),
        ..Policy::default()
    }
}

/// The demand of a path. Issuers of certificates ask in plain text for what they have to find, and
/// have none to show: what is written for them alone is served there.
fn read_demand(host: HostFacts<'_>, path: &str) -> Option<Box<CertificateDemand>> {
    let demand = host.demand?;
    Some(Box::new(CertificateDemand {
        spares_plain_text: path.starts_with(ACME_PREFIX),
        ..demand.clone()
    }))
}

fn read_hsts(options: &Options, host: HostFacts<'_>) -> Box<str> {
    let hsts = options.hsts.filter(|_| host.has_certificate);
    hsts.map(|hsts| hsts.to_string().into()).unwrap_or_default()
}

fn read_rewrite(options: &Options) -> Option<Box<Rewrite>> {
    let (path, authority) = (options.rewrite.clone(), options.upstream_host.clone());
    (path.is_some() || !authority.is_empty()).then(|| {
        Box::new(Rewrite {
            path: path.map(PathRewrite::Template),
            authority,
        })
    })
}

fn read_affinity(affinity: &annotations::Affinity, host: HostFacts<'_>, path: &str) -> Affinity {
    // A path that could end the attribute is none; a regex is no path at all.
    let own = if is_cookie_path(path) { path } else { "/" };
    Affinity {
        cookie: affinity.cookie.clone(),
        path: affinity.path.clone().unwrap_or_else(|| own.into()),
        age_max_s: affinity.age_max_s,
        secure: affinity.secure.unwrap_or(host.has_tls),
        domain: affinity.domain.clone(),
        same_site: affinity.same_site,
        stays_on_failure: affinity.stays_on_failure,
        ..Affinity::default()
    }
}
