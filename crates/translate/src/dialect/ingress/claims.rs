//! Which hosts an Ingress claims.

use std::collections::BTreeSet;

use myriad_api::{Finding, Ingress, ObjectKey, Severity};
use myriad_model::Host;

use super::annotations::{self, Defaults, Further};
use super::opened::Opened;
use super::{class, host_name};
use crate::engine::NewlyClaimed;
use crate::resolve::losers::unclaimable;
use crate::settings::Settings;

/// The hosts of one Ingress.
pub(super) struct IngressClaims {
    /// The hosts of its rules and of its `tls` entries, its further ones, and [`Host::any`]
    /// where it answers for hosts that nobody names.
    pub hosts: BTreeSet<Host>,
    /// Hosts that are no hosts, were not written in their normal form, or may not be claimed.
    pub findings: Vec<Finding>,
}

/// Reads the claims of an Ingress, without those that its namespace may not make.
pub(super) fn read(ingress: &Opened, settings: &Settings) -> IngressClaims {
    let IngressClaims {
        hosts,
        mut findings,
    } = claims_of(ingress, ingress.further());
    let key = &ingress.meta.key;
    let may_claim = |host: &Host| settings.may_claim(key.namespace(), host);
    let (hosts, refused): (BTreeSet<Host>, BTreeSet<Host>) = hosts.into_iter().partition(may_claim);
    for host in &refused {
        let field = field_of(ingress, host);
        findings.push(unclaimable(key, field, host, settings));
    }
    IngressClaims { hosts, findings }
}

/// The number of hosts that an Ingress names.
pub(crate) fn hosts(ingress: &Ingress) -> u64 {
    let further = Further::read(&ingress.meta, &BTreeSet::new());
    claims_of(ingress, &further).hosts.len() as u64
}

fn claims_of(ingress: &Ingress, further: &Further) -> IngressClaims {
    let mut claims = IngressClaims {
        hosts: further.aliases.iter().cloned().collect(),
        findings: Vec::new(),
    };
    let key = &ingress.meta.key;
    for (at, rule) in ingress.rules.iter().enumerate() {
        match &rule.host {
            Some(text) => claims.add(key, || format!("spec.rules[{at}].host"), text),
            None => {
                claims.hosts.insert(Host::any());
            }
        }
    }
    for (at, entry) in ingress.tls.iter().enumerate() {
        for (host_at, text) in entry.hosts.iter().enumerate() {
            claims.add(key, || format!("spec.tls[{at}].hosts[{host_at}]"), text);
        }
    }
    if ingress.rules.is_empty() && ingress.default_backend.is_some() {
        claims.hosts.insert(Host::any());
    }
    if further.www_key.is_some() {
        let rules = ingress.rules.iter().filter_map(|rule| rule.host.as_deref());
        let named = rules.filter_map(|text| Some(host_name::read(text).ok()?.host));
        let others = named.filter_map(|host| annotations::counterpart(&host));
        claims.hosts.extend(others);
    }
    claims
}

/// The field by which an Ingress claims a host.
pub(crate) fn field_of(ingress: &Opened, host: &Host) -> String {
    if let Some(at) = ingress.rules_naming(host).first() {
        let has_host = ingress.rules.get(*at).is_some_and(|r| r.host.is_some());
        let end = if has_host { ".host" } else { "" };
        return format!("spec.rules[{at}]{end}");
    }
    match ingress.tls_naming(host) {
        Some((at, host_at)) => format!("spec.tls[{at}].hosts[{host_at}]"),
        None if ingress.is_alias(host) => {
            format!("metadata.annotations[{}]", ingress.further().alias_key)
        }
        None => match &ingress.further().www_key {
            Some(key) if ingress.led_to(host).is_some() => format!("metadata.annotations[{key}]"),
            _ => "spec.defaultBackend".into(),
        },
    }
}

/// The hosts that an Ingress claims by a newer version, and which of them may be new. Under another
/// class it may have been for another controller, and as a canary it owns none.
pub(super) fn newly_claimed(
    old: &Ingress,
    new: &Ingress,
    ignored: &BTreeSet<String>,
) -> NewlyClaimed {
    let is_same = class::written(old) == class::written(new);
    let hosts = |ingress: &Ingress| {
        let further = Further::read(&ingress.meta, ignored);
        claims_of(ingress, &further).hosts
    };
    let mut claimed = NewlyClaimed::new(hosts(old), hosts(new), |_| is_same);
    let canary = |ingress: &Ingress| {
        let (options, _) = annotations::read(&ingress.meta, ignored, &Defaults::default());
        options.canary.is_some()
    };
    if marks_canary(old) != marks_canary(new) && canary(old) && !canary(new) {
        claimed.owned_none = true;
        claimed.changed = claimed.all.clone();
    }
    claimed
}

/// The values of the annotations by which an Ingress is a canary or not, as written.
fn marks_canary(ingress: &Ingress) -> Vec<&str> {
    let all = ingress.meta.annotations.iter();
    all.filter(|(key, _)| key.ends_with("/canary"))
        .map(|(_, value)| &**value)
        .collect()
}

/// Whether an Ingress has a backend for any request.
pub(super) fn leads_somewhere(ingress: &Ingress) -> bool {
    ingress.default_backend.is_some() || ingress.rules.iter().any(|rule| !rule.paths.is_empty())
}

impl IngressClaims {
    fn add(&mut self, key: &ObjectKey, field: impl Fn() -> String, text: &str) {
        match host_name::read(text) {
            Ok(written) => {
                if written.changed {
                    self.findings.push(Finding::new(
                        Severity::Info,
                        key,
                        field(),
                        format!("is read as {}", written.host),
                        format!("write {}", written.host),
                    ));
                }
                self.hosts.insert(written.host);
            }
            Err(problem) => self.findings.push(Finding::new(
                Severity::Error,
                key,
                field(),
                format!("{problem}, so it has no effect"),
                "write a lower-case DNS name such as a.example.com or *.example.com",
            )),
        }
    }
}
