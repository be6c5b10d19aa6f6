//! The service that is asked whether requests of an Ingress may pass: where it is, and what it is
//! asked.

use std::cell::OnceCell;
use std::sync::Arc;

use myriad_api::config_map::HeaderFields;
use myriad_api::{BackendPort, Finding, IngressBackend, ObjectKey, Severity};
use myriad_model::{Host, Inquiry, Name, PathMatch, Policy, is_token, variables};

use super::annotations::owned::is_of_client;
use super::annotations::{AskedService, AskedUrl, Blocked, Defaults, INQUIRY_URL, Options, key_of};
use super::claimant::Claimant;
use super::headers;
use super::paths;
use super::serving::Serving;
use super::table::{Table, has_rule};
use crate::engine::{Output, Reader};
use crate::resolve::upstream::border::{Border, remedy};
use crate::resolve::upstream::{self, PortFound};

/// The fields that are told beside the original URL where a method is written, as by ingress-nginx.
const OF_METHOD: [(&str, &str); 2] = [("x-original-uri", "$request_uri"), ("x-scheme", "$scheme")];

/// The fate of the requests of an Ingress on a host.
pub(super) enum Inquired {
    /// Nobody is asked.
    Nobody,
    /// This service is.
    Service(Box<Inquiry>),
    /// It cannot be, so nothing may pass.
    Closed,
}

/// A problem, and the remedy.
type Problem = (String, &'static str);

/// The services that the Ingresses on a host have asked, in their order.
pub(super) fn of_claimants(
    reader: &mut Reader<'_>,
    host: &Host,
    claimants: &[Claimant],
    table: &Table<'_>,
    output: &mut Output,
) -> Vec<Inquired> {
    let serving = OnceCell::new();
    let all = claimants.iter();
    all.map(|claimant| {
        let options = &claimant.options;
        let asked = options.inquiry.as_deref();
        // A redirect goes before it, as in nginx: it says nothing of what is behind.
        let asked = asked.filter(|_| options.redirect.is_none() && !claimant.is_canary());
        // Of hosts that it has for TLS alone there may be thousands, and nothing to ask about.
        let Some(asked) = asked.filter(|_| has_rule(&claimant.ingress, host)) else {
            return Inquired::Nobody;
        };
        let scene = Scene {
            host,
            claimants,
            claimant,
            table,
            serving: &serving,
        };
        match scene.inquiry(reader, asked) {
            Ok(inquiry) => Inquired::Service(Box::new(inquiry)),
            Err(problem) => {
                // That of all is told of once, with the ConfigMap.
                if !asked.is_for_all {
                    output.findings.push(finding(claimant, problem));
                }
                Inquired::Closed
            }
        }
    })
    .collect()
}

impl Inquired {
    /// Makes the policy of a path ask. Whether it can be obeyed; otherwise nobody may be let in.
    pub(super) fn apply(&self, options: &Options, path: &PathMatch, policy: &mut Policy) -> bool {
        let asked = options.inquiry.as_deref();
        let is_spared = asked.is_some_and(|asked| asked.spares(paths::bare(path)));
        let inquiry = match self {
            Inquired::Nobody => return true,
            Inquired::Closed => return is_spared,
            Inquired::Service(inquiry) => inquiry,
        };
        // What the service may say of a client no client says itself, whoever lets it pass.
        if !inquiry.passed.is_empty() {
            let mut headers = policy.headers.take().unwrap_or_default();
            headers.request = headers.request.removing(inquiry.passed.iter().cloned());
            policy.headers = Some(headers);
        }
        policy.inquiry = (!is_spared).then(|| inquiry.clone());
        true
    }
}

/// The problem with the service that is asked for all Ingresses, where there is one.
pub(super) fn judge_for_all(
    reader: &mut Reader<'_>,
    defaults: &Defaults,
    map: &ObjectKey,
) -> Option<Finding> {
    let url = &defaults.service()?.url;
    let host = url.host.as_deref()?;
    let named = named_upstream(reader, (host, url), (map.namespace(), true));
    let (message, remedy) = named.err()?;
    let field = "data.global-auth-url";
    let message = format!("{message}, so the paths of Ingresses that are asked about answer 503");
    Some(Finding::new(Severity::Error, map, field, message, remedy))
}

/// The upstream of a host that a URL names: a Service, or one that DNS knows. It is named in a
/// namespace, or for all Ingresses.
fn named_upstream(
    reader: &mut Reader<'_>,
    (host, url): (&str, &AskedUrl),
    (own, is_for_all): (&str, bool),
) -> Result<Arc<str>, Problem> {
    let domain = &reader.settings().cluster_domain;
    match read_host(host, own, domain) {
        WrittenHost::Service(id) => {
            let port = service_port(reader, &id, url.port, (own, is_for_all))?;
            Ok(upstream::name(&id, port, url.protocol))
        }
        WrittenHost::Outside => match Border::of(reader).refusal_of_host(host, url.port) {
            Some(why) => Err((format!("names {host}, which is {why}"), remedy(why))),
            None => Ok(upstream::outside_name(own, host, url.port, url.protocol)),
        },
        WrittenHost::Unknown => Err((
            format!("names {host}, which is no Service of the cluster"),
            "name a Service in full, such as auth.sso.svc.cluster.local",
        )),
    }
}

/// An Ingress on a host that has a service asked.
struct Scene<'a, 't> {
    host: &'a Host,
    claimants: &'a [Claimant],
    claimant: &'a Claimant,
    table: &'t Table<'t>,
    /// The table by what serves a path, once one of them asks at the host itself.
    serving: &'a OnceCell<Serving<'t>>,
}

impl Scene<'_, '_> {
    fn inquiry(&self, reader: &mut Reader<'_>, asked: &AskedService) -> Result<Inquiry, Problem> {
        let options = &self.claimant.options;
        let url = &asked.url;
        let is_own = |host: &&str| *host == self.host.as_str() && !asked.is_for_all;
        let named = url.host.as_deref().filter(|host| !is_own(host));
        let upstream = match named {
            Some(host) => {
                let map = reader.settings().nginx_config_map.as_ref();
                let of_all = map.map(ObjectKey::namespace).filter(|_| asked.is_for_all);
                let own = of_all.unwrap_or(self.claimant.namespace());
                named_upstream(reader, (host, url), (own, asked.is_for_all))?
            }
            None => self.own_upstream(reader, url)?,
        };
        let told = self.told(reader, asked)?;
        Ok(Inquiry {
            upstream: Name::new(upstream),
            method: asked.method.clone().unwrap_or_else(|| "GET".into()),
            authority: told.authority.unwrap_or_else(|| url.authority.clone()),
            target: url.target.clone(),
            redirect: asked.redirect.clone(),
            fields: told.fields.into(),
            timeout: options.connect_timeout.saturating_add(options.read_timeout),
            passed: asked.passed.clone(),
            signin: asked.signin.clone(),
            always_sets_cookies: asked.always_sets_cookies,
            memory: asked.memory.clone(),
        })
    }

    /// The upstream behind a path of the same host, which the proxy serves itself: it asks no
    /// listener of its own.
    fn own_upstream(&self, reader: &mut Reader<'_>, url: &AskedUrl) -> Result<Arc<str>, Problem> {
        let advice = "write the path of a Service on the same host, in an Ingress of the same \
                      namespace that leads there as it is, or name the Service itself";
        let path = url.target.split('?').next().unwrap_or_default();
        if path.contains('$') {
            let message = "leads to a path of the same host that requests choose";
            return Err((message.to_owned(), advice));
        }
        let no_path = || {
            (
                format!("leads to {path} of the same host, which nobody serves"),
                advice,
            )
        };
        let serving = self.serving.get_or_init(|| {
            reader.count_entries(self.table.paths.len());
            Serving::of(self.table)
        });
        let entry = serving
            .entry(path)
            .map_err(|pattern| {
                let message = format!("leads to {path} of the same host, which {pattern} may take");
                (message, advice)
            })?
            .ok_or_else(no_path)?;
        let served_by = self
            .claimants
            .get(entry.main.claimant)
            .ok_or_else(no_path)?;
        let options = &served_by.options;
        let is_plain = options.rewrite.is_none()
            && options.redirect.is_none()
            && options.respond.is_none()
            && options.blocked == Blocked::No
            && !entry.is_closed;
        if !is_plain || served_by.namespace() != self.claimant.namespace() {
            let key = &served_by.ingress.meta.key;
            let message =
                format!("leads to {path} of the same host, which {key} does not serve as it is");
            return Err((message, advice));
        }
        let IngressBackend::Service { name, port } = entry.main.backend else {
            return Err(no_path());
        };
        let id = format!("{}/{name}", served_by.namespace());
        match reader.service_port(&id, port) {
            PortFound::Listed(number) | PortFound::Implied(number) => {
                Ok(upstream::name(&id, number, options.protocol))
            }
            PortFound::NoService | PortFound::NoPort => Err(no_path()),
        }
    }

    /// The fields that the service is told beside those of the client.
    fn told(&self, reader: &mut Reader<'_>, asked: &AskedService) -> Result<Told, Problem> {
        let usual = OF_METHOD.iter().filter(|_| asked.method.is_some());
        let usual = usual.map(|(name, value)| ((*name).into(), (*value).into()));
        let usual: Vec<(Box<str>, Box<str>)> = usual.collect();
        let Some(id) = asked.fields.as_deref() else {
            return Ok(Told {
                authority: None,
                fields: usual,
            });
        };
        let defaults = reader.ingress_defaults();
        let map = headers::find(reader, &self.claimant.ingress, id, &defaults);
        let map = map.map_err(|(what, remedy)| {
            let message = format!("is told fields of ConfigMap {id}, {what}");
            (message, remedy)
        })?;
        reader.count_text();
        let mut told = Told::read(&map.fields).map_err(|name| {
            let message = format!(
                "is told fields of ConfigMap {id}, whose entry {name:?} is none that can be told"
            );
            let remedy = "write names and values of fields, with variables that are known, none of \
                          the connection, of the client's address or of its certificate";
            (message, remedy)
        })?;
        for (name, value) in usual {
            if told.fields.iter().all(|(known, _)| *known != name) {
                told.fields.push((name, value));
            }
        }
        match told.fields.len() <= Inquiry::FIELDS_MAX {
            true => Ok(told),
            false => {
                let message = format!("is told more than {} fields", Inquiry::FIELDS_MAX);
                Err((message, "tell it fewer"))
            }
        }
    }
}

/// The fields that a service is told beside those of a client.
struct Told {
    /// The host that it is asked by, where that is said.
    authority: Option<Box<str>>,
    fields: Vec<(Box<str>, Box<str>)>,
}

/// A host as it is written in a URL.
#[derive(Debug, PartialEq, Eq)]
enum WrittenHost {
    /// A Service, by `namespace/name`.
    Service(String),
    /// One that DNS knows.
    Outside,
    /// One of the cluster that is none of a Service.
    Unknown,
}

fn read_host(host: &str, own: &str, domain: &str) -> WrittenHost {
    let inner = host.strip_suffix(domain);
    let inner = inner.and_then(|inner| inner.strip_suffix('.'));
    let is_of_cluster = inner.is_some();
    let inner = inner.unwrap_or(host);
    let Some((name, rest)) = inner.split_once('.') else {
        return match is_of_cluster {
            true => WrittenHost::Unknown,
            false => WrittenHost::Service(format!("{own}/{inner}")),
        };
    };
    match rest.strip_suffix(".svc") {
        Some(namespace) if !namespace.contains('.') => {
            WrittenHost::Service(format!("{namespace}/{name}"))
        }
        Some(_) => WrittenHost::Unknown,
        None if is_of_cluster || rest == "svc" => WrittenHost::Unknown,
        None if rest == own => WrittenHost::Service(format!("{own}/{name}")),
        None => WrittenHost::Outside,
    }
}

/// The port of a Service: of the own namespace, or one whose owner names this one, or any for who
/// runs the gateway. Of others it is not told whether they are there.
fn service_port(
    reader: &mut Reader<'_>,
    id: &str,
    port: u16,
    (own, is_for_all): (&str, bool),
) -> Result<u16, Problem> {
    let is_own = id.split('/').next() == Some(own);
    // Asked first: what becomes of a Service that is not for this namespace concerns it not.
    if !is_own && !is_for_all && !reader.is_exported_to(id, own) {
        return Err((
            format!("names Service {id}, which is not for namespace {own}"),
            "name a Service of the same namespace, or let the owner of that one name this \
             namespace in its annotation networking.istio.io/exportTo",
        ));
    }
    match reader.service_port(id, &BackendPort::Number(port)) {
        PortFound::Listed(number) | PortFound::Implied(number) => Ok(number),
        PortFound::NoService => Err((
            format!("names Service {id}, which is not there"),
            "create the Service, or correct the name",
        )),
        PortFound::NoPort => Err((
            format!("names port {port}, which Service {id} does not have"),
            "name a port of the Service's spec.ports",
        )),
    }
}

impl Told {
    /// Reads the entries of a ConfigMap.
    ///
    /// # Errors
    /// The name of an entry that cannot be told.
    fn read(fields: &HeaderFields) -> Result<Told, String> {
        let mut told = Told {
            authority: None,
            fields: Vec::new(),
        };
        for (name, value) in &fields.entries {
            let lower = name.to_ascii_lowercase().into_boxed_str();
            let is_short = |value: &&str| value.len() <= Inquiry::TEXT_BYTES_MAX;
            let value = value.as_deref().filter(is_short);
            let value = value.filter(|value| variables::are_known(value));
            let is_known = told.fields.iter().any(|(known, _)| *known == lower);
            let is_host = *lower == *"host";
            let is_field = is_token(name) && !is_known && (is_host || !is_of_client(&lower));
            let Some(value) = value.filter(|_| is_field) else {
                return Err(name.to_string());
            };
            if !is_host {
                told.fields.push((lower, value.into()));
                continue;
            }
            if value.is_empty() || !variables::are_of_urls(value) {
                return Err(name.to_string());
            }
            told.authority = Some(value.into());
        }
        Ok(told)
    }
}

fn finding(claimant: &Claimant, (message, remedy): Problem) -> Finding {
    let meta = &claimant.ingress.meta;
    let key = key_of(meta, INQUIRY_URL).unwrap_or(INQUIRY_URL);
    let field = format!("metadata.annotations[{key}]");
    let message = format!("{message}, so the paths of this Ingress answer 503");
    Finding::new(Severity::Error, &meta.key, field, message, remedy)
}

#[cfg(test)]
mod tests {
    use myriad_api::config_map::HeaderFields;

    use super::{Told, WrittenHost, read_host};

    #[test]
    fn hosts_are_services_or_known_to_dns() {
        let service = |id: &str| WrittenHost::Service(id.to_owned());
        for (host, wanted) in [
            ("auth", service("shop/auth")),
            ("auth.shop", service("shop/auth")),
            ("auth.shop.svc", service("shop/auth")),
            ("auth.sso.svc", service("sso/auth")),
            ("auth.sso.svc.cluster.local", service("sso/auth")),
            ("auth.sso", WrittenHost::Outside),
            ("auth.example.com", WrittenHost::Outside),
            ("svc.example.com", WrittenHost::Outside),
            ("a.b.sso.svc", WrittenHost::Unknown),
            ("auth.svc", WrittenHost::Unknown),
            ("10-0-0-1.sso.pod.cluster.local", WrittenHost::Unknown),
            ("x.cluster.local", WrittenHost::Unknown),
        ] {
            assert_eq!(read_host(host, "shop", "cluster.local"), wanted, "{host}");
        }
    }

    #[test]
    fn fields_that_cannot_be_told_are_named() {
        let read = |entries: &[(&str, Option<&str>)]| {
            let entries = entries.iter();
            let entries = entries.map(|(name, value)| ((*name).into(), value.map(Into::into)));
            Told::read(&HeaderFields {
                entries: entries.collect(),
                is_too_long: false,
            })
        };
        let told = read(&[
            ("Host", Some("$http_host")),
            ("X-A", Some("$cookie_a")),
            ("X-B", Some("")),
        ]);
        let told = told.expect("all of it can be told");
        assert_eq!(told.authority.as_deref(), Some("$http_host"));
        assert_eq!(told.fields.len(), 2);
        for (name, value) in [
            ("X A", Some("1")),
            ("X-A", None),
            ("X-A", Some("$uri")),
            ("Content-Length", Some("1")),
            ("CDN-Loop", Some("a")),
            ("X-Forwarded-For", Some("192.0.2.1")),
            ("SSL-Client-Verify", Some("SUCCESS")),
            ("Host", Some("")),
            ("Host", Some("$http_x")),
        ] {
            assert_eq!(read(&[(name, value)]).err().as_deref(), Some(name));
        }
    }
}
