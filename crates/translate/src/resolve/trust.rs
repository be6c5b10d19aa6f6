//! Trusts: the authorities in a Secret, which peers are verified against.

use std::sync::Arc;

use bytes::Bytes;
use myriad_api::{Finding, SecretProblem, Severity, TrustDer};
use myriad_model::{Name, Origin, OriginKind, Resource, TRUST_PARTS_MAX, Trust, Users, Value};
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate};

use crate::engine::{Output, Reader};

/// The most bytes of the certificates and revocation lists of one trust: as many as a Secret of
/// Kubernetes holds. Every proxy has them in memory, and verifiers of their own beside.
const TRUST_BYTES_MAX: usize = 1 << 20;

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
    if let Some(message) = excess(trust) {
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
            users: Users::default(),
        })),
    };
    output.resources.push((Name::new(id.clone()), resource));
    output
}

/// Why authorities are more than a trust may have; none where they are not.
fn excess(trust: &TrustDer) -> Option<&'static str> {
    let parts = trust.roots.len().max(trust.crls.len());
    let all = trust.roots.iter().chain(&trust.crls);
    let bytes: usize = all.map(Bytes::len).sum();
    if parts > TRUST_PARTS_MAX {
        Some("has more than 1024 certificates or lists, so nobody is verified by it")
    } else if bytes > TRUST_BYTES_MAX {
        Some("has certificates and lists of more than 1 MiB, so nobody is verified by it")
    } else {
        None
    }
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use myriad_api::TrustDer;
    use myriad_model::TRUST_PARTS_MAX;

    use super::{TRUST_BYTES_MAX, excess};

    fn trust(roots: &[usize], crls: &[usize]) -> TrustDer {
        let parts = |lengths: &[usize]| -> Box<[Bytes]> {
            lengths.iter().map(|it| Bytes::from(vec![0; *it])).collect()
        };
        TrustDer {
            roots: parts(roots),
            crls: parts(crls),
        }
    }

    #[test]
    fn authorities_are_bounded_in_number_and_in_bytes() {
        let half = TRUST_BYTES_MAX / 2;
        assert_eq!(excess(&trust(&[half], &[half])), None);
        assert_eq!(excess(&trust(&[1; TRUST_PARTS_MAX], &[])), None);
        let told = |roots: &[usize], crls: &[usize]| excess(&trust(roots, crls)).unwrap();
        assert!(told(&[half, 1], &[half]).contains("1 MiB"));
        assert!(told(&[half], &[half, 1]).contains("1 MiB"));
        assert!(told(&[1; TRUST_PARTS_MAX + 1], &[]).contains("1024"));
        assert!(told(&[1], &[1; TRUST_PARTS_MAX + 1]).contains("1024"));
    }
}
