//! One host: whose it is, and what all Ingresses on it add up to.

use std::sync::Arc;

use myriad_api::{Finding, Ingress, ObjectKey, ObjectKind, Severity};
use myriad_model::{
    CertificateDemand, ClientAuth, Domain, Host, Name, Origin, OriginKind, Resource, Underscores,
    Value,
};

use super::annotations::{Blocked, ClientCertificates};
use super::claimant::Claimant;
use super::contender::Contender;
use super::opened::Opened;
use super::policy::HostFacts;
use super::tls::{self, HostTls};
use super::{claims, headers, inquiry, routes, table};
use crate::engine::{Output, Reader, Shared};
use crate::regex::Regexes;
use crate::resolve::losers::{self, Loss};
use crate::resolve::{self, Shade, proof};
use crate::settings::Settings;

/// Translates one host from the Ingresses that it belongs to. `is_closed` says whether all of
/// their paths have to stay closed for another one.
pub(crate) fn translate_host(
    reader: &mut Reader<'_>,
    shared: &Shared,
    host: &Host,
    (claimants, shades, is_closed): (&[Claimant], &[Shade], bool),
    output: &mut Output,
) {
    let chosen = tls::choose(reader, host, claimants, output);
    let regexes = Regexes::new(reader.settings().regexes_per_host);
    let table = table::build(host, claimants, regexes, &mut output.findings);
    let asked = ask(reader, host, claimants, chosen.is_some(), output);
    let facts = HostFacts {
        has_tls: chosen.is_some(),
        has_certificate: chosen.as_ref().is_some_and(|tls| !tls.secrets.is_empty()),
        https_port: reader.settings().https_port,
        // As nginx does unless it is told otherwise.
        underscores: reader.settings().underscores(Underscores::Dropped),
        demand: asked.demand.as_ref(),
    };
    let mut all = claimants.iter();
    let is_blocked =
        is_closed || asked.is_closed || all.any(|known| known.options.blocked == Blocked::Host);
    let listeners = match claimants.first() {
        Some(first) => resolve::open_to(&shared.listeners, shades, first.namespace()),
        None => shared.listeners.clone(),
    };
    for shade in shades
        .iter()
        .filter(|it| shared.listeners.contains(&it.listener))
    {
        output.findings.extend(shaded(claimants, shade, host));
    }
    let headers = claimants.iter();
    let headers = headers.map(|known| {
        // On a host that it has for TLS alone there are no responses to put them on.
        let is_served = known.options.headers.is_some() && table::has_rule(&known.ingress, host);
        let edits = is_served.then(|| headers::edits(reader, &known.ingress, &known.options));
        edits.flatten()
    });
    let headers: Vec<_> = headers.collect();
    let inquiries = inquiry::of_claimants(reader, host, claimants, &table, output);
    let scene = routes::RouteScene {
        host,
        claimants,
        headers: &headers,
        inquiries: &inquiries,
        facts,
        is_blocked,
        listeners: &listeners,
    };
    routes::build(reader, &scene, &table, output);
    if let Some(chosen) = chosen {
        push_domain(shared, host, chosen, asked.client_auth, output);
    }
}

fn push_domain(
    shared: &Shared,
    host: &Host,
    chosen: HostTls<'_>,
    client_auth: Option<Arc<ClientAuth>>,
    output: &mut Output,
) {
    let mut certificates = chosen.secrets.into_iter().map(Name::new);
    let domain = Domain {
        listeners: shared.tls_listeners.clone(),
        host: host.clone(),
        certificate: certificates.next(),
        alternatives: certificates.collect(),
        tls: shared.tls.clone(),
        client_auth,
        mesh: false,
        section: None,
        by_name: false,
    };
    let origin = Origin {
        kind: OriginKind::Ingress,
        id: chosen.ingress.meta.key.id().clone(),
    };
    let resource = Resource {
        origin,
        value: Value::Domain(Box::new(domain)),
    };
    output
        .resources
        .push((Name::new(host.text().clone()), resource));
}

/// The certificates that the clients of a host are asked for.
#[derive(Default)]
struct AskedOfClients {
    /// By its routes.
    demand: Option<CertificateDemand>,
    /// In its handshakes.
    client_auth: Option<Arc<ClientAuth>>,
    /// Whether nobody can be verified as they say, so that its paths have to stay closed.
    is_closed: bool,
}

/// Finds out what the clients of a host are asked for: what the oldest Ingress says that says
/// anything, also where that is a canary.
fn ask(
    reader: &mut Reader<'_>,
    host: &Host,
    claimants: &[Claimant],
    has_tls: bool,
    output: &mut Output,
) -> AskedOfClients {
    let mut all = claimants
        .iter()
        .filter_map(|known| Some((&known.ingress, known.options.clients.as_deref()?)));
    let Some((ingress, asked)) = all.next() else {
        return AskedOfClients::default();
    };
    let meta = &ingress.meta;
    for (other, _) in all.filter(|(_, other)| *other != asked) {
        let finding = ClientCertificates::conflict(&other.meta, host, meta);
        output.findings.push(finding);
    }
    let demand = asked.demand(reader, meta, host, output);
    if demand.is_some() && !has_tls && !ingress.rules_of(host).is_empty() {
        output.findings.extend(asked.without_tls(meta, host));
    }
    AskedOfClients {
        client_auth: demand.is_some().then(|| Arc::new(asked.client_auth())),
        is_closed: demand.is_none(),
        demand,
    }
}

/// Opens the Ingresses on a host, the oldest first.
pub(crate) fn gather(reader: &mut Reader<'_>, contenders: &[Contender]) -> Vec<Claimant> {
    if contenders.is_empty() {
        return Vec::new();
    }
    // Options follow from them.
    reader.ingress_defaults();
    let mut claimants: Vec<Claimant> = Vec::with_capacity(contenders.len());
    for contender in contenders {
        if let Some(ingress) = reader.ingress(contender.claim.key.id()) {
            let options = reader.options_of(&ingress);
            claimants.push(Claimant { ingress, options });
        }
    }
    claimants.sort_by(|a, b| age(&a.ingress).cmp(&age(&b.ingress)));
    claimants
}

fn age(ingress: &Ingress) -> (i64, &str, &str) {
    let meta = &ingress.meta;
    (meta.created, meta.key.namespace(), meta.key.name())
}

/// The finding about an Ingress that claims a host in vain, for the unit that tells it.
pub(crate) fn lost(reader: &mut Reader<'_>, loss: &Loss) -> Option<Finding> {
    let id = loss.loser.id();
    reader.read_object(ObjectKind::Ingress, id);
    let ingress = reader.ingress(id)?;
    Some(match &loss.owner {
        Some(owner) => foreign(&ingress, owner, &loss.host, reader.settings()),
        None => no_catch_all(&ingress, &loss.host),
    })
}

fn no_catch_all(ingress: &Opened, host: &Host) -> Finding {
    Finding::new(
        Severity::Error,
        &ingress.meta.key,
        claims::field_of(ingress, host),
        format!(
            "answers for hosts that nobody names, which namespace {} may not, so it has no effect",
            ingress.meta.key.namespace()
        ),
        "name hosts in its rules, or add the namespace to --catch-all-namespaces",
    )
}

fn foreign(ingress: &Opened, owner: &ObjectKey, host: &Host, settings: &Settings) -> Finding {
    let (what, own) = (losers::named(host), ingress.meta.key.namespace());
    let by = proof::had_by(owner, settings);
    let usual = || {
        format!(
            "use another host, move it to namespace {}, or serve with --host-sharing=cluster",
            owner.namespace()
        )
    };
    Finding::new(
        Severity::Error,
        &ingress.meta.key,
        claims::field_of(ingress, host),
        format!(
            "is without effect: {what} belongs to namespace {} by {by}",
            owner.namespace()
        ),
        proof::remedy(own, host, settings).unwrap_or_else(usual),
    )
}

/// The finding about a host whose HTTPS a wildcard of another namespace keeps.
fn shaded(claimants: &[Claimant], shade: &Shade, host: &Host) -> Option<Finding> {
    let first = claimants.iter().find(|known| !known.is_canary())?;
    (!shade.admits(first.namespace())).then(|| {
        let key = &shade.claim.key;
        Finding::new(
            Severity::Warning,
            &first.ingress.meta.key,
            claims::field_of(&first.ingress, host),
            format!(
                "is served over plain HTTP only: HTTPS of {host} belongs to namespace {} by \
                 {} of {key}",
                key.namespace(),
                shade.written()
            ),
            "name a certificate for the host in spec.tls, or let the owner name this namespace \
             in the annotation myriad.dev/wildcard-sharing",
        )
    })
}
