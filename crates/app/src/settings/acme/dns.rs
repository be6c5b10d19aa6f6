//! Settings of records of DNS that prove names.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use myriad_base::file;
use myriad_pki::acme::{DnsSolver, DnsWebhook, TsigAlgorithm, TsigKey, TsigSecret};

use crate::cli::RawAcme;

/// The longest file of a key, and of the settings of a webhook.
const KEY_BYTES_MAX: u64 = 4 << 10;
const CONFIG_BYTES_MAX: u64 = 64 << 10;

/// How records are set; none where nothing says so.
pub(super) fn solver(raw: &RawAcme, problems: &mut Vec<String>) -> Option<DnsSolver> {
    let (server, webhook) = (given(&raw.acme_dns_server), given(&raw.acme_dns_webhook));
    match (server, webhook) {
        (None, None) => {
            let problem = "--acme-dns-key-name and --acme-dns-key-file need --acme-dns-server";
            if raw.acme_dns_key_name.is_some() || raw.acme_dns_key_file.is_some() {
                problems.push(problem.to_owned());
            }
            None
        }
        (Some(_), Some(_)) => {
            let problem = "--acme-dns-server and --acme-dns-webhook are two ways of one thing";
            problems.push(problem.to_owned());
            None
        }
        (Some(server), None) => Some(DnsSolver::Update {
            server: server.into(),
            zone: given(&raw.acme_dns_zone).map(Box::from),
            key: key(raw, problems)?,
        }),
        (None, Some(url)) => webhook_at(url, raw, problems).map(DnsSolver::Webhook),
    }
}

fn given(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|it| !it.is_empty())
}

fn key(raw: &RawAcme, problems: &mut Vec<String>) -> Option<TsigKey> {
    let Some((name, path)) = given(&raw.acme_dns_key_name).zip(raw.acme_dns_key_file.as_deref())
    else {
        let problem = "--acme-dns-server needs --acme-dns-key-name and --acme-dns-key-file";
        problems.push(problem.to_owned());
        return None;
    };
    let word = &raw.acme_dns_key_algorithm;
    let algorithm = TsigAlgorithm::from_word(word);
    if algorithm.is_none() {
        problems.push(format!(
            "--acme-dns-key-algorithm is {word:?}, neither hmac-sha256 nor hmac-sha512"
        ));
    }
    let secret = secret(path);
    if let Err(problem) = &secret {
        problems.push(format!("--acme-dns-key-file {}: {problem}", path.display()));
    }
    Some(TsigKey {
        name: name.into(),
        algorithm: algorithm?,
        secret: secret.ok()?,
    })
}

fn secret(path: &Path) -> Result<TsigSecret, String> {
    let text = file::whole(path, KEY_BYTES_MAX).map_err(|error| error.to_string())?;
    match STANDARD.decode(text.trim()) {
        Ok(bytes) if !bytes.is_empty() => Ok(TsigSecret::new(bytes)),
        _ => Err("it is no key in base64".to_owned()),
    }
}

fn webhook_at(url: &str, raw: &RawAcme, problems: &mut Vec<String>) -> Option<DnsWebhook> {
    let solver = given(&raw.acme_dns_webhook_solver);
    let names = solver.map(|it| it.split_once('/'));
    if let Some(None) = names {
        problems.push(format!(
            "--acme-dns-webhook-solver is {:?}, and not GROUP/SOLVER",
            solver.unwrap_or_default()
        ));
        return None;
    }
    let (group, solver) = names.flatten().unwrap_or_default();
    let config = match &raw.acme_dns_webhook_config {
        Some(path) => match config(path) {
            Ok(config) => config,
            Err(problem) => {
                let path = path.display();
                problems.push(format!("--acme-dns-webhook-config {path}: {problem}"));
                return None;
            }
        },
        None => String::new(),
    };
    Some(DnsWebhook {
        url: Some(url.into()),
        group: group.into(),
        solver: solver.into(),
        config: config.into(),
        namespace: "".into(),
        token_file: raw.acme_dns_webhook_token_file.clone(),
    })
}

fn config(path: &Path) -> Result<String, String> {
    let text = file::whole(path, CONFIG_BYTES_MAX).map_err(|error| error.to_string())?;
    let read: Result<serde_json::Value, _> = serde_json::from_str(&text);
    read.map(|_| text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use myriad_pki::acme::{DnsSolver, TsigAlgorithm};

    use super::solver;
    use crate::cli::{Cli, Command};

    fn read(arguments: &[&str]) -> (Option<DnsSolver>, Vec<String>) {
        let line = ["myriad", "serve", "d"];
        let line = line.into_iter().chain(arguments.iter().copied());
        let Command::Serve(raw) = Cli::parse_from(line).command else {
            panic!("not serve")
        };
        let mut problems = Vec::new();
        (solver(&raw.acme, &mut problems), problems)
    }

    #[test]
    fn records_are_set_by_updates_or_by_a_webhook() {
        assert_eq!(read(&[]), (None, Vec::new()));
        let folder = tempfile::tempdir().unwrap();
        let keep = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let key = format!("--acme-dns-key-file={}", keep("key", "c2VjcmV0\n"));
        let (found, problems) = read(&[
            "--acme-dns-server=192.0.2.53",
            "--acme-dns-key-name=gateway",
            &key,
            "--acme-dns-key-algorithm=hmac-sha512",
        ]);
        assert!(problems.is_empty(), "{problems:?}");
        let Some(DnsSolver::Update { server, zone, key }) = found else {
            panic!("{found:?}")
        };
        assert_eq!((&*server, zone), ("192.0.2.53", None));
        assert_eq!(
            (&*key.name, key.secret.expose()),
            ("gateway", &b"secret"[..])
        );
        assert_eq!(key.algorithm, TsigAlgorithm::Sha512);

        let config = format!("--acme-dns-webhook-config={}", keep("config", "{\"a\":1}"));
        let (found, problems) = read(&[
            "--acme-dns-webhook=https://api.example",
            "--acme-dns-webhook-solver=acme.example/my-solver",
            &config,
        ]);
        assert!(problems.is_empty(), "{problems:?}");
        let Some(DnsSolver::Webhook(webhook)) = found else {
            panic!("{found:?}")
        };
        assert_eq!(webhook.url.as_deref(), Some("https://api.example"));
        assert_eq!(
            (&*webhook.group, &*webhook.solver),
            ("acme.example", "my-solver")
        );
        assert_eq!(&*webhook.config, "{\"a\":1}");
    }

    #[test]
    fn half_of_a_way_is_none() {
        for (arguments, told) in [
            (&["--acme-dns-server=a"][..], "--acme-dns-key-name"),
            (&["--acme-dns-key-name=a"], "--acme-dns-server"),
            (&["--acme-dns-server=a", "--acme-dns-webhook=b"], "two ways"),
            (
                &[
                    "--acme-dns-webhook=https://b",
                    "--acme-dns-webhook-solver=s",
                ],
                "GROUP/SOLVER",
            ),
            (
                &[
                    "--acme-dns-server=a",
                    "--acme-dns-key-name=k",
                    "--acme-dns-key-file=/nothing/here",
                ],
                "/nothing/here",
            ),
            (
                &[
                    "--acme-dns-webhook=https://b",
                    "--acme-dns-webhook-config=/nothing/here",
                ],
                "/nothing/here",
            ),
        ] {
            let (found, problems) = read(arguments);
            assert!(found.is_none(), "{arguments:?}");
            assert_eq!(problems.len(), 1, "{arguments:?}: {problems:?}");
            assert!(problems[0].contains(told), "{problems:?}");
        }
    }
}
