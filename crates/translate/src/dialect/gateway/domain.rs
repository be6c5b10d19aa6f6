//! The domains of a host: which listener answers for it at each socket, and how TLS is done there.

use std::sync::Arc;

use myriad_model::host::Pattern;
use myriad_model::{ClientAuth, Domain, Host, Name, Resource, StreamRoute, Value};

use super::entity::terminates;
use super::facts::GatewayFact;
use super::host::{Entrant, HostListener, answers_unnamed, needs_domain, no_catch_all, overlooked};
use super::{certificate, clients};
use crate::dialect::istio;
use crate::engine::{Output, PortSpeech, Reader, Shared, Unit, Wish};
use crate::resolve::{Above, ISSUER, no_issuer, second_secret, wish, wish_second};

/// The rank of the stream route that closes: behind every rule.
const CLOSING_RANK: u64 = u64::MAX;

/// The sockets whose domain bears the name of the host alone.
const USUAL: [&str; 2] = ["https", "port-443"];

/// The way in which TLS is done for a host at a listener.
struct Terms {
    certificates: Vec<Name>,
    /// Whether they are for different names.
    by_name: bool,
    client_auth: Option<Arc<ClientAuth>>,
}

/// Adds the domains of a host: at each socket that of the oldest object which may answer there.
pub(crate) fn add(
    reader: &mut Reader<'_>,
    shared: &Shared,
    host: &Host,
    (entrants, above): (&[Entrant], &Above),
    output: &mut Output,
) {
    output.findings.extend(overlooked(reader, host));
    let mut taken: Vec<Name> = Vec::new();
    for entrant in entrants {
        for entry in &entrant.entries {
            let is_any = host.pattern() == Pattern::Any;
            if is_any && !answers_unnamed(reader, entrant) {
                output.findings.push(no_catch_all(entrant, entry));
                continue;
            }
            let socket = &entry.socket;
            if taken.contains(socket) || istio::has_domain(output, socket) {
                continue;
            }
            let mut between = above.shades.iter().chain(&above.strangers);
            // Plain requests are led by the narrowest domain: not by one of others that may not.
            let is_astray = entry.speech == PortSpeech::Http && above.astray.contains(socket);
            let is_below_others = is_astray || between.any(|shade| shade.listener == *socket);
            if needs_domain(reader, host, (entrant, entry), is_below_others) {
                taken.push(socket.clone());
                push(reader, shared, host, (entrant, entry), output);
            }
        }
    }
}

fn push(
    reader: &mut Reader<'_>,
    shared: &Shared,
    host: &Host,
    (entrant, entry): (&Entrant, &HostListener),
    output: &mut Output,
) {
    let entity = &entrant.standing.entity;
    let Some(listener) = entity.listeners().get(entry.at) else {
        return;
    };
    let section = entity.section(listener);
    let is_tls = entry.speech == PortSpeech::Tls;
    let ends_tls = is_tls && terminates(listener);
    let terms = match ends_tls {
        true => {
            let terms = terms(reader, host, (entrant, entry), output);
            // A broader domain must not answer in its place, without what was asked for here.
            terms.unwrap_or_else(|| Terms {
                certificates: vec![Name::new(format!("{section}/{}", istio::CLOSED))],
                by_name: false,
                client_auth: None,
            })
        }
        false => Terms {
            certificates: Vec::new(),
            by_name: false,
            client_auth: None,
        },
    };
    let mut certificates = terms.certificates.into_iter();
    let domain = Domain {
        listeners: match entry.socket == shared.tls_listeners[0] {
            true => shared.tls_listeners.clone(),
            false => [entry.socket.clone()].into(),
        },
        host: host.clone(),
        certificate: certificates.next(),
        alternatives: certificates.collect(),
        tls: shared.tls.clone(),
        client_auth: terms.client_auth,
        mesh: false,
        section: Some(section.clone()),
        by_name: terms.by_name,
    };
    let is_usual = USUAL.contains(&entry.socket.as_str());
    let name = match is_usual {
        true => Name::new(host.text().clone()),
        false => Name::new(format!("{host}@{section}")),
    };
    let origin = entity.origin();
    let value = Value::Domain(Box::new(domain));
    output.resources.push((name, Resource { origin, value }));
    if *listener.protocol == *"TLS" && entry.cover == *host {
        close(host, entrant, (section, ends_tls), output);
    }
}

/// Closes what no TLSRoute takes, where neither a broader domain nor HTTP must answer.
fn close(host: &Host, entrant: &Entrant, (section, terminate): (Name, bool), output: &mut Output) {
    let name = Name::new(format!("{section}/{host}/{}", istio::CLOSED));
    let stream_route = StreamRoute {
        listeners: [section].into(),
        hosts: [host.clone()].into(),
        rank: CLOSING_RANK,
        terminate,
        ..istio::stream::blank()
    };
    let resource = Resource {
        origin: entrant.standing.entity.origin(),
        value: Value::StreamRoute(Box::new(stream_route)),
    };
    output.resources.push((name, resource));
}

/// The way in which TLS is done, and what that needs; none where nobody must answer.
fn terms(
    reader: &mut Reader<'_>,
    host: &Host,
    (entrant, entry): (&Entrant, &HostListener),
    output: &mut Output,
) -> Option<Terms> {
    let standing = &entrant.standing;
    let key = standing.entity.key();
    let listener = standing.entity.listeners().get(entry.at)?;
    let mut secrets = certificate::secrets(reader, key, listener);
    if secrets.is_empty() {
        return None;
    }
    let by_name = secrets.len() > 1;
    let second = obtain(reader, host, (entrant, &secrets), output);
    secrets.extend(second);
    reader.read(GatewayFact::Tls(standing.gateway.meta.key.id()));
    let client_auth = match clients::validation(&standing.gateway, listener) {
        None => None,
        Some(validation) => {
            // As its status says, a listener by whose authorities nobody can be verified has no
            // effect, be clients let in without a certificate or not.
            if !clients::has_authority(reader, &standing.gateway, listener) {
                return None;
            }
            let gateway = &standing.gateway.meta.key;
            let trust = clients::trust(reader, gateway, validation)?;
            output.needs.push(Unit::trust(trust.clone()));
            Some(Arc::new(ClientAuth {
                trust: Name::new(trust),
                mode: clients::mode(validation),
                subject_alt_names: Box::default(),
                key_hashes: Box::default(),
                certificate_hashes: Box::default(),
                depth: 0,
            }))
        }
    };
    let needed = secrets.iter().cloned();
    output.needs.extend(needed.map(Unit::certificate));
    Some(Terms {
        certificates: secrets.into_iter().map(Name::new).collect(),
        by_name,
        client_auth,
    })
}

/// Wishes for the certificate of a host, where its object names an issuer: in the first Secret, if
/// that is beside the object. Returns the Secret of the second one, where the issuer provides two.
fn obtain(
    reader: &mut Reader<'_>,
    host: &Host,
    (entrant, secrets): (&Entrant, &[Arc<str>]),
    output: &mut Output,
) -> Option<Arc<str>> {
    let meta = entrant.standing.entity.meta();
    let issuer = meta.annotation(ISSUER)?;
    let own = meta.key.namespace();
    let field = format!("metadata.annotations[{ISSUER}]");
    output
        .findings
        .extend(no_issuer(reader, &meta.key, field, issuer));
    let secret = secrets.first()?;
    let is_own = secret
        .strip_prefix(own)
        .is_some_and(|rest| rest.starts_with('/'));
    let issuer = reader.issuer_named(own, issuer).filter(|_| is_own)?;
    let first: Wish = wish(reader, host, secret, issuer, &meta.key)?;
    output.wishes.push(first.clone());
    let second = match secrets {
        [_] => second_secret(reader, &first, None)?,
        _ => return None,
    };
    output.wishes.extend(wish_second(reader, &first, &second));
    Some(second)
}
