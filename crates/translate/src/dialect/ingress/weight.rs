//! The weight of an Ingress among the routes of its namespace.

use std::borrow::Cow;
use std::collections::BTreeSet;

use myriad_api::{BackendPort, Ingress, IngressBackend, IngressPath, PathType};

use super::annotations::{self, CERTIFICATE_SUBJECT, Further, values};
use super::paths::{PATH_BYTES_MAX, any_case, looks_like_regex};
use crate::regex;
use crate::settings::text_rows;

/// The end of the name of an annotation that has a regex.
const CANARY_PATTERN: &str = "/canary-by-header-pattern";

/// The end of the name of the annotation that makes a canary.
const CANARY: &str = "/canary";

/// The most routes that a canary divides a path into.
const SHARES: usize = 5;

/// Each path repeats what the annotations say; on that of a main Ingress a canary does once more
/// for each of its shares, which is counted here for all.
const REPEATED: usize = 2;

/// Its paths with what is long in them, what their regexes take and what its annotations say on
/// each, and hosts that it names for TLS beyond those of its rules: each has a domain, and an entry
/// without hosts counts for one. An alias has all of its paths once more, and a redirect to a
/// rule's host is one. What annotations say that no path has counts once, and so does an Ingress
/// that says nothing.
pub(crate) fn weigh(ingress: &Ingress) -> u64 {
    let paths = ingress.rules.iter().map(|rule| rule.paths.len().max(1));
    let default = usize::from(ingress.default_backend.is_some());
    let named: usize = ingress.tls.iter().map(|tls| tls.hosts.len().max(1)).sum();
    let of_tls = named.saturating_sub(ingress.rules.len());
    let written = ingress.rules.iter().flat_map(|rule| &rule.paths);
    let texts_of_paths: usize = written.map(|path| text_rows(bytes_of(path))).sum();
    let annotations = ingress.meta.annotations.iter();
    let mut canary = annotations
        .clone()
        .filter(|(name, _)| name.ends_with(CANARY));
    let shares = match canary.any(|(_, value)| values::boolean(value.trim()) != Some(false)) {
        true => SHARES,
        false => 1,
    };
    let texts = annotations::bytes_repeated(&ingress.meta).saturating_mul(REPEATED);
    let of_each = shares * (1 + text_rows(texts));
    let further = Further::read(&ingress.meta, &BTreeSet::new());
    let aliases = further.aliases.len() as u64;
    let redirects = further.www_key.map_or(0, |_| ingress.rules.len());
    let of_paths = (paths.sum::<usize>() + default) * of_each + texts_of_paths * shares;
    let of_paths = of_paths as u64;
    let of_host = regex_rows(ingress).saturating_add(of_paths);
    let of_hosts = of_host.saturating_mul(1 + aliases);
    let read_once = text_rows(annotations::bytes_read(&ingress.meta));
    let all = of_hosts.saturating_add((of_tls + redirects + read_once) as u64);
    all.max(1)
}

/// The rows that the regexes of its paths and annotations count for.
pub(crate) fn regex_rows(ingress: &Ingress) -> u64 {
    let written = ingress.rules.iter().flat_map(|rule| &rule.paths);
    let written = written.filter(|path| path.path_type != PathType::Exact);
    let of_paths = written.filter_map(|path| path.path.as_deref());
    let has_regex = |name: &str| {
        name.ends_with(CANARY_PATTERN) || name.split('/').nth(1) == Some(CERTIFICATE_SUBJECT)
    };
    let annotations = ingress.meta.annotations.iter();
    let of_annotations = annotations.filter(|(name, _)| has_regex(name));
    let regexes = of_paths
        .filter(|path| path.len() <= PATH_BYTES_MAX && looks_like_regex(path))
        .map(|path| Cow::<str>::Owned(any_case(path)))
        .chain(of_annotations.map(|(_, pattern)| Cow::Borrowed(pattern.trim())));
    regex::rows(regexes)
}

/// The bytes of the texts of a path and its backend.
fn bytes_of(path: &IngressPath) -> usize {
    let backend = match &path.backend {
        IngressBackend::Service { name, port } => match port {
            BackendPort::Name(port) => name.len() + port.len(),
            BackendPort::Number(_) => name.len(),
        },
        IngressBackend::Resource { kind, name } => kind.len() + name.len(),
    };
    path.path.as_ref().map_or(0, |text| text.len()) + backend
}
