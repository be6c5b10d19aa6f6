//! Settings of certificates that are obtained by ACME.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use myriad_base::file;
use myriad_pki::acme::{AcmeIssuer, Binding, BindingKey, Bounds, ChallengeKind, Directory};

use crate::cli::RawAcme;

/// The name of the issuer that the settings make.
pub const ISSUER: &str = "default";

/// The longest file of a key.
const KEY_BYTES_MAX: u64 = 4 << 10;

/// The most directories.
const DIRECTORIES_MAX: usize = 8;

/// The directories that have names.
const NAMED: [(&str, &str); 2] = [
    (
        "letsencrypt",
        "https://acme-v02.api.letsencrypt.org/directory",
    ),
    (
        "letsencrypt-staging",
        "https://acme-staging-v02.api.letsencrypt.org/directory",
    ),
];

/// The settings of certificates that are obtained by ACME.
#[derive(Clone, Debug)]
pub struct AcmeSettings {
    /// The issuer of the name [`ISSUER`].
    pub issuer: AcmeIssuer,
    /// The file of the roots that directories are verified by; none for the system's.
    pub roots: Option<PathBuf>,
    /// The port at which names are asked whether they lead here; none to ask this process alone.
    pub proof_port: Option<u16>,
    /// The bounds of orders.
    pub bounds: Bounds,
    /// The directory of what is kept.
    pub state_dir: PathBuf,
}

/// Checks settings; none where nobody asks for certificates.
pub(super) fn read(raw: &RawAcme, problems: &mut Vec<String>) -> Option<AcmeSettings> {
    let directories = raw.acme_directory.iter().filter(|it| !it.is_empty());
    let mut directories: Vec<&str> = directories.map(String::as_str).collect();
    let email = raw.acme_email.as_deref().filter(|it| !it.is_empty());
    if directories.is_empty() {
        // Who gives an address has agreed to be known there.
        email?;
        directories.push(NAMED[0].0);
    }
    if email.is_some_and(|email| !is_address(email)) {
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
        let named = NAMED.iter().find(|(name, _)| name == text);
        let url = named.map_or(*text, |(_, url)| *url);
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
    let challenge = ChallengeKind::from_word(&raw.acme_challenge).unwrap_or_else(|| {
        problems.push(format!(
            "--acme-challenge is {:?}, neither http-01 nor tls-alpn-01",
            raw.acme_challenge
        ));
        ChallengeKind::default()
    });
    Some(AcmeSettings {
        issuer: AcmeIssuer {
            directories,
            challenge,
        },
        roots: raw.acme_ca.clone(),
        proof_port: proof_port(&raw.acme_proof, problems),
        bounds: Bounds {
            orders_per_authority: raw.acme_orders,
            orders_per_domain: raw.acme_orders_per_domain,
            ..Bounds::default()
        },
        state_dir: raw.acme_state_dir.clone(),
    })
}

fn proof_port(text: &str, problems: &mut Vec<String>) -> Option<u16> {
    if text == "off" {
        return None;
    }
    let port = text.parse().ok().filter(|port| *port > 0);
    if port.is_none() {
        problems.push(format!(
            "--acme-proof is {text:?}, neither a port nor \"off\""
        ));
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

fn is_address(text: &str) -> bool {
    let is_plain = |part: &str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_graphic());
    let parts = text.split_once('@');
    parts.is_some_and(|(user, host)| is_plain(user) && is_plain(host) && !host.contains('@'))
        && !text.contains(',')
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

    fn settings(arguments: &[&str]) -> (Option<AcmeSettings>, Vec<String>) {
        let line = ["myriad", "serve", "d"];
        let line = line.into_iter().chain(arguments.iter().copied());
        let Command::Serve(raw) = Cli::parse_from(line).command else {
            panic!("not serve")
        };
        let mut problems = Vec::new();
        (read(&raw.acme, &mut problems), problems)
    }

    #[test]
    fn nobody_is_asked_for_certificates_unless_somebody_says_so() {
        assert!(settings(&[]).0.is_none());
        let (acme, problems) = settings(&["--acme-email=ops@shop.example"]);
        assert!(problems.is_empty());
        let directories = acme.unwrap().issuer.directories;
        assert_eq!(
            &*directories[0].url,
            "https://acme-v02.api.letsencrypt.org/directory"
        );
        assert_eq!(directories[0].email.as_deref(), Some("ops@shop.example"));
        let several = "--acme-directory=letsencrypt-staging,https://ca.example:14000/dir";
        let (acme, problems) = settings(&[several, "--acme-challenge=tls-alpn-01"]);
        assert!(problems.is_empty());
        let acme = acme.unwrap();
        let urls: Vec<&str> = acme.issuer.directories.iter().map(|it| &*it.url).collect();
        let staging = "https://acme-staging-v02.api.letsencrypt.org/directory";
        assert_eq!(urls, [staging, "https://ca.example:14000/dir"]);
        assert_eq!(acme.issuer.challenge, ChallengeKind::TlsAlpn);
        assert_eq!(acme.proof_port, Some(80));
        let (acme, _) = settings(&["--acme-email=a@b", "--acme-proof=off"]);
        assert_eq!(acme.unwrap().proof_port, None);
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
