use std::cell::Cell;
use std::sync::Arc;

use bytes::Bytes;
use myriad_model::{
    Certificate, Domain, Form, Host, KeyEncoding, Listener, ListenerProtocol, Name, Origin,
    PrivateKey, Resource, SealedArc, Sealer, TlsSettings, TlsVersion, Value,
};
use rustls::sign::CertifiedKey;

use super::is_directed;
use crate::route::certificate::Parsed;
use crate::route::downstream_connection::{DownstreamConnection, Secured};
use crate::route::edit::Edit;
use crate::route::tables::Tables;
use crate::upstream::endpoint::EndpointTable;

fn strict() -> TlsSettings {
    TlsSettings {
        version_min: TlsVersion::V13,
        ..TlsSettings::default()
    }
}

/// Domains `a`, `b` (strict), `c` without certificate, and the default certificate if asked for.
fn tables(has_default: bool) -> Tables {
    let certificate = || {
        Value::Certificate(Box::new(Certificate {
            chain: [Bytes::from_static(b"x")].into(),
            key: PrivateKey::new(KeyEncoding::Sec1, Bytes::new()),
        }))
    };
    let domain = |host: &str, certificate: &str, tls: TlsSettings| {
        Value::Domain(Box::new(Domain {
            listeners: [Name::from("https")].into(),
            host: Host::parse(host).unwrap(),
            certificate: Some(certificate.into()),
            alternatives: Box::default(),
            tls: Arc::new(tls),
            client_auth: None,
            mesh: false,
            section: None,
            by_name: false,
        }))
    };
    let listener = Listener {
        address: ([127, 0, 0, 1], 0).into(),
        tls: true,
        default_certificate: has_default.then(|| "default".into()),
        protocol: ListenerProtocol::Http,
        capture: None,
    };
    let mut resources = vec![
        ("https", Value::Listener(Box::new(listener))),
        ("cert", certificate()),
        (
            "a.example",
            domain("a.example", "cert", TlsSettings::default()),
        ),
        ("b.example", domain("b.example", "cert", strict())),
        (
            "c.example",
            domain("c.example", "missing", TlsSettings::default()),
        ),
    ];
    if has_default {
        resources.push(("default", certificate()));
    }
    let mut tables = Tables::default();
    let mut targets = EndpointTable::new();
    let mut sealer = Sealer::new([0; 32], Form::Value);
    let mut edit = Edit::new(&mut tables, &mut targets);
    for (name, value) in resources {
        let origin = Origin::settings();
        let sealed = SealedArc::new(sealer.seal(name.into(), Resource { origin, value }));
        edit.change(None, Some(&sealed)).unwrap();
    }
    edit.finish();
    tables
}

fn visit(sni: Option<&str>, by_domain: bool, names: &[&str]) -> DownstreamConnection {
    let key = rcgen::generate_simple_self_signed(vec!["x".to_owned()]).unwrap();
    let key = PrivateKey::new(KeyEncoding::Pkcs8, key.signing_key.serialize_der().into());
    let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key.to_der()).unwrap();
    let mut visit = DownstreamConnection::new("https".into(), ([127, 0, 0, 1], 1).into(), 443);
    visit.secured = Some(Secured {
        sni: sni.map(Into::into),
        by_domain,
        is_mesh: false,
        settings: Arc::default(),
        certificate: Arc::new(Parsed {
            key: Arc::new(CertifiedKey::new(Vec::new(), key)),
            names: names
                .iter()
                .map(|name| Host::parse(name).unwrap())
                .collect(),
        }),
        alternatives: Box::default(),
        client_auth: None,
        peer: None,
        shown: None,
        version: "1.3",
        checked: Cell::new(0),
    });
    visit
}

/// One case a line: whether there is a default certificate, who answered the handshake, the name
/// that was sent, the name that the certificate is for, the host that is asked for, and the word.
const CASES: &str = "
    no-default domain   a.example    -         a.example    yes  the name itself
    no-default domain   a.example    b.example b.example    no   other settings
    no-default domain   a.example    *.example c.example    no   no certificate
    no-default domain   a.example    *.example d.example    no   no domain
    default    domain   a.example    *.example d.example    yes  by default, covered
    default    domain   a.example    -         d.example    no   by default, not covered
    default    domain   gone.example *.example gone.example no   removed
    default    listener d.example    -         d.example    yes  by default
    default    listener d.example    -         e.example    yes  by default as well
    default    listener d.example    -         a.example    no   it has a certificate now
    default    listener d.example    a.example a.example    no   it has a domain, covered or not
    default    listener d.example    *.example e.example    yes  none of them has a domain
    default    listener -            -         a.example    no   it has its own certificate
    default    listener -            a.example a.example    yes  covered
";

#[test]
fn a_host_is_served_where_a_handshake_for_it_would_have_led_to_the_same() {
    for case in CASES.lines().filter(|line| !line.trim().is_empty()) {
        let words: Vec<&str> = case.split_whitespace().collect();
        let [default, answerer, sni, name, host, word, ..] = words[..] else {
            panic!("{case}");
        };
        let there = |text: &'static str| (text != "-").then_some(text);
        let names: Vec<&str> = there(name).into_iter().collect();
        let visit = visit(there(sni), answerer == "domain", &names);
        let found = is_directed(&tables(default == "default"), &visit, host);
        assert_eq!(found, word == "yes", "{case}");
    }
}

/// Sections by their hosts, all of one certificate; `strict` has settings of its own, and `own` is
/// of no section.
fn sections(has_every_host: bool) -> Tables {
    let domain = |host: &str, section: Option<&str>, tls: TlsSettings| {
        Value::Domain(Box::new(Domain {
            listeners: [Name::from("https")].into(),
            host: Host::parse(host).unwrap(),
            certificate: Some("cert".into()),
            alternatives: Box::default(),
            tls: Arc::new(tls),
            client_auth: None,
            mesh: false,
            section: section.map(Into::into),
            by_name: false,
        }))
    };
    let plain = TlsSettings::default;
    let mut domains = vec![
        domain("second.org", Some("second"), plain()),
        domain("**.wild.org", Some("wild"), plain()),
        domain("fourth.wild.org", Some("fourth"), plain()),
        domain("a.strict.org", Some("strict"), plain()),
        domain("b.strict.org", Some("strict"), strict()),
        domain("own.org", None, plain()),
        domain("beside.org", None, plain()),
    ];
    if has_every_host {
        domains.push(domain("*", Some("every"), plain()));
    }
    let certificate = Value::Certificate(Box::new(Certificate {
        chain: [Bytes::from_static(b"x")].into(),
        key: PrivateKey::new(KeyEncoding::Sec1, Bytes::new()),
    }));
    let mut tables = Tables::default();
    let mut targets = EndpointTable::new();
    let mut sealer = Sealer::new([0; 32], Form::Value);
    let mut edit = Edit::new(&mut tables, &mut targets);
    for (number, value) in domains.into_iter().chain([certificate]).enumerate() {
        let name = match &value {
            Value::Certificate(_) => Name::from("cert"),
            _ => Name::new(format!("d{number}")),
        };
        let origin = Origin::settings();
        let sealed = SealedArc::new(sealer.seal(name, Resource { origin, value }));
        edit.change(None, Some(&sealed)).unwrap();
    }
    edit.finish();
    tables
}

/// One case a line: whether there is a section of every host, the name that was sent, the host that
/// is asked for, and the word.
const SECTIONS: &str = "
    every  first.org       first.org       yes  the name itself
    every  first.org       second.org      no   another section has it
    every  first.org       unknown.org     yes  nobody but its section has it
    every  second.org      second.org      yes  the name itself
    every  second.org      first.org       no   that of every host has it
    every  second.org      unknown.org     no   that of every host has it
    every  third.wild.org  third.wild.org  yes  the name itself
    every  third.wild.org  fifth.wild.org  yes  it is of the section too
    every  third.wild.org  fourth.wild.org no   a more specific section has it
    every  third.wild.org  unknown.org     no   that of every host has it
    every  fourth.wild.org fourth.wild.org yes  the name itself
    every  fourth.wild.org fifth.wild.org  no   a wider section has it
    every  unknown.org     first.org       yes  both are of that of every host
    every  -               first.org       yes  who names none is of every host
    every  -               second.org      no   another section has it
    every  a.strict.org    b.strict.org    no   its handshakes are done otherwise
    every  own.org         second.org      no   it is of a section
    every  second.org      own.org         no   it is of none
    every  own.org         beside.org      yes  the certificate is for both
    none   second.org      unknown.org     yes  nobody has it
    none   unknown.org     unknown.org     no   there was no handshake for it
";

#[test]
fn a_host_is_of_the_section_that_the_handshake_was_for() {
    for case in SECTIONS.lines().filter(|line| !line.trim().is_empty()) {
        let words: Vec<&str> = case.split_whitespace().collect();
        let [every, sni, host, word, ..] = words[..] else {
            panic!("{case}");
        };
        let sni = (sni != "-").then_some(sni);
        // The certificate has every name, which says nothing of sections.
        let visit = visit(sni, true, &["own.org", "beside.org", "**.org"]);
        let found = is_directed(&sections(every == "every"), &visit, host);
        assert_eq!(found, word == "yes", "{case}");
    }
}

#[test]
fn what_was_seen_holds_until_the_tables_change() {
    let mut tables = tables(false);
    let visit = visit(Some("a.example"), true, &[]);
    assert!(is_directed(&tables, &visit, "a.example"));
    let mut targets = EndpointTable::new();
    let gone = {
        let mut sealer = Sealer::new([0; 32], Form::Value);
        let value = Value::Domain(Box::new(Domain {
            listeners: [Name::from("https")].into(),
            host: Host::parse("a.example").unwrap(),
            certificate: Some("cert".into()),
            tls: Arc::default(),
            alternatives: Box::default(),
            client_auth: None,
            mesh: false,
            section: None,
            by_name: false,
        }));
        let origin = Origin::settings();
        SealedArc::new(sealer.seal("a.example".into(), Resource { origin, value }))
    };
    let mut edit = Edit::new(&mut tables, &mut targets);
    edit.change(Some(&gone), None).unwrap();
    edit.finish();
    assert!(!is_directed(&tables, &visit, "a.example"));
}
