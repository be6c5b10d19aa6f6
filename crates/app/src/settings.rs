//! From settings as written to settings as meant; all problems are reported, not the first.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use myriad_translate::{CatchAll, HostSharing};

use crate::cli::{RawMeaning, RawServe};

/// Settings of `serve`.
#[derive(Clone, Debug)]
pub struct Serve {
    /// The directory.
    pub dir: PathBuf,
    /// Where HTTP is served.
    pub http: SocketAddr,
    /// Where HTTPS is served.
    pub https: SocketAddr,
    /// Where admin pages are served.
    pub admin: SocketAddr,
    /// Threads that serve connections, at least 1.
    pub workers: usize,
    /// The port in redirects to HTTPS; none takes the port that HTTPS is served on.
    pub redirect_port: Option<u16>,
    /// How long connections are still accepted in a drain.
    pub drain_delay: Duration,
    /// When the connections that remain are cut.
    pub drain_timeout: Duration,
    /// Whether requests are logged.
    pub access_log: bool,
    /// Proxies in front of this one that are believed about the client's address.
    pub trusted_hops: usize,
    /// How objects are read.
    pub meaning: Meaning,
}

/// Settings that decide what objects mean.
#[derive(Clone, Debug)]
pub struct Meaning {
    /// The ingress class that is served.
    pub ingress_class: String,
    /// Namespace and Secret of the default certificate.
    pub default_certificate: Option<(String, String)>,
    /// Annotations that are ignored on request.
    pub ignore_annotations: BTreeSet<String>,
    /// Whether objects of all namespaces merge on a host.
    pub shares_hosts: bool,
    /// Namespaces whose objects without host take effect; none means all.
    pub catch_all_namespaces: Option<BTreeSet<String>>,
}

/// Every problem of a set of settings.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct SettingsError(Vec<String>);

/// The most workers: a guard against a typing error, not a tuning limit.
const WORKERS_MAX: usize = 1_024;

/// The longest drain.
const DRAIN_SECONDS_MAX: u64 = 3_600;

impl Serve {
    /// Checks settings.
    ///
    /// # Errors
    /// All problems at once, each naming its setting.
    pub fn check(raw: &RawServe) -> Result<Serve, SettingsError> {
        let mut problems = Vec::new();
        let http = address("--http", &raw.http, &mut problems);
        let https = address("--https", &raw.https, &mut problems);
        let admin = address("--admin", &raw.admin, &mut problems);
        let workers = raw.workers.unwrap_or_else(cores);
        if !(1..=WORKERS_MAX).contains(&workers) {
            problems.push(format!("--workers is {workers}, not 1 to {WORKERS_MAX}"));
        }
        for (name, seconds) in [
            ("--drain-delay", raw.drain_delay),
            ("--drain-timeout", raw.drain_timeout),
        ] {
            if seconds > DRAIN_SECONDS_MAX {
                problems.push(format!("{name} is {seconds}, over {DRAIN_SECONDS_MAX}"));
            }
        }
        let meaning = Meaning::read(&raw.meaning, &mut problems);
        if !problems.is_empty() {
            return Err(SettingsError(problems));
        }
        Ok(Serve {
            dir: raw.dir.clone(),
            http,
            https,
            admin,
            workers,
            redirect_port: raw.redirect_port,
            drain_delay: Duration::from_secs(raw.drain_delay),
            drain_timeout: Duration::from_secs(raw.drain_timeout),
            access_log: raw.access_log,
            trusted_hops: raw.trusted_hops,
            meaning,
        })
    }
}

impl Serve {
    /// What the proxy is started with.
    pub fn proxy(&self) -> myriad_proxy::Settings {
        myriad_proxy::Settings {
            workers: self.workers,
            drain_delay: self.drain_delay,
            drain_timeout: self.drain_timeout,
            access_log: self.access_log.then(|| Box::new(std::io::stdout()) as _),
            trusted_hops: self.trusted_hops,
            ..myriad_proxy::Settings::default()
        }
    }

    /// What the engine is started with. The ports are those that are really bound.
    pub fn translate(&self) -> myriad_translate::Settings {
        myriad_translate::Settings {
            http: self.http,
            https: self.https,
            https_port: self.redirect_port.unwrap_or(self.https.port()),
            ..self.meaning.translate()
        }
    }
}

impl Meaning {
    /// What the engine is started with, where nothing is served.
    pub fn translate(&self) -> myriad_translate::Settings {
        let sharing = if self.shares_hosts {
            HostSharing::Cluster
        } else {
            HostSharing::Namespace
        };
        let catch_all = self.catch_all_namespaces.clone();
        myriad_translate::Settings {
            class_name: self.ingress_class.as_str().into(),
            host_sharing: sharing,
            catch_all_namespaces: catch_all.map_or(CatchAll::All, CatchAll::Only),
            ignore_annotations: self.ignore_annotations.clone(),
            default_certificate: self.default_certificate.clone(),
            ..myriad_translate::Settings::default()
        }
    }

    /// Checks settings.
    ///
    /// # Errors
    /// All problems at once, each naming its setting.
    pub fn check(raw: &RawMeaning) -> Result<Meaning, SettingsError> {
        let mut problems = Vec::new();
        let meaning = Meaning::read(raw, &mut problems);
        if problems.is_empty() {
            Ok(meaning)
        } else {
            Err(SettingsError(problems))
        }
    }

    fn read(raw: &RawMeaning, problems: &mut Vec<String>) -> Meaning {
        let default_certificate = raw.default_certificate.as_ref().and_then(|text| {
            let parts = text.split_once('/');
            let parts = parts.filter(|(ns, name)| !ns.is_empty() && !name.is_empty());
            if parts.is_none() {
                problems.push(format!(
                    "--default-certificate is {text:?}, not NAMESPACE/SECRET"
                ));
            }
            parts.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()))
        });
        let shares_hosts = match &*raw.host_sharing {
            "namespace" => false,
            "cluster" => true,
            other => {
                problems.push(format!(
                    "--host-sharing is {other:?}, not namespace or cluster"
                ));
                false
            }
        };
        if raw.ingress_class.is_empty() {
            problems.push("--ingress-class is empty".to_owned());
        }
        let all = raw.catch_all_namespaces.iter().any(|name| name == "*");
        let named = || {
            raw.catch_all_namespaces
                .iter()
                .filter(|name| !name.is_empty())
        };
        Meaning {
            ingress_class: raw.ingress_class.clone(),
            default_certificate,
            ignore_annotations: raw.ignore_annotations.iter().cloned().collect(),
            shares_hosts,
            catch_all_namespaces: (!all).then(|| named().cloned().collect()),
        }
    }
}

fn address(name: &str, text: &str, problems: &mut Vec<String>) -> SocketAddr {
    if let Ok(port) = text.parse::<u16>() {
        return (Ipv4Addr::UNSPECIFIED, port).into();
    }
    text.parse().unwrap_or_else(|_| {
        problems.push(format!("{name} is {text:?}, not a port or ADDRESS:PORT"));
        (Ipv4Addr::LOCALHOST, 0).into()
    })
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::Serve;
    use crate::cli::{Cli, Command};

    fn raw(arguments: &[&str]) -> crate::cli::RawServe {
        let line = ["myriad", "serve", "dir"].iter().chain(arguments);
        match Cli::parse_from(line).command {
            Command::Serve(raw) => raw,
            Command::Check(_) => panic!("another command"),
        }
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let serve = Serve::check(&raw(&[])).unwrap();
        assert_eq!(serve.http.to_string(), "0.0.0.0:8080");
        assert_eq!(serve.https.to_string(), "0.0.0.0:8443");
        assert_eq!(serve.admin.to_string(), "127.0.0.1:9901");
        assert_eq!(serve.meaning.catch_all_namespaces, None);
        assert!(serve.workers >= 1 && !serve.access_log);
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let raw = raw(&[
            "--http=nowhere",
            "--workers=0",
            "--drain-delay=99999",
            "--default-certificate=a",
            "--host-sharing=all",
        ]);
        let text = Serve::check(&raw).unwrap_err().to_string();
        for name in [
            "--http",
            "--workers",
            "--drain-delay",
            "--default-certificate",
            "--host-sharing",
        ] {
            assert!(text.contains(name), "{name} is not in: {text}");
        }
    }
}
