//! Certificates of others, requests for own ones, and the names in them.

use std::sync::LazyLock;
use std::time::Duration;

use myriad_pki::{Authority, Identity, MeshAuthority};
use myriad_proxy::telemetry::workloads::Met;
use myriad_proxy::tls::client::peer;
use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// When all of it happens: 2027-01-15T08:00:00Z.
const NOW: i64 = 1_800_000_000;

/// The longest principal that is told of.
const PRINCIPAL_BYTES_MAX: usize = 2_048;

/// The text that is passed on of a client's certificate is one element of a header field, whatever
/// its names are, and its principal is one of its names.
pub(crate) fn peer_certificate(bytes: &[u8]) -> bool {
    let Some(peer) = peer(&CertificateDer::from(bytes), None) else {
        return false;
    };
    let is_plain = |byte: u8| (b' '..=b'~').contains(&byte);
    assert!(peer.forwarded.bytes().all(is_plain), "{}", peer.forwarded);
    let parts = parts(&peer.forwarded);
    assert!(parts.len() >= 3 + peer.dns_names.len());
    for part in &parts {
        let name = part.split('=').next().unwrap_or_default();
        assert!(
            ["Hash", "Subject", "URI", "DNS"].contains(&name),
            "{}",
            peer.forwarded
        );
    }
    let names = parts.iter().filter(|part| part.starts_with("DNS="));
    assert_eq!(names.count(), peer.dns_names.len());
    if let Some(met) = Met::read(bytes) {
        assert!(peer.uris.iter().any(|uri| **uri == *met.principal));
        assert!(met.principal.len() <= PRINCIPAL_BYTES_MAX);
        assert!(
            met.principal.starts_with("spiffe://") && !met.principal.contains(char::is_control)
        );
    }
    true
}

/// The parts of an element, told apart by semicolons that are not in quotes.
fn parts(element: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let (mut is_quoted, mut is_escaped) = (false, false);
    for letter in element.chars() {
        let is_plain = !std::mem::take(&mut is_escaped);
        match letter {
            '\\' if is_plain && is_quoted => is_escaped = true,
            '"' if is_plain => is_quoted = !is_quoted,
            ',' if !is_quoted => panic!("another element: {element}"),
            ';' if !is_quoted => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(part) = parts.last_mut() {
            part.push(letter);
        }
    }
    assert!(!is_quoted && !is_escaped, "{element}");
    parts
}

static AUTHORITY: LazyLock<Option<MeshAuthority>> = LazyLock::new(|| {
    let root = Authority::new("root", NOW).ok()?;
    MeshAuthority::of_root(&root).ok()
});

/// Whatever a request asks for, what is signed says who was proven to ask, and nothing else.
pub(crate) fn sign_request(bytes: &[u8]) -> bool {
    let (Some(authority), Ok(identity)) = (
        AUTHORITY.as_ref(),
        Identity::new("cluster.local", "shop", "web"),
    ) else {
        panic!("there is no authority");
    };
    let Ok(signed) = authority.sign(bytes, &identity, NOW, Duration::from_secs(3_600)) else {
        return false;
    };
    let leaf = signed.chain.first().map_or(&[][..], |leaf| leaf);
    let Ok((_, leaf)) = X509Certificate::from_der(leaf) else {
        panic!("what was signed cannot be read");
    };
    let names = leaf.subject_alternative_name().ok().flatten();
    let names = names.map(|names| &*names.value.general_names);
    let Some([GeneralName::URI(uri)]) = names else {
        panic!("it has other names: {names:?}");
    };
    assert_eq!(*uri, identity.uri());
    assert!(!leaf.is_ca() && leaf.subject().iter().next().is_none());
    let key = leaf.public_key().raw;
    assert!(bytes.windows(key.len()).any(|window| window == key));
    true
}

/// Two texts are never one identity.
pub(crate) fn identity(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    let Ok(identity) = Identity::parse(text) else {
        return false;
    };
    assert_eq!(identity.uri(), text);
    let again = Identity::new(
        identity.trust_domain(),
        identity.namespace(),
        identity.service_account(),
    );
    assert_eq!(again, Ok(identity));
    true
}
