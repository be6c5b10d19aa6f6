//! Hosts, Gateways and services as Istio's users name them.

use std::sync::Arc;

use myriad_api::{Finding, ObjectKey, Severity};
use myriad_model::{Host, HostError};

use crate::settings::{NAMES_MAX, first_names};

/// The longest `namespace/name` of an object.
const ID_BYTES_MAX: usize = 2 * 253 + 1;

/// The word for sidecars among the Gateways that a VirtualService is bound to.
pub(crate) const MESH: &str = "mesh";

/// The same for hosts that VirtualServices of a namespace name in short. No Gateway is called
/// so, nor any namespace.
pub(crate) fn short_mesh(namespace: &str) -> Arc<str> {
    format!("{MESH}:{namespace}").into()
}

/// A host pattern as written. Istio's `*.` stands for one label or more. An address of IPv6 may be
/// written in any form.
///
/// # Errors
/// The problem of the pattern.
pub(crate) fn host(text: &str) -> Result<Host, HostError> {
    let lower = text.to_ascii_lowercase();
    match lower.strip_prefix("*.") {
        Some(rest) => Host::parse(&format!("**.{rest}")),
        None if lower.starts_with("**") => Err(HostError::BadWildcard),
        None => Host::of_name(&lower),
    }
}

/// Whether a host as written is this pattern. Nothing is allocated, since a Gateway of a thousand
/// servers is asked once for each of its hosts; but for an address of IPv6.
pub(crate) fn is_host(written: &str, host: &Host) -> bool {
    if host.as_str().starts_with('[') {
        return written.contains(':') && Host::of_name(written).as_ref() == Ok(host);
    }
    let host = host.as_str();
    match written.strip_prefix("*.") {
        Some(rest) => host
            .strip_prefix("**.")
            .is_some_and(|own| own.eq_ignore_ascii_case(rest)),
        None => written.eq_ignore_ascii_case(host),
    }
}

/// A host pattern as people write it.
pub(crate) fn written(host: &Host) -> &str {
    let text = host.name();
    match text.starts_with("**.") {
        true => &text[1..],
        false => text,
    }
}

/// The patterns that cover all that a pattern covers, without itself, the narrowest first.
pub(crate) fn broader(host: &Host) -> Vec<Host> {
    each_broader(host).collect()
}

/// The same, each of them made when it is asked for.
pub(crate) fn each_broader(host: &Host) -> impl Iterator<Item = Host> {
    let text = host.as_str();
    let rest = text.trim_start_matches("**.").trim_start_matches("*.");
    // A single-label wildcard lies within the pattern of its own suffix.
    let own = text.starts_with("*.").then_some(rest);
    let dots = rest.match_indices('.');
    let suffixes = dots.filter_map(move |(at, _)| rest.get(at + 1..));
    let suffixes = own.into_iter().chain(suffixes);
    let wildcards = suffixes.filter_map(|suffix| Host::parse(&format!("**.{suffix}")).ok());
    wildcards.chain((text != "*").then(Host::any))
}

/// A host of a Gateway's server: who may bind to it, and the pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServerHost<'a> {
    /// A namespace, `.` or `*`.
    pub namespace: &'a str,
    /// The pattern as written.
    pub host: &'a str,
}

impl<'a> ServerHost<'a> {
    /// Reads `host` or `namespace/host`.
    pub(crate) fn read(text: &'a str) -> Self {
        let (namespace, host) = text.split_once('/').unwrap_or(("*", text));
        ServerHost { namespace, host }
    }

    /// Whether objects of a namespace may bind to it, at a Gateway of another.
    pub(crate) fn admits(&self, namespace: &str, own: &str) -> bool {
        match self.namespace {
            "*" => true,
            "." => namespace == own,
            only => namespace == only,
        }
    }
}

/// Whether a text is longer than the name of any object with its namespace.
pub(crate) fn is_too_long(text: &str) -> bool {
    text.len() > ID_BYTES_MAX
}

/// Whether a text is the name of an object or a namespace as an API server has them. Where objects
/// of Gateway API name others any text may stand, and names become parts of longer ones.
pub(crate) fn is_object_name(text: &str) -> bool {
    let is_of_name = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.')
    };
    !text.is_empty() && text.bytes().all(is_of_name)
}

/// The `namespace/name` of a Gateway that an object of a namespace names; none for the mesh.
pub(crate) fn gateway(text: &str, namespace: &str) -> Option<Arc<str>> {
    match text {
        "mesh" | "" => None,
        long if is_too_long(long) => None,
        full if full.contains('/') => match full.strip_prefix("./") {
            Some(name) => Some(format!("{namespace}/{name}").into()),
            None => Some(full.into()),
        },
        name => Some(format!("{namespace}/{name}").into()),
    }
}

/// Whether a text that an object of a namespace writes names a Gateway, or the mesh where that
/// is meant. Nothing is allocated, since each match asks on each host.
pub(crate) fn is_gateway(text: &str, namespace: &str, id: &str) -> bool {
    let named = match text.split_once('/') {
        None if text == MESH => return id == MESH,
        None if text.is_empty() => return false,
        None => (namespace, text),
        Some((".", name)) => (namespace, name),
        Some(_) => return text == id,
    };
    id.split_once('/') == Some(named)
}

/// Whether what an object exports is seen in a namespace, by the first of the entries.
pub(crate) fn is_exported(export_to: &[Box<str>], own: &str, namespace: &str) -> bool {
    export_to.is_empty()
        || first_names(export_to).iter().any(|to| match &**to {
            "*" => true,
            "." => own == namespace,
            "~" => false,
            only => only == namespace,
        })
}

/// The problem of namespaces beyond those that an object may export to.
pub(crate) fn judge_exports(key: &ObjectKey, export_to: &[Box<str>]) -> Option<Finding> {
    (export_to.len() > NAMES_MAX).then(|| {
        Finding::new(
            Severity::Error,
            key,
            format!("spec.exportTo[{NAMES_MAX}]"),
            format!(
                "has no effect, nor have those behind it: an object is exported to at most \
                 {NAMES_MAX} namespaces that it lists"
            ),
            "list fewer, or write \"*\" alone for all",
        )
    })
}

/// The `namespace/name` of the Service that a destination names: a short name is one of the
/// namespace of the object that names it, and the full form ends in the cluster's domain.
pub(crate) fn service(host: &str, namespace: &str, cluster_domain: &str) -> Option<String> {
    if !host.contains('.') {
        return (!host.is_empty()).then(|| format!("{namespace}/{host}"));
    }
    let rest = host.strip_suffix(cluster_domain)?.strip_suffix(".svc.")?;
    let (name, of) = rest.split_once('.')?;
    (!of.contains('.') && !name.is_empty() && !of.is_empty()).then(|| format!("{of}/{name}"))
}

/// The labels of a name that stand before the domain of Services, none of them for the domain
/// itself; `None` for a name outside of it. Istio's usual domain and `svc` alone, which resolvers
/// complete, are domains of Services whatever the cluster's own is.
pub(crate) fn before_domain<'a>(name: &'a str, cluster_domain: &str) -> Option<&'a str> {
    let before = |end: &str| match name.strip_suffix(end)? {
        "" => Some(""),
        rest => rest.strip_suffix('.'),
    };
    let of = |domain: &str| before(&format!("svc.{domain}"));
    of(cluster_domain)
        .or_else(|| of("cluster.local"))
        .or_else(|| before("svc"))
}

/// The full host of the Service of a `namespace/name`.
pub(crate) fn service_host(id: &str, cluster_domain: &str) -> String {
    let (namespace, name) = id.split_once('/').unwrap_or(("", id));
    format!("{name}.{namespace}.svc.{cluster_domain}")
}

/// The wildcards that cover a host as it is written in full, the narrowest first, without itself.
pub(crate) fn broader_texts(host: &str) -> impl Iterator<Item = String> {
    let rest = host.strip_prefix("*.").unwrap_or(host);
    let dots = rest
        .match_indices('.')
        .map(|(at, _)| format!("*.{}", &rest[at + 1..]));
    let any = (host != "*").then(|| "*".to_owned());
    dots.chain(any)
}

/// The host of a DestinationRule of a namespace in full and in lower case: a name without dots is
/// a Service of the namespace.
pub(crate) fn rule_host(host: &str, namespace: &str, cluster_domain: &str) -> String {
    let host = host.to_ascii_lowercase();
    match host.contains('.') || host.starts_with('*') {
        true => host,
        false => format!("{host}.{namespace}.svc.{cluster_domain}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        ServerHost, before_domain, broader, gateway, host, is_exported, is_gateway, is_host,
        service, written,
    };

    #[test]
    fn a_wildcard_stands_for_any_number_of_labels() {
        assert_eq!(host("*.Example.com").unwrap().as_str(), "**.example.com");
        assert_eq!(host("*").unwrap().as_str(), "*");
        assert!(host("**.example.com").is_err());
        assert!(host("a.*.com").is_err());
    }

    #[test]
    fn an_address_of_ipv6_is_one_host_in_whatever_form_it_is_written() {
        let found = host("2001:DB8:0::1").unwrap();
        assert_eq!(found.as_str(), "[2001:db8::1]");
        assert_eq!(written(&found), "2001:db8::1");
        assert_eq!(broader(&found).len(), 1);
        for text in ["2001:db8::1", "[2001:db8::1]", "2001:0DB8::0:1"] {
            assert!(is_host(text, &found), "{text}");
        }
        for text in ["2001:db8::2", "*", "*.example.com", "fe80::1%eth0"] {
            assert!(!is_host(text, &found), "{text}");
        }
        assert!(host("fe80::1%eth0").is_err());
        assert!(host("*.2001:db8::1").is_err());
    }

    #[test]
    fn broader_patterns_end_with_every_host() {
        let texts = |text: &str| {
            let found = broader(&myriad_model::Host::parse(text).unwrap());
            let texts: Vec<_> = found.iter().map(|host| host.to_string()).collect();
            texts.join(" ")
        };
        assert_eq!(texts("a.b.c"), "**.b.c **.c *");
        assert_eq!(texts("**.b.c"), "**.c *");
        assert_eq!(texts("*.b.c"), "**.b.c **.c *");
        assert_eq!(texts("c"), "*");
        assert_eq!(texts("*"), "");
    }

    #[test]
    fn a_server_says_who_may_bind() {
        assert!(ServerHost::read("a.example").admits("x", "y"));
        assert!(ServerHost::read("./a.example").admits("y", "y"));
        assert!(!ServerHost::read("./a.example").admits("x", "y"));
        assert!(ServerHost::read("x/a.example").admits("x", "y"));
        assert!(!ServerHost::read("z/a.example").admits("x", "y"));
    }

    #[test]
    fn names_are_completed_from_the_namespace() {
        assert_eq!(gateway("edge", "a").as_deref(), Some("a/edge"));
        assert_eq!(gateway("./edge", "a").as_deref(), Some("a/edge"));
        assert_eq!(gateway("b/edge", "a").as_deref(), Some("b/edge"));
        assert_eq!(gateway("mesh", "a"), None);
        assert_eq!(gateway(&"x".repeat(508), "a"), None);
        let full = |text| service(text, "a", "cluster.local");
        assert_eq!(full("web").as_deref(), Some("a/web"));
        assert_eq!(full("web.b.svc.cluster.local").as_deref(), Some("b/web"));
        assert_eq!(full("web.b"), None);
        assert_eq!(full("api.example.com"), None);
    }

    #[test]
    fn names_of_services_end_in_a_domain_of_services() {
        fn before(name: &str) -> Option<&str> {
            before_domain(name, "corp.example")
        }
        for end in ["svc.corp.example", "svc.cluster.local", "svc"] {
            assert_eq!(before(&format!("web.b.{end}")), Some("web.b"));
            assert_eq!(before(&format!("b.{end}")), Some("b"));
            assert_eq!(before(end), Some(""));
        }
        for name in [
            "web.b",
            "svc.com",
            "asvc",
            "web.b.corp.example",
            "cluster.local",
        ] {
            assert_eq!(before(name), None, "{name}");
        }
    }

    #[test]
    fn a_gateway_is_told_without_its_name_in_full() {
        let texts = [
            "edge", "./edge", "a/edge", "b/edge", "./b/edge", "/edge", "mesh", "./mesh",
        ];
        for text in texts.into_iter().chain(["", "a/mesh", "a/b/edge"]) {
            let known = gateway(text, "a");
            for id in ["a/edge", "b/edge", "a/b/edge", "/edge", "a/mesh", "a/"] {
                let is_named = known.as_deref() == Some(id);
                assert_eq!(is_gateway(text, "a", id), is_named, "{text} {id}");
            }
            assert_eq!(is_gateway(text, "a", "mesh"), text == "mesh");
        }
    }

    #[test]
    fn exports_are_seen_where_they_say() {
        let to = |list: &[&str], namespace| {
            let list: Vec<Box<str>> = list.iter().map(|text| (*text).into()).collect();
            is_exported(&list, "own", namespace)
        };
        assert!(to(&[], "x") && to(&["*"], "x") && to(&["x"], "x") && to(&["."], "own"));
        assert!(!to(&["."], "x") && !to(&["y"], "x") && !to(&["~"], "own"));
        let many = |count: usize| [vec!["x"; count], vec!["*"]].concat();
        assert!(to(&many(255), "y") && !to(&many(256), "y"));
    }
}
