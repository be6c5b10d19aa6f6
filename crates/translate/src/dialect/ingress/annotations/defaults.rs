//! Defaults of all Ingresses from the ConfigMap of an ingress-nginx: they hold where an Ingress has
//! no annotation of its own. Keys that restrict access and are not honoured close paths.

use std::collections::BTreeSet;
use std::time::Duration;

use myriad_api::{ConfigMap, Finding, ObjectKey, Severity};
use myriad_model::SourceRanges;

use super::{Blocked, DENIED, Options, snippet, values};
use crate::settings::Hsts;

/// The longest list of names of headers, in bytes.
const LIST_BYTES_MAX: usize = 64 << 10;

/// Remedies for keys that are not honoured.
const ASK: &str = "have an AuthorizationPolicy of action CUSTOM ask";
const DENY: &str = "deny it by an AuthorizationPolicy of the gateway";
const OTHERWISE: &str = "restrict access in another way";

/// Keys that restrict and are not honoured, and what to do instead.
const CLOSING: [(&str, &str); 11] = [
    ("block-cidrs", DENY),
    ("block-referers", DENY),
    ("block-user-agents", DENY),
    (FIREWALL, OTHERWISE),
    (AUTH, ASK),
    ("http-snippet", OTHERWISE),
    ("location-snippet", OTHERWISE),
    ("main-snippet", OTHERWISE),
    (PLUGINS, OTHERWISE),
    ("proxy-set-headers", OTHERWISE),
    ("server-snippet", OTHERWISE),
];

/// The key of the service that is asked about every request.
const AUTH: &str = "global-auth-url";

/// The switch of a firewall.
const FIREWALL: &str = "enable-modsecurity";

/// The key that ConfigMaps of other programs may have as well.
const PLUGINS: &str = "plugins";

/// The key of the networks of clients that are admitted.
const SOURCES: &str = "whitelist-source-range";

/// The switch of redirects to HTTPS on all hosts.
const FORCE: &str = "force-ssl-redirect";

/// The switch of what browsers are asked about HTTPS.
const HSTS: &str = "hsts";

/// The time for which browsers are asked, in seconds, where the ConfigMap says none: that of
/// ingress-nginx.
const HSTS_AGE_S: u32 = 31_536_000;

/// Keys that mean something only where browsers are told to come by HTTPS.
const HSTS_PARTS: [&str; 3] = ["hsts-include-subdomains", "hsts-max-age", "hsts-preload"];

/// The key of the names of headers that may be set on responses.
const HEADERS: &str = "global-allowed-response-headers";

/// The switch of objects of other namespaces.
const CROSSING: &str = "allow-cross-namespace-resources";

/// Switches that say that balancers in front tell who a client is, and what says so here.
const BALANCERS: [(&str, &str); 2] = [
    ("use-forwarded-headers", "--trusted-hops"),
    (
        "use-proxy-protocol",
        "--proxy-protocol and --proxy-protocol-from",
    ),
];

/// Values for an Ingress whose annotations say nothing else.
#[derive(Debug, Default)]
pub struct Defaults {
    /// The values, in the form in which annotations are read.
    pub(super) options: Options,
    closed: Closed,
    /// Whether the ConfigMap says whether browsers are asked for HTTPS.
    says_hsts: bool,
    /// The names of headers that may be set on responses, in lower case; all where there is no
    /// ConfigMap.
    headers: Option<BTreeSet<String>>,
    /// Whether Ingresses may name objects of other namespaces.
    pub crosses_namespaces: bool,
}

/// Reasons for which paths have to stay closed.
#[derive(Clone, Copy, Debug, Default)]
struct Closed {
    /// One that holds for every Ingress.
    all: bool,
    /// A service that is asked about requests; Ingresses may do without.
    auth: bool,
    /// A firewall; Ingresses may do without.
    firewall: bool,
    /// An unreadable list of networks; Ingresses may have a list of their own.
    sources: bool,
    /// An unreadable list of networks that are denied; Ingresses may have a list of their own.
    denied: bool,
}

/// Parts of the defaults that the annotations of an Ingress replace.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Replaced {
    auth: bool,
    firewall: bool,
    /// Whether it lists the networks of its clients.
    pub(super) sources: bool,
    /// Whether it lists the networks of clients that are refused.
    pub(super) denied: bool,
}

impl Replaced {
    /// Takes note of an annotation.
    pub(super) fn note(&mut self, name: &str, value: &str) {
        let is_off = || values::boolean(value.trim()) == Some(false);
        match name {
            "enable-global-auth" => self.auth |= is_off(),
            FIREWALL => self.firewall |= is_off(),
            _ => {}
        }
    }
}

impl Defaults {
    /// Defaults while the ConfigMap is not there: nobody knows what it restricts, so all is closed.
    pub fn unknown() -> Self {
        Defaults {
            options: Options::default(),
            closed: Closed {
                all: true,
                ..Closed::default()
            },
            ..Defaults::default()
        }
    }

    /// Reads a ConfigMap; the findings name what of it is not honoured.
    pub fn read(map: &ConfigMap, ignored: &BTreeSet<String>) -> (Self, Vec<Finding>) {
        let mut reading = Reading {
            map,
            ignored,
            defaults: Defaults::default(),
            findings: Vec::new(),
        };
        reading.read_options();
        reading.read_sources();
        reading.read_hsts();
        reading.read_headers();
        reading.read_closing();
        reading.read_balancers();
        (reading.defaults, reading.findings)
    }

    /// These, with what browsers are asked where the ConfigMap leaves that open.
    pub fn asking(mut self, hsts: Option<Hsts>) -> Self {
        if !self.says_hsts {
            self.options.hsts = hsts;
        }
        self
    }

    /// Whether a header, in lower case, may be set on responses.
    pub fn admits_header(&self, name: &str) -> bool {
        let headers = self.headers.as_ref();
        headers.is_none_or(|headers| headers.contains(name))
    }

    /// The part of an Ingress that has to stay closed, given what its annotations replace.
    pub(super) fn blocked(&self, replaced: Replaced) -> Blocked {
        let closed = self.closed;
        let is_blocked = closed.all
            || (closed.auth && !replaced.auth)
            || (closed.firewall && !replaced.firewall)
            || (closed.sources && !replaced.sources)
            || (closed.denied && !replaced.denied);
        match is_blocked {
            true => Blocked::Paths,
            false => Blocked::No,
        }
    }
}

/// A warning about a ConfigMap that the settings do not name, where it looks like that of an
/// ingress-nginx and restricts access.
pub fn judge_unnamed(map: &ConfigMap, ignored: &BTreeSet<String>) -> Option<Finding> {
    let text = |key: &str| text_of(map, ignored, key);
    let is_closing = |key: &str| text(key).is_some_and(|text| restricting(key, text).is_some());
    let mut closing = CLOSING.iter().map(|(key, _)| *key);
    let key = closing.find(|key| *key != PLUGINS && is_closing(key));
    let sources = || {
        [SOURCES, DENIED]
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

/// An error about the ConfigMap that the settings name, while it is not there.
pub fn judge_missing(key: &ObjectKey) -> Finding {
    Finding::new(
        Severity::Error,
        key,
        "",
        "is not there, and nobody knows what it restricts, so all paths of Ingresses answer 503",
        "create it, or serve without --nginx-configmap",
    )
}

/// A ConfigMap while it is read.
struct Reading<'a> {
    map: &'a ConfigMap,
    ignored: &'a BTreeSet<String>,
    defaults: Defaults,
    findings: Vec<Finding>,
}

impl<'a> Reading<'a> {
    fn read_options(&mut self) {
        let switch = "write \"true\" or \"false\"";
        if let Some(redirect) = self.value("ssl-redirect", switch, values::boolean) {
            self.defaults.options.ssl_redirect = redirect;
        }
        if let Some(redirect) = self.value(FORCE, switch, values::boolean) {
            self.defaults.options.force_ssl_redirect = redirect;
        }
        let expected = "write a number of bytes such as 8m, or 0 for no limit";
        if let Some(bytes) = self.value("proxy-body-size", expected, values::size) {
            self.defaults.options.request_body_bytes_max = bytes;
        }
        let expected = "write a number of seconds from 1";
        let mut timeout = |key: &'static str| {
            let seconds = self.value(key, expected, values::seconds)?;
            Some(Duration::from_secs(seconds.into()))
        };
        let connect = timeout("proxy-connect-timeout");
        let read = timeout("proxy-read-timeout");
        let send = timeout("proxy-send-timeout");
        let options = &mut self.defaults.options;
        options.connect_timeout = connect.unwrap_or(options.connect_timeout);
        options.read_timeout = read.unwrap_or(options.read_timeout);
        options.send_timeout = send.unwrap_or(options.send_timeout);
    }

    fn read_sources(&mut self) {
        if let Some(networks) = self.networks(SOURCES) {
            self.defaults.closed.sources = networks.is_none();
            self.defaults.options.sources_allowed = networks.unwrap_or_default();
        }
        if let Some(networks) = self.networks(DENIED) {
            self.defaults.closed.denied = networks.is_none();
            self.defaults.options.sources_denied = networks.unwrap_or_default();
        }
    }

    /// The list of networks of a key, if it is there; no list where it cannot be read, and a
    /// finding that says what to do instead.
    fn networks(&mut self, key: &'static str) -> Option<Option<SourceRanges>> {
        let text = self.text(key)?;
        // As people write the end of a list over several lines.
        let list = text.trim_end_matches(|end: char| end == ',' || end.is_whitespace());
        let is_short = values::is_short(list);
        if let Some(networks) = values::networks(list) {
            return Some(Some(networks));
        }
        let (what, remedy) = match is_short {
            true => (
                format!("is {}, which is not understood", values::quote(text)),
                "write networks such as 10.0.0.0/8, separated by commas",
            ),
            false => (values::too_long(), values::FEWER_NETWORKS),
        };
        let closed = "so the paths of all Ingresses without a list of their own answer 503";
        let message = format!("{what}, {closed}");
        self.find(Severity::Error, key, message, remedy);
        Some(None)
    }

    /// Nothing is asked unless the switch is there: browsers keep to it for a long time, and an
    /// ingress-nginx that never served a host by HTTPS never asked either.
    fn read_hsts(&mut self) {
        let switch = "write \"true\" or \"false\"";
        let is_on = self.value(HSTS, switch, values::boolean);
        self.defaults.says_hsts = is_on.is_some();
        if is_on != Some(true) {
            let lone = HSTS_PARTS.into_iter().find(|key| self.text(key).is_some());
            if let Some(key) = lone.filter(|_| self.text(HSTS).is_none()) {
                let message = "has no effect: browsers are asked only where hsts is \"true\"";
                let remedy = "add hsts: \"true\", where browsers shall be asked";
                self.find(Severity::Info, key, message, remedy);
            }
            return;
        }
        let [subdomains, age, preload] = HSTS_PARTS;
        let expected = "write a number of seconds";
        // An age that cannot be read is no reason to bind browsers for a year.
        let written = self.text(age).is_some();
        let age_max_s = match self.value(age, expected, |text| text.parse().ok()) {
            None if written => return,
            found => found.unwrap_or(HSTS_AGE_S),
        };
        let includes_subdomains = self.value(subdomains, switch, values::boolean);
        let is_preloaded = self.value(preload, switch, values::boolean);
        self.defaults.options.hsts = Some(Hsts {
            age_max_s,
            includes_subdomains: includes_subdomains == Some(true),
            is_preloaded: is_preloaded == Some(true),
        });
    }

    /// As with ingress-nginx, no header may be set where the ConfigMap names none.
    fn read_headers(&mut self) {
        let switch = "write \"true\" or \"false\"";
        let crosses = self.value(CROSSING, switch, values::boolean);
        self.defaults.crosses_namespaces = crosses == Some(true);
        let expected = "write names of headers, separated by commas, in 64 KiB";
        let names = self.value(HEADERS, expected, |text| {
            let is_list = text.len() <= LIST_BYTES_MAX && values::tokens(text).is_some();
            is_list.then(|| text.to_ascii_lowercase())
        });
        let names = names.unwrap_or_default();
        let names = names.split(',').map(|name| name.trim().to_owned());
        self.defaults.headers = Some(names.collect());
    }

    fn read_closing(&mut self) {
        for (key, instead) in CLOSING {
            let what = self.text(key).and_then(|text| restricting(key, text));
            let Some(what) = what else {
                continue;
            };
            let closed = &mut self.defaults.closed;
            let (closed, but) = match key {
                AUTH => (
                    &mut closed.auth,
                    " but those with enable-global-auth: \"false\"",
                ),
                FIREWALL => (
                    &mut closed.firewall,
                    " but those with enable-modsecurity: \"false\"",
                ),
                _ => (&mut closed.all, ""),
            };
            *closed = true;
            let message =
                format!("{what} is not supported, so the paths of all Ingresses{but} answer 503");
            let remedy = format!("{instead} and remove it, or name it in --ignore-annotations");
            self.find(Severity::Error, key, message, remedy);
        }
    }

    fn read_balancers(&mut self) {
        for (key, setting) in BALANCERS {
            if self.text(key).and_then(values::boolean) == Some(true) {
                let message = "is not read here: proxies are told by settings of their own";
                let remedy = format!(
                    "give them {setting}, or lists of networks are compared with addresses of \
                     balancers"
                );
                self.find(Severity::Info, key, message, remedy);
            }
        }
    }

    /// The value of a key; where it cannot be read, a finding that says what is expected.
    fn value<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        reader: impl Fn(&'a str) -> Option<T>,
    ) -> Option<T> {
        let text = self.text(key)?;
        let value = reader(text);
        if value.is_none() {
            let shown = values::quote(text);
            let message = format!("is {shown}, which is not understood, so it has no effect");
            self.find(Severity::Error, key, message, expected);
        }
        value
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        text_of(self.map, self.ignored, key)
    }

    fn find(
        &mut self,
        severity: Severity,
        key: &str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let object = &self.map.meta.key;
        let finding = Finding::new(severity, object, field(key), message, remedy);
        self.findings.push(finding);
    }
}

/// The value of a key; `None` where it is empty, which ingress-nginx takes for absent, or where it
/// shall be ignored.
fn text_of<'a>(map: &'a ConfigMap, ignored: &BTreeSet<String>, key: &str) -> Option<&'a str> {
    let text = map.get(key)?.trim();
    (!text.is_empty() && !ignored.contains(key)).then_some(text)
}

/// The way in which a key restricts access; `None` where its value does not.
fn restricting(key: &str, text: &str) -> Option<String> {
    if key.ends_with("-snippet") {
        let directive = snippet::restricting(text)?;
        return Some(format!("has {directive:?}, which may restrict access and"));
    }
    if key == FIREWALL && values::boolean(text) == Some(false) {
        return None;
    }
    Some("may restrict access and".to_owned())
}

fn field(key: &str) -> String {
    format!("data.{key}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use myriad_api::config_map::{CONFIG_MAP_KEYS, HeaderFields};
    use myriad_api::{ConfigMap, Meta, ObjectKey, ObjectKind};

    use super::{
        BALANCERS, Blocked, CLOSING, CROSSING, DENIED, Defaults, HEADERS, Hsts, Replaced, SOURCES,
        judge_unnamed, values,
    };

    fn map(pairs: &[(&str, &str)]) -> ConfigMap {
        let mut data: Vec<(Box<str>, Box<str>)> = pairs
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).into()))
            .collect();
        data.sort();
        ConfigMap {
            meta: Meta::new(ObjectKey::new(ObjectKind::ConfigMap, "ingress-nginx", "c")),
            data: data.into(),
            fields: HeaderFields::default(),
        }
    }

    fn read(pairs: &[(&str, &str)]) -> (Defaults, Vec<String>) {
        let (defaults, findings) = Defaults::read(&map(pairs), &BTreeSet::new());
        (defaults, findings.iter().map(ToString::to_string).collect())
    }

    fn replaced(annotations: &[(&str, &str)]) -> Replaced {
        let mut replaced = Replaced::default();
        for (name, value) in annotations {
            replaced.note(name, value);
        }
        replaced
    }

    #[test]
    fn every_key_that_is_kept_means_something() {
        let closing = CLOSING.iter().map(|(key, _)| *key);
        let balancers = BALANCERS.iter().map(|(key, _)| *key);
        let options = [
            "allow-cross-namespace-resources",
            "denylist-source-range",
            "force-ssl-redirect",
            "global-allowed-response-headers",
            "hsts",
            "hsts-include-subdomains",
            "hsts-max-age",
            "hsts-preload",
            "proxy-body-size",
            "proxy-connect-timeout",
            "proxy-read-timeout",
            "proxy-send-timeout",
            "ssl-redirect",
            "whitelist-source-range",
        ];
        let known: BTreeSet<&str> = closing.chain(balancers).chain(options).collect();
        let kept: BTreeSet<&str> = CONFIG_MAP_KEYS.into_iter().collect();
        assert_eq!(known, kept);
        let page = include_str!("../../../../../../docs/ingress.md");
        for key in kept {
            assert!(page.contains(&format!("`{key}`")), "{key}");
        }
    }

    #[test]
    fn what_restricts_closes_once_and_names_its_key() {
        for (key, value, closes) in [
            ("block-cidrs", "10.0.0.0/8", true),
            ("block-user-agents", "", false),
            ("enable-modsecurity", "true", true),
            ("enable-modsecurity", "false", false),
            ("global-auth-url", "http://auth.example/", true),
            ("http-snippet", "log_format own '$remote_addr';", false),
            ("http-snippet", "deny all;", true),
            ("location-snippet", "add_header A b;", false),
            ("main-snippet", "worker_rlimit_nofile 65536;", false),
            ("main-snippet", "include /etc/x;", true),
            ("proxy-set-headers", "n/headers", true),
            ("server-snippet", "if ($x) { return 403; }", true),
        ] {
            let (defaults, findings) = read(&[(key, value)]);
            let is_closed = defaults.blocked(Replaced::default()) == Blocked::Paths;
            assert_eq!(is_closed, closes, "{key}: {value}");
            assert_eq!(findings.len(), usize::from(closes), "{findings:?}");
            assert!(
                findings
                    .iter()
                    .all(|it| it.contains(&format!("data.{key}: ")))
            );
            let unnamed = judge_unnamed(&map(&[(key, value)]), &BTreeSet::new());
            assert_eq!(unnamed.is_some(), closes, "{key}: {value}");
            let ignored = BTreeSet::from([key.to_owned()]);
            let (defaults, findings) = Defaults::read(&map(&[(key, value)]), &ignored);
            let blocked = defaults.blocked(Replaced::default());
            assert_eq!((blocked, findings.len()), (Blocked::No, 0), "{key}");
        }
    }

    #[test]
    fn an_ingress_that_does_without_is_not_closed() {
        let (defaults, _) = read(&[("global-auth-url", "http://auth.example/")]);
        let closed = |annotations: &[(&str, &str)]| {
            defaults.blocked(replaced(annotations)) == Blocked::Paths
        };
        assert!(!closed(&[("enable-global-auth", "false")]));
        for value in ["true", "", "off"] {
            assert!(closed(&[("enable-global-auth", value)]), "{value:?}");
        }
        assert!(closed(&[("enable-modsecurity", "false")]));
        let (defaults, _) = read(&[("enable-modsecurity", "true")]);
        let without = replaced(&[("enable-modsecurity", "false")]);
        assert_eq!(defaults.blocked(without), Blocked::No);
        let unknown = Defaults::unknown();
        assert_eq!(unknown.blocked(without), Blocked::Paths);
    }

    #[test]
    fn lists_of_networks_have_a_bound_and_close_where_they_cannot_be_read() {
        let own = |key: &str| Replaced {
            sources: key == SOURCES,
            denied: key == DENIED,
            ..Replaced::default()
        };
        for (key, other) in [(SOURCES, DENIED), (DENIED, SOURCES)] {
            let (defaults, findings) = read(&[(key, "10.0.0.0/8,\n ::1,\n")]);
            let options = &defaults.options;
            let lists = [options.sources_allowed.len(), options.sources_denied.len()];
            assert_eq!(lists, if key == SOURCES { [2, 0] } else { [0, 2] });
            assert!(findings.is_empty());
            let long = "10.0.0.0/8,".repeat(values::NETWORKS_BYTES_MAX / 10);
            let many = "::1,".repeat(values::NETWORKS_MAX + 1);
            for list in [
                "10.0.0.0/8 192.0.2.1",
                "nonsense",
                long.as_str(),
                many.as_str(),
            ] {
                let (defaults, findings) = read(&[(key, list)]);
                let options = &defaults.options;
                assert!(options.sources_allowed.is_empty() && options.sources_denied.is_empty());
                assert_eq!(defaults.blocked(Replaced::default()), Blocked::Paths);
                assert_eq!(findings.len(), 1);
                assert_eq!(defaults.blocked(own(key)), Blocked::No);
                assert_eq!(defaults.blocked(own(other)), Blocked::Paths);
            }
        }
    }

    #[test]
    fn the_setting_holds_where_the_configmap_leaves_it_open() {
        let setting = Hsts::parse("max-age=7");
        for (pairs, wanted) in [
            (&[][..], setting),
            (&[("hsts", "yes")][..], setting),
            (&[("hsts", "false")][..], None),
            (
                &[("hsts", "true"), ("hsts-max-age", "8")][..],
                Hsts::parse("max-age=8"),
            ),
        ] {
            let defaults = read(pairs).0.asking(setting);
            assert_eq!(defaults.options.hsts, wanted, "{pairs:?}");
        }
    }

    #[test]
    fn browsers_are_asked_only_where_the_switch_is_on() {
        for (pairs, wanted, count) in [
            (&[][..], None, 0),
            (&[("hsts", "true")][..], Some("max-age=31536000"), 0),
            (&[("hsts", "false"), ("hsts-max-age", "5")][..], None, 0),
            (&[("hsts-max-age", "5")][..], None, 1),
            (&[("hsts", "yes")][..], None, 1),
            (&[("hsts", "true"), ("hsts-max-age", "a year")][..], None, 1),
            (
                &[("hsts", "true"), ("hsts-include-subdomains", "maybe")][..],
                Some("max-age=31536000"),
                1,
            ),
            (
                &[
                    ("hsts", "true"),
                    ("hsts-include-subdomains", "true"),
                    ("hsts-max-age", "5"),
                    ("hsts-preload", "true"),
                ][..],
                Some("max-age=5; includeSubDomains; preload"),
                0,
            ),
        ] {
            let (defaults, findings) = read(pairs);
            let told = defaults.options.hsts.map(|hsts| hsts.to_string());
            assert_eq!(told.as_deref(), wanted, "{pairs:?}");
            assert_eq!(findings.len(), count, "{findings:?}");
        }
    }

    #[test]
    fn headers_may_be_set_where_the_configmap_names_them() {
        assert!(Defaults::default().admits_header("x-a"));
        let (defaults, findings) = read(&[(HEADERS, "X-A, Cache-Control")]);
        assert!(defaults.admits_header("x-a") && defaults.admits_header("cache-control"));
        assert!(!defaults.admits_header("x-b") && findings.is_empty());
        for (pairs, count) in [(&[][..], 0), (&[(HEADERS, "X-A X-B")][..], 1)] {
            let (defaults, findings) = read(pairs);
            assert!(!defaults.admits_header("x-a") && !defaults.crosses_namespaces);
            assert_eq!(findings.len(), count);
        }
        assert!(read(&[(CROSSING, "true")]).0.crosses_namespaces);
    }

    #[test]
    fn what_looks_like_it_and_restricts_is_told_of() {
        let told = |pairs: &[(&str, &str)]| judge_unnamed(&map(pairs), &BTreeSet::new()).is_some();
        assert!(told(&[("whitelist-source-range", "10.0.0.0/8")]));
        assert!(told(&[("denylist-source-range", "10.0.0.0/8")]));
        assert!(told(&[("force-ssl-redirect", "true")]));
        for pairs in [
            &[][..],
            &[("plugins", "x")],
            &[("ssl-redirect", "true")],
            &[("force-ssl-redirect", "false")],
        ] {
            assert!(!told(pairs), "{pairs:?}");
        }
    }
}
