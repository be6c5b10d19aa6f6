//! An Issuer or a ClusterIssuer: what it says is checked, and the keys that it names are read.
//!
//! Secrets are read of its own namespace alone, and of the one of the settings for a ClusterIssuer,
//! and only those whose writer says that they are for issuers. One thing that is wrong makes an
//! issuer of which nothing is obtained, rather than another one than was meant.

mod faults;
mod solver;
mod texts;

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use bytes::Bytes;
use myriad_api::issuer::{
    AcmeDirectory, AcmeRoots, AcmeSpec, ExternalAccountBinding, OnDemandSpec, SecretKeyRef,
};
use myriad_api::{Issuer, Object, ObjectKey};
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use crate::engine::{
    AuthorityTerms, IssuerSecret, IssuerTerms, KeyTerms, Output, ProofTerms, Reader, StatedIssuer,
    Unit,
};
use crate::resolve::{is_issuer_ours, issuer_name};

use faults::Faults;
pub use texts::{directory_named, is_mail_address};

/// The issuer of certificates on demand.
const ON_DEMAND: &str = "default";

/// The most directories of one issuer.
const DIRECTORIES_MAX: usize = 8;

/// The longest profile, and the longest name of a key.
const WORD_BYTES_MAX: usize = 256;

/// The longest PEM of roots that stands in an issuer.
const PEM_BYTES_MAX: usize = 64 << 10;

/// The most roots of one issuer.
const ROOTS_MAX: usize = 16;

/// Translates an issuer: it is told of to whoever obtains certificates.
pub(crate) fn translate(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    let mut output = Output::default();
    let Some(key) = unit.object_key() else {
        return output;
    };
    let object = reader.itself(&key);
    // That of another installation is that one's to use, and to tell of.
    let is_ours = is_issuer_ours(reader.settings(), object.as_ref());
    let Some(Object::Issuer(issuer)) = object.filter(|_| is_ours) else {
        return output;
    };
    let mut faults = Faults::new(&key);
    let terms = Checking::new(reader, &issuer).check(&issuer, &mut faults);
    let fault = faults.first().map(Box::from);
    output.issuers.push(StatedIssuer {
        name: issuer_name(&key),
        created: issuer.meta.created,
        object: key.clone(),
        terms: match (terms, fault) {
            (Some(terms), None) => Ok(terms),
            (_, fault) => Err(fault.unwrap_or_default()),
        },
    });
    output.findings = faults.into_findings();
    output
}

/// The check of one issuer, and the namespace of the Secrets that it may name.
struct Checking<'r, 'a> {
    reader: &'r mut Reader<'a>,
    namespace: Box<str>,
    /// Whether it is for objects of all namespaces.
    is_for_all: bool,
}

impl<'r, 'a> Checking<'r, 'a> {
    fn new(reader: &'r mut Reader<'a>, issuer: &Issuer) -> Self {
        let key = &issuer.meta.key;
        let is_for_all = key.kind.is_cluster_scoped();
        let namespace = match is_for_all {
            true => reader.settings().issuer_namespace.clone(),
            false => key.namespace().into(),
        };
        Checking {
            reader,
            namespace,
            is_for_all,
        }
    }

    fn check(mut self, issuer: &Issuer, faults: &mut Faults<'_>) -> Option<IssuerTerms> {
        faults.note(&issuer.notes);
        let (acme, on_demand) = match &issuer.spec {
            Ok(spec) => (&spec.acme, spec.on_demand.as_ref()),
            Err(problem) => {
                faults.problem(problem);
                return None;
            }
        };
        let dns = acme.dns.as_ref();
        let solver = dns.and_then(|dns| self.solver(dns, faults));
        Some(IssuerTerms {
            authorities: self.authorities(acme, faults),
            proof: proof(acme, faults),
            roots: self.roots(acme.ca.as_ref(), faults),
            solver,
            key: key(acme, faults),
            ask: on_demand.map(|it| self.ask(it, &issuer.meta.key, faults)),
        })
    }

    /// The URL that is asked about names on demand, which are of no namespace.
    fn ask(&self, spec: &OnDemandSpec, key: &ObjectKey, faults: &mut Faults<'_>) -> Box<str> {
        if !self.is_for_all || key.name() != ON_DEMAND {
            let message = "is for the ClusterIssuer default alone, since names that stand in no \
                           object are of no namespace";
            faults.error("spec.onDemand", message, "remove it, or write it there");
        }
        if !texts::is_question(&spec.ask) {
            let remedy = "write a URL that begins with https:// or http://";
            faults.error("spec.onDemand.ask", "is no URL that can be asked", remedy);
        }
        spec.ask.clone()
    }

    fn authorities(&mut self, acme: &AcmeSpec, faults: &mut Faults<'_>) -> Box<[AuthorityTerms]> {
        let field = "spec.acme.directories";
        let directories = &acme.directories;
        if directories.is_empty() {
            let remedy = "name one, such as url: letsencrypt";
            faults.error(field, "names no directory of an authority", remedy);
        }
        if directories.len() > DIRECTORIES_MAX {
            let message = format!("has more than {DIRECTORIES_MAX} directories");
            faults.error(field, message, "leave only those that are needed");
        }
        let mut known = BTreeSet::new();
        let directories = directories.iter().take(DIRECTORIES_MAX).enumerate();
        let authorities = directories.map(|(at, directory)| {
            let field = format!("{field}[{at}]");
            let authority = self.authority(directory, &field, faults);
            if !known.insert(authority.url.clone()) {
                let message = "is a directory that stands above already";
                faults.error(&format!("{field}.url"), message, "remove one of them");
            }
            authority
        });
        authorities.collect()
    }

    fn authority(
        &mut self,
        directory: &AcmeDirectory,
        field: &str,
        faults: &mut Faults<'_>,
    ) -> AuthorityTerms {
        let named = directory_named(&directory.url);
        let url = named.unwrap_or(&directory.url);
        if !texts::is_url(url) {
            faults.error(
                &format!("{field}.url"),
                "is no URL of a directory",
                "write a URL that begins with https://, letsencrypt or letsencrypt-staging",
            );
        }
        let email = directory.email.as_deref();
        if email.is_some_and(|email| !is_mail_address(email)) {
            let remedy = "write one address such as ops@example.com";
            faults.error(&format!("{field}.email"), "is no address of mail", remedy);
        }
        if let Some(profile) = &directory.profile {
            faults.word(&format!("{field}.profile"), profile, WORD_BYTES_MAX);
        }
        let binding = directory.external_account_binding.as_ref();
        let field = format!("{field}.externalAccountBinding");
        AuthorityTerms {
            url: url.into(),
            email: directory.email.clone(),
            profile: directory.profile.clone(),
            binding: binding.and_then(|binding| self.binding(binding, &field, faults)),
        }
    }

    fn binding(
        &mut self,
        binding: &ExternalAccountBinding,
        field: &str,
        faults: &mut Faults<'_>,
    ) -> Option<(Box<str>, IssuerSecret)> {
        faults.word(&format!("{field}.keyID"), &binding.key_id, WORD_BYTES_MAX);
        let field = format!("{field}.keySecretRef");
        let text = self.secret(&binding.key_secret_ref, &field, faults)?;
        let text = text.trim_ascii();
        let bytes = URL_SAFE_NO_PAD.decode(text);
        let bytes = bytes.or_else(|_| URL_SAFE.decode(text));
        let Some(bytes) = bytes.ok().filter(|bytes| !bytes.is_empty()) else {
            let message = "names a value that is no key in base64url";
            faults.error(&field, message, "write the key as the authority gave it");
            return None;
        };
        Some((binding.key_id.clone(), IssuerSecret::new(bytes)))
    }

    /// The value of a Secret for issuers.
    fn secret(
        &mut self,
        wanted: &SecretKeyRef,
        field: &str,
        faults: &mut Faults<'_>,
    ) -> Option<Vec<u8>> {
        let id = self.secret_id(&wanted.name, field, faults)?;
        let found = self.reader.issuer_keys(&id);
        let Some(keys) = found.as_ref().and_then(|secret| secret.keys.as_ref()) else {
            faults.error(
                &format!("{field}.name"),
                format!("names Secret {id}, which is not there or is none for issuers"),
                "create it with kubectl create secret generic --type=myriad.dev/issuer",
            );
            return None;
        };
        let value = keys.expose(wanted.key.as_deref());
        if value.is_none() {
            let message = match &wanted.key {
                Some(key) => format!("names {key}, which Secret {id} does not have"),
                None => format!("is missing, and Secret {id} has not one value alone"),
            };
            let remedy = "name a key of its data, whose value has at most 4 KiB";
            faults.error(&format!("{field}.key"), message, remedy);
        }
        value.map(<[u8]>::to_vec)
    }

    /// A Secret by its name, as `namespace/name`.
    fn secret_id(&self, name: &str, field: &str, faults: &mut Faults<'_>) -> Option<String> {
        if !texts::is_object_name(name) {
            let remedy = "write the name of a Secret beside it";
            faults.error(&format!("{field}.name"), "is no name of a Secret", remedy);
            return None;
        }
        Some(format!("{}/{name}", self.namespace))
    }

    fn roots(&mut self, roots: Option<&AcmeRoots>, faults: &mut Faults<'_>) -> Box<[Bytes]> {
        let Some(roots) = roots else {
            return Box::default();
        };
        let (field, found) = match (&roots.pem, &roots.secret_ref) {
            (Some(pem), _) => ("spec.acme.ca.pem", of_pem(pem)),
            (None, Some(named)) => {
                let field = "spec.acme.ca.secretRef";
                let Some(id) = self.secret_id(&named.name, field, faults) else {
                    return Box::default();
                };
                let secret = self.reader.trust(&id);
                let trust = secret
                    .as_ref()
                    .and_then(|it| it.trust.as_ref().ok()?.as_ref());
                (
                    field,
                    trust.map(|trust| trust.roots.to_vec()).unwrap_or_default(),
                )
            }
            (None, None) => ("spec.acme.ca", Vec::new()),
        };
        let mut store = RootCertStore::empty();
        let mut added = found
            .iter()
            .map(|der| store.add(CertificateDer::from(&**der)));
        let is_sound = (1..=ROOTS_MAX).contains(&found.len()) && added.all(|it| it.is_ok());
        if !is_sound {
            faults.error(
                field,
                format!("is not 1 to {ROOTS_MAX} certificates of authorities"),
                "write PEM in ca.pem, or name a Secret with it in ca.crt",
            );
        }
        found.into()
    }
}

/// The certificates of a PEM; none where one cannot be read, or where it is too long.
fn of_pem(pem: &str) -> Vec<Bytes> {
    let pem = pem.as_bytes();
    let found = CertificateDer::pem_slice_iter(pem).take(ROOTS_MAX + 1);
    let found = found.map(|der| der.map(|der| Bytes::from(der.to_vec())));
    let found: Result<Vec<Bytes>, _> = found.collect();
    let found = found.unwrap_or_default();
    match pem.len() > PEM_BYTES_MAX {
        true => Vec::new(),
        false => found,
    }
}

fn proof(acme: &AcmeSpec, faults: &mut Faults<'_>) -> ProofTerms {
    let field = "spec.acme.challenge";
    let proof = match &*acme.challenge {
        "" if acme.dns.is_some() => ProofTerms::Dns,
        "" | "http-01" => ProofTerms::Http,
        "tls-alpn-01" => ProofTerms::TlsAlpn,
        "dns-01" => ProofTerms::Dns,
        "dns-persist-01" => ProofTerms::DnsPersist,
        _ => {
            let remedy = "write http-01, tls-alpn-01, dns-01 or dns-persist-01";
            faults.error(field, "is no kind of challenge", remedy);
            ProofTerms::Http
        }
    };
    if proof == ProofTerms::Dns && acme.dns.is_none() {
        let message = "needs records of DNS, and nothing says how they are set";
        faults.error(field, message, "write spec.acme.dns, or another challenge");
    }
    proof
}

fn key(acme: &AcmeSpec, faults: &mut Faults<'_>) -> KeyTerms {
    KeyTerms::from_word(&acme.key_type).unwrap_or_else(|| {
        let remedy = "write ecdsa-p256, rsa-2048 or ecdsa-and-rsa";
        faults.error("spec.acme.keyType", "is no kind of key", remedy);
        KeyTerms::EcdsaP256
    })
}
