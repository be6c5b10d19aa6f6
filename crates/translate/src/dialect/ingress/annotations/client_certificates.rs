//! Certificates that clients are asked for on all hosts of an Ingress.

use std::sync::Arc;

use myriad_api::{Finding, Meta, Severity};
use myriad_model::{CertificateDemand, CertificateNeed, ClientAuth, ClientAuthMode, Host, Name};

use super::sheet::Sheet;
use super::{Blocked, Options, key_of, values};
use crate::engine::{Output, Reader, Unit, namespace_of};
use crate::regex;
use crate::resolve::CREDENTIAL_NAMESPACES;
use crate::resolve::facts::SecretContent;

/// The name of the annotation that names the Secret.
const SECRET: &str = "auth-tls-secret";

/// The name of the annotation that says which clients are served.
const NEED: &str = "auth-tls-verify-client";

/// The name of the annotation that has the regex of their subjects.
pub(crate) const SUBJECT: &str = "auth-tls-match-cn";

/// The others, which mean something beside the Secret alone.
const OTHERS: [&str; 5] = [
    NEED,
    SUBJECT,
    "auth-tls-verify-depth",
    "auth-tls-error-page",
    "auth-tls-pass-certificate-to-upstream",
];

/// The longest regex of subjects in bytes.
const SUBJECT_BYTES_MAX: usize = 1_024;

/// The most certificates between that of a client and an authority that may be asked for.
const DEPTH_MAX: u8 = 100;

/// `auth-tls-secret` and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificates {
    /// The Secret with the authorities, as `namespace/name`.
    secret: Arc<str>,
    need: CertificateNeed,
    depth: u8,
    /// A regex of subjects; empty for all.
    subject: Box<str>,
    error_page: Box<str>,
    is_passed_on: bool,
}

/// Reads which certificates clients are asked for. Where that cannot be told, nobody is let in.
pub(super) fn read(meta: &Meta, sheet: &mut Sheet<'_>, options: &mut Options) {
    let expected = "write \"on\", \"off\", \"optional\" or \"optional_no_ca\"";
    let need = sheet.read(NEED, expected, |value| match value {
        "on" => Some(Some(CertificateNeed::Verified)),
        "optional" => Some(Some(CertificateNeed::VerifiedIfAny)),
        "optional_no_ca" => Some(Some(CertificateNeed::AnyAuthority)),
        "off" => Some(None),
        _ => None,
    });
    // Without a word the strictest holds, and so it does with one that nobody understands.
    let Some(need) = need.unwrap_or(Some(CertificateNeed::Verified)) else {
        return;
    };
    let expected = "write NAMESPACE/NAME of a Secret";
    let secret = sheet.read_closing_hosts(SECRET, expected, |value| secret(value, meta));
    let expected = "write a number up to 100";
    let depth = sheet.read_closing_hosts("auth-tls-verify-depth", expected, |value| {
        let depth: u8 = value.parse().ok()?;
        (depth <= DEPTH_MAX).then_some(depth)
    });
    let is_costly = |value: &str| regex::is_costly(value.trim());
    let expected = match sheet.text(SUBJECT).is_some_and(is_costly) {
        true => regex::COSTLY_REMEDY,
        false => {
            "write a regex of up to 1024 bytes that begins with CN=, without look-around and \
             back-references"
        }
    };
    let subject = sheet.read_closing_hosts(SUBJECT, expected, |value| {
        let is_short = value.len() <= SUBJECT_BYTES_MAX && value.starts_with("CN=");
        (is_short && regex::compiles(value)).then(|| value.into())
    });
    let expected = "write a URL with http or https; paths of the host are not supported";
    let error_page = sheet.read("auth-tls-error-page", expected, |value| {
        let is_url = !value.starts_with('/') && !value.contains('$');
        values::location(value).filter(|_| is_url)
    });
    let is_passed_on = sheet.flag("auth-tls-pass-certificate-to-upstream");
    if sheet.text(SECRET).is_none() {
        lacks_secret(meta, sheet);
    }
    options.clients = secret.map(|secret| {
        Box::new(ClientCertificates {
            secret,
            need,
            depth: depth.unwrap_or(1).max(1),
            subject: subject.unwrap_or_default(),
            error_page: error_page.unwrap_or_default(),
            is_passed_on,
        })
    });
}

/// The Secret that a value names, of the namespace of the Ingress where it names none.
fn secret(value: &str, meta: &Meta) -> Option<Arc<str>> {
    let own = meta.key.namespace();
    let (namespace, name) = value.split_once('/').unwrap_or((own, value));
    let is_letter = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    let is_name = |text: &str| (1..=253).contains(&text.len()) && text.bytes().all(is_letter);
    (is_name(namespace) && is_name(name)).then(|| format!("{namespace}/{name}").into())
}

/// Closes, where something is said of certificates and nobody says who verifies them.
fn lacks_secret(meta: &Meta, sheet: &mut Sheet<'_>) {
    let Some(name) = OTHERS.iter().find(|name| sheet.text(name).is_some()) else {
        return;
    };
    let message = format!("has no {SECRET} beside it, so all paths of its hosts answer 503");
    let remedy = format!("add the annotation {SECRET}, or remove this one");
    let key = key_of(meta, name).unwrap_or(name);
    sheet.problem(Severity::Error, key, message, remedy);
    sheet.blocked = sheet.blocked.max(Blocked::Host);
}

impl ClientCertificates {
    /// The demand of the routes of a host; none, with a finding, where the Secret verifies nobody,
    /// so that they have to stay closed.
    pub fn demand(
        &self,
        reader: &mut Reader<'_>,
        meta: &Meta,
        host: &Host,
        output: &mut Output,
    ) -> Option<CertificateDemand> {
        let secret = &self.secret;
        let (problem, remedy) = match self.problem(reader, meta) {
            Some(problem) => problem,
            None => {
                // What is wrong with its authorities is told with it.
                output.needs.push(Unit::trust(secret.clone()));
                return Some(CertificateDemand {
                    trust: Name::new(secret.clone()),
                    need: self.need,
                    subject: self.subject.clone(),
                    error_page: self.error_page.clone(),
                    is_passed_on: self.is_passed_on,
                    spares_plain_text: false,
                });
            }
        };
        let message =
            format!("names Secret {secret}, which {problem}, so all paths of {host} answer 503");
        output
            .findings
            .push(finding(meta, Severity::Error, message, remedy));
        None
    }

    /// Why the Secret verifies nobody, and the remedy.
    fn problem(&self, reader: &mut Reader<'_>, meta: &Meta) -> Option<(String, String)> {
        let (secret, own) = (&self.secret, meta.key.namespace());
        // Whether it is there is its owner's business.
        if namespace_of(secret) != own && !reader.is_lent(secret, own) {
            return Some((
                format!("namespace {own} may not use"),
                format!(
                    "let the owner of the Secret add the namespace to its annotation \
                     {CREDENTIAL_NAMESPACES}, or name a Secret beside the Ingress"
                ),
            ));
        }
        let problem = match reader.held(secret) {
            Some(SecretContent::Authorities) => return None,
            Some(SecretContent::Users(_) | SecretContent::NoUser) => "has users and no authorities",
            None if reader.has_secret(secret) => "has no authorities in data[ca.crt]",
            None => "is not there",
        };
        let remedy = "create the Secret, of type Opaque, with the authorities in key ca.crt";
        Some((problem.to_owned(), remedy.to_owned()))
    }

    /// The request for certificates in the handshakes of a host.
    pub fn client_auth(&self) -> ClientAuth {
        ClientAuth {
            trust: Name::new(self.secret.clone()),
            mode: ClientAuthMode::Shown,
            subject_alt_names: Box::default(),
            key_hashes: Box::default(),
            certificate_hashes: Box::default(),
            depth: self.depth,
        }
    }

    /// The finding about an Ingress whose host ends no TLS, where it serves nobody.
    pub fn without_tls(&self, meta: &Meta, host: &Host) -> Option<Finding> {
        let message = format!(
            "asks the clients of {host} for certificates, and no spec.tls is for it, so that they \
             get 400"
        );
        let remedy = "name the host and a certificate for it in spec.tls";
        let is_needed = self.need == CertificateNeed::Verified;
        is_needed.then(|| finding(meta, Severity::Warning, message, remedy.to_owned()))
    }

    /// The finding about an Ingress whose host has other terms.
    pub fn conflict(meta: &Meta, host: &Host, older: &Meta) -> Finding {
        let message = format!(
            "is without effect for {host}, whose clients are asked for certificates as the older \
             {} says",
            older.key
        );
        let remedy = "write the same annotations auth-tls-* in both, or leave them to one of them";
        finding(meta, Severity::Error, message, remedy.to_owned())
    }
}

fn finding(meta: &Meta, severity: Severity, message: String, remedy: String) -> Finding {
    let key = key_of(meta, SECRET).unwrap_or(SECRET);
    let field = format!("metadata.annotations[{key}]");
    Finding::new(severity, &meta.key, field, message, remedy)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use myriad_api::{Meta, ObjectKey, ObjectKind};
    use myriad_model::CertificateNeed;

    use super::super::{Blocked, Defaults, Options};

    fn read(annotations: &[(&str, &str)]) -> (Options, usize) {
        let mut meta = Meta::new(ObjectKey::new(ObjectKind::Ingress, "shop", "web"));
        let pairs = annotations.iter().map(|(name, value)| {
            let key = format!("nginx.ingress.kubernetes.io/auth-tls-{name}");
            (key.into(), (*value).into())
        });
        meta.annotations = pairs.collect();
        let none = Defaults::default();
        let (options, problems) = super::super::read(&meta, &BTreeSet::new(), &none);
        (options, problems.len())
    }

    #[test]
    fn what_is_said_of_certificates_is_read_with_the_defaults_of_ingress_nginx() {
        let (options, problems) = read(&[("secret", "shop/ca")]);
        let asked = options.clients.as_deref().unwrap();
        assert_eq!((&*asked.secret, asked.depth), ("shop/ca", 1));
        assert_eq!(asked.need, CertificateNeed::Verified);
        assert!(options.restricts() && options.blocked == Blocked::No && problems == 0);
        let (options, problems) = read(&[
            ("secret", "ca"),
            ("verify-client", "optional_no_ca"),
            ("verify-depth", "3"),
            ("match-cn", "CN=(ann|bob)"),
            ("error-page", "https://a.example/help"),
            ("pass-certificate-to-upstream", "true"),
        ]);
        let asked = options.clients.unwrap();
        assert_eq!((&*asked.secret, asked.depth), ("shop/ca", 3));
        assert_eq!(asked.need, CertificateNeed::AnyAuthority);
        assert_eq!(&*asked.subject, "CN=(ann|bob)");
        assert_eq!(&*asked.error_page, "https://a.example/help");
        assert!(asked.is_passed_on && problems == 0);
    }

    #[test]
    fn what_cannot_be_read_closes_or_means_the_strictest() {
        for (name, value) in [
            ("secret", "a/b/c"),
            ("secret", ""),
            ("verify-depth", "deep"),
            ("verify-depth", "101"),
            ("match-cn", "ann"),
            ("match-cn", "CN=("),
            ("match-cn", "CN=(?=a)"),
        ] {
            let (options, problems) = match name {
                "secret" => read(&[(name, value)]),
                _ => read(&[("secret", "shop/ca"), (name, value)]),
            };
            assert_eq!(options.blocked, Blocked::Host, "{name}={value}");
            assert_eq!(problems, 1, "{name}={value}");
        }
        let (options, problems) = read(&[("secret", "shop/ca"), ("verify-client", "maybe")]);
        assert_eq!(options.clients.unwrap().need, CertificateNeed::Verified);
        assert_eq!((options.blocked, problems), (Blocked::No, 1));
        let (options, problems) = read(&[("secret", "shop/ca"), ("error-page", "/help")]);
        assert!(options.clients.unwrap().error_page.is_empty());
        assert_eq!((options.blocked, problems), (Blocked::No, 1));
    }

    #[test]
    fn nothing_is_asked_where_that_is_off_and_nobody_is_let_in_without_a_secret() {
        let (options, problems) = read(&[("verify-client", "off"), ("secret", "shop/ca")]);
        assert!(options.clients.is_none() && options.blocked == Blocked::No && problems == 0);
        let (options, problems) = read(&[("verify-client", "off")]);
        assert!(options.blocked == Blocked::No && problems == 0);
        for (name, value) in [
            ("verify-client", "on"),
            ("match-cn", "CN=ann"),
            ("pass-certificate-to-upstream", "true"),
            ("no-such", "x"),
        ] {
            let (options, problems) = read(&[(name, value)]);
            assert_eq!((options.blocked, problems), (Blocked::Host, 1), "{name}");
        }
    }
}
