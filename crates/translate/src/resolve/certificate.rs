//! Certificates: what a Secret must hold to be one, and what people should know about it.

use std::net::IpAddr;
use std::sync::Arc;

use myriad_api::secret::KeyEncoding as ApiEncoding;
use myriad_api::{Finding, KeyDer, Object, Secret, SecretProblem, Severity, TlsPair};
use myriad_model::{
    Certificate, Host, KeyEncoding, Name, Origin, OriginKind, PrivateKey, Resource, Value,
    host::Pattern,
};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use x509_parser::prelude::{
    FromDer, GeneralName, SubjectPublicKeyInfo, X509Certificate, X509Version,
};
use x509_parser::public_key::PublicKey;

use super::algorithm::KeyAlgorithm;
use super::lent::issuer_of;
use crate::engine::{Output, Reader};

/// The most certificates of one chain.
pub(crate) const CHAIN_LENGTH_MAX: usize = 16;

/// The most bytes of the modulus of an RSA key: 4,096 bits. Whoever shakes hands makes the proxy
/// sign, which takes 31 ms with 8,192 bits, and so much that a few clients take all of its time.
pub(super) const RSA_BYTES_MAX: usize = 512;

/// The most bytes of the certificates of a chain. Every handshake sends them, and the names of the
/// first are read, which are bounded by this too: each takes some of them.
const CHAIN_BYTES_MAX: usize = 64 << 10;

/// The bytes of memory that a name takes beside its text, about.
const NAME_BYTES: usize = 48;

/// How long before its end a certificate is warned about, in seconds: 14 days.
pub(crate) const EXPIRY_NOTICE_S: i64 = 14 * 24 * 60 * 60;

/// The last part of the life of a certificate that an issuer renews, in which it is warned about:
/// it is to be renewed twice as early.
const ISSUED_NOTICE_PART: i64 = 6;

/// The names that a certificate covers.
#[derive(Debug, PartialEq, Eq)]
pub enum Names {
    /// There is no certificate that can be read.
    Unreadable,
    /// The DNS names and addresses of the leaf as hosts have them, lower case and sorted, and the
    /// algorithm of its key.
    Listed(Vec<Box<str>>, KeyAlgorithm),
}

/// Why a chain and a key are no certificate that can be served.
struct Problem {
    field: &'static str,
    message: &'static str,
    remedy: &'static str,
}

impl Names {
    /// Whether a host pattern is covered whole.
    pub fn cover(&self, host: &Host) -> bool {
        let Names::Listed(names, _) = self else {
            return false;
        };
        let has = |name: &str| {
            let found = names.binary_search_by(|known| (**known).cmp(name));
            found.is_ok()
        };
        match host.pattern() {
            Pattern::Exact(name) => {
                let parent = name.split_once('.').map(|(_, parent)| parent);
                has(name) || parent.is_some_and(|parent| has(&format!("*.{parent}")))
            }
            Pattern::OneLabel(_) => has(host.as_str()),
            Pattern::AnyLabels(_) | Pattern::Any => false,
        }
    }

    /// The algorithm of the key, of those that are served.
    pub fn algorithm(&self) -> Option<KeyAlgorithm> {
        match self {
            Names::Unreadable | Names::Listed(_, KeyAlgorithm::Unknown) => None,
            Names::Listed(_, algorithm) => Some(*algorithm),
        }
    }

    /// The bytes of memory that they take, about.
    pub fn bytes(&self) -> usize {
        let names = match self {
            Names::Unreadable => &[][..],
            Names::Listed(names, _) => names.as_slice(),
        };
        let bytes = names.iter().map(|name| NAME_BYTES + name.len());
        NAME_BYTES + bytes.sum::<usize>()
    }
}

/// The names that the certificate in a Secret covers.
pub(crate) fn names(secret: &Secret) -> Names {
    let leaf = secret.tls.as_ref().ok().and_then(|pair| pair.chain.first());
    let leaf = leaf.filter(|leaf| leaf.len() <= CHAIN_BYTES_MAX);
    let Some(leaf) = leaf.and_then(|leaf| parse(leaf)) else {
        return Names::Unreadable;
    };
    let mut names = Vec::new();
    if let Ok(Some(extension)) = leaf.subject_alternative_name() {
        for name in &extension.value.general_names {
            match name {
                GeneralName::DNSName(name) => {
                    names.push(name.to_ascii_lowercase().into_boxed_str());
                }
                GeneralName::IPAddress(bytes) => names.extend(address(bytes)),
                _ => {}
            }
        }
    }
    names.sort_unstable();
    names.dedup();
    Names::Listed(names, KeyAlgorithm::of(leaf.public_key()))
}

/// The host of an address, by its bytes.
fn address(bytes: &[u8]) -> Option<Box<str>> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let v6 = || <[u8; 16]>::try_from(bytes).map(IpAddr::from);
    let address = v4.or_else(|_| v6()).ok()?;
    let host = Host::of_name(&address.to_string()).ok()?;
    Some(host.as_str().into())
}

/// Translates one Secret. `is_default` says that nobody else reports its absence.
pub(crate) fn translate(reader: &mut Reader<'_>, id: &Arc<str>, is_default: bool) -> Output {
    let mut output = Output::default();
    let Some(secret) = reader.secret(id) else {
        if is_default {
            output.findings.push(missing_default(id));
        }
        return output;
    };
    let key = &secret.meta.key;
    let checked = match &secret.tls {
        Ok(pair) => check(pair).map(|leaf| (pair, leaf)),
        Err(problem) => Err(explain(problem)),
    };
    match checked {
        Ok((pair, leaf)) => {
            let validity = leaf.validity();
            let (from, until) = (
                validity.not_before.timestamp(),
                validity.not_after.timestamp(),
            );
            let notice = match issuer_of(Some(&Object::Secret(secret.clone()))) {
                Some(_) => EXPIRY_NOTICE_S.min((until - from) / ISSUED_NOTICE_PART),
                None => EXPIRY_NOTICE_S,
            };
            let (finding, deadline) = judge_age(from, until, notice, reader.now());
            if let Some((message, remedy)) = finding {
                let field = "data[tls.crt]";
                let finding = Finding::new(Severity::Warning, key, field, message, remedy);
                output.findings.push(finding);
            }
            if leaf.version() == X509Version::V1 {
                output.findings.push(Finding::new(
                    Severity::Warning,
                    key,
                    "data[tls.crt]",
                    "is X.509 version 1, which names no host and no use: whoever verifies it, \
                     browsers and proxies of a mesh among them, refuses it",
                    "make it of version 3: openssl x509 -req with -extfile and a subjectAltName",
                ));
            }
            output.deadline = deadline;
            let resource = Resource {
                origin: Origin {
                    kind: OriginKind::Secret,
                    id: key.id().clone(),
                },
                value: Value::Certificate(Box::new(Certificate {
                    chain: pair.chain.clone(),
                    key: PrivateKey::new(encoding(&pair.key), pair.key.expose().clone()),
                })),
            };
            output.resources.push((Name::new(id.clone()), resource));
        }
        Err(problem) => {
            let Problem {
                field,
                message,
                remedy,
            } = problem;
            let finding = Finding::new(Severity::Error, key, field, message, remedy);
            output.findings.push(finding);
        }
    }
    output
}

/// The certificate in a Secret that the process has written itself; none that cannot be served.
pub(crate) fn own(secret: &Secret) -> Option<Certificate> {
    let pair = secret.tls.as_ref().ok()?;
    check(pair).ok()?;
    Some(Certificate {
        chain: pair.chain.clone(),
        key: PrivateKey::new(encoding(&pair.key), pair.key.expose().clone()),
    })
}

fn missing_default(id: &str) -> Finding {
    let (namespace, name) = id.split_once('/').unwrap_or(("", id));
    let key = myriad_api::ObjectKey::new(myriad_api::ObjectKind::Secret, namespace, name);
    Finding::new(
        Severity::Error,
        &key,
        "",
        "is the default certificate, but there is no such Secret",
        "create it, or name another Secret as default certificate",
    )
}

/// Why a Secret holds no certificate that can be served; none where it does.
pub(crate) fn fault(secret: &Secret) -> Option<&'static str> {
    let problem = match &secret.tls {
        Ok(pair) => check(pair).err(),
        Err(problem) => Some(explain(problem)),
    };
    problem.map(|problem| problem.message)
}

fn explain(problem: &SecretProblem) -> Problem {
    let (field, message) = match problem {
        SecretProblem::OtherType => ("type", "is not kubernetes.io/tls"),
        SecretProblem::Missing("tls.key" | "key") => ("data[tls.key]", "is missing"),
        SecretProblem::Missing(_) => ("data[tls.crt]", "is missing"),
        SecretProblem::NotBase64("tls.key" | "key") => ("data[tls.key]", "is not base64"),
        SecretProblem::NotBase64(_) => ("data[tls.crt]", "is not base64"),
        SecretProblem::NotPem("tls.key" | "key") => {
            ("data[tls.key]", "holds no PEM block of a private key")
        }
        SecretProblem::NotPem(_) => ("data[tls.crt]", "holds no PEM block of a certificate"),
    };
    Problem {
        field,
        message,
        remedy: "write it with kubectl create secret tls",
    }
}

/// Checks that a chain and a key can be served together, and returns the leaf.
fn check(pair: &TlsPair) -> Result<X509Certificate<'_>, Problem> {
    let problem = |field, message, remedy| Problem {
        field,
        message,
        remedy,
    };
    if pair.chain.len() > CHAIN_LENGTH_MAX {
        return Err(problem(
            "data[tls.crt]",
            "has a chain of more than 16 certificates",
            "leave only the leaf and the issuers up to the root",
        ));
    }
    if pair.chain.first().map_or(0, |leaf| leaf.len()) > CHAIN_BYTES_MAX {
        return Err(problem(
            "data[tls.crt]",
            "begins with a certificate of more than 64 KiB, which every handshake would send; it \
             is not served",
            "divide its names among several certificates, each in a Secret of its own",
        ));
    }
    if pair.chain.iter().map(|der| der.len()).sum::<usize>() > CHAIN_BYTES_MAX {
        return Err(problem(
            "data[tls.crt]",
            "has a chain of more than 64 KiB, which every handshake would send; it is not served",
            "leave only the leaf and the issuers up to the root",
        ));
    }
    let mut chain = pair.chain.iter().map(|der| parse(der));
    let leaf = chain.next().flatten();
    let (Some(leaf), true) = (leaf, chain.all(|issuer| issuer.is_some())) else {
        return Err(problem(
            "data[tls.crt]",
            "holds a certificate that cannot be parsed",
            "issue the certificate again",
        ));
    };
    let key = PrivateKey::new(encoding(&pair.key), pair.key.expose().clone());
    let Ok(key) = any_supported_type(&key.to_der()) else {
        return Err(problem(
            "data[tls.key]",
            "holds a private key that is broken or of a kind that is not supported",
            "use ECDSA (P-256, P-384, P-521), RSA (2048 to 4096 bits) or Ed25519",
        ));
    };
    let public = key.public_key();
    let parsed = public
        .as_ref()
        .and_then(|public| SubjectPublicKeyInfo::from_der(public).ok());
    let info = parsed.map(|(_, info)| info);
    if info.as_ref().map_or(0, rsa_bytes) > RSA_BYTES_MAX {
        return Err(problem(
            "data[tls.key]",
            "holds an RSA key of more than 4096 bits, with which each handshake takes so long \
             that a few clients stop all others; it is not served",
            "use ECDSA (P-256), or RSA of at most 4096 bits",
        ));
    }
    let fits = info.is_some_and(|info| {
        info.subject_public_key.data == leaf.public_key().subject_public_key.data
    });
    if !fits {
        return Err(problem(
            "data[tls.key]",
            "does not fit the first certificate in data[tls.crt]",
            "put the leaf first, and the key that it was issued for beside it",
        ));
    }
    Ok(leaf)
}

/// The length of an RSA key's modulus in bytes; 0 of any other key.
pub(super) fn rsa_bytes(info: &SubjectPublicKeyInfo<'_>) -> usize {
    let Ok(PublicKey::RSA(key)) = info.parsed() else {
        return 0;
    };
    // One in front says that the number is not negative.
    let zeroes = key.modulus.iter().take_while(|byte| **byte == 0).count();
    key.modulus.len() - zeroes
}

/// The finding about a certificate's age, and when that changes next.
fn judge_age(
    from: i64,
    until: i64,
    notice: i64,
    now: i64,
) -> (Option<(&'static str, &'static str)>, Option<i64>) {
    let begin = until.saturating_sub(notice);
    let deadline = [from, begin, until.saturating_add(1)]
        .into_iter()
        .filter(|deadline| *deadline > now)
        .min();
    let finding = if now > until {
        Some(("has expired and is still served", "renew the certificate"))
    } else if now < from {
        Some((
            "is not valid yet and is served all the same",
            "check its start date and the clock of this machine",
        ))
    } else if now >= until.saturating_sub(notice) {
        let message = match notice {
            EXPIRY_NOTICE_S => "expires within 14 days",
            _ => "has less than a sixth of its life left",
        };
        Some((
            message,
            "renew the certificate, or check why its renewal did not happen",
        ))
    } else {
        None
    };
    (finding, deadline)
}

fn parse(der: &[u8]) -> Option<X509Certificate<'_>> {
    let (rest, certificate) = X509Certificate::from_der(der).ok()?;
    // An extension that stands twice has no meaning; see RFC 5280, section 4.2.
    let is_sound = rest.is_empty() && certificate.subject_alternative_name().is_ok();
    is_sound.then_some(certificate)
}

fn encoding(key: &KeyDer) -> KeyEncoding {
    match key.encoding {
        ApiEncoding::Pkcs8 => KeyEncoding::Pkcs8,
        ApiEncoding::Pkcs1 => KeyEncoding::Pkcs1,
        ApiEncoding::Sec1 => KeyEncoding::Sec1,
    }
}

#[cfg(test)]
mod tests {
    use myriad_model::Host;
    use x509_parser::prelude::{FromDer, SubjectPublicKeyInfo};

    use myriad_api::secret::KeyEncoding;
    use myriad_api::{KeyDer, TlsPair};

    use super::{
        CHAIN_BYTES_MAX, EXPIRY_NOTICE_S, KeyAlgorithm, Names, RSA_BYTES_MAX, address, check,
        judge_age, rsa_bytes,
    };

    #[test]
    fn a_chain_is_bounded_as_a_whole() {
        let told = |lengths: &[usize]| {
            let chain = lengths.iter().map(|bytes| vec![0; *bytes].into());
            let pair = TlsPair {
                chain: chain.collect(),
                key: KeyDer::new(KeyEncoding::Pkcs8, Vec::new().into()),
            };
            check(&pair).map(|_| ()).unwrap_err().message
        };
        assert!(told(&[CHAIN_BYTES_MAX]).contains("cannot be parsed"));
        assert!(told(&[CHAIN_BYTES_MAX + 1]).contains("a certificate of more than 64 KiB"));
        assert!(told(&[1, CHAIN_BYTES_MAX - 1]).contains("cannot be parsed"));
        assert!(told(&[1, CHAIN_BYTES_MAX]).contains("a chain of more than 64 KiB"));
    }

    /// One value in DER.
    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
        let head = match content.len() {
            0..=127 => vec![tag, low],
            128..=255 => vec![tag, 0x81, low],
            _ => vec![tag, 0x82, high, low],
        };
        [&head[..], content].concat()
    }

    /// How long the modulus of an RSA key is found to be, whose bytes are these.
    fn found(modulus: &[u8]) -> usize {
        let numbers = [der(0x02, modulus), der(0x02, &[1, 0, 1])].concat();
        let key = der(0x03, &[&[0_u8][..], &der(0x30, &numbers)[..]].concat());
        let kind = b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01";
        let algorithm = der(0x30, &[der(0x06, kind), der(0x05, &[])].concat());
        let whole = der(0x30, &[algorithm, key].concat());
        let (_, info) = SubjectPublicKeyInfo::from_der(&whole).unwrap();
        rsa_bytes(&info)
    }

    #[test]
    fn rsa_keys_are_measured_to_the_bit_beyond_which_none_is_served() {
        let of = |first: &[u8], rest: usize| [first, &vec![0xff; rest][..]].concat();
        // 2,048 and 4,096 bits, and one more.
        assert_eq!(found(&of(&[0, 0x80], 255)), 256);
        assert_eq!(found(&of(&[0, 0x80], 511)), RSA_BYTES_MAX);
        assert_eq!(found(&of(&[1], 512)), RSA_BYTES_MAX + 1);
        assert_eq!(found(&of(&[0, 0xc0], 1_023)), 1_024);
    }

    #[test]
    fn age_is_judged_with_the_moment_of_its_next_change() {
        let until = 10 * EXPIRY_NOTICE_S;
        let cases = [
            (
                5,
                Some("is not valid yet and is served all the same"),
                Some(10),
            ),
            (10, None, Some(until - EXPIRY_NOTICE_S)),
            (
                until - EXPIRY_NOTICE_S,
                Some("expires within 14 days"),
                Some(until + 1),
            ),
            (until, Some("expires within 14 days"), Some(until + 1)),
            (until + 1, Some("has expired and is still served"), None),
        ];
        for (now, message, deadline) in cases {
            let (finding, next) = judge_age(10, until, EXPIRY_NOTICE_S, now);
            assert_eq!(finding.map(|(message, _)| message), message, "at {now}");
            assert_eq!(next, deadline, "at {now}");
        }
    }

    #[test]
    fn every_name_of_many_is_found() {
        let mut names: Vec<Box<str>> = (0..100).map(|at| format!("h{at}.test").into()).collect();
        names.sort_unstable();
        let names = Names::Listed(names, KeyAlgorithm::EcdsaP256);
        for at in 0..100 {
            let host = Host::parse(&format!("h{at}.test")).unwrap();
            assert!(names.cover(&host), "{at}");
        }
        assert!(!names.cover(&Host::parse("h100.test").unwrap()));
        assert!(names.bytes() > 100 * "h0.test".len());
    }

    #[test]
    fn an_address_covers_the_host_that_requests_name_it_by() {
        let v6 = "2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap();
        assert_eq!(address(&[192, 0, 2, 7]).as_deref(), Some("192.0.2.7"));
        let found = address(&v6.octets()).unwrap();
        let names = Names::Listed(vec![found], KeyAlgorithm::EcdsaP256);
        let covered = |text| names.cover(&Host::of_name(text).unwrap());
        assert!(covered("2001:db8::1") && !covered("2001:db8::2"));
        assert_eq!(address(&[1, 2, 3]), None);
    }

    #[test]
    fn a_wildcard_name_covers_one_label_and_its_own_pattern() {
        let names = vec!["*.example.com".into(), "a.example.org".into()];
        let names = Names::Listed(names, KeyAlgorithm::EcdsaP256);
        let covered = |text| names.cover(&Host::parse(text).unwrap());
        assert!(covered("b.example.com") && covered("*.example.com"));
        assert!(covered("a.example.org"));
        assert!(!covered("example.com") && !covered("a.b.example.com"));
        assert!(!covered("*.example.org"));
        assert!(!Names::Unreadable.cover(&Host::parse("a.example.org").unwrap()));
    }
}
