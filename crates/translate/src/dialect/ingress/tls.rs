//! The certificate of a host, or its certificates.

use std::sync::Arc;

use myriad_api::{Finding, Ingress, Severity};
use myriad_model::Host;

use super::claimant::Claimant;
use super::issuing;
use super::opened::Opened;
use crate::engine::{Output, Reader, Unit, Wish};
use crate::resolve::certificate::Names;
use crate::resolve::{self, Provided, SEVERAL_MAX, Several};

/// The `tls` entry that holds for a host.
pub(super) struct HostTls<'a> {
    /// The Ingress that has it.
    pub ingress: &'a Ingress,
    /// The Secrets of the certificates that clients are shown, as `namespace/name`: the first that
    /// they can verify. None mean the default certificate.
    pub secrets: Vec<Arc<str>>,
    /// The Secret that the entry names.
    secret: Option<Arc<str>>,
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
                let secrets = furnish(reader, host, claimant, &found, output);
                chosen = Some(HostTls { secrets, ..found });
            }
            Some(first) if !first.shows(&found) => {
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
        secrets: Vec::new(),
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

/// Finds the certificates of a host: of the entry that holds for it, of those beside it, and of the
/// issuer that its Ingress names.
fn furnish(
    reader: &mut Reader<'_>,
    host: &Host,
    claimant: &Claimant,
    tls: &HostTls<'_>,
    output: &mut Output,
) -> Vec<Arc<str>> {
    let meta = &claimant.ingress.meta;
    let issuer = issuing::issuer(reader, meta, &claimant.options);
    let wish = wish(reader, host, tls, issuer);
    let Some(own) = &tls.secret else {
        judge(reader, host, tls, &mut output.findings);
        return Vec::new();
    };
    // It is told of when its Secret comes, whatever is shown meanwhile.
    output.needs.push(Unit::certificate(own.clone()));
    let others = beside(&claimant.ingress, host, tls, &mut output.findings);
    let (mut secrets, mut second) = (vec![own.clone()], None);
    match wish {
        None => judge(reader, host, tls, &mut output.findings),
        Some(wish) => match reader.provided_above(&wish) {
            Some((wildcard, provided)) => {
                output.findings.push(reused(tls, own, &wildcard, &provided));
                secrets = vec![provided.secret];
                secrets.extend(provided.second);
            }
            None => {
                let named = others.first().and_then(|other| other.secret.as_ref());
                second = resolve::second_secret(reader, &wish, named);
                add_wishes(reader, wish, second.as_ref(), output);
            }
        },
    }
    for other in &others {
        // One that is yet to come is no trouble.
        let is_provided = other
            .secret
            .as_ref()
            .is_some_and(|secret| second.as_ref() == Some(secret) && reader.is_issued(secret));
        if !is_provided {
            judge(reader, host, other, &mut output.findings);
        }
    }
    let further = others.iter().filter_map(|other| other.secret.as_ref());
    for secret in further.chain(&second) {
        if !secrets.contains(secret) {
            secrets.push(secret.clone());
        }
    }
    let needed = secrets.iter().filter(|secret| *secret != own);
    output.needs.extend(needed.cloned().map(Unit::certificate));
    let several = Several::of(reader, host, secrets);
    for spare in &several.spare {
        // What an issuer provides is of the right algorithm once it is renewed.
        let mut written = others
            .iter()
            .filter(|_| second.as_ref() != Some(&spare.secret));
        let entry = written.find(|other| other.secret.as_ref() == Some(&spare.secret));
        let finding = entry.map(|other| spare.finding(&meta.key, other.field(), host));
        output.findings.extend(finding);
    }
    several.secrets
}

/// Adds the wish for the certificate of a host, and for the second one where there is to be one.
fn add_wishes(reader: &mut Reader<'_>, wish: Wish, second: Option<&Arc<str>>, output: &mut Output) {
    if let Some(second) = second {
        output.findings.extend(resolve::too_long(&wish, second));
        let beside = resolve::wish_second(reader, &wish, second);
        output.wishes.extend(beside);
    }
    output.wishes.push(wish);
}

/// The entries beside the one that holds for a host, each with another Secret.
fn beside<'a>(
    ingress: &'a Opened,
    host: &Host,
    first: &HostTls<'_>,
    findings: &mut Vec<Finding>,
) -> Vec<HostTls<'a>> {
    let namespace = ingress.meta.key.namespace();
    let mut others: Vec<HostTls<'a>> = Vec::new();
    for at in ingress.tls_beside(host, first.entry) {
        let named = ingress.tls.get(at).and_then(|it| it.secret_name.as_deref());
        let Some(name) = named.filter(|name| !name.is_empty()) else {
            continue;
        };
        let secret: Option<Arc<str>> = Some(format!("{namespace}/{name}").into());
        let mut known = others.iter();
        if secret == first.secret || known.any(|other| other.secret == secret) {
            continue;
        }
        let other = HostTls {
            ingress,
            secrets: Vec::new(),
            secret,
            entry: at,
        };
        if others.len() + 1 == SEVERAL_MAX {
            findings.push(too_many(host, &other));
            break;
        }
        others.push(other);
    }
    others
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
    let field = tls.field();
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

/// The finding about a certificate that is not ordered, since that of a wildcard stands for it.
fn reused(tls: &HostTls<'_>, own: &str, wildcard: &Host, provided: &Provided) -> Finding {
    Finding::new(
        Severity::Info,
        &tls.ingress.meta.key,
        tls.field(),
        format!(
            "names Secret {own}, which is not there and is not ordered: the certificate of \
             {wildcard} in Secret {}, which issuer {} has provided, is shown",
            provided.secret, provided.issuer
        ),
        format!("name Secret {}, or create Secret {own}", provided.secret),
    )
}

fn too_many(host: &Host, other: &HostTls<'_>) -> Finding {
    Finding::new(
        Severity::Warning,
        &other.ingress.meta.key,
        other.field(),
        format!(
            "names one more Secret for {host} than the {SEVERAL_MAX} that it may have, and those \
             behind them are without effect"
        ),
        "name one Secret for each algorithm of keys",
    )
}

impl HostTls<'_> {
    fn field(&self) -> String {
        format!("spec.tls[{}].secretName", self.entry)
    }

    /// Whether the Secret of another entry is that of this one, or is shown beside it.
    fn shows(&self, other: &HostTls<'_>) -> bool {
        let mut shown = self.secrets.iter();
        self.secret == other.secret || shown.any(|secret| other.secret.as_ref() == Some(secret))
    }
}

fn conflict(host: &Host, first: &HostTls<'_>, other: &HostTls<'_>) -> Finding {
    Finding::new(
        Severity::Warning,
        &other.ingress.meta.key,
        other.field(),
        format!(
            "is without effect for {host}, whose certificate the older {} names",
            first.ingress.meta.key
        ),
        "name the same Secret in both, or leave tls to one of them",
    )
}
