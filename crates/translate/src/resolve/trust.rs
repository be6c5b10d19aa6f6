//! Trusts: the authorities or the users in a Secret, which others are verified against.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use myriad_api::secret::{Users as ApiUsers, UsersForm};
use myriad_api::{Finding, ObjectKey, SecretProblem, Severity, TrustDer};
use myriad_model::{
    Name, Origin, OriginKind, Resource, TRUST_PARTS_MAX, TRUST_SUBJECT_MAX, Trust, Users, Value,
};
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate};

use super::certificate::{RSA_BYTES_MAX, rsa_bytes};
use crate::engine::{Output, Reader};

/// The most bytes of the certificates and revocation lists of one trust, or of its users: as many
/// as a Secret of Kubernetes holds. Every proxy has them in memory, and verifiers of their own
/// beside.
const TRUST_BYTES_MAX: usize = 1 << 20;

/// Translates the authorities in one Secret, or its users. Authorities that cannot be read are left
/// out, and a list of revocations that cannot be read takes the whole trust with it: nobody is to
/// be admitted whose certificate it may name.
pub(crate) fn translate(reader: &mut Reader<'_>, id: &Arc<str>) -> Output {
    let mut output = Output::default();
    let Some(secret) = reader.trust(id) else {
        return output;
    };
    let key = &secret.meta.key;
    if let Ok(Some(trust)) = &secret.trust
        && trust.roots.is_empty()
    {
        return translate_users(key, id, &trust.users);
    }
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
    let (roots, unread, costly) = judge(&trust.roots);
    let is_list = |der: &Bytes| CertificateRevocationList::from_der(der).is_ok();
    if unread > 0 {
        let message = "holds a certificate that cannot be parsed, and is left out";
        say(Severity::Warning, "data[ca.crt]", message);
    }
    if !trust.crls.iter().all(is_list) {
        let message = "holds a list that cannot be parsed, so nobody is verified by it";
        say(Severity::Error, "data[ca.crl]", message);
        return output;
    }
    if costly > 0 {
        output.findings.push(told_as_costly(key, costly));
    }
    if roots.is_empty() {
        return output;
    }
    if let Some(message) = crowd(&roots) {
        let remedy = "leave out certificates of keys that sign no more, or give each authority a \
                      subject of its own";
        let field = "data[ca.crt]";
        let finding = Finding::new(Severity::Warning, key, field, message, remedy);
        output.findings.push(finding);
    }
    let trust = Trust {
        roots,
        crls: trust.crls.clone(),
        users: Users::default(),
    };
    output.resources.push(resource(key, id, trust));
    output
}

fn resource(key: &ObjectKey, id: &Arc<str>, trust: Trust) -> (Name, Resource) {
    let origin = Origin {
        kind: OriginKind::Secret,
        id: key.id().clone(),
    };
    let value = Value::Trust(Box::new(trust));
    (Name::new(id.clone()), Resource { origin, value })
}

/// Translates users. One whose hash nobody verifies by is left out, and so is not admitted.
fn translate_users(key: &ObjectKey, id: &Arc<str>, users: &ApiUsers) -> Output {
    let mut output = Output::default();
    let in_file = "data[auth]".to_owned();
    let mut say = |severity, field: String, message: String| {
        let remedy = "write it with htpasswd -B -C 10, as NAME:HASH";
        let finding = Finding::new(severity, key, field, message, remedy);
        output.findings.push(finding);
    };
    if let Some(message) = excess_of_users(users) {
        say(Severity::Error, in_file, message.to_owned());
        return output;
    }
    if users.unread > 0 {
        let message = format!(
            "has {} lines without a hash of a kind that is supported: their users are not admitted",
            users.unread
        );
        say(Severity::Warning, in_file.clone(), message);
    }
    let mut kept = Vec::new();
    for (name, hash) in users.expose() {
        let Err(problem) = Users::check_hash(hash) else {
            kept.push((name.clone(), hash.clone()));
            continue;
        };
        let field = match users.form {
            UsersForm::File => in_file.clone(),
            UsersForm::Map => format!("data[{name}]"),
        };
        let message = format!("has a hash for {name:?} that {problem}: the user is not admitted");
        say(Severity::Error, field, message);
    }
    if !kept.is_empty() {
        let trust = Trust {
            roots: Box::default(),
            crls: Box::default(),
            users: Users::new(kept),
        };
        output.resources.push(resource(key, id, trust));
    }
    output
}

/// Whether proxies can verify anybody by the users of a Secret.
pub(crate) fn are_usable(users: &ApiUsers) -> bool {
    let mut hashes = users.expose().iter().map(|(_, hash)| hash);
    excess_of_users(users).is_none() && hashes.any(|hash| Users::check_hash(hash).is_ok())
}

/// Why users are more than a trust may have; none where they are not.
fn excess_of_users(users: &ApiUsers) -> Option<&'static str> {
    let list = users.expose();
    let bytes: usize = list
        .iter()
        .map(|(name, hash)| name.len() + hash.len())
        .sum();
    if list.len() > Users::MAX {
        Some("has more than 10000 users, so none is admitted")
    } else if bytes > TRUST_BYTES_MAX {
        Some("has users and hashes of more than 1 MiB, so none is admitted")
    } else {
        None
    }
}

/// The authorities that others are verified by, how many cannot be read, and how many have keys
/// whose signatures take too long to verify: whoever shakes hands makes the proxy do that.
pub(super) fn judge(all: &[Bytes]) -> (Box<[Bytes]>, usize, usize) {
    let (mut unread, mut costly) = (0, 0);
    let roots = all.iter().filter(|der| {
        let Ok((_, root)) = X509Certificate::from_der(der) else {
            unread += 1;
            return false;
        };
        let is_costly = rsa_bytes(root.public_key()) > RSA_BYTES_MAX;
        costly += usize::from(is_costly);
        !is_costly
    });
    let roots = roots.cloned().collect();
    (roots, unread, costly)
}

pub(super) fn told_as_costly(key: &ObjectKey, count: usize) -> Finding {
    let message = format!(
        "holds {count} authorities with RSA keys longer than 4,096 bits, whose signatures take too \
         long to verify: they verify nobody"
    );
    let remedy = "trust an authority with a key of ECDSA, or of RSA with at most 4,096 bits";
    Finding::new(Severity::Warning, key, "data[ca.crt]", message, remedy)
}

/// Why authorities are more than a trust may have; none where they are not.
pub(super) fn excess(trust: &TrustDer) -> Option<&'static str> {
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

/// The subject of more authorities than count; none where all of them do. They count as verifiers
/// tell them apart: by key and constraints.
fn crowd(roots: &[Bytes]) -> Option<String> {
    let parsed = roots.iter().map(|der| X509Certificate::from_der(der));
    let parsed: Vec<_> = parsed.filter_map(Result::ok).collect();
    let mut known = HashMap::<_, HashSet<_>>::new();
    for (_, root) in &parsed {
        let mut extensions = root.extensions().iter();
        let constraints = extensions
            .find(|it| matches!(it.parsed_extension(), ParsedExtension::NameConstraints(_)));
        let constraints = constraints.map(|it| it.value);
        let of_subject = known.entry(root.subject().as_raw()).or_default();
        of_subject.insert((root.public_key().raw, constraints));
        if of_subject.len() > TRUST_SUBJECT_MAX {
            let subject = root.subject().to_string();
            return Some(format!(
                "has more than {TRUST_SUBJECT_MAX} authorities with the subject {subject:?}, and \
                 those behind the first {TRUST_SUBJECT_MAX} verify nobody"
            ));
        }
    }
    None
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
    use myriad_api::secret::{Users as ApiUsers, UsersForm};
    use myriad_api::{ObjectKey, ObjectKind, TrustDer};
    use myriad_model::{TRUST_PARTS_MAX, TRUST_SUBJECT_MAX, Users, Value};
    use rcgen::{
        CertificateParams, CertifiedIssuer, DnType, KeyPair, PKCS_RSA_SHA256, PublicKeyData,
        SignatureAlgorithm,
    };

    use super::{
        RSA_BYTES_MAX, TRUST_BYTES_MAX, are_usable, crowd, excess, judge, told_as_costly,
        translate_users,
    };

    const GOOD: &str = "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";

    fn users(form: UsersForm, hashes: &[&str]) -> ApiUsers {
        let named = hashes.iter().enumerate();
        let list = named.map(|(number, hash)| (format!("u{number}").into(), (*hash).into()));
        ApiUsers::new(form, list.collect())
    }

    #[test]
    fn users_are_bounded_and_those_whose_hash_is_bad_are_left_out() {
        let key = ObjectKey::new(ObjectKind::Secret, "shop", "users");
        let made = |users: &ApiUsers| translate_users(&key, key.id(), users);
        let costly = "$2y$14$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW";
        let some = users(UsersForm::Map, &[GOOD, costly]);
        assert!(are_usable(&some));
        let output = made(&some);
        let told: Vec<String> = output.findings.iter().map(ToString::to_string).collect();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("data[u1]") && told[0].contains("bcrypt"));
        // Nothing of a hash is ever told.
        assert!(!told[0].contains("abcdefgh") && !format!("{some:?}").contains("5en6"));
        let Value::Trust(trust) = &output.resources[0].1.value else {
            panic!("not a trust")
        };
        assert_eq!(trust.users.len(), 1);

        let bad = users(UsersForm::File, &[costly]);
        assert!(!are_usable(&bad) && made(&bad).resources.is_empty());
        let many = users(UsersForm::File, &vec![GOOD; Users::MAX]);
        assert!(are_usable(&many) && made(&many).findings.is_empty());
        // As many are kept of a Secret that has more.
        assert_eq!(ApiUsers::KEPT_MAX, Users::MAX + 1);
        let too_many = users(UsersForm::File, &vec![GOOD; ApiUsers::KEPT_MAX]);
        assert!(!are_usable(&too_many) && made(&too_many).resources.is_empty());
    }

    fn trust(roots: &[usize], crls: &[usize]) -> TrustDer {
        let parts = |lengths: &[usize]| -> Box<[Bytes]> {
            lengths.iter().map(|it| Bytes::from(vec![0; *it])).collect()
        };
        TrustDer {
            roots: parts(roots),
            crls: parts(crls),
            users: ApiUsers::default(),
        }
    }

    /// The public half of an RSA key that nobody has.
    struct Wide(Vec<u8>);

    impl Wide {
        fn of(bytes: usize) -> Self {
            let length = |count: usize| u16::try_from(count).unwrap().to_be_bytes();
            let modulus = [&[0][..], &vec![0xff; bytes][..]].concat();
            let numbers = [
                &[0x02, 0x82][..],
                &length(modulus.len())[..],
                &modulus[..],
                &[0x02, 3, 1, 0, 1][..],
            ]
            .concat();
            Wide([&[0x30, 0x82][..], &length(numbers.len())[..], &numbers[..]].concat())
        }
    }

    impl PublicKeyData for Wide {
        fn der_bytes(&self) -> &[u8] {
            &self.0
        }

        fn algorithm(&self) -> &'static SignatureAlgorithm {
            &PKCS_RSA_SHA256
        }
    }

    #[test]
    fn authorities_with_keys_that_take_too_long_to_verify_by_are_left_out_and_told() {
        let params = || CertificateParams::new(Vec::new()).unwrap();
        let issuer = CertifiedIssuer::self_signed(params(), KeyPair::generate().unwrap()).unwrap();
        let authority = |bytes: usize| {
            let made = params().signed_by(&Wide::of(bytes), &issuer).unwrap();
            Bytes::from(made.der().to_vec())
        };
        let longest = authority(RSA_BYTES_MAX);
        let small = Bytes::from(issuer.der().to_vec());
        let broken = Bytes::from_static(b"no");
        let all = [authority(1_024), longest.clone(), broken, small.clone()];
        let (roots, unread, costly) = judge(&all);
        assert_eq!((&*roots, unread, costly), (&[longest, small][..], 1, 1));
        let key = ObjectKey::new(ObjectKind::Secret, "shop", "ca");
        let told = told_as_costly(&key, costly).to_string();
        assert!(told.contains("longer than 4,096 bits"), "{told}");
    }

    #[test]
    fn authorities_of_one_subject_beyond_those_that_count_are_told() {
        let authority = |name: &str, key: &KeyPair| {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            Bytes::from(params.self_signed(key).unwrap().der().to_vec())
        };
        let key = || KeyPair::generate().unwrap();
        let mut roots: Vec<Bytes> = (0..TRUST_SUBJECT_MAX)
            .map(|_| authority("same", &key()))
            .collect();
        roots.push(authority("other", &key()));
        roots.push(roots[0].clone());
        assert_eq!(crowd(&roots), None);
        // A certificate that was made anew for a key that is there takes no place.
        let renewed = key();
        let many = [(); TRUST_SUBJECT_MAX + 1].map(|()| authority("renewed", &renewed));
        assert_eq!(crowd(&many), None);
        roots.push(authority("same", &key()));
        let told = crowd(&roots).unwrap();
        assert!(
            told.contains("more than 4") && told.contains("same"),
            "{told}"
        );
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
