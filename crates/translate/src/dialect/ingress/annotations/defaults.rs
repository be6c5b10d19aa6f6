//! Defaults of all Ingresses from the ConfigMap of an ingress-nginx: they hold where an Ingress has
//! no annotation of its own. Keys that restrict access and are not honoured close paths.

mod keys;
mod reading;

use std::collections::BTreeSet;

use myriad_api::{ConfigMap, Finding, ObjectKey, Severity};

use super::{AskedService, Blocked, Options, values};
use crate::settings::Hsts;

pub(crate) use keys::judge_unnamed;

use keys::FIREWALL;

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
    /// Whether it does without the service that is asked for all, or names one itself.
    pub(super) auth: bool,
    firewall: bool,
    /// Whether it lists the networks of its clients.
    pub(super) sources: bool,
    /// Whether it lists the networks of clients that are refused.
    pub(super) denied: bool,
}

impl Replaced {
    /// Takes note of an annotation.
    pub(super) fn note(&mut self, name: &str, value: &str) {
        let is_off = values::boolean(value.trim()) == Some(false);
        self.firewall |= name == FIREWALL && is_off;
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
        reading::read(map, ignored)
    }

    /// The same, with a setting's `Strict-Transport-Security` where the ConfigMap leaves that open.
    pub fn asking(mut self, hsts: Option<Hsts>) -> Self {
        if !self.says_hsts {
            self.options.hsts = hsts;
        }
        self
    }

    /// The service that is asked for all Ingresses.
    pub fn service(&self) -> Option<&AskedService> {
        self.options.inquiry.as_deref()
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

/// An error about the ConfigMap that the settings name, while it is not there.
pub(crate) fn judge_missing(key: &ObjectKey) -> Finding {
    Finding::new(
        Severity::Error,
        key,
        "",
        "is not there, and nobody knows what it restricts, so all paths of Ingresses answer 503",
        "create it, or serve without --nginx-configmap",
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use myriad_api::config_map::{CONFIG_MAP_KEYS, HeaderFields};
    use myriad_api::{ConfigMap, Meta, ObjectKey, ObjectKind};

    use super::keys::{BALANCERS, CLOSING, CROSSING, HEADERS, SOURCES};
    use super::{Blocked, Defaults, Hsts, Replaced, judge_unnamed, values};
    use crate::dialect::ingress::annotations::DENIED;

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
            trust: Ok(None),
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
            "global-auth-always-set-cookie",
            "global-auth-cache-duration",
            "global-auth-cache-key",
            "global-auth-method",
            "global-auth-request-redirect",
            "global-auth-response-headers",
            "global-auth-signin",
            "global-auth-signin-redirect-param",
            "global-auth-url",
            "hsts",
            "hsts-include-subdomains",
            "hsts-max-age",
            "hsts-preload",
            "no-auth-locations",
            "proxy-body-size",
            "proxy-connect-timeout",
            "proxy-read-timeout",
            "proxy-send-timeout",
            "ssl-redirect",
            "whitelist-source-range",
        ];
        let known: BTreeSet<&str> = closing.chain(balancers).chain(options).collect();
        // Some keys are those of the parameters of a GatewayClass.
        let kept = CONFIG_MAP_KEYS.into_iter();
        let kept = kept.filter(|key| !key.starts_with("myriad-gateway-"));
        let kept: BTreeSet<&str> = kept.collect();
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
            ("global-auth-snippet", "gzip on;", true),
            ("global-auth-url", "auth.example", true),
            ("global-auth-url", "https://$host/oauth2/auth", true),
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
        let (defaults, _) = read(&[("global-auth-url", "auth.example")]);
        let closed = |replaced| defaults.blocked(replaced) == Blocked::Paths;
        assert!(!closed(Replaced {
            auth: true,
            ..Replaced::default()
        }));
        assert!(closed(replaced(&[("enable-modsecurity", "false")])));
        let (defaults, _) = read(&[("enable-modsecurity", "true")]);
        let without = replaced(&[("enable-modsecurity", "false")]);
        assert_eq!(defaults.blocked(without), Blocked::No);
        let unknown = Defaults::unknown();
        assert_eq!(unknown.blocked(without), Blocked::Paths);
    }

    #[test]
    fn the_service_that_is_asked_for_all_is_read_as_a_whole_or_closes() {
        let url = (
            "global-auth-url",
            "http://auth.sso.svc/check?a=$request_uri",
        );
        let (defaults, findings) = read(&[
            url,
            ("global-auth-signin", "https://sso.example/start"),
            ("global-auth-signin-redirect-param", "next"),
            ("global-auth-response-headers", "X-User, X-Email"),
            ("global-auth-cache-key", "$cookie_s"),
            ("global-auth-always-set-cookie", "true"),
        ]);
        assert!(findings.is_empty(), "{findings:?}");
        let service = defaults.options.inquiry.as_deref().expect("it is asked");
        assert!(service.is_for_all && service.always_sets_cookies);
        assert!(
            service
                .signin
                .ends_with("?next=$scheme://$http_host$escaped_request_uri")
        );
        assert_eq!(service.passed.len(), 2);
        assert_eq!(service.memory.as_ref().map(|it| it.ages.len()), Some(3));
        assert!(service.spares("/.well-known/acme-challenge/x") && !service.spares("/"));
        assert_eq!(defaults.blocked(Replaced::default()), Blocked::No);
        let (defaults, findings) = read(&[url, ("global-auth-response-headers", "X User")]);
        assert_eq!(defaults.blocked(Replaced::default()), Blocked::Paths);
        assert!(defaults.options.inquiry.is_none() && findings.len() == 1);
        for (spared, path, is_spared) in [
            ("/a, /b", "/b/c", true),
            ("/a, /b", "/.well-known/acme-challenge/x", false),
            ("", "/.well-known/acme-challenge/x", false),
            ("a", "/a", false),
        ] {
            let (defaults, _) = read(&[url, ("no-auth-locations", spared)]);
            let service = defaults.options.inquiry.as_deref().expect("it is asked");
            assert_eq!(service.spares(path), is_spared, "{spared:?} {path}");
        }
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
