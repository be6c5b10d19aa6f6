//! The annotations of an Ingress: those that are honoured, and what to say about the others.
//!
//! The same names stand under three prefixes; of a name that stands twice, the first prefix in
//! [`PREFIXES`] wins. An invalid value has the effect of an absent one, except where that would
//! open something that was closed: then the paths of the Ingress answer 503. What no annotation
//! says may be said of all Ingresses, by a ConfigMap.

mod basic;
mod client_certificates;
mod copies;
mod defaults;
mod errors;
mod hosts;
mod inquiry;
mod limits;
mod options;
pub(super) mod owned;
mod redirects;
mod restricting;
mod settled;
mod sharing;
mod sheet;
mod snippet;
pub(super) mod values;

use std::collections::BTreeSet;

use myriad_api::config_map::HeaderFields;
use myriad_api::{Finding, Meta, ObjectKey, Severity};

pub(crate) use client_certificates::{ClientCertificates, SUBJECT as CERTIFICATE_SUBJECT};
pub(crate) use copies::{RequestCopies, TARGET as MIRROR_TARGET};
pub(crate) use defaults::{Defaults, judge_missing, judge_unnamed};
pub(crate) use errors::{BACKEND as PAGES_BACKEND, Errors};
pub(crate) use hosts::{Further, counterpart};
pub(crate) use inquiry::{AskedService, AskedUrl, URL as INQUIRY_URL};
pub(crate) use options::{Affinity, Basic, Blocked, Canary, HeaderTest, Options};

use defaults::Replaced;
use sheet::Sheet;

/// The prefixes, the one that wins first.
pub(super) const PREFIXES: [&str; 3] =
    ["myriad.dev/", "nginx.ingress.kubernetes.io/", "higress.io/"];

/// The names that are honoured, sorted.
pub(super) const HONOURED: [&str; 84] = [
    "affinity",
    "allowlist-source-range",
    "app-root",
    "auth-always-set-cookie",
    "auth-cache-duration",
    "auth-cache-key",
    "auth-method",
    "auth-proxy-set-headers",
    "auth-realm",
    "auth-request-redirect",
    "auth-response-headers",
    "auth-secret",
    "auth-secret-type",
    "auth-signin",
    "auth-signin-redirect-param",
    "auth-tls-error-page",
    "auth-tls-match-cn",
    "auth-tls-pass-certificate-to-upstream",
    "auth-tls-secret",
    "auth-tls-verify-client",
    "auth-tls-verify-depth",
    "auth-type",
    "auth-url",
    "backend-protocol",
    "canary",
    "canary-by-cookie",
    "canary-by-header",
    "canary-by-header-pattern",
    "canary-by-header-value",
    "canary-weight",
    "canary-weight-total",
    "cors-allow-credentials",
    "cors-allow-headers",
    "cors-allow-methods",
    "cors-allow-origin",
    "cors-expose-headers",
    "cors-max-age",
    "custom-headers",
    "custom-http-errors",
    "default-backend",
    "denylist-source-range",
    "enable-cors",
    "enable-global-auth",
    "force-ssl-redirect",
    "from-to-www-redirect",
    "hsts",
    "issuer",
    "limit-allowlist",
    "limit-burst-multiplier",
    "limit-connections",
    "limit-rpm",
    "limit-rps",
    "limit-whitelist",
    "mirror-host",
    "mirror-request-body",
    "mirror-target",
    "permanent-redirect",
    "permanent-redirect-code",
    "proxy-body-size",
    "proxy-connect-timeout",
    "proxy-read-timeout",
    "proxy-send-timeout",
    "rate-limit",
    "respond",
    "respond-status",
    "rewrite-target",
    "satisfy",
    "server-alias",
    "session-cookie-change-on-failure",
    "session-cookie-conditional-samesite-none",
    "session-cookie-domain",
    "session-cookie-expires",
    "session-cookie-max-age",
    "session-cookie-name",
    "session-cookie-path",
    "session-cookie-samesite",
    "session-cookie-secure",
    "ssl-redirect",
    "temporal-redirect",
    "upstream-hash-by",
    "upstream-vhost",
    "use-regex",
    "whitelist-source-range",
    "wildcard-sharing",
];

/// The names among them that mean something under our own prefix alone.
const OWN: [&str; 6] = [
    "hsts",
    "issuer",
    "rate-limit",
    "respond",
    "respond-status",
    "wildcard-sharing",
];

/// The names of the networks of clients that are admitted.
const SOURCES: [&str; 2] = ["whitelist-source-range", "allowlist-source-range"];

/// The name of the networks of clients that are refused.
const DENIED: &str = "denylist-source-range";

/// The names of the annotations with a list of networks.
const LISTS: [&str; 5] = [
    "allowlist-source-range",
    "denylist-source-range",
    "limit-allowlist",
    "limit-whitelist",
    "whitelist-source-range",
];

/// The bytes that a network of a list takes, whose text may be shorter.
const NETWORK_BYTES: usize = 24;

/// The bytes that pages of errors take beside what is written: they are told whose errors they are.
const PAGES_BYTES: usize = 512;

/// The bytes that a service which is asked takes beside what is written: it is told where clients
/// come from.
const INQUIRY_BYTES: usize = 512;

/// A problem of one annotation.
#[derive(Debug)]
pub struct AnnotationProblem {
    severity: Severity,
    /// The whole key.
    key: String,
    message: String,
    remedy: String,
}

impl AnnotationProblem {
    /// The finding about the annotation of an object.
    pub fn into_finding(self, object: &ObjectKey) -> Finding {
        let field = format!("metadata.annotations[{}]", self.key);
        Finding::new(self.severity, object, field, self.message, self.remedy)
    }
}

/// Reads all annotations of an Ingress. Where they say nothing, the defaults hold.
pub(super) fn read(
    meta: &Meta,
    ignored: &BTreeSet<String>,
    defaults: &Defaults,
) -> (Options, Vec<AnnotationProblem>) {
    let mut options = defaults.options.clone();
    let mut replaced = Replaced::default();
    if meta.annotations.is_empty() {
        options.blocked = defaults.blocked(replaced);
        return (options, Vec::new());
    }
    let mut sheet = Sheet::default();
    for (key, value) in &meta.annotations {
        let Some((rank, name)) = split(key) else {
            continue;
        };
        if ignored.contains(&**key) || ignored.contains(name) {
            continue;
        }
        if rank > 0 {
            replaced.note(name, value);
            if settled::is_settled(name, value) {
                continue;
            }
        }
        match HONOURED.binary_search(&name) {
            Ok(at) if rank == 0 || !OWN.contains(&name) => {
                sheet.pick(HONOURED[at], rank, key, value);
            }
            _ => unknown(key, rank, name, value, &mut sheet),
        }
    }
    basic::read(meta, &mut sheet, &mut options);
    client_certificates::read(meta, &mut sheet, &mut options);
    replaced.auth = inquiry::read(meta, &mut sheet, &mut options);
    hosts::judge(&mut sheet);
    redirects::read(&mut sheet, &mut options);
    sharing::read(&mut sheet, &mut options);
    options::read(&mut sheet, &mut options);
    copies::read(&mut sheet, &mut options);
    errors::read(&mut sheet, &mut options);
    limits::read(meta, &mut sheet, &mut options);
    replaced.sources = SOURCES.iter().any(|name| sheet.text(name).is_some());
    replaced.denied = sheet.text(DENIED).is_some();
    options.blocked = sheet.blocked.max(defaults.blocked(replaced));
    (options, sheet.problems)
}

/// The key of the annotation of a name that counts, where several prefixes have it. There may be
/// thousands of annotations, and each path may ask, so it is looked up among the sorted ones.
pub(super) fn key_of<'a>(meta: &'a Meta, name: &str) -> Option<&'a str> {
    PREFIXES.iter().find_map(|prefix| {
        let wanted = format!("{prefix}{name}");
        let found = meta
            .annotations
            .binary_search_by(|(key, _)| (**key).cmp(wanted.as_str()));
        let (key, _) = meta.annotations.get(found.ok()?)?;
        Some(&**key)
    })
}

/// The bytes of what annotations say that each path of an Ingress repeats.
pub(super) fn bytes_repeated(meta: &Meta) -> usize {
    let bytes = meta.annotations.iter().filter_map(|(key, value)| {
        let (_, name) = split(key)?;
        let is_honoured = HONOURED.binary_search(&name).is_ok();
        is_honoured.then(|| bytes_of(name, value))
    });
    bytes.sum()
}

/// The bytes of annotations that no path repeats: those that are not honoured, and names of hosts.
/// They are read all the same, once for all paths.
pub(super) fn bytes_read(meta: &Meta) -> usize {
    let bytes = meta.annotations.iter().filter_map(|(key, value)| {
        let (_, name) = split(key)?;
        let is_honoured = HONOURED.binary_search(&name).is_ok();
        let is_repeated = is_honoured && bytes_of(name, value) > 0;
        (!is_repeated).then(|| key.len() + value.len())
    });
    bytes.sum()
}

/// The bytes of what an annotation says on each path. A list that is too long is not kept; of a
/// ConfigMap that is named all is counted that it may hold.
fn bytes_of(name: &str, value: &str) -> usize {
    match name {
        // Each alias has paths of its own, and none says which others there are.
        hosts::ALIAS => 0,
        "auth-proxy-set-headers" => HeaderFields::BYTES_MAX,
        inquiry::URL => value.len() + INQUIRY_BYTES,
        "custom-headers" if !value.trim().is_empty() => HeaderFields::BYTES_MAX,
        "custom-http-errors" => value.len() + PAGES_BYTES,
        _ if !LISTS.contains(&name) => value.len(),
        _ if !values::is_short(value) => 0,
        _ => value.len().max(value.split(',').count() * NETWORK_BYTES),
    }
}

/// The rank of the prefix of a key, and the name behind it.
fn split(key: &str) -> Option<(usize, &str)> {
    let mut prefixes = PREFIXES.iter().enumerate();
    prefixes.find_map(|(rank, prefix)| Some((rank, key.strip_prefix(prefix)?)))
}

fn unknown(key: &str, rank: usize, name: &str, value: &str, sheet: &mut Sheet<'_>) {
    if rank == 0 {
        sheet.problem(
            Severity::Error,
            key,
            "is not an annotation that Myriad knows",
            "correct its name, or remove it",
        );
        return;
    }
    let (blocked, what) = restricting::judge(name, value);
    let closed = match blocked {
        Blocked::No => {
            let message = "is not supported and has no effect";
            let remedy = "remove it, or name it in --ignore-annotations";
            sheet.problem(Severity::Warning, key, message, remedy);
            return;
        }
        Blocked::Paths => "the paths of this Ingress answer 503",
        Blocked::Host => "all paths of its hosts answer 503",
    };
    sheet.problem(
        Severity::Error,
        key,
        format!("{} is not supported, so {closed}", snippet::told(what)),
        "restrict access in another way and remove it, or name it in --ignore-annotations",
    );
    sheet.blocked = sheet.blocked.max(blocked);
}

#[cfg(test)]
mod tests {
    use super::HONOURED;

    #[test]
    fn every_honoured_annotation_is_in_the_user_documentation_and_no_other() {
        let page = include_str!("../../../../../docs/ingress.md");
        let rows = page.lines().filter(|line| line.starts_with("| `"));
        let cells = rows.filter_map(|row| row.split('|').nth(1));
        let mut named: Vec<&str> = cells
            .flat_map(|cell| cell.split(',').map(|name| name.trim().trim_matches('`')))
            .collect();
        named.sort_unstable();
        assert_eq!(named, HONOURED);
    }
}
