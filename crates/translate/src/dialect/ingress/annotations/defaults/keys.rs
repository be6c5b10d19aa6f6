//! Keys of the ConfigMap, and those of them that restrict access.

use std::collections::BTreeSet;

use myriad_api::{ConfigMap, Finding, Severity};

use crate::dialect::ingress::annotations::{DENIED, snippet, values};

/// Remedies for keys that are not honoured.
const DENY: &str = "deny it by an AuthorizationPolicy of the gateway";
const OTHERWISE: &str = "restrict access in another way";

/// Keys that restrict and are not honoured, and what to do instead.
pub(super) const CLOSING: [(&str, &str); 11] = [
    ("block-cidrs", DENY),
    ("block-referers", DENY),
    ("block-user-agents", DENY),
    (FIREWALL, OTHERWISE),
    (AUTH_SNIPPET, OTHERWISE),
    ("http-snippet", OTHERWISE),
    ("location-snippet", OTHERWISE),
    ("main-snippet", OTHERWISE),
    (PLUGINS, OTHERWISE),
    ("proxy-set-headers", OTHERWISE),
    ("server-snippet", OTHERWISE),
];

/// The key of the service that is asked about every request.
pub(super) const AUTH: &str = "global-auth-url";

/// The key of what nginx does beside asking it.
pub(super) const AUTH_SNIPPET: &str = "global-auth-snippet";

/// The key of the fields of its answer that endpoints get.
pub(super) const AUTH_FIELDS: &str = "global-auth-response-headers";

/// The key of the starts of paths that it is not asked about.
pub(super) const SPARED: &str = "no-auth-locations";

/// The switch of a firewall.
pub(super) const FIREWALL: &str = "enable-modsecurity";

/// The key that ConfigMaps of other programs may have as well.
const PLUGINS: &str = "plugins";

/// The key of the networks of clients that are admitted.
pub(super) const SOURCES: &str = "whitelist-source-range";

/// The switch of redirects to HTTPS on all hosts.
pub(super) const FORCE: &str = "force-ssl-redirect";

/// The switch of what browsers are asked about HTTPS.
pub(super) const HSTS: &str = "hsts";

/// Keys that mean something only where browsers are told to come by HTTPS.
pub(super) const HSTS_PARTS: [&str; 3] =
    ["hsts-include-subdomains", "hsts-max-age", "hsts-preload"];

/// The key of the names of headers that may be set on responses.
pub(super) const HEADERS: &str = "global-allowed-response-headers";

/// The switch of objects of other namespaces.
pub(super) const CROSSING: &str = "allow-cross-namespace-resources";

/// Switches that say that balancers in front tell who a client is, and what says so here.
pub(super) const BALANCERS: [(&str, &str); 2] = [
    ("use-forwarded-headers", "--trusted-hops"),
    (
        "use-proxy-protocol",
        "--proxy-protocol and --proxy-protocol-from",
    ),
];

/// A warning about a ConfigMap that the settings do not name, where it looks like that of an
/// ingress-nginx and restricts access.
pub(crate) fn judge_unnamed(map: &ConfigMap, ignored: &BTreeSet<String>) -> Option<Finding> {
    let text = |key: &str| text_of(map, ignored, key);
    let is_closing = |key: &str| text(key).is_some_and(|text| restricting(key, text).is_some());
    let mut closing = CLOSING.iter().map(|(key, _)| *key);
    let key = closing.find(|key| *key != PLUGINS && is_closing(key));
    let sources = || {
        [SOURCES, DENIED, AUTH]
            .into_iter()
            .find(|key| text(key).is_some())
    };
    let is_forced = || text(FORCE).and_then(values::boolean) == Some(true);
    let key = key
        .or_else(sources)
        .or_else(|| is_forced().then_some(FORCE))?;
    let object = &map.meta.key;
    Some(Finding::new(
        Severity::Warning,
        object,
        field(key),
        "looks like a setting of ingress-nginx that restricts access, and is not read",
        format!(
            "name the ConfigMap by --nginx-configmap={}, or leave it out",
            object.id()
        ),
    ))
}

/// The value of a key; `None` where it is empty, which ingress-nginx takes for absent, or where it
/// shall be ignored.
pub(super) fn text_of<'a>(
    map: &'a ConfigMap,
    ignored: &BTreeSet<String>,
    key: &str,
) -> Option<&'a str> {
    let text = map.get(key)?.trim();
    (!text.is_empty() && !ignored.contains(key)).then_some(text)
}

/// The way in which a key restricts access; `None` where its value does not.
pub(super) fn restricting(key: &str, text: &str) -> Option<String> {
    // As that of an annotation, it is there to restrict.
    if key.ends_with("-snippet") && key != AUTH_SNIPPET {
        return Some(snippet::told(Some(snippet::restricting(text)?)));
    }
    if key == FIREWALL && values::boolean(text) == Some(false) {
        return None;
    }
    Some(snippet::told(None))
}

/// The field of a finding about a key.
pub(super) fn field(key: &str) -> String {
    format!("data.{key}")
}
