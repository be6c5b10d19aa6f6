//! The TLS settings of a Gateway's server: certificates, versions, suites, and what it asks clients
//! for.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use myriad_api::Severity;
use myriad_api::istio::gateway::{Server, ServerTls, ServerTlsRare, TlsMode, TlsProtocol};
use myriad_model::{
    ALTERNATIVES_MAX, CLIENT_AUTH_PARTS_MAX, CipherSuite, ClientAuthMode, TlsSettings, TlsVersion,
};

use crate::settings::Settings;

/// How TLS is ended by a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// Names of Secrets with certificates; at least one, but where `mesh` says otherwise.
    pub credentials: Vec<Box<str>>,
    /// Whether certificate and authorities are those of the mesh.
    pub mesh: bool,
    /// Versions and suites.
    pub settings: TlsSettings,
    /// The request for clients' certificates.
    pub clients: Option<Clients>,
}

/// The request for clients' certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Clients {
    /// Whether they may come without a certificate.
    pub mode: ClientAuthMode,
    /// The Secret with the authorities, where one is named for them alone.
    pub authorities: Option<Box<str>>,
    /// One of these names has to be in the certificate, if there are any.
    pub subject_alt_names: Box<[Box<str>]>,
    /// SHA-256 of public keys.
    pub key_hashes: Box<[[u8; 32]]>,
    /// SHA-256 of certificates.
    pub certificate_hashes: Box<[[u8; 32]]>,
}

/// The most bytes of the lists of a server.
const LISTED_BYTES_MAX: usize = 128 << 10;

/// The most bytes of its lists, once for each of its hosts.
const REPEATED_BYTES_MAX: usize = 64 << 20;

/// The bytes that an entry counts for beside its text.
const ENTRY_BYTES: usize = 32;

/// Something that people should know about a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerProblem {
    /// How bad it is.
    pub severity: Severity,
    /// The field, within the server.
    pub field: String,
    /// The problem.
    pub message: String,
    /// The remedy.
    pub remedy: String,
}

/// Suites of TLS 1.3, which servers do not choose from, in the order of preference.
const SUITES_13: [CipherSuite; 3] = [
    CipherSuite::Aes256GcmSha384,
    CipherSuite::Aes128GcmSha256,
    CipherSuite::Chacha20Poly1305Sha256,
];

/// Suites of TLS 1.2 by the names that Istio's users write.
const SUITES_12: [(&str, CipherSuite); 6] = [
    (
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        CipherSuite::EcdheEcdsaAes256GcmSha384,
    ),
    (
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        CipherSuite::EcdheEcdsaAes128GcmSha256,
    ),
    (
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        CipherSuite::EcdheEcdsaChacha20Poly1305Sha256,
    ),
    (
        "ECDHE-RSA-AES256-GCM-SHA384",
        CipherSuite::EcdheRsaAes256GcmSha384,
    ),
    (
        "ECDHE-RSA-AES128-GCM-SHA256",
        CipherSuite::EcdheRsaAes128GcmSha256,
    ),
    (
        "ECDHE-RSA-CHACHA20-POLY1305",
        CipherSuite::EcdheRsaChacha20Poly1305Sha256,
    ),
];

impl ServerProblem {
    /// Something that has no effect, or another than was meant.
    pub(super) fn error(field: &str, message: impl Into<String>, remedy: &str) -> Self {
        ServerProblem {
            severity: Severity::Error,
            field: field.to_owned(),
            message: message.into(),
            remedy: remedy.to_owned(),
        }
    }

    fn warning(field: &str, message: impl Into<String>, remedy: &str) -> Self {
        ServerProblem {
            severity: Severity::Warning,
            ..ServerProblem::error(field, message, remedy)
        }
    }
}

/// How TLS is ended, before it is known with what.
enum Mode {
    /// Clients are asked for nothing.
    Simple,
    /// They are asked for a certificate.
    Asking(ClientAuthMode),
    /// Both ends show identities of the mesh.
    Mesh,
}

/// Reads what a server that ends TLS says; none where it cannot be honoured, so that nobody
/// answers.
pub(super) fn read(
    server: &Server,
    holding: &Settings,
    problems: &mut Vec<ServerProblem>,
) -> Option<Terms> {
    let Some(tls) = &server.tls else {
        problems.push(closing(
            "tls",
            "is missing",
            "add tls with mode SIMPLE and a credentialName",
        ));
        return None;
    };
    let rare = tls.rare.as_deref();
    if lists_too_much(server.hosts.len(), rare) {
        problems.push(closing(
            "tls",
            "lists more suites, credentials, names and hashes than its hosts may repeat",
            "list fewer, or divide the hosts among several servers",
        ));
        return None;
    }
    // All is read before anything closes, so that people see every problem at once.
    let mode = mode(tls, holding.sidecars, problems);
    let settings = settings(tls, rare, &holding.tls, problems);
    let credentials = credentials(tls, rare, problems);
    judge_files(rare, problems);
    let asked = asked(tls, rare, problems);
    let (clients, mesh) = match mode? {
        Mode::Simple => (None, false),
        Mode::Asking(mode) => (Some(Clients { mode, ..asked? }), false),
        Mode::Mesh if is_narrowed(tls, rare, problems) => return None,
        Mode::Mesh => (None, true),
    };
    Some(Terms {
        credentials: match mesh {
            true => Vec::new(),
            false => credentials?,
        },
        mesh,
        settings: settings?,
        clients,
    })
}

/// Whether the lists of a server are too much for each of its hosts to repeat.
fn lists_too_much(hosts: usize, rare: Option<&ServerTlsRare>) -> bool {
    let Some(rare) = rare else {
        return false;
    };
    let lists = [
        &rare.cipher_suites,
        &rare.credential_names,
        &rare.subject_alt_names,
        &rare.verify_certificate_spki,
        &rare.verify_certificate_hash,
    ];
    let max = LISTED_BYTES_MAX.min(REPEATED_BYTES_MAX / hosts.max(1));
    let entries: usize = lists.iter().map(|list| list.len()).sum();
    let texts = lists.iter().flat_map(|list| list.iter());
    // Not even looked at where their number alone is too much.
    entries * ENTRY_BYTES > max
        || texts.map(|text| text.len()).sum::<usize>() + entries * ENTRY_BYTES > max
}

/// Whether a server says of TLS what most do: one certificate, and everything else as it usually
/// is. [`read`] finds no problem there, and takes longer.
pub(super) fn is_usual(server: &Server) -> bool {
    server.tls.as_deref().is_some_and(|tls| {
        tls.mode == TlsMode::Simple
            && tls.min_protocol_version == TlsProtocol::Auto
            && tls.max_protocol_version == TlsProtocol::Auto
            && !matches!(&*tls.credential_name, "" | "kubernetes://")
            && tls.rare.is_none()
    })
}

fn closing(field: &str, what: &str, remedy: &str) -> ServerProblem {
    let message = format!("{what}, so its hosts answer no handshake");
    ServerProblem::error(field, message, remedy)
}

/// Whether a server asks for more of clients than that they are of the mesh, which is not done, or
/// names certificates, which is without effect.
fn is_narrowed(
    tls: &ServerTls,
    rare: Option<&ServerTlsRare>,
    problems: &mut Vec<ServerProblem>,
) -> bool {
    let several = rare.is_some_and(|rare| !rare.credential_names.is_empty());
    for (field, is_there) in [
        ("tls.credentialName", !tls.credential_name.is_empty()),
        ("tls.credentialNames", several),
    ] {
        if is_there {
            problems.push(ServerProblem::warning(
                field,
                "is without effect, since ISTIO_MUTUAL shows the gateway's own identity",
                "remove it, or use MUTUAL",
            ));
        }
    }
    let Some(rare) = rare else {
        return false;
    };
    let fields = [
        ("tls.subjectAltNames", &rare.subject_alt_names),
        ("tls.verifyCertificateSpki", &rare.verify_certificate_spki),
        ("tls.verifyCertificateHash", &rare.verify_certificate_hash),
    ];
    let before = problems.len();
    for (field, _) in fields.into_iter().filter(|(_, list)| !list.is_empty()) {
        problems.push(closing(
            field,
            "is not asked of clients under ISTIO_MUTUAL",
            "leave it out, and name who may come in an AuthorizationPolicy, as principals",
        ));
    }
    problems.len() > before
}

/// How TLS is ended; none where the mode closes.
fn mode(tls: &ServerTls, has_mesh: bool, problems: &mut Vec<ServerProblem>) -> Option<Mode> {
    match tls.mode {
        TlsMode::Simple => Some(Mode::Simple),
        TlsMode::Mutual => Some(Mode::Asking(ClientAuthMode::Required)),
        TlsMode::OptionalMutual => Some(Mode::Asking(ClientAuthMode::Optional)),
        TlsMode::IstioMutual if has_mesh => Some(Mode::Mesh),
        TlsMode::IstioMutual => {
            problems.push(closing(
                "tls.mode",
                "is ISTIO_MUTUAL, and this gateway is given no identity of a mesh",
                "set --mesh, or use MUTUAL with a credentialName, and the authorities in that \
                 Secret",
            ));
            None
        }
        // Whoever passes handshakes on does not ask how they are ended.
        TlsMode::Passthrough => None,
        TlsMode::AutoPassthrough => {
            problems.push(closing(
                "tls.mode",
                "is AUTO_PASSTHROUGH, which leads to every Service by its name, and only what \
                 a VirtualService names is known here",
                "use PASSTHROUGH with a VirtualService for each host",
            ));
            None
        }
    }
}

fn settings(
    tls: &ServerTls,
    rare: Option<&ServerTlsRare>,
    usual: &TlsSettings,
    problems: &mut Vec<ServerProblem>,
) -> Option<TlsSettings> {
    let version_min = match tls.min_protocol_version {
        TlsProtocol::Auto => usual.version_min,
        TlsProtocol::V1_2 => TlsVersion::V12,
        TlsProtocol::V1_3 => TlsVersion::V13,
        old @ (TlsProtocol::V1_0 | TlsProtocol::V1_1) => {
            problems.push(ServerProblem::warning(
                "tls.minProtocolVersion",
                format!(
                    "is {}, which is not spoken, so TLS 1.2 is the oldest",
                    old.as_str()
                ),
                "write TLSV1_2",
            ));
            TlsVersion::V12
        }
    };
    let version_max = match tls.max_protocol_version {
        TlsProtocol::Auto => usual.version_max.max(version_min),
        TlsProtocol::V1_2 => TlsVersion::V12,
        TlsProtocol::V1_3 => TlsVersion::V13,
        old @ (TlsProtocol::V1_0 | TlsProtocol::V1_1) => {
            let what = format!("is {}, and nothing that old is spoken", old.as_str());
            let remedy = "write TLSV1_2 or TLSV1_3";
            problems.push(closing("tls.maxProtocolVersion", &what, remedy));
            return None;
        }
    };
    if version_min > version_max {
        problems.push(closing(
            "tls.minProtocolVersion",
            "is above maxProtocolVersion",
            "leave one of them out",
        ));
        return None;
    }
    let named = rare.map_or(&[][..], |rare| &rare.cipher_suites);
    let cipher_suites = match named.is_empty() {
        true => usual.cipher_suites.clone(),
        false => suites(named, (version_min, version_max), problems)?,
    };
    Some(TlsSettings {
        version_min,
        version_max,
        cipher_suites,
    })
}

/// The suites of these names, and those of TLS 1.3 before them.
fn suites(
    named: &[Box<str>],
    (version_min, version_max): (TlsVersion, TlsVersion),
    problems: &mut Vec<ServerProblem>,
) -> Option<Box<[CipherSuite]>> {
    let field = "tls.cipherSuites";
    let mut suites: Vec<CipherSuite> = Vec::new();
    for name in named {
        let of_name = SUITES_12
            .iter()
            .filter(|(known, _)| **known == **name || **name == *"ALL");
        let found: Vec<CipherSuite> = of_name.map(|(_, suite)| *suite).collect();
        if found.is_empty() {
            problems.push(ServerProblem::warning(
                field,
                format!("has {name}, which is not spoken"),
                "name suites with ECDHE and AES-GCM or ChaCha20-Poly1305, as OpenSSL does",
            ));
        }
        for suite in found {
            if !suites.contains(&suite) {
                suites.push(suite);
            }
        }
    }
    if suites.is_empty() {
        problems.push(closing(
            field,
            "has no suite that is spoken",
            "name ECDHE-ECDSA-AES128-GCM-SHA256 or another that is",
        ));
        return None;
    }
    if version_min == TlsVersion::V13 {
        return Some(Box::default());
    }
    if version_max == TlsVersion::V13 {
        suites.splice(0..0, SUITES_13);
    }
    Some(suites.into())
}

/// The Secrets with certificates; `None` where there is none.
fn credentials(
    tls: &ServerTls,
    rare: Option<&ServerTlsRare>,
    problems: &mut Vec<ServerProblem>,
) -> Option<Vec<Box<str>>> {
    let several = rare.map_or(&[][..], |rare| &rare.credential_names);
    let single = Some(&tls.credential_name).filter(|name| !name.is_empty());
    let single = single.filter(|_| several.is_empty());
    let mut names: Vec<Box<str>> = Vec::new();
    for name in several.iter().chain(single) {
        // One more than there may be says that there are.
        if names.len() > ALTERNATIVES_MAX + 1 {
            break;
        }
        let name: Box<str> = name.strip_prefix("kubernetes://").unwrap_or(name).into();
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    }
    if names.len() > ALTERNATIVES_MAX + 1 {
        names.truncate(ALTERNATIVES_MAX + 1);
        problems.push(ServerProblem::error(
            "tls.credentialNames",
            "has more than 8 names, and those behind them are without effect",
            "name one Secret for each algorithm of keys",
        ));
    }
    if names.is_empty() {
        let is_wanted = matches!(
            tls.mode,
            TlsMode::Simple | TlsMode::Mutual | TlsMode::OptionalMutual
        );
        if is_wanted {
            problems.push(closing(
                "tls.credentialName",
                "is missing, and certificates are read from Secrets only",
                "name a Secret of type kubernetes.io/tls",
            ));
        }
        return None;
    }
    Some(names)
}

fn judge_files(rare: Option<&ServerTlsRare>, problems: &mut Vec<ServerProblem>) {
    let Some(rare) = rare else {
        return;
    };
    let files = [
        ("tls.serverCertificate", rare.server_certificate.is_empty()),
        ("tls.privateKey", rare.private_key.is_empty()),
        ("tls.caCertificates", rare.ca_certificates.is_empty()),
        ("tls.caCrl", rare.ca_crl.is_empty()),
        ("tls.tlsCertificates", rare.tls_certificates.is_empty()),
    ];
    for (field, _) in files.into_iter().filter(|(_, is_empty)| !is_empty) {
        problems.push(ServerProblem::error(
            field,
            "names files of the gateway's workload, which are not read",
            "put their content into the Secret that credentialName names",
        ));
    }
    if rare.insecure_skip_verify == Some(true) {
        problems.push(ServerProblem::error(
            "tls.insecureSkipVerify",
            "is not honoured, so clients are verified as the mode says",
            "remove it, or use SIMPLE",
        ));
    }
}

/// The conditions on a client's certificate; `None` where they cannot be read.
fn asked(
    tls: &ServerTls,
    rare: Option<&ServerTlsRare>,
    problems: &mut Vec<ServerProblem>,
) -> Option<Clients> {
    let mut clients = Clients {
        mode: ClientAuthMode::Required,
        authorities: None,
        subject_alt_names: Box::default(),
        key_hashes: Box::default(),
        certificate_hashes: Box::default(),
    };
    let Some(rare) = rare else {
        return Some(clients);
    };
    let fields = [
        ("tls.subjectAltNames", &rare.subject_alt_names),
        ("tls.verifyCertificateSpki", &rare.verify_certificate_spki),
        ("tls.verifyCertificateHash", &rare.verify_certificate_hash),
    ];
    for (field, list) in fields {
        if tls.mode == TlsMode::Simple && !list.is_empty() {
            problems.push(ServerProblem::warning(
                field,
                "is without effect, since SIMPLE asks clients for no certificate",
                "use MUTUAL or OPTIONAL_MUTUAL",
            ));
        }
        if list.len() > CLIENT_AUTH_PARTS_MAX {
            problems.push(closing(field, "has more than 1024 entries", "write fewer"));
            return None;
        }
    }
    let ca = &rare.ca_cert_credential_name;
    let ca = ca.strip_prefix("kubernetes://").unwrap_or(ca);
    clients.authorities = (!ca.is_empty()).then(|| ca.into());
    clients.subject_alt_names = rare.subject_alt_names.iter().cloned().collect();
    let keys: Option<_> = rare
        .verify_certificate_spki
        .iter()
        .map(|it| base64(it))
        .collect();
    let whole: Option<_> = rare
        .verify_certificate_hash
        .iter()
        .map(|it| hex(it))
        .collect();
    if keys.is_none() {
        problems.push(closing(
            "tls.verifyCertificateSpki",
            "has an entry that is no SHA-256 in base64",
            "write the 44 characters that openssl dgst -sha256 -binary | base64 gives",
        ));
    }
    if whole.is_none() {
        problems.push(closing(
            "tls.verifyCertificateHash",
            "has an entry that is no SHA-256 in hexadecimal",
            "write the 64 digits that openssl x509 -fingerprint -sha256 gives",
        ));
    }
    clients.key_hashes = keys?;
    clients.certificate_hashes = whole?;
    Some(clients)
}

fn base64(text: &str) -> Option<[u8; 32]> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

/// Digits, with or without colons between the bytes.
fn hex(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u32> = text
        .chars()
        .filter(|letter| *letter != ':')
        .map(|letter| letter.to_digit(16))
        .collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits
        .chunks_exact(2)
        .map(|pair| pair.iter().fold(0, |sum, digit| (sum << 4) | *digit as u8))
        .collect();
    (digits.len() == 64).then_some(())?;
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_nothing_to_say_of_a_usual_server() {
        let usual = TlsSettings::default();
        let mut tls = ServerTls {
            mode: TlsMode::Simple,
            credential_name: "a".into(),
            ..ServerTls::default()
        };
        let server = |tls: &ServerTls| Server {
            tls: Some(Box::new(tls.clone())),
            ..Server::default()
        };
        let mut problems = Vec::new();
        assert!(is_usual(&server(&tls)));
        let terms =
            read(&server(&tls), &Settings::default(), &mut problems).expect("it can be honoured");
        assert_eq!((terms.settings, terms.clients), (usual, None));
        assert!(problems.is_empty());
        tls.credential_name = "kubernetes://".into();
        assert!(!is_usual(&server(&tls)));
        tls.mode = TlsMode::Mutual;
        assert!(!is_usual(&server(&tls)) && !is_usual(&Server::default()));
    }

    #[test]
    fn what_hosts_repeat_of_a_server_is_bounded() {
        let text: Box<str> = "x".repeat(32).into();
        let rare = |suites: usize| ServerTlsRare {
            cipher_suites: vec![text.clone(); suites].into(),
            ..ServerTlsRare::default()
        };
        for (hosts, suites, is_beyond) in [
            (0, 2_048, false),
            (1, 2_049, true),
            (512, 2_048, false),
            (1_024, 1_024, false),
            (1_024, 1_025, true),
            (100_000, 10, false),
            (100_000, 11, true),
        ] {
            let found = lists_too_much(hosts, Some(&rare(suites)));
            assert_eq!(found, is_beyond, "{hosts} hosts, {suites} suites");
        }
        assert!(!lists_too_much(1 << 40, None));
    }

    #[test]
    fn a_fingerprint_is_read_with_and_without_colons() {
        let plain = "ab".repeat(32);
        let pairs = ["AB"; 32].join(":");
        assert_eq!(hex(&plain), Some([0xab; 32]));
        assert_eq!(hex(&pairs), Some([0xab; 32]));
        assert_eq!(hex(&plain[1..]), None);
        assert_eq!(hex(&"xy".repeat(32)), None);
    }
}
