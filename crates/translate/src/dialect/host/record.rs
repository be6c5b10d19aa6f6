//! Whose the record of DNS is by which an authority sees whose a host is.
//!
//! A name and the wildcard right below it have one record, and are two hosts, which two namespaces
//! may have. An issuer for all namespaces sets that record for whoever names it: it does so for the
//! one alone that has the older of the two hosts, or that the operator lists for its own. Below an
//! older wildcard that ends TLS and does not let a namespace in, it sets none for it either: what
//! would be shown there is not the namespace's own, but the operator's to lend.
//!
//! A host says who has it, by a seat, where that matters to another: once there is the other host
//! of its record, and where objects of several namespaces claim it, who may do so at several
//! gateways.

use myriad_api::{Finding, ObjectKind, Severity};
use myriad_model::{Host, host::Pattern};

use super::wildcard;
use crate::dialect::gateway::{self, Entrant};
use crate::engine::{Output, Reader, Stake, StakeClaim, Told, Unit, Wish, namespace_of};
use crate::resolve::{Claim, Deed, Found, ISSUER, SharedFact, names, suffix_of};
use crate::settings::{HostSharing, Settings};

/// The orders of those who have a host: whom the operator lists for it, and all others.
const LISTED: u8 = 0;
const CLAIMED: u8 = 1;

/// The order of nobody, which is said as well: then it is known that somebody has looked.
const NOBODY: u8 = 2;

/// The fate of a wish.
enum Verdict {
    Granted,
    /// It is yet to be seen who has the other hosts.
    Pending,
    /// The reason, behind what the issuer does.
    Refused(String),
}

/// Says who has a host, and takes out the wishes for it that no issuer may grant.
pub(super) fn judge(
    reader: &mut Reader<'_>,
    host: &Host,
    (owner, entrants): (Option<&Claim>, &[Entrant]),
    output: &mut Output,
) {
    let settings = reader.settings();
    let is_shared = settings.host_sharing == HostSharing::Cluster;
    if settings.issuers.is_none() || is_shared || host.pattern() == Pattern::Any {
        return;
    }
    let siblings = siblings(host);
    let is_disputed = reader.is_needed_by_several();
    let is_wildcard = suffix_of(host).is_some();
    if is_wildcard || is_disputed || siblings.iter().any(|it| is_there(reader, it)) {
        // Proxies of one Gateway serve whomever it lets in.
        let oldest = || gateway::oldest_claim(host, entrants.iter());
        let claim = rank(settings, host, owner.cloned().or_else(oldest).as_ref());
        let seat = seat(reader, host);
        output.stakes.push(Stake { seat, claim });
    }
    let others = is_disputed.then_some(host).into_iter().chain(&siblings);
    let others: Vec<&Host> = others.collect();
    for wish in std::mem::take(&mut output.wishes) {
        match verdict(reader, (host, owner), &others, &wish) {
            Verdict::Granted => output.wishes.push(wish),
            Verdict::Refused(reason) if !wish.is_second => {
                output.findings.push(finding(&wish, &reason));
            }
            Verdict::Refused(_) | Verdict::Pending => {}
        }
    }
}

fn verdict(
    reader: &mut Reader<'_>,
    (host, owner): (&Host, Option<&Claim>),
    others: &[&Host],
    wish: &Wish,
) -> Verdict {
    if !reader.sets_records_for_all(&wish.issuer, host) {
        return Verdict::Granted;
    }
    let object = &wish.object;
    let of_object = || reader.claim_of(object.kind, object.id(), host);
    let Some(own) = owner.cloned().or_else(of_object) else {
        return Verdict::Pending;
    };
    let (settings, namespace) = (reader.settings(), own.key.namespace());
    if is_listed(settings, namespace, host) {
        return Verdict::Granted;
    }
    let (rank, mut is_pending) = (rank(settings, host, Some(&own)), false);
    for other in others {
        let seat = seat(reader, other);
        let Some(first) = reader.seat(seat) else {
            is_pending = is_pending || is_there(reader, other);
            continue;
        };
        let theirs = namespace_of(&first.id);
        if first.order < NOBODY && first < rank && theirs != namespace {
            let other = names::written(other);
            return Verdict::Refused(match other == names::written(host) {
                true => format!("and namespace {theirs} has {other} at another gateway"),
                false => {
                    format!("and that one is also the record of {other} of namespace {theirs}")
                }
            });
        }
    }
    match keeper(reader, host, &own) {
        Some(reason) => Verdict::Refused(reason),
        None if is_pending => Verdict::Pending,
        None => Verdict::Granted,
    }
}

/// Why an older wildcard right above a host keeps its handshakes from a namespace; none where none
/// does.
fn keeper(reader: &mut Reader<'_>, host: &Host, own: &Claim) -> Option<String> {
    let (settings, namespace) = (reader.settings(), own.key.namespace());
    if wildcard::are_all_shared(settings) || settings.wildcard_sharing.contains(namespace) {
        return None;
    }
    for above in wildcards_above(host) {
        reader.note_above(&above);
        let Told::Here(found) = reader.meaning::<Found>(&Unit::host_of(above)) else {
            continue;
        };
        reader.note_asked(&found.asked);
        let mut deeds = found.deeds.iter();
        let keeps = deeds.find(|shade| {
            let ends_tls = shade.deed == Deed::EndsTls;
            ends_tls && shade.keeps_from(own) && !shade.admits(namespace)
        });
        if let Some(shade) = keeps {
            let (written, key) = (shade.written(), &shade.claim.key);
            return Some(format!(
                "and {written} of the older {key} does not let it in"
            ));
        }
    }
    None
}

/// The other hosts of the record of a host.
fn siblings(host: &Host) -> Vec<Host> {
    let texts = match host.pattern() {
        Pattern::Any => Vec::new(),
        Pattern::Exact(name) => vec![format!("*.{name}"), format!("**.{name}")],
        Pattern::OneLabel(suffix) | Pattern::AnyLabels(suffix) => suffix
            .strip_prefix('.')
            .map(str::to_owned)
            .into_iter()
            .collect(),
    };
    let hosts = texts.iter().filter_map(|text| Host::parse(text).ok());
    hosts.collect()
}

/// The wildcards right above a host, as either dialect spells them.
fn wildcards_above(host: &Host) -> Vec<Host> {
    let name = match host.pattern() {
        Pattern::Exact(name) => Some(name),
        Pattern::OneLabel(suffix) => suffix.strip_prefix('.'),
        Pattern::Any | Pattern::AnyLabels(_) => None,
    };
    let Some((_, parent)) = name.and_then(|name| name.split_once('.')) else {
        return Vec::new();
    };
    let texts = [format!("*.{parent}"), format!("**.{parent}")];
    let hosts = texts.iter().filter_map(|text| Host::parse(text).ok());
    hosts.collect()
}

/// Whether a host has a unit, which says who has it once it has run.
fn is_there(reader: &Reader<'_>, host: &Host) -> bool {
    reader.find(&Unit::host_of(host.clone())).is_some()
}

/// The seat of whoever has a host.
fn seat(reader: &Reader<'_>, host: &Host) -> u64 {
    reader.hash(SharedFact::Had(host.as_str()))
}

/// The claim by which somebody has a host, or nobody.
fn rank(settings: &Settings, host: &Host, claim: Option<&Claim>) -> StakeClaim {
    let Some(claim) = claim else {
        return StakeClaim {
            order: NOBODY,
            created: 0,
            id: "".into(),
            value: 0,
        };
    };
    let (since, is_late, ..) = claim.age();
    StakeClaim {
        order: match is_listed(settings, claim.key.namespace(), host) {
            true => LISTED,
            false => CLAIMED,
        },
        // Of two in one second, the one that came to its host later goes behind.
        created: since.saturating_mul(2).saturating_add(i64::from(is_late)),
        id: claim.key.id().clone(),
        value: 0,
    }
}

/// Whether the operator has said that a host is a namespace's, or it is the operator's own.
fn is_listed(settings: &Settings, namespace: &str, host: &Host) -> bool {
    let is_named = settings.tenants.is_listed(namespace);
    let is_operators = *namespace == *settings.gateway_namespace;
    (is_named || is_operators) && settings.may_claim(namespace, host)
}

fn finding(wish: &Wish, reason: &str) -> Finding {
    let (key, issuer) = (&wish.object, &wish.issuer);
    let host = names::written(&wish.host);
    let field = match key.kind {
        ObjectKind::Ingress => "spec.tls".to_owned(),
        _ => format!("metadata.annotations[{ISSUER}]"),
    };
    Finding::new(
        Severity::Error,
        key,
        field,
        format!(
            "names issuer {issuer}, which obtains no certificate for {host}: it is for all \
             namespaces and sets a record of DNS for it, {reason}"
        ),
        format!(
            "let the operator list {host} for the namespace in --tenants, or name an Issuer of the \
             namespace"
        ),
    )
}
