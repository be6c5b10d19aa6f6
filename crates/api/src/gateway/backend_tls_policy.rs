//! `gateway.networking.k8s.io` BackendTLSPolicy.
//!
//! Without the policy a backend is reached without TLS, so a policy whose validation cannot be
//! read is there all the same, with its targets.

use serde::Deserializer;

use super::bounded::{BoundedLabels, FilledText, GroupName, Hostname, List, Name, ShortName};
use super::choice::{Choice, choice};
use super::object::GatewayKind;
use super::reference::LocalObjectReference;
use crate::ObjectKind;
use crate::istio::note::Notes;
use crate::istio::reading::{Read, message};
use crate::istio::{Labels, SpecProblem};

/// The spec of a BackendTLSPolicy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendTlsPolicySpec {
    /// The Services that it is for, or ports of them, in its namespace.
    pub targets: Box<[PolicyTarget]>,
    /// How certificates are verified, or why nobody can tell.
    pub validation: Result<BackendTlsValidation, SpecProblem>,
    /// Settings of implementations.
    pub options: Labels,
}

message! {
    pub(super) struct RawSpec {
        targets: Box<[PolicyTarget]> as List<PolicyTarget, 16> = "targetRefs" required,
        validation: Option<Result<BackendTlsValidation, SpecProblem>> = "validation",
        options: Labels as BoundedLabels<16, 4_096> = "options",
    }
}

message! {
    /// A Service, or a port of one, in the namespace of the policy.
    #[derive(Eq, PartialOrd, Ord, Hash)]
    pub struct PolicyTarget {
        group: Box<str> as GroupName = "group" required,
        kind: Box<str> as ShortName = "kind" required,
        name: Box<str> as Name = "name" required,
        /// The name of a port.
        section_name: Option<Box<str>> as Option<Name> = "sectionName",
    }
}

message! {
    /// How the certificates of backends are verified.
    #[derive(Eq)]
    pub struct BackendTlsValidation {
        ca_certificate_refs: Box<[LocalObjectReference]> as List<LocalObjectReference, 8> =
            "caCertificateRefs",
        /// `System` for the authorities of the machine, or a domain and a path.
        well_known_ca_certificates: Option<Box<str>> as Option<FilledText<253>> =
            "wellKnownCACertificates",
        /// The name that is asked for, and that certificates are for where no other is listed.
        hostname: Box<str> as Hostname = "hostname" required,
        subject_alt_names: Box<[BackendSubjectAltName]> as List<BackendSubjectAltName, 5> =
            "subjectAltNames",
    }
}

choice! {
    /// The form of a name in a certificate.
    pub enum SubjectAltNameKind {
        Hostname "Hostname",
        Uri "URI",
    }
}

message! {
    /// A name of which a certificate must have one.
    #[derive(Eq)]
    pub struct BackendSubjectAltName {
        kind: Choice<SubjectAltNameKind> = "type" required,
        hostname: Option<Box<str>> as Option<Hostname> = "hostname",
        uri: Option<Box<str>> as Option<FilledText<253>> = "uri",
    }
}

impl Read for BackendTlsPolicySpec {
    fn read<'de, D: Deserializer<'de>>(d: D, notes: &mut Notes) -> Result<Self, D::Error> {
        let raw = RawSpec::read(d, notes)?;
        let missing = || SpecProblem {
            field: "spec.validation".into(),
            message: "it is missing".into(),
        };
        Ok(BackendTlsPolicySpec {
            targets: raw.targets,
            validation: raw.validation.unwrap_or_else(|| Err(missing())),
            options: raw.options,
        })
    }
}

impl GatewayKind for BackendTlsPolicySpec {
    const KIND: ObjectKind = ObjectKind::BackendTlsPolicy;
}
