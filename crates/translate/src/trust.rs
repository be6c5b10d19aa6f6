//! Trusts: the authorities in a Secret, which peers are verified against.

use std::sync::Arc;

use bytes::Bytes;
use myriad_api::{Finding, SecretProblem, Severity};
use myriad_model::{Name, Origin, OriginKind, Resource, TRUST_PARTS_MAX, Trust, Value};
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate};

use crate::engine::Reader;
use crate::output::Output;

/// Translates the authorities in one Secret. Those that cannot be read are left out, and a list
/// of revocations that cannot be read takes the whole trust with it: nobody is to be admitted
/// whose certificate it may name.
pub fn translate(reader: &mut Reader<'_>, id: &Arc<str>) -> Output {
    let mut output = Output::default();
    let Some(secret) = reader.trust(id) else {
        return output;
    };
    let key = &secret.meta.key;
    let mut say = |severity, field: &str, message: &str| {
        let remedy = "write certificates of authorities in PEM, and their lists beside them";
        output
            .findings
            .push(Finding::new(severity, key, field, message, remedy));
    };
    let trust = match &secret.trust {
        Ok(None) => return output,
        Ok(Some(trust)) => trust,
        Err(problem) => {
            let (field, message) = explain(problem);
            say(
                Severity::Error,
                field,
                &format!("{message}, so nobody is verified by it"),
            );
            return output;
        }
    };
    if trust.roots.len().max(trust.crls.len()) > TRUST_PARTS_MAX {
        let message = "has more than 1024 certificates or lists, so nobody is verified by it";
        say(Severity::Error, "data[ca.crt]", message);
        return output;
    }
    let is_root = |der: &&Bytes| X509Certificate::from_der(der).is_ok();
    let roots: Box<[Bytes]> = trust.roots.iter().filter(is_root).cloned().collect();
    let is_list = |der: &Bytes| CertificateRevocationList::from_der(der).is_ok();
    if roots.len() < trust.roots.len() {
        let message = "holds a certificate that cannot be parsed, and is left out";
        say(Severity::Warning, "data[ca.crt]", message);
    }
    if !trust.crls.iter().all(is_list) {
        let message = "holds a list that cannot be parsed, so nobody is verified by it";
        say(Severity::Error, "data[ca.crl]", message);
        return output;
    }
    if roots.is_empty() {
        return output;
    }
    let resource = Resource {
        origin: Origin {
            kind: OriginKind::Secret,
            id: key.id().clone(),
        },
        value: Value::Trust(Box::new(Trust {
            roots,
            crls: trust.crls.clone(),
        })),
    };
    output.resources.push((Name::new(id.clone()), resource));
    output
}

fn explain(problem: &SecretProblem) -> (&'static str, &'static str) {
    match problem {
        SecretProblem::OtherType => ("type", "is not kubernetes.io/tls or Opaque"),
        SecretProblem::Missing(_) => ("data[ca.crt]", "is missing"),
        SecretProblem::NotBase64("ca.crl" | "crl") => ("data[ca.crl]", "is not base64"),
        SecretProblem::NotBase64(_) => ("data[ca.crt]", "is not base64"),
        SecretProblem::NotPem("ca.crl" | "crl") => {
            ("data[ca.crl]", "holds no PEM block of a revocation list")
        }
        SecretProblem::NotPem(_) => ("data[ca.crt]", "holds no PEM block of a certificate"),
    }
}
