//! Reads the keys of the ConfigMap, with a finding for each that cannot be honoured.

use std::collections::BTreeSet;
use std::time::Duration;

use myriad_api::{ConfigMap, Finding, Severity};
use myriad_model::SourceRanges;

use super::Defaults;
use super::keys::{
    AUTH, AUTH_FIELDS, AUTH_SNIPPET, BALANCERS, CLOSING, CROSSING, FIREWALL, FORCE, HEADERS, HSTS,
    HSTS_PARTS, SOURCES, SPARED, field, restricting, text_of,
};
use crate::dialect::ingress::annotations::{AskedService, DENIED, inquiry, values};
use crate::settings::Hsts;

/// The longest list of names of headers, in bytes.
const LIST_BYTES_MAX: usize = 64 << 10;

/// The time for which browsers are asked, in seconds, where the ConfigMap says none: that of
/// ingress-nginx.
const HSTS_AGE_S: u32 = 31_536_000;

/// The starts of paths that the service of all is not asked about, where the ConfigMap says none.
const SPARED_USUALLY: &str = "/.well-known/acme-challenge";

/// The Ingresses that are closed where it cannot be asked.
const ALL_BUT: &str =
    "so the paths of all Ingresses but those with enable-global-auth: \"false\" answer 503";

/// Reads a ConfigMap; the findings name what of it is not honoured.
pub(super) fn read(map: &ConfigMap, ignored: &BTreeSet<String>) -> (Defaults, Vec<Finding>) {
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
    reading.read_inquiry();
    reading.read_closing();
    reading.read_balancers();
    (reading.defaults, reading.findings)
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

    /// The service that is asked for all Ingresses, where a key names one.
    fn read_inquiry(&mut self) {
        let Some(text) = self.text(AUTH) else {
            return;
        };
        let url = inquiry::url(text).filter(|url| url.host.is_some());
        let passed = self.text(AUTH_FIELDS);
        let passed = passed.map(|text| inquiry::fields(text).ok_or(text));
        let what = match (&url, passed) {
            (None, _) => Some((AUTH, text, inquiry::EXPECTED_URL)),
            (_, Some(Err(text))) => Some((AUTH_FIELDS, text, inquiry::EXPECTED_FIELDS)),
            (Some(_), _) => None,
        };
        if let Some((key, text, expected)) = what {
            self.defaults.closed.auth = true;
            let shown = values::quote(text);
            let message = format!("is {shown}, which is not understood, {ALL_BUT}");
            self.find(Severity::Error, key, message, expected);
            return;
        }
        let Some(url) = url else {
            return;
        };
        let mut service = AskedService::at(url);
        service.is_for_all = true;
        self.read_further(&mut service);
        self.defaults.options.inquiry = Some(Box::new(service));
    }

    /// All but where the service is. What cannot be read of it lets nobody pass.
    fn read_further(&mut self, service: &mut AskedService) {
        let names = self.text(AUTH_FIELDS);
        service.passed = names.and_then(inquiry::fields).unwrap_or_default();
        let expected = inquiry::EXPECTED_METHOD;
        service.method = self.value("global-auth-method", expected, inquiry::method);
        let parameter = self.value(
            "global-auth-signin-redirect-param",
            "write the name of a parameter, such as rd",
            values::token,
        );
        let parameter = parameter.unwrap_or(inquiry::PARAMETER);
        let expected = inquiry::EXPECTED_LOCATION;
        let signin = self.value("global-auth-signin", expected, |text| {
            inquiry::signin(text, parameter)
        });
        service.signin = signin.unwrap_or_default();
        let redirect = self.value("global-auth-request-redirect", expected, inquiry::redirect);
        if let Some(redirect) = redirect {
            service.redirect = redirect;
        }
        let switch = "write \"true\" or \"false\"";
        let always = self.value("global-auth-always-set-cookie", switch, values::boolean);
        service.always_sets_cookies = always == Some(true);
        let expected = inquiry::EXPECTED_KEY;
        let key = self.value("global-auth-cache-key", expected, inquiry::memory_key);
        let expected = inquiry::EXPECTED_DURATION;
        let ages = self.value("global-auth-cache-duration", expected, inquiry::ages);
        service.memory = key.and_then(|key| inquiry::remembered(key, ages));
        let spared = match self.text(SPARED) {
            Some(text) => text,
            // Written and empty, it spares none.
            None if self.map.get(SPARED).is_some() => "",
            None => SPARED_USUALLY,
        };
        let spared = spared.split(',').map(str::trim);
        let spared = spared.filter(|start| start.starts_with('/'));
        service.spared = spared.map(Into::into).collect();
    }

    fn read_closing(&mut self) {
        for (key, instead) in CLOSING {
            let what = self.text(key).and_then(|text| restricting(key, text));
            let Some(what) = what else {
                continue;
            };
            let closed = &mut self.defaults.closed;
            let (closed, but) = match key {
                AUTH_SNIPPET => (
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
