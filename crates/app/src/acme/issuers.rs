//! The issuers of an office: from what objects say to what orders are placed by.

use std::collections::BTreeMap;
use std::sync::Arc;

use myriad_api::{Finding, ObjectKey};
use myriad_pki::acme::{
    AcmeIssuer, Binding, BindingKey, ChallengeKind, Directory, DnsSolver, DnsWebhook, KeyKind,
    Millis, StepTrouble, TsigAlgorithm, TsigKey, TsigSecret,
};
use myriad_proxy::Names;
use myriad_translate::{
    AuthorityTerms, HashTerms, IssuerTerms, KeyTerms, ProofTerms, SolverTerms, StatedIssuer,
};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::mpsc;

use super::http::Client;
use super::lanes::directory_of;
use super::registrar::Registrar;
use super::reports::{IssuerReport, IssuerReports};
use super::waiting::WaitingBook;
use crate::settings::ISSUER;

/// The most registrations that have ended and wait to be taken in.
const ENDED_MAX: usize = 8;

/// The end of a registration: the issuer, and what its authority said.
pub(super) type Registered = (Box<str>, Result<String, StepTrouble>);

/// The issuers that are known.
pub(super) struct IssuerBook {
    /// The issuer of the settings.
    pub of_settings: Option<AcmeIssuer>,
    /// The issuers that objects make and that can be used, by name.
    pub known: BTreeMap<Box<str>, Arc<StatedIssuer>>,
    /// The findings about those that are not used.
    pub told: BTreeMap<Box<str>, Arc<Finding>>,
    /// The certificates that people were told wait for an issuer.
    pub waiting: WaitingBook,
    pub registrar: Registrar,
    /// When accounts are dropped that no issuer has any more.
    pub accounts_due: Option<Millis>,
    pub ended: mpsc::Sender<Registered>,
    pub registered: mpsc::Receiver<Registered>,
    /// Where people are shown how it is with issuers; none where nobody can be.
    reports: Option<IssuerReports>,
    /// How directories are verified whose issuer names no roots.
    config: Arc<ClientConfig>,
    names: Names,
    /// Whether objects of namespaces are other people's, whose issuers lead to public addresses
    /// alone.
    are_tenants: bool,
}

impl IssuerBook {
    /// One with the issuer of the settings alone, and means to ask authorities.
    pub(super) fn new(
        (config, names): (Arc<ClientConfig>, Names),
        reports: Option<IssuerReports>,
        are_tenants: bool,
        seed: u64,
    ) -> IssuerBook {
        let (ended, registered) = mpsc::channel(ENDED_MAX);
        IssuerBook {
            of_settings: None,
            known: BTreeMap::new(),
            told: BTreeMap::new(),
            waiting: WaitingBook::default(),
            registrar: Registrar::new(seed),
            accounts_due: None,
            ended,
            registered,
            reports,
            config,
            names,
            are_tenants,
        }
    }

    /// Whether orders are placed by an issuer.
    pub(super) fn has(&self, name: &str) -> bool {
        self.known.contains_key(name) || self.of_settings.is_some() && name == ISSUER
    }

    /// Whether people are shown how it is with issuers, so that each is asked for its account.
    pub(super) fn is_shown(&self) -> bool {
        self.reports.is_some()
    }

    /// Shows people how it is with an issuer.
    pub(super) fn report(&self, object: &ObjectKey, report: IssuerReport) {
        if let Some(reports) = &self.reports {
            reports.set(object, report);
        }
    }

    /// Shows nothing of an issuer any more.
    pub(super) fn forget_report(&self, object: &ObjectKey) {
        if let Some(reports) = &self.reports {
            reports.forget(object);
        }
    }

    /// Whether an issuer is a tenant's, whose servers are at public addresses alone.
    pub(super) fn is_tenants(&self, issuer: &StatedIssuer) -> bool {
        self.are_tenants && !issuer.object.namespace().is_empty()
    }

    /// The client that asks the directories of an issuer; none where any does.
    ///
    /// # Errors
    /// Its roots cannot be used.
    pub(super) fn client(
        &self,
        issuer: &StatedIssuer,
        terms: &IssuerTerms,
    ) -> Result<Option<Client>, rustls::Error> {
        let is_chosen = self.is_tenants(issuer);
        if terms.roots.is_empty() && !is_chosen {
            return Ok(None);
        }
        let config = match terms.roots.is_empty() {
            true => self.config.clone(),
            false => {
                let mut roots = RootCertStore::empty();
                for root in &terms.roots {
                    roots.add(CertificateDer::from(&**root))?;
                }
                trusting(roots)?
            }
        };
        let names = self.names.clone();
        Ok(Some(match is_chosen {
            true => Client::of_tenant(config, names),
            false => Client::new(config, names),
        }))
    }
}

/// A configuration that verifies servers by some roots.
///
/// # Errors
/// The cryptographic library refuses.
pub(super) fn trusting(roots: RootCertStore) -> Result<Arc<ClientConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions()?;
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    Ok(Arc::new(config))
}

/// An issuer as orders are placed by it.
pub(super) fn acme_issuer(name: &str, terms: &IssuerTerms) -> AcmeIssuer {
    let authorities = terms.authorities.iter();
    AcmeIssuer {
        directories: authorities.map(|it| directory(name, it)).collect(),
        challenge: match terms.proof {
            ProofTerms::Http => ChallengeKind::Http,
            ProofTerms::TlsAlpn => ChallengeKind::TlsAlpn,
            ProofTerms::Dns => ChallengeKind::Dns,
            ProofTerms::DnsPersist => ChallengeKind::DnsPersist,
        },
        dns: terms.solver.as_ref().map(solver),
        key: match terms.key {
            KeyTerms::EcdsaP256 => KeyKind::EcdsaP256,
            KeyTerms::Rsa2048 => KeyKind::Rsa2048,
            KeyTerms::EcdsaAndRsa => KeyKind::EcdsaAndRsa,
        },
        is_tenants: false,
    }
}

fn directory(name: &str, authority: &AuthorityTerms) -> Directory {
    let binding = authority.binding.as_ref().map(|(id, key)| Binding {
        id: id.clone(),
        key: BindingKey::new(key.expose().to_vec()),
    });
    Directory {
        url: directory_of(&authority.url, name),
        email: authority.email.clone(),
        profile: authority.profile.clone(),
        binding,
    }
}

fn solver(terms: &SolverTerms) -> DnsSolver {
    match terms {
        SolverTerms::Update {
            server,
            zone,
            key_name,
            hash,
            key,
        } => DnsSolver::Update {
            server: server.clone(),
            zone: zone.clone(),
            key: TsigKey {
                name: key_name.clone(),
                algorithm: match hash {
                    HashTerms::Sha256 => TsigAlgorithm::Sha256,
                    HashTerms::Sha512 => TsigAlgorithm::Sha512,
                },
                secret: TsigSecret::new(key.expose().to_vec()),
            },
        },
        SolverTerms::Webhook {
            url,
            group,
            solver,
            config,
            namespace,
        } => DnsSolver::Webhook(DnsWebhook {
            url: url.clone(),
            group: group.clone(),
            solver: solver.clone(),
            config: config.clone(),
            namespace: namespace.clone(),
            token_file: None,
        }),
    }
}

#[cfg(test)]
mod tests {
    use myriad_pki::acme::{ChallengeKind, KeyKind};
    use myriad_translate::{AuthorityTerms, IssuerTerms, KeyTerms, ProofTerms};

    use super::acme_issuer;

    #[test]
    fn two_issuers_at_one_authority_have_directories_of_their_own() {
        let authority = AuthorityTerms {
            url: "https://ca.example/dir".into(),
            email: Some("ops@shop.example".into()),
            profile: None,
            binding: None,
        };
        let terms = IssuerTerms {
            authorities: [authority].into(),
            proof: ProofTerms::TlsAlpn,
            roots: Box::default(),
            solver: None,
            key: KeyTerms::Rsa2048,
            ask: None,
        };
        let [one, other] = ["shop/le", "blog/le"].map(|name| acme_issuer(name, &terms));
        assert_ne!(one.directories[0].url, other.directories[0].url);
        assert_eq!(
            one.directories[0].email.as_deref(),
            Some("ops@shop.example")
        );
        assert_eq!(
            (one.challenge, one.key),
            (ChallengeKind::TlsAlpn, KeyKind::Rsa2048)
        );
    }
}
