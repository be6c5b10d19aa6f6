//! TLS towards endpoints, as a DestinationRule says it.

use std::sync::Arc;

use myriad_api::istio::destination_rule::connection::{ClientTls, ClientTlsMode};
use myriad_model::{MeshTls, Name, UpstreamTls};

use super::policy_problem::PolicyProblem;
use super::policy_texts::{HOST_BYTES_MAX, NAMES_BYTES_MAX, alt_names};
use crate::engine::{Reader, Unit};

/// The remedy where files are named.
const CREDENTIAL: &str = "write credentialName, the name of a Secret of the gateway's namespace";

/// The remedy where a Secret is not lent.
const LEND: &str = "let the owner of the Secret add the namespace to its annotation \
                    myriad.dev/credential-namespaces, or set --gateway-credentials=any";

/// The TLS of connections to endpoints.
pub(super) enum TlsPlan {
    /// Plain text.
    Plain,
    /// TLS.
    Tls(UpstreamTls, Vec<Unit>),
    /// Mutual TLS of the mesh, with all endpoints.
    Mesh(UpstreamTls),
    /// Nobody is reached: what was asked for cannot be done, and less is not done.
    Closed,
}

/// Reads the settings of a rule of a namespace. The names are those of the host's ServiceEntry, for
/// rules without any.
pub(super) fn plan(
    reader: &mut Reader<'_>,
    written: &ClientTls,
    (namespace, names): (&str, &[Box<str>]),
) -> TlsPlan {
    let is_mutual = match written.mode {
        ClientTlsMode::Disable => return TlsPlan::Plain,
        ClientTlsMode::Simple => false,
        ClientTlsMode::Mutual => true,
        ClientTlsMode::IstioMutual => {
            return of_mesh(written).map_or(TlsPlan::Closed, TlsPlan::Mesh);
        }
    };
    if written.sni.len() > HOST_BYTES_MAX {
        return TlsPlan::Closed;
    }
    let has_files = !written.ca_certificates.is_empty()
        || !written.ca_crl.is_empty()
        || is_mutual && !(written.client_certificate.is_empty() && written.private_key.is_empty());
    if has_files || is_mutual && written.credential_name.is_empty() {
        return TlsPlan::Closed;
    }
    let mut tls = UpstreamTls {
        server_name: written.sni.clone(),
        verify: written.insecure_skip_verify != Some(true),
        ..UpstreamTls::unverified()
    };
    let mut needs = Vec::new();
    if let Some(name) = secret(written).filter(|_| is_used(written)) {
        let beside = reader.view().namespace();
        let secret = id(beside, name);
        if beside != namespace && !reader.may_use(&secret, namespace) {
            return TlsPlan::Closed;
        }
        if tls.verify {
            tls.trust = Some(Name::new(secret.clone()));
            needs.push(Unit::trust(secret.clone()));
        }
        if is_mutual {
            tls.certificate = Some(Name::new(secret.clone()));
            needs.push(Unit::certificate(secret));
        }
    }
    if tls.verify {
        let own = &written.subject_alt_names;
        let names = if own.is_empty() { names } else { own };
        let Some(names) = kept_names(names) else {
            return TlsPlan::Closed;
        };
        tls.subject_alt_names = names;
    }
    TlsPlan::Tls(tls, needs)
}

/// Names that are written go before those that are known.
fn of_mesh(written: &ClientTls) -> Option<UpstreamTls> {
    if written.sni.len() > HOST_BYTES_MAX {
        return None;
    }
    Some(UpstreamTls {
        server_name: written.sni.clone(),
        verify: true,
        subject_alt_names: kept_names(&written.subject_alt_names)?,
        mesh: MeshTls::All,
        ..UpstreamTls::unverified()
    })
}

/// The names of which certificates must hold one, sorted: fewer names let fewer in. None where they
/// are too long, since no names at all would let others in.
fn kept_names(written: &[Box<str>]) -> Option<Box<[Box<str>]>> {
    let mut names = alt_names(written)?.to_vec();
    names.sort_unstable();
    names.dedup();
    names.truncate(UpstreamTls::NAMES_MAX);
    Some(names.into())
}

/// The problems in the settings of a rule that only its namespace decides.
pub(super) fn judge(
    reader: &mut Reader<'_>,
    written: &ClientTls,
    own: &str,
    problems: &mut Vec<PolicyProblem>,
) {
    let is_name = !written.sni.contains('*') || written.sni.len() > HOST_BYTES_MAX;
    if written.mode != ClientTlsMode::Disable && !is_name {
        problems.push(PolicyProblem {
            field: "tls.sni".to_owned(),
            message: format!(
                "is {}, which is no name of a host, so handshakes name none",
                written.sni
            ),
            remedy: "write one name, for mutual TLS with a gateway any that its server covers",
            is_error: true,
        });
    }
    let mut closed = |field: &str, message: &str, remedy: &'static str| {
        problems.push(PolicyProblem {
            field: format!("tls.{field}"),
            message: format!("{message}, so its requests get 503"),
            remedy,
            is_error: true,
        });
    };
    if written.mode != ClientTlsMode::Disable {
        judge_texts(written, &mut closed);
    }
    match written.mode {
        ClientTlsMode::Disable => return,
        ClientTlsMode::IstioMutual if reader.settings().sidecars => return,
        ClientTlsMode::IstioMutual => {
            let message = "is ISTIO_MUTUAL, and this gateway is given no identity of a mesh";
            closed(
                "mode",
                message,
                "set --mesh, or write MUTUAL with a credentialName, or SIMPLE",
            );
            return;
        }
        ClientTlsMode::Simple | ClientTlsMode::Mutual => {}
    }
    let is_mutual = written.mode == ClientTlsMode::Mutual;
    judge_files(written, &mut closed);
    let name = secret(written);
    if is_mutual && name.is_none() {
        closed("credentialName", "is missing", CREDENTIAL);
    }
    if let Some(name) = name {
        judge_secret(reader, (own, name), is_used(written), &mut closed);
    }
    if name.is_some() && written.subject_alt_names.len() > UpstreamTls::NAMES_MAX {
        problems.push(PolicyProblem {
            field: "tls.subjectAltNames".to_owned(),
            message: format!(
                "has more than {} names; the rest is not read",
                UpstreamTls::NAMES_MAX
            ),
            remedy: "name fewer",
            is_error: true,
        });
    }
}

/// Texts that are longer than what they stand for, which no upstream has.
fn judge_texts(written: &ClientTls, closed: &mut impl FnMut(&str, &str, &'static str)) {
    if written.sni.len() > HOST_BYTES_MAX {
        let message = format!("has more than {HOST_BYTES_MAX} bytes, and so is no name of a host");
        closed("sni", &message, "write the name that the endpoints have");
    }
    let is_read =
        written.mode == ClientTlsMode::IstioMutual || written.insecure_skip_verify != Some(true);
    if is_read && alt_names(&written.subject_alt_names).is_none() {
        let message = format!("have more than {NAMES_BYTES_MAX} bytes together");
        closed("subjectAltNames", &message, "write fewer or shorter names");
    }
}

/// A Secret that no gateway finds, or that one finds and must not use for a rule of a namespace.
fn judge_secret(
    reader: &mut Reader<'_>,
    (own, name): (&str, &str),
    is_used: bool,
    closed: &mut impl FnMut(&str, &str, &'static str),
) {
    let (mut first, mut is_there, mut refused) = (None, false, None);
    // All are asked, so that what is read depends on nothing that is not.
    for beside in reader.namespaces() {
        let id = id(beside, name);
        if reader.has_secret(&id) {
            is_there = true;
            if is_used && beside != own && !reader.may_use(&id, own) {
                refused.get_or_insert(id);
            }
        } else {
            first.get_or_insert(id);
        }
    }
    if let Some(id) = refused {
        let message = format!("names Secret {id}, which namespace {own} may not use");
        closed("credentialName", &message, LEND);
    } else if let Some(id) = first.filter(|_| !is_there) {
        closed(
            "credentialName",
            &format!("names Secret {id}, which is not there"),
            "create the Secret in the gateway's namespace, or correct the name",
        );
    }
}

/// Files are nothing that a gateway has.
fn judge_files(written: &ClientTls, closed: &mut impl FnMut(&str, &str, &'static str)) {
    let is_mutual = written.mode == ClientTlsMode::Mutual;
    for (field, text, is_read) in [
        ("clientCertificate", &written.client_certificate, is_mutual),
        ("privateKey", &written.private_key, is_mutual),
        ("caCertificates", &written.ca_certificates, true),
        ("caCrl", &written.ca_crl, true),
    ] {
        if is_read && !text.is_empty() {
            let message = "is the path of a file, which no gateway has";
            closed(field, message, CREDENTIAL);
        }
    }
}

/// The name of the Secret that the settings name.
fn secret(written: &ClientTls) -> Option<&str> {
    let name = &*written.credential_name;
    (!name.is_empty()).then_some(name)
}

/// Whether the Secret that is named means anything.
fn is_used(written: &ClientTls) -> bool {
    written.mode == ClientTlsMode::Mutual || written.insecure_skip_verify != Some(true)
}

fn id(namespace: &str, name: &str) -> Arc<str> {
    format!("{namespace}/{name}").into()
}
