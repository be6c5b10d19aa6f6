//! Settings of certificates that are obtained by ACME.

mod dns;
mod on_demand;
mod suffixes;

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use myriad_base::file;
use myriad_pki::acme::{
    AcmeIssuer, Binding, BindingKey, Bounds, ChallengeKind, Directory, DnsSolver, KeyKind, Millis,
    Suffixes,
};
use myriad_translate::{directory_named, is_mail_address};

use crate::cli::RawAcme;
use crate::cli::acme::{RawClusterAcme, RawOnDemand};
pub use crate::wishes::ISSUER;

pub use on_demand::OnDemandSettings;
pub(super) use on_demand::read as on_demand;

/// The longest file of a key.
const KEY_BYTES_MAX: u64 = 4 << 10;

/// The most directories.
const DIRECTORIES_MAX: usize = 8;

/// The directory where nothing but an address is given.
const USUAL: &str = "letsencrypt";

/// The settings of certificates that are obtained by ACME.
#[derive(Clone, Debug)]
pub struct AcmeSettings {
    /// The issuer of the name [`ISSUER`]; none where there are only those that objects make.
    pub issuer: Option<AcmeIssuer>,
    /// The file of the roots that directories are verified by, of issuers that name none
    /// themselves; none for the system's.
    pub roots: Option<PathBuf>,
    /// The port at which names are asked whether they lead here; none to ask this process alone.
    pub proof_port: Option<u16>,
    /// The port at which the servers of zones are asked for records; none to ask none of them.
    pub dns_port: Option<u16>,
    /// The bounds of orders.
    pub bounds: Bounds,
    /// The suffixes below which names are registered.
    pub suffixes: Suffixes,
    /// Certificates that are obtained on demand.
    pub on_demand: OnDemandSettings,
    /// The directory of what is kept; in a cluster nothing is.
    pub state_dir: PathBuf,
}

impl AcmeSettings {
    /// The new orders at one authority in three hours, and the suffixes of the domains by which
    /// they are counted.
    pub(crate) fn counted(&self) -> (u32, Suffixes) {
        (self.bounds.orders_per_authority, self.suffixes.clone())
    }
}

/// Checks settings.
pub(super) fn read(raw: &RawAcme, state_dir: &Path, problems: &mut Vec<String>) -> AcmeSettings {
    AcmeSettings {
        issuer: issuer(raw, problems),
        roots: raw.acme_ca.clone(),
        proof_port: port("--acme-proof", &raw.acme_proof, problems),
        dns_port: port("--acme-dns-proof", &raw.acme_dns_proof, problems),
        bounds: Bounds {
            orders_per_authority: raw.acme_orders,
            orders_per_domain: raw.acme_orders_per_domain,
            look_max: Millis::from(raw.acme_look) * 1_000,
            ..Bounds::default()
        },
        suffixes: suffixes::read(raw.acme_suffixes.as_deref(), problems),
        on_demand: OnDemandSettings::default(),
        state_dir: state_dir.to_owned(),
    }
}

/// Checks the settings of a controller; none where it obtains nothing.
pub(super) fn of_cluster(
    (raw, demand): (&RawAcme, &RawOnDemand),
    cluster: &RawClusterAcme,
    problems: &mut Vec<String>,
) -> Option<AcmeSettings> {
    let settings = AcmeSettings {
        on_demand: on_demand::read(demand, problems),
        ..read(raw, Path::new(""), problems)
    };
    let is_asked = settings.on_demand.ask.is_some();
    (cluster.acme || is_asked || settings.issuer.is_some()).then_some(settings)
}

/// The issuer of the settings; none where they name no directory and no address.
fn issuer(raw: &RawAcme, problems: &mut Vec<String>) -> Option<AcmeIssuer> {
    let directories = raw.acme_directory.iter().filter(|it| !it.is_empty());
    let mut directories: Vec<&str> = directories.map(String::as_str).collect();
    let email = raw.acme_email.as_deref().filter(|it| !it.is_empty());
    if directories.is_empty() {
        // Who gives an address has agreed to be known there.
        email?;
        directories.push(USUAL);
    }
    if email.is_some_and(|email| !is_mail_address(email)) {
        problems.push(format!(
            "--acme-email is {:?}, which is no address of mail",
            email.unwrap_or_default()
        ));
    }
    if directories.len() > DIRECTORIES_MAX {
        let count = directories.len();
        problems.push(format!(
            "--acme-directory has {count} directories, over {DIRECTORIES_MAX}"
        ));
    }
    let binding = binding(raw, problems);
    let directories = directories.iter().filter_map(|text| {
        let url = directory_named(text).unwrap_or(*text);
        let is_url = url.strip_prefix("https://").is_some_and(is_place);
        if !is_url {
            problems.push(format!(
                "--acme-directory has {text:?}, which is no URL that begins with https://"
            ));
        }
        is_url.then(|| Directory {
            url: url.into(),
            email: email.map(Box::from),
            profile: raw.acme_profile.as_deref().map(Box::from),
            binding: binding.clone(),
        })
    });
    let directories = directories.collect();
    let challenge = challenge(raw, problems);
    Some(AcmeIssuer {
        directories,
        challenge,
        dns: solver(raw, challenge, problems),
        key: key_kind(raw, problems),
        is_tenants: false,
    })
}

fn challenge(raw: &RawAcme, problems: &mut Vec<String>) -> ChallengeKind {
    let word = &raw.acme_challenge;
    ChallengeKind::from_word(word).unwrap_or_else(|| {
        problems.push(format!(
            "--acme-challenge is {word:?}, none of http-01, tls-alpn-01, dns-01 and dns-persist-01"
        ));
        ChallengeKind::default()
    })
}

/// How records of DNS are set, without which some challenges cannot be met.
fn solver(
    raw: &RawAcme,
    challenge: ChallengeKind,
    problems: &mut Vec<String>,
) -> Option<DnsSolver> {
    let count = problems.len();
    let solver = dns::solver(raw, problems);
    if challenge == ChallengeKind::Dns && solver.is_none() && problems.len() == count {
        let problem = "--acme-challenge=dns-01 needs --acme-dns-server or --acme-dns-webhook";
        problems.push(problem.to_owned());
    }
    solver
}

fn key_kind(raw: &RawAcme, problems: &mut Vec<String>) -> KeyKind {
    let word = &raw.acme_key;
    KeyKind::from_word(word).unwrap_or_else(|| {
        problems.push(format!(
            "--acme-key is {word:?}, none of ecdsa-p256, rsa-2048 and ecdsa-and-rsa"
        ));
        KeyKind::default()
    })
}

pub(super) fn port(flag: &str, text: &str, problems: &mut Vec<String>) -> Option<u16> {
    if text == "off" {
        return None;
    }
    let port = text.parse().ok().filter(|port| *port > 0);
    if port.is_none() {
        problems.push(format!("{flag} is {text:?}, neither a port nor \"off\""));
    }
    port
}

/// The key that binds accounts, where one is named.
fn binding(raw: &RawAcme, problems: &mut Vec<String>) -> Option<Binding> {
    let (id, path) = match (&raw.acme_eab_key_id, &raw.acme_eab_key_file) {
        (Some(id), Some(path)) => (id, path),
        (None, None) => return None,
        _ => {
            let problem = "--acme-eab-key-id and --acme-eab-key-file belong together";
            problems.push(problem.to_owned());
            return None;
        }
    };
    match key(path) {
        Ok(key) => Some(Binding {
            id: id.as_str().into(),
            key,
        }),
        Err(problem) => {
            problems.push(format!("--acme-eab-key-file {}: {problem}", path.display()));
            None
        }
    }
}

fn key(path: &Path) -> Result<BindingKey, String> {
    let text = file::whole(path, KEY_BYTES_MAX).map_err(|error| error.to_string())?;
    let text = text.trim();
    let bytes = URL_SAFE_NO_PAD
        .decode(text)
        .or_else(|_| URL_SAFE.decode(text));
    match bytes {
        Ok(bytes) if !bytes.is_empty() => Ok(BindingKey::new(bytes)),
        _ => Err("it is no key in base64url".to_owned()),
    }
}

fn is_place(rest: &str) -> bool {
    !rest.is_empty() && !rest.starts_with('/') && rest.bytes().all(|it| it.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use myriad_pki::acme::ChallengeKind;

    use super::{AcmeSettings, read};
    use crate::cli::{Cli, Command};

    fn settings(arguments: &[&str]) -> (AcmeSettings, Vec<String>) {
        let line = ["myriad", "serve", "d"];
        let line = line.into_iter().chain(arguments.iter().copied());
        let Command::Serve(raw) = Cli::parse_from(line).command else {
            panic!("not serve")
        };
        let mut problems = Vec::new();
        let state_dir = &raw.acme_state.acme_state_dir;
        (read(&raw.acme, state_dir, &mut problems), problems)
    }

    #[test]
    fn nobody_is_asked_for_certificates_unless_somebody_says_so() {
        assert!(settings(&[]).0.issuer.is_none());
        let (acme, problems) = settings(&["--acme-email=ops@shop.example"]);
        assert!(problems.is_empty());
        let directories = acme.issuer.unwrap().directories;
        assert_eq!(
            &*directories[0].url,
            "https://acme-v02.api.letsencrypt.org/directory"
        );
        assert_eq!(directories[0].email.as_deref(), Some("ops@shop.example"));
        let several = "--acme-directory=letsencrypt-staging,https://ca.example:14000/dir";
        let (acme, problems) = settings(&[several, "--acme-challenge=tls-alpn-01"]);
        assert!(problems.is_empty());
        let issuer = acme.issuer.unwrap();
        let urls: Vec<&str> = issuer.directories.iter().map(|it| &*it.url).collect();
        let staging = "https://acme-staging-v02.api.letsencrypt.org/directory";
        assert_eq!(urls, [staging, "https://ca.example:14000/dir"]);
        assert_eq!(issuer.challenge, ChallengeKind::TlsAlpn);
        assert_eq!(acme.proof_port, Some(80));
        assert_eq!(acme.bounds.look_max, 86_400_000);
        let (acme, problems) = settings(&["--acme-email=a@b", "--acme-look=600"]);
        assert!(problems.is_empty());
        assert_eq!(acme.bounds.look_max, 600_000);
        let (acme, _) = settings(&["--acme-email=a@b", "--acme-proof=off"]);
        assert_eq!(acme.proof_port, None);
    }

    #[test]
    fn a_controller_obtains_certificates_where_somebody_says_of_whom_or_that_it_shall() {
        let settings = |arguments: &[&str]| {
            let line = ["myriad", "controller", "--proxy-accounts=a/b"];
            let line = line.into_iter().chain(arguments.iter().copied());
            let Command::Controller(raw) = Cli::parse_from(line).command else {
                panic!("not controller")
            };
            crate::settings::Controller::check(&raw)
        };
        assert!(settings(&[]).unwrap().acme.is_none());
        let bare = settings(&["--acme"]).unwrap();
        assert!(bare.acme.is_some_and(|acme| acme.issuer.is_none()));
        let asking = settings(&[
            "--acme-on-demand-ask=http://ask.shop/",
            "--acme-on-demand-max=7",
        ]);
        let on_demand = asking.unwrap().acme.unwrap().on_demand;
        assert_eq!(on_demand.ask.as_deref(), Some("http://ask.shop/"));
        assert_eq!(on_demand.certificates_max, 7);
        let wrong = settings(&["--acme-on-demand-ask=shop"]).unwrap_err();
        assert!(
            wrong.to_string().contains("--acme-on-demand-ask"),
            "{wrong}"
        );
        let named = settings(&["--acme-email=a@b", "--resolver=192.0.2.1"]).unwrap();
        assert_eq!(named.resolvers, ["192.0.2.1:53".parse().unwrap()]);
        assert!(named.translate().has_issuer("default"));
        assert!(named.translate().pairing_issuers.is_empty());
        let both = settings(&["--acme-email=a@b", "--acme-key=ecdsa-and-rsa"]).unwrap();
        assert!(both.translate().pairing_issuers.contains("default"));
        assert!(named.translate().dns_issuers.is_empty());
        let in_dns = settings(&["--acme-email=a@b", "--acme-challenge=dns-persist-01"]).unwrap();
        assert!(in_dns.translate().dns_issuers.contains("default"));
        assert!(named.acme.is_some_and(|acme| acme.issuer.is_some()));
        // Nothing is kept in files.
        let line = ["myriad", "controller", "--acme-state-dir=/x"];
        assert!(Cli::try_parse_from(line).is_err());
    }

    #[test]
    fn what_cannot_be_meant_is_told() {
        for (arguments, told) in [
            (&["--acme-email=shop"][..], "no address"),
            (&["--acme-email=a@b,c@d"], "no address"),
            (&["--acme-directory=http://ca.example/dir"], "https://"),
            (&["--acme-directory=https:///dir"], "https://"),
            (&["--acme-email=a@b", "--acme-challenge=dns-01"], "dns-01"),
            (&["--acme-email=a@b", "--acme-proof=0"], "--acme-proof"),
            (
                &["--acme-email=a@b", "--acme-dns-proof=0"],
                "--acme-dns-proof",
            ),
            (&["--acme-email=a@b", "--acme-key=dsa"], "rsa-2048"),
            (
                &["--acme-email=a@b", "--acme-dns-server=a"],
                "--acme-dns-key",
            ),
            (&["--acme-email=a@b", "--acme-proof=no"], "--acme-proof"),
            (&["--acme-email=a@b", "--acme-eab-key-id=k"], "together"),
            (
                &[
                    "--acme-email=a@b",
                    "--acme-eab-key-id=k",
                    "--acme-eab-key-file=/nothing/here",
                ],
                "/nothing/here",
            ),
        ] {
            let (_, problems) = settings(arguments);
            assert_eq!(problems.len(), 1, "{arguments:?}: {problems:?}");
            assert!(problems[0].contains(told), "{problems:?}");
        }
    }
}
