//! The certificate of a host.

use std::sync::Arc;

use myriad_api::{Finding, Ingress, Severity};
use myriad_model::Host;

use super::claimant::Claimant;
use super::issuing;
use super::opened::Opened;
use crate::engine::{Output, Reader, Wish};
use crate::resolve;
use crate::resolve::certificate::Names;

/// The `tls` entry that holds for a host.
pub(super) struct HostTls<'a> {
    /// The Ingress that has it.
    pub ingress: &'a Ingress,
    /// The Secret as `namespace/name`; none means the default certificate.
    pub secret: Option<Arc<str>>,
    entry: usize,
}

/// Chooses among all Ingresses on a host: the oldest that has an entry for it wins.
pub(super) fn choose<'a>(
    reader: &mut Reader<'_>,
    host: &Host,
    claimants: &'a [Claimant],
    output: &mut Output,
) -> Option<HostTls<'a>> {
    if *host == Host::any() {
        // Names that nobody claims get the default certificate or an alert, never another's.
        return None;
    }
    let mut chosen: Option<HostTls<'a>> = None;
    // A canary has a share of another Ingress's paths and says nothing about its host.
    for claimant in claimants.iter().filter(|known| !known.is_canary()) {
        let Some(found) = find(&claimant.ingress, host) else {
            continue;
        };
        match &chosen {
            None => {
                let meta = &claimant.ingress.meta;
                let issuer = issuing::issuer(reader, meta, &claimant.options);
                match wish(reader, host, &found, issuer) {
                    Some(wish) => output.wishes.push(wish),
                    None => judge(reader, host, &found, &mut output.findings),
                }
                chosen = Some(found);
            }
            Some(first) if first.secret != found.secret => {
                output.findings.push(conflict(host, first, &found));
            }
            Some(_) => {}
        }
    }
    chosen
}

/// The Ingress that decides the certificate of a host: the oldest that has an entry for it.
pub(crate) fn claimant<'a>(host: &Host, claimants: &'a [Claimant]) -> Option<&'a Claimant> {
    if *host == Host::any() {
        return None;
    }
    let mut mains = claimants.iter().filter(|known| !known.is_canary());
    mains.find(|known| find(&known.ingress, host).is_some())
}

/// The entry of one Ingress for a host: its own, else for a further one that of the host that it
/// stands for.
fn find<'a>(ingress: &'a Opened, host: &Host) -> Option<HostTls<'a>> {
    let of_leading = || entry_of(ingress, &ingress.leading(host)?);
    let at = entry_of(ingress, host).or_else(of_leading)?;
    let entry = ingress.tls.get(at)?;
    let secret = entry.secret_name.as_deref().filter(|name| !name.is_empty());
    let namespace = ingress.meta.key.namespace();
    Some(HostTls {
        ingress,
        secret: secret.map(|name| format!("{namespace}/{name}").into()),
        entry: at,
    })
}

/// One that names the host, else one whose wildcard covers it, else one without hosts, which stands
/// for all rules.
fn entry_of(ingress: &Opened, host: &Host) -> Option<usize> {
    let naming = ingress.tls_naming(host).map(|(at, _)| at);
    let covering = || ingress.tls_covering(host);
    let bare = || {
        let at = ingress.bare_tls()?;
        (!ingress.rules_of(host).is_empty()).then_some(at)
    };
    naming.or_else(covering).or_else(bare)
}

/// The wish for a certificate, where its Ingress names an issuer that is there and nobody else has
/// provided it.
fn wish(
    reader: &mut Reader<'_>,
    host: &Host,
    tls: &HostTls<'_>,
    issuer: Option<Box<str>>,
) -> Option<Wish> {
    let (issuer, secret) = issuer.zip(tls.secret.as_ref())?;
    let object = &tls.ingress.meta.key;
    resolve::wish(reader, host, secret, issuer, object)
}

fn judge(reader: &mut Reader<'_>, host: &Host, tls: &HostTls<'_>, findings: &mut Vec<Finding>) {
    let field = format!("spec.tls[{}].secretName", tls.entry);
    let key = &tls.ingress.meta.key;
    let Some(secret) = &tls.secret else {
        if reader.settings().default_certificate.is_none() {
            findings.push(Finding::new(
                Severity::Error,
                key,
                field,
                "is missing and there is no default certificate, so TLS handshakes get an alert",
                "name a Secret of type kubernetes.io/tls, or serve with --default-certificate",
            ));
        }
        return;
    };
    match reader.secret_names(secret).as_deref() {
        None => findings.push(missing(reader, tls, field, secret)),
        Some(Names::Unreadable) => findings.push(Finding::new(
            Severity::Error,
            key,
            field,
            format!(
                "names Secret {secret}, which holds no certificate, so TLS handshakes get an alert"
            ),
            "mend the Secret; it has a finding of its own",
        )),
        Some(names) if !names.cover(host) => findings.push(Finding::new(
            Severity::Warning,
            key,
            field,
            format!("names Secret {secret}, whose certificate does not cover {host}"),
            "issue a certificate whose subject alternative names have the host",
        )),
        Some(_) => {}
    }
}

/// The finding about a Secret that is not there and that no issuer provides.
fn missing(reader: &mut Reader<'_>, tls: &HostTls<'_>, field: String, secret: &str) -> Finding {
    let meta = &tls.ingress.meta;
    let begin =
        format!("names Secret {secret}, which is not there, so TLS handshakes get an alert");
    let (message, remedy) = match issuing::unmet(reader, meta) {
        None => (
            begin,
            "create it with kubectl create secret tls, or correct the name".to_owned(),
        ),
        Some(issuing::Hint { key, kind, name }) => {
            let kind = kind.as_str();
            (
                format!("{begin}, and {key} names no {kind} of myriad.dev that is there"),
                format!(
                    "create {kind} {name} of myriad.dev/v1alpha1, or write the annotation \
                     myriad.dev/issuer with the name of an issuer that is there"
                ),
            )
        }
    };
    Finding::new(Severity::Error, &meta.key, field, message, remedy)
}

fn conflict(host: &Host, first: &HostTls<'_>, other: &HostTls<'_>) -> Finding {
    Finding::new(
        Severity::Warning,
        &other.ingress.meta.key,
        format!("spec.tls[{}].secretName", other.entry),
        format!(
            "is without effect for {host}, whose certificate the older {} names",
            first.ingress.meta.key
        ),
        "name the same Secret in both, or leave tls to one of them",
    )
}
