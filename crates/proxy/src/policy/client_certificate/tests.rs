use std::cell::Cell;
use std::sync::Arc;

use myriad_model::{
    CertificateDemand, CertificateNeed, ClientAuth, ClientAuthMode, KeyEncoding, PrivateKey,
};
use rustls::sign::CertifiedKey;

use super::{is_told_by, judge, tell};
use crate::failure::FailureKind;
use crate::pattern::{Budget, Pattern};
use crate::route::certificate::Parsed;
use crate::route::downstream_connection::{DownstreamConnection, Secured};
use crate::route::shown_certificate::{CertificateVerdict, ShownCertificate};

const VERIFIED: CertificateVerdict = CertificateVerdict::Verified;
const UNKNOWN: CertificateVerdict = CertificateVerdict::UnknownAuthority;
const EXPIRED: CertificateVerdict = CertificateVerdict::Failed("certificate has expired");

fn demand(need: CertificateNeed) -> CertificateDemand {
    CertificateDemand {
        trust: "shop/ca".into(),
        need,
        subject: Box::default(),
        error_page: Box::default(),
        is_passed_on: false,
        spares_plain_text: false,
    }
}

/// A certificate with this verdict, whose subject has common names at these places.
fn certificate(
    verdict: CertificateVerdict,
    subject: &str,
    common_names: &[usize],
) -> ShownCertificate {
    let mut shown = ShownCertificate::new(verdict, b"der");
    shown.subject = subject.into();
    shown.common_names = common_names.into();
    shown.issuer = "CN=them".into();
    shown
}

/// A connection whose handshake asked for a certificate of a trust.
fn visit(trust: &str, shown: Option<ShownCertificate>) -> DownstreamConnection {
    let key = rcgen::generate_simple_self_signed(vec!["x".to_owned()]).unwrap();
    let key = PrivateKey::new(KeyEncoding::Pkcs8, key.signing_key.serialize_der().into());
    let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key.to_der()).unwrap();
    let mut visit = plain();
    visit.secured = Some(Secured {
        sni: None,
        by_domain: true,
        is_mesh: false,
        settings: Arc::default(),
        certificate: Arc::new(Parsed {
            key: Arc::new(CertifiedKey::new(Vec::new(), key)),
            names: Default::default(),
        }),
        alternatives: Box::default(),
        client_auth: Some(Arc::new(ClientAuth {
            trust: trust.into(),
            mode: ClientAuthMode::Shown,
            subject_alt_names: Box::default(),
            key_hashes: Box::default(),
            certificate_hashes: Box::default(),
            depth: 1,
        })),
        peer: None,
        shown: shown.map(Box::new),
        version: "1.3",
        checked: Cell::new(0),
    });
    visit
}

fn plain() -> DownstreamConnection {
    DownstreamConnection::new("https".into(), ([127, 0, 0, 1], 1).into(), 443)
}

#[test]
fn who_is_served_follows_from_the_verdict_and_from_whose_it_is() {
    let needs = [
        CertificateNeed::Verified,
        CertificateNeed::VerifiedIfAny,
        CertificateNeed::AnyAuthority,
    ];
    let of = |verdict| Some(certificate(verdict, "", &[]));
    for (trust, shown, expected) in [
        ("shop/ca", of(VERIFIED), [true, true, true]),
        ("shop/ca", None, [false, true, true]),
        ("shop/ca", of(UNKNOWN), [false, false, true]),
        ("shop/ca", of(EXPIRED), [false, false, false]),
        // Whoever verified it, it was not who has to.
        ("other/ca", of(VERIFIED), [false, true, true]),
    ] {
        let told = format!("{trust} {:?}", shown.as_ref().map(|it| it.verdict));
        let visit = visit(trust, shown);
        let served = needs.map(|need| judge(&demand(need), None, &visit, &Budget::default()));
        let refused = Err(FailureKind::BadCertificate);
        let expected = expected.map(|it| if it { Ok(()) } else { refused });
        assert_eq!(served, expected, "{told}");
    }
}

#[test]
fn a_client_in_plain_text_has_shown_none() {
    let budget = Budget::default();
    let mut demand = demand(CertificateNeed::Verified);
    let refused = Err(FailureKind::BadCertificate);
    assert_eq!(judge(&demand, None, &plain(), &budget), refused);
    demand.spares_plain_text = true;
    assert_eq!(judge(&demand, None, &plain(), &budget), Ok(()));
    let secured = visit("shop/ca", None);
    assert_eq!(judge(&demand, None, &secured, &budget), refused);
}

#[test]
fn a_subject_is_compared_from_its_common_names_on() {
    let refused = Err(FailureKind::CertificateRefused);
    for (pattern, subject, names, expected) in [
        ("CN=(ann|bob)", "CN=ann,O=Acme", &[0][..], Ok(())),
        ("CN=(ann|bob)", "O=Acme,CN=bob", &[7], Ok(())),
        ("CN=ann,O=Acme", "CN=ann,O=Acme", &[0], Ok(())),
        ("CN=ann", "CN=joann", &[0], refused),
        // A part of another value is no common name.
        ("CN=ann", r"CN=eve,O=x\,CN=ann", &[0], refused),
        ("CN=ann", "CN=ann", &[], refused),
    ] {
        let mut demand = demand(CertificateNeed::Verified);
        demand.subject = pattern.into();
        let compiled = Pattern::new(pattern).unwrap();
        let visit = visit("shop/ca", Some(certificate(VERIFIED, subject, names)));
        let judged = judge(&demand, Some(&compiled), &visit, &Budget::default());
        assert_eq!(judged, expected, "{pattern} {subject}");
        // Where it could not be compared, nobody is served.
        let judged = judge(&demand, None, &visit, &Budget::default());
        assert_eq!(judged, refused);
        let spent = Budget::default();
        spent.spend();
        let judged = judge(&demand, Some(&compiled), &visit, &spent);
        assert_eq!(judged, Err(FailureKind::RegexBudget));
    }
    // Whoever has shown none has no name.
    let mut demand = demand(CertificateNeed::VerifiedIfAny);
    demand.subject = "CN=ann".into();
    let compiled = Pattern::new("CN=ann").unwrap();
    let stranger = visit("shop/ca", None);
    let judged = judge(&demand, Some(&compiled), &stranger, &Budget::default());
    assert_eq!(judged, refused);
}

#[test]
fn endpoints_are_told_what_was_found_and_the_certificate_where_that_is_wanted() {
    let told = |is_passed_on: bool, visit: &DownstreamConnection| {
        let demand = CertificateDemand {
            is_passed_on,
            ..demand(CertificateNeed::AnyAuthority)
        };
        let mut lines = Vec::new();
        tell(&demand, visit, |name, parts| {
            let value = String::from_utf8(parts.concat()).unwrap();
            let name = name.strip_prefix("ssl-client-").unwrap();
            lines.push(format!("{name}={}", &value[..value.len().min(21)]));
        });
        lines.join(" ")
    };
    let ann = || Some(certificate(VERIFIED, "CN=ann", &[0]));
    let known = visit("shop/ca", ann());
    let names = "subject-dn=CN=ann issuer-dn=CN=them";
    assert_eq!(told(false, &known), format!("verify=SUCCESS {names}"));
    let with = format!("verify=SUCCESS {names} cert=-----BEGIN%20CERTIFIC");
    assert_eq!(told(true, &known), with);
    assert_eq!(told(true, &visit("shop/ca", None)), "verify=NONE");
    assert_eq!(told(true, &visit("other/ca", ann())), "verify=NONE");
    assert_eq!(told(true, &plain()), "verify=NONE");
    let stranger = visit("shop/ca", Some(certificate(UNKNOWN, "", &[])));
    let failed = "verify=FAILED:unable to veri issuer-dn=CN=them";
    assert_eq!(told(false, &stranger), failed);
}

#[test]
fn fields_that_tell_of_certificates_are_known_in_every_spelling() {
    for name in [
        "ssl-client-verify",
        "SSL-Client-Cert",
        "ssl_client_subject_dn",
        "SSL.Client.Verify",
        "ssl~client-verify",
        "ssl-client!verify",
        "ssl-client-verify.",
    ] {
        assert!(is_told_by(name), "{name}");
    }
    for name in [
        "ssl-client",
        "x-ssl-client-verify",
        "sslclient-verify",
        "ssl-clients-verify",
        "ssl1client1verify",
        "ü",
    ] {
        assert!(!is_told_by(name), "{name}");
    }
}
