//! Handshakes by which a certificate authority finds out whose a name is (RFC 8737): they settle on
//! a protocol of their own, see a certificate with the answer, and end.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use myriad_model::ChallengeAnswer;
use rcgen::{CertificateParams, CustomExtension, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{Error, ServerConfig, crypto, version};

/// The protocol that these handshakes offer, and no other.
pub const PROTOCOL: &[u8] = b"acme-tls/1";

/// The certificate that gives an answer.
pub fn certificate(answer: &ChallengeAnswer) -> Option<CertifiedKey> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).ok()?;
    let host = answer.host.as_str();
    let name = address(host).map_or_else(|| host.to_owned(), |ip| ip.to_string());
    let mut params = CertificateParams::new([name]).ok()?;
    let hash = digest(&SHA256, answer.text.as_bytes());
    let extension = CustomExtension::new_acme_identifier(hash.as_ref());
    params.custom_extensions.push(extension);
    let certificate = params.self_signed(&key).ok()?;
    let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let key = any_supported_type(&der).ok()?;
    Some(CertifiedKey::new(vec![certificate.der().clone()], key))
}

/// The address that a name in the reverse zones is of, which is asked for in handshakes where the
/// certificate is one of an address (RFC 8738, section 6); none for any other name.
fn address(host: &str) -> Option<IpAddr> {
    if let Some(host) = host.strip_suffix(".in-addr.arpa") {
        let octets = host.rsplit('.').map(|label| label.parse::<u8>().ok());
        let octets: Vec<u8> = octets.collect::<Option<_>>()?;
        return Some(<[u8; 4]>::try_from(octets).ok()?.into());
    }
    let labels = host.strip_suffix(".ip6.arpa")?.rsplit('.');
    let digits = labels.map(|label| u8::from_str_radix(label, 16).ok().filter(|it| *it < 16));
    let digits: Vec<u8> = digits.collect::<Option<_>>()?;
    let digits = <[u8; 32]>::try_from(digits).ok()?;
    let whole = digits
        .iter()
        .fold(0, |sum, digit| (sum << 4) | u128::from(*digit));
    Some(Ipv6Addr::from(whole).into())
}

/// The configuration of a handshake that shows a certificate. Nothing can be resumed.
///
/// # Errors
/// The cryptography library lacks what every build has.
pub fn config(resolver: Arc<dyn ResolvesServerCert>) -> Result<Arc<ServerConfig>, Error> {
    let provider = Arc::new(crypto::aws_lc_rs::default_provider());
    let versions = [&version::TLS13, &version::TLS12];
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(&versions)?;
    let mut config = builder.with_no_client_auth().with_cert_resolver(resolver);
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use myriad_model::{ChallengeAnswer, ChallengeForm, Host};

    use super::{address, certificate};

    #[test]
    fn names_in_the_reverse_zones_are_those_of_addresses() {
        let v6 = "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa";
        for (host, found) in [
            ("7.2.0.192.in-addr.arpa", Some("192.0.2.7")),
            (v6, Some("2001:db8::1")),
            ("2.0.192.in-addr.arpa", None),
            ("7.2.0.300.in-addr.arpa", None),
            ("9.7.2.0.192.in-addr.arpa", None),
            ("1.ip6.arpa", None),
            ("192.0.2.7", None),
            ("a.example", None),
        ] {
            let found = found.map(|it| it.parse().unwrap());
            assert_eq!(address(host), found, "{host}");
        }
    }

    #[test]
    fn the_certificate_of_an_answer_names_the_address_and_not_its_name() {
        let answer = |host: &str| ChallengeAnswer {
            host: Host::parse(host).unwrap(),
            form: ChallengeForm::TlsAlpn,
            token: "t".into(),
            text: "t.k".into(),
        };
        let has = |host: &str, part: &[u8]| {
            let key = certificate(&answer(host)).unwrap();
            key.cert[0].windows(part.len()).any(|it| it == part)
        };
        // An address of four bytes among the names of the subject.
        assert!(has("7.2.0.192.in-addr.arpa", &[0x87, 4, 192, 0, 2, 7]));
        assert!(!has("7.2.0.192.in-addr.arpa", b"in-addr"));
        assert!(has("a.example", b"a.example"));
    }
}
