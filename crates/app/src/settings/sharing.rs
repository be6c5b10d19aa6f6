//! Settings that say which namespace has a host or may use a certificate.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use myriad_model::Host;
use myriad_model::host::Pattern;
use myriad_translate::{GatewayCredentials, HostSharing, ServiceExports};

use super::acme;
use crate::cli::RawAcme;
use crate::cli::sharing::RawSharing;

/// The settings that say which namespace has a host or may use a certificate, checked.
#[derive(Clone, Debug)]
pub struct Sharing {
    /// Whether objects of all namespaces merge on a host.
    pub hosts: HostSharing,
    /// The name of this installation in proofs of hosts; none where there are none.
    pub installation: Option<Box<str>>,
    /// Namespaces that share the wildcards of others; `*` for all.
    pub wildcards: BTreeSet<String>,
    /// Secrets of the gateway's namespace that objects of others may use; `None` where nothing is
    /// said.
    pub credentials: Option<GatewayCredentials>,
    /// Services that rules of other namespaces lead to at gateways.
    pub service_exports: ServiceExports,
}

/// The settings of proofs of hosts.
#[derive(Clone, Debug)]
pub struct ProofSettings {
    /// The name of this installation.
    pub installation: Box<str>,
    /// The port at which the servers of zones are asked for records; none to ask none of them.
    pub port: Option<u16>,
    /// The file of what is kept; in a cluster nothing is.
    pub file: PathBuf,
}

/// Checks settings.
pub(super) fn read(raw: &RawSharing, problems: &mut Vec<String>) -> Sharing {
    let hosts = match &*raw.host_sharing {
        "namespace" => HostSharing::Namespace,
        "cluster" => HostSharing::Cluster,
        other => {
            problems.push(format!(
                "--host-sharing is {other:?}, not namespace or cluster"
            ));
            HostSharing::Namespace
        }
    };
    let credentials = raw.gateway_credentials.as_deref();
    let credentials = credentials.map(|text| match text {
        "any" => GatewayCredentials::Any,
        "named" => GatewayCredentials::Named,
        other => {
            problems.push(format!(
                "--gateway-credentials is {other:?}, not any or named"
            ));
            GatewayCredentials::Named
        }
    });
    let service_exports = match &*raw.service_exports {
        "all" => ServiceExports::All,
        "named" => ServiceExports::Named,
        other => {
            problems.push(format!("--service-exports is {other:?}, not all or named"));
            ServiceExports::Named
        }
    };
    let wildcards = raw.wildcard_sharing.iter().filter(|name| !name.is_empty());
    Sharing {
        hosts,
        installation: installation(raw, hosts, problems),
        wildcards: wildcards.cloned().collect(),
        credentials,
        service_exports,
    }
}

/// The settings of proofs, of which what is wrong is told elsewhere; none where there are none.
pub(super) fn proofs(raw: &RawSharing, acme: &RawAcme, file: &Path) -> Option<ProofSettings> {
    let installation = raw.host_proof.as_deref().filter(|name| !name.is_empty())?;
    Some(ProofSettings {
        installation: installation.into(),
        port: acme::port("--acme-dns-proof", &acme.acme_dns_proof, &mut Vec::new()),
        file: file.to_owned(),
    })
}

/// The name of this installation, which is a name of DNS, so that two that do not know of each
/// other have two.
fn installation(
    raw: &RawSharing,
    hosts: HostSharing,
    problems: &mut Vec<String>,
) -> Option<Box<str>> {
    let name = raw.host_proof.as_deref().filter(|name| !name.is_empty())?;
    let host = Host::parse(name);
    if !host.is_ok_and(|host| matches!(host.pattern(), Pattern::Exact(_)) && name.contains('.')) {
        problems.push(format!(
            "--host-proof is {name:?}, which is no name of DNS in lower case such as \
             gateway.example.com"
        ));
    }
    if hosts == HostSharing::Cluster {
        let problem = "--host-proof means nothing with --host-sharing=cluster, where no namespace \
                       has a host to itself";
        problems.push(problem.to_owned());
    }
    Some(name.into())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::cli::{Cli, Command};
    use crate::settings::{Controller, Serve};

    fn serve(arguments: &[&str]) -> Result<Serve, String> {
        let line = ["myriad", "serve", "d"];
        let line = line.into_iter().chain(arguments.iter().copied());
        let Command::Serve(raw) = Cli::parse_from(line).command else {
            panic!("not serve")
        };
        Serve::check(&raw).map_err(|error| error.to_string())
    }

    #[test]
    fn hosts_are_proven_for_an_installation_that_has_a_name() {
        let off = serve(&[]).unwrap();
        assert!(off.proof.is_none() && off.translate().host_proof.is_none());
        let on = serve(&["--host-proof=edge.example", "--acme-dns-proof=5353"]).unwrap();
        assert_eq!(on.translate().host_proof.as_deref(), Some("edge.example"));
        let proof = on.proof.unwrap();
        assert_eq!(
            (&*proof.installation, proof.port),
            ("edge.example", Some(5_353))
        );
        for (arguments, told) in [
            (&["--host-proof=edge"][..], "no name of DNS"),
            (&["--host-proof=*.example"], "no name of DNS"),
            (&["--host-proof=Edge.example"], "no name of DNS"),
            (
                &["--host-proof=edge.example", "--host-sharing=cluster"],
                "--host-sharing=cluster",
            ),
        ] {
            let problem = serve(arguments).unwrap_err();
            assert!(problem.contains(told), "{problem}");
        }
    }

    #[test]
    fn a_controller_proves_hosts_without_obtaining_certificates() {
        let line = [
            "myriad",
            "controller",
            "--proxy-accounts=a/b",
            "--host-proof=edge.example",
        ];
        let Command::Controller(raw) = Cli::parse_from(line).command else {
            panic!("not controller")
        };
        let settings = Controller::check(&raw).unwrap();
        assert!(settings.acme.is_none());
        assert_eq!(settings.proof.unwrap().port, Some(53));
        // What is kept is no file.
        let line = ["myriad", "controller", "--host-proof-file=/x"];
        assert!(Cli::try_parse_from(line).is_err());
    }
}
