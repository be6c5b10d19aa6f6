//! TLS towards endpoints, as a BackendTLSPolicy of Gateway API says it.
//!
//! A policy that cannot be honoured closes the upstream: without it backends would be spoken to
//! without TLS, or by nobody's authority. So whoever leads to a Service reads only whose policy it
//! is, and a changed policy is translated once for all of them.

use std::net::IpAddr;
use std::sync::Arc;

use myriad_api::gateway::{
    BackendSubjectAltName, BackendTlsValidation, LocalObjectReference, SubjectAltNameKind,
};
use myriad_api::{Object, ObjectKind};
use myriad_model::host::Pattern;
use myriad_model::{Name, UpstreamTls};

use super::authority_names::{joined, of_config_map};
use super::names;
use crate::engine::{Reader, Unit};

/// The separator of a policy and a certificate in the names of upstreams. No name has a comma.
const AND: char = ',';

/// The BackendTLSPolicy that secures an upstream, as the upstream's name says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SecuredBy<'a> {
    /// The name of the policy, which is of the namespace of the Service.
    pub policy: &'a str,
    /// The certificate that is shown to endpoints; none for none.
    pub certificate: Option<&'a str>,
}

impl<'a> SecuredBy<'a> {
    /// Reads it as it is in names.
    pub(super) fn read(text: &'a str) -> Self {
        match text.split_once(AND) {
            Some((policy, certificate)) => SecuredBy {
                policy,
                certificate: Some(certificate),
            },
            None => SecuredBy {
                policy: text,
                certificate: None,
            },
        }
    }

    /// The text for names.
    pub(super) fn text(&self) -> String {
        match self.certificate {
            Some(certificate) => format!("{}{AND}{certificate}", self.policy),
            None => self.policy.to_owned(),
        }
    }
}

/// The server that a policy wants an endpoint to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WantedServer {
    /// The name that is asked for.
    name: Box<str>,
    /// The names of which its certificate must hold one, sorted; none for the name above.
    names: Box<[Box<str>]>,
}

/// Why nobody can tell who is to be believed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ValidationProblem {
    /// The field, from `spec.validation`.
    pub field: String,
    /// The problem, as a sentence about the field goes on.
    pub message: String,
}

/// The TLS of an upstream of a Service of a namespace, and what it needs; `None` where the policy
/// cannot be honoured, so that nobody may be reached.
pub(super) fn plan(
    reader: &mut Reader<'_>,
    namespace: &str,
    secured: SecuredBy<'_>,
) -> Option<(UpstreamTls, Vec<Unit>)> {
    let id = format!("{namespace}/{}", secured.policy);
    reader.read_object(ObjectKind::BackendTlsPolicy, &id);
    let Some(Object::BackendTlsPolicy(policy)) = reader.visit(ObjectKind::BackendTlsPolicy, &id)
    else {
        return None;
    };
    let written = policy.spec.validation.as_ref().ok()?;
    let server = server(written).ok()?;
    let mut needs = Vec::new();
    let trust = match written.well_known_ca_certificates {
        Some(_) => None,
        None => {
            let trust = trust(namespace, &written.ca_certificate_refs)?;
            needs.push(Unit::trust(trust.clone()));
            Some(Name::new(trust))
        }
    };
    let certificate = secured.certificate.map(Arc::<str>::from);
    needs.extend(certificate.clone().map(Unit::certificate));
    let tls = UpstreamTls {
        server_name: server.name,
        verify: true,
        trust,
        certificate: certificate.map(Name::new),
        subject_alt_names: server.names,
        ..UpstreamTls::unverified()
    };
    Some((tls, needs))
}

/// The name of the trust of all authorities that can be meant; none where there are none.
fn trust(namespace: &str, references: &[LocalObjectReference]) -> Option<Arc<str>> {
    let names = references.iter();
    let mut names: Vec<Arc<str>> = names.filter_map(|it| authority(namespace, it)).collect();
    names.sort_unstable();
    names.dedup();
    joined(namespace, &names)
}

/// The name of the trust of the authorities that a policy of a namespace names; none where they are
/// of a kind that holds no authorities, and where no object can have the name.
pub(crate) fn authority(namespace: &str, reference: &LocalObjectReference) -> Option<Arc<str>> {
    match (&*reference.group, &*reference.kind) {
        _ if !names::is_object_name(&reference.name) => None,
        ("", "ConfigMap") => Some(of_config_map(namespace, &reference.name)),
        ("", "Secret") => Some(format!("{namespace}/{}", reference.name).into()),
        _ => None,
    }
}

/// The server that is wanted, whoever vouches for it.
///
/// # Errors
/// Why nobody can tell.
pub(crate) fn server(written: &BackendTlsValidation) -> Result<WantedServer, ValidationProblem> {
    let known = written.well_known_ca_certificates.as_deref();
    match (known, written.ca_certificate_refs.is_empty()) {
        (Some("System"), true) | (None, false) => {}
        (None, true) => {
            let message = "is empty, and no authorities are well known either";
            return Err(problem("caCertificateRefs", message));
        }
        (Some(_), false) => {
            let message = "stands beside caCertificateRefs, and only one of them can be meant";
            return Err(problem("wellKnownCACertificates", message));
        }
        (Some(other), true) => {
            let message = format!("is {other}, and none but System is known");
            return Err(problem("wellKnownCACertificates", message));
        }
    }
    if !is_precise(&written.hostname) {
        return Err(problem("hostname", "is no DNS name"));
    }
    let mut names = Vec::with_capacity(written.subject_alt_names.len());
    for (at, name) in written.subject_alt_names.iter().enumerate() {
        let field = format!("subjectAltNames[{at}]");
        names.push(alt_name(name).map_err(|message| problem(field, message))?);
    }
    names.sort_unstable();
    names.dedup();
    Ok(WantedServer {
        name: written.hostname.to_ascii_lowercase().into(),
        names: names.into(),
    })
}

fn problem(field: impl Into<String>, message: impl Into<String>) -> ValidationProblem {
    ValidationProblem {
        field: field.into(),
        message: message.into(),
    }
}

/// A name as certificates are held against it.
fn alt_name(name: &BackendSubjectAltName) -> Result<Box<str>, &'static str> {
    let (hostname, uri) = (name.hostname.as_deref(), name.uri.as_deref());
    match (name.kind.known(), hostname, uri) {
        (Some(SubjectAltNameKind::Hostname), Some(text), _) if is_precise(text) => {
            Ok(text.to_ascii_lowercase().into())
        }
        (Some(SubjectAltNameKind::Hostname), Some(text), _) if text.starts_with("*.") => {
            Err("is a wildcard, which no certificate is held against")
        }
        (Some(SubjectAltNameKind::Hostname), ..) => Err("has no hostname that is a DNS name"),
        (Some(SubjectAltNameKind::Uri), _, Some(text)) if is_uri(text) => Ok(text.into()),
        (Some(SubjectAltNameKind::Uri), ..) => Err("has no uri with a scheme"),
        (None, ..) => Err("has a type that is neither Hostname nor URI"),
    }
}

/// Whether a text is a DNS name, and no wildcard.
fn is_precise(text: &str) -> bool {
    let host = names::host(text);
    host.is_ok_and(|host| matches!(host.pattern(), Pattern::Exact(_)))
}

/// Whether a text is a URI with a scheme, which no address or DNS name is.
fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    is_scheme && !rest.is_empty() && text.parse::<IpAddr>().is_err()
}

#[cfg(test)]
mod tests {
    use myriad_api::gateway::{
        BackendSubjectAltName, BackendTlsValidation, Choice, LocalObjectReference,
        SubjectAltNameKind,
    };

    use super::{SecuredBy, authority, server, trust};

    fn reference(group: &str, kind: &str, name: &str) -> LocalObjectReference {
        LocalObjectReference {
            group: group.into(),
            kind: kind.into(),
            name: name.into(),
        }
    }

    fn validation() -> BackendTlsValidation {
        BackendTlsValidation {
            ca_certificate_refs: [reference("", "ConfigMap", "ca")].into(),
            well_known_ca_certificates: None,
            hostname: "Web.example".into(),
            subject_alt_names: Box::default(),
        }
    }

    fn alt_name(kind: Choice<SubjectAltNameKind>, text: &str) -> BackendSubjectAltName {
        let is_uri = matches!(kind, Choice::Known(SubjectAltNameKind::Uri));
        BackendSubjectAltName {
            hostname: (!is_uri).then(|| text.into()),
            uri: is_uri.then(|| text.into()),
            kind,
        }
    }

    /// The field that is wrong, or the names that are wanted.
    fn read(change: impl FnOnce(&mut BackendTlsValidation)) -> Result<Vec<String>, String> {
        let mut written = validation();
        change(&mut written);
        let server = server(&written).map_err(|problem| problem.field)?;
        let names = std::iter::once(&server.name).chain(&server.names);
        Ok(names.map(|name| name.to_string()).collect())
    }

    #[test]
    fn a_name_says_what_secures_an_upstream() {
        for secured in [
            SecuredBy {
                policy: "web.tls",
                certificate: None,
            },
            SecuredBy {
                policy: "web",
                certificate: Some("edge/own"),
            },
        ] {
            assert_eq!(SecuredBy::read(&secured.text()), secured);
        }
    }

    #[test]
    fn authorities_are_named_or_those_of_the_system() {
        let of = |known: Option<&str>, has_references: bool| {
            read(|written| {
                written.well_known_ca_certificates = known.map(Into::into);
                if !has_references {
                    written.ca_certificate_refs = Box::default();
                }
            })
        };
        let web = Ok(vec!["web.example".to_owned()]);
        assert_eq!(of(None, true), web);
        assert_eq!(of(Some("System"), false), web);
        let known = Err("wellKnownCACertificates".to_owned());
        assert_eq!(of(Some("System"), true), known);
        assert_eq!(of(Some("example.com/ours"), false), known);
        assert_eq!(of(None, false), Err("caCertificateRefs".to_owned()));
    }

    #[test]
    fn a_server_is_asked_for_by_one_name() {
        for text in ["*.example", "", "a b", "-"] {
            let found = read(|written| written.hostname = text.into());
            assert_eq!(found, Err("hostname".to_owned()), "{text}");
        }
    }

    #[test]
    fn names_of_certificates_are_exact_ones_and_uris() {
        let host = || Choice::Known(SubjectAltNameKind::Hostname);
        let uri = || Choice::Known(SubjectAltNameKind::Uri);
        let found = read(|written| {
            written.subject_alt_names = [
                alt_name(uri(), "spiffe://a/ns/b/sa/c"),
                alt_name(host(), "B.example"),
                alt_name(host(), "b.example"),
            ]
            .into();
        });
        let wanted = ["web.example", "b.example", "spiffe://a/ns/b/sa/c"];
        assert_eq!(found, Ok(wanted.map(str::to_owned).to_vec()));
        for name in [
            alt_name(host(), "*.example"),
            alt_name(host(), ""),
            alt_name(uri(), "b.example"),
            alt_name(uri(), "a::1"),
            alt_name(uri(), ":x"),
            alt_name(uri(), "x:"),
            alt_name(Choice::Other("Email".into()), "a@b.example"),
            BackendSubjectAltName {
                kind: uri(),
                ..alt_name(host(), "b.example")
            },
        ] {
            let shown = format!("{name:?}");
            let good = alt_name(host(), "a.example");
            let found = read(|written| written.subject_alt_names = [good, name].into());
            assert_eq!(found, Err("subjectAltNames[1]".to_owned()), "{shown}");
        }
    }

    #[test]
    fn authorities_of_several_objects_are_one_trust() {
        let map = reference("", "ConfigMap", "ca");
        let secret = reference("", "Secret", "ca");
        let other = reference("example.com", "ConfigMap", "ca");
        assert_eq!(authority("shop", &secret).as_deref(), Some("shop/ca"));
        assert_eq!(authority("shop", &other), None);
        let both = [secret.clone(), map.clone(), other.clone(), map.clone()];
        let two = trust("shop", &both).expect("a trust");
        assert_eq!(trust("shop", &[map, secret]), Some(two));
        assert_eq!(trust("shop", &[other]), None);
    }

    #[test]
    fn a_name_that_no_object_has_becomes_no_part_of_another() {
        for name in [
            "ca,blog/ca",
            "ca+configmap",
            "a@b",
            "blog/ca",
            "ca#x",
            "Ca",
            "",
        ] {
            for kind in ["ConfigMap", "Secret"] {
                assert_eq!(
                    authority("shop", &reference("", kind, name)),
                    None,
                    "{name}"
                );
            }
        }
        assert!(authority("shop", &reference("", "Secret", "ca.v2-x")).is_some());
    }
}
