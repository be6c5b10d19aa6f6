//! `myriad.dev/v1alpha1` Issuer and ClusterIssuer: where certificates are obtained.
//!
//! Both have the same fields. An object whose spec cannot be read is there all the same: whoever
//! names it gets no certificate, and not that of another issuer of the same name.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::istio::note::{Notes, Step};
use crate::istio::reading::{Read, message};
use crate::istio::{Note, SpecProblem};
use crate::meta::RawMeta;
use crate::{Meta, ObjectKind};

/// An Issuer or a ClusterIssuer; its key says which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issuer {
    /// Key and age.
    pub meta: Meta,
    /// The controller that it is for, whatever else can be read of it; empty for the usual one.
    pub controller: Box<str>,
    /// The spec, or the first thing in it that cannot be read.
    pub spec: Result<IssuerSpec, SpecProblem>,
    /// Fields that were written and are none of these, in the order of their paths.
    pub notes: Box<[Note]>,
    /// The memory that it takes beside its own structure, in bytes.
    pub bytes: u32,
}

message! {
    /// The spec of an issuer.
    #[derive(Eq)]
    pub struct IssuerSpec {
        acme: Box<AcmeSpec> = "acme" required,
        /// Certificates on demand.
        on_demand: Option<OnDemandSpec> = "onDemand",
        /// The controller that it is for; empty for the usual one.
        controller: Box<str> = "controller",
    }
}

message! {
    /// Certificates that are obtained at the first handshake of a name.
    #[derive(Eq)]
    pub struct OnDemandSpec {
        /// The URL that is asked whether a name may have one.
        ask: Box<str> = "ask" required,
    }
}

message! {
    /// The authorities that speak ACME, and the proof that names are the orderer's.
    #[derive(Eq)]
    pub struct AcmeSpec {
        /// In the order in which they are tried.
        directories: Box<[AcmeDirectory]> = "directories",
        /// The kind of challenge; empty for the default.
        challenge: Box<str> = "challenge",
        /// The roots by which directories are verified; none for those of the process.
        ca: Option<AcmeRoots> = "ca",
        dns: Option<Box<DnsSpec>> = "dns",
        /// The kind of key of certificates; empty for the default.
        key_type: Box<str> = "keyType",
    }
}

message! {
    /// One authority, and the account there.
    #[derive(Eq)]
    pub struct AcmeDirectory {
        /// A URL, or one of the names that authorities have.
        url: Box<str> = "url" required,
        email: Option<Box<str>> = "email",
        profile: Option<Box<str>> = "profile",
        external_account_binding: Option<ExternalAccountBinding> = "externalAccountBinding",
    }
}

message! {
    /// The key that binds the account to one elsewhere (RFC 8555, section 7.3.4).
    #[derive(Eq)]
    pub struct ExternalAccountBinding {
        key_id: Box<str> = "keyID" required,
        key_secret_ref: SecretKeyRef = "keySecretRef" required,
    }
}

message! {
    /// A value of a Secret.
    #[derive(Eq)]
    pub struct SecretKeyRef {
        name: Box<str> = "name" required,
        /// The key of the value in the Secret; may be left out where the Secret has one.
        key: Option<Box<str>> = "key",
    }
}

message! {
    /// Roots, as PEM or in a Secret.
    #[derive(Eq)]
    pub struct AcmeRoots {
        pem: Option<Box<str>> = "pem",
        secret_ref: Option<RootsRef> = "secretRef",
    }
    one_of [pem = "pem", secret_ref = "secretRef"]
}

message! {
    /// A Secret with roots.
    #[derive(Eq)]
    pub struct RootsRef {
        name: Box<str> = "name" required,
    }
}

message! {
    /// How records of DNS are set.
    #[derive(Eq)]
    pub struct DnsSpec {
        update: Option<DnsUpdateSpec> = "update",
        webhook: Option<DnsWebhookSpec> = "webhook",
    }
    one_of [update = "update", webhook = "webhook"]
}

message! {
    /// Updates of a zone (RFC 2136).
    #[derive(Eq)]
    pub struct DnsUpdateSpec {
        server: Box<str> = "server" required,
        /// The zone that is updated; without it, the zone that the record is found in.
        zone: Option<Box<str>> = "zone",
        tsig: TsigSpec = "tsig" required,
    }
}

message! {
    /// The key that signs updates (RFC 8945).
    #[derive(Eq)]
    pub struct TsigSpec {
        name: Box<str> = "name" required,
        /// Empty for the default.
        algorithm: Box<str> = "algorithm",
        secret_ref: SecretKeyRef = "secretRef" required,
    }
}

message! {
    /// A webhook that speaks the protocol of cert-manager's solvers.
    #[derive(Eq)]
    pub struct DnsWebhookSpec {
        /// The URL of the webhook; without it, the API server of the cluster is asked.
        url: Option<Box<str>> = "url",
        group_name: Option<Box<str>> = "groupName",
        solver_name: Box<str> = "solverName" required,
        config: Option<AnyJson> = "config",
    }
}

/// A value of any form, as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnyJson(pub Box<str>);

impl Read for AnyJson {
    fn read<'de, D: Deserializer<'de>>(d: D, notes: &mut Notes) -> Result<Self, D::Error> {
        let text = serde_json::Value::deserialize(d)?.to_string();
        notes.count(text.len())?;
        Ok(AnyJson(text.into()))
    }
}

/// An Issuer as it is read.
pub(crate) struct NamespacedIssuer(pub(crate) Issuer);

/// A ClusterIssuer as it is read.
pub(crate) struct WideIssuer(pub(crate) Issuer);

impl<'de> Deserialize<'de> for NamespacedIssuer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read(ObjectKind::Issuer, deserializer).map(NamespacedIssuer)
    }
}

impl<'de> Deserialize<'de> for WideIssuer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read(ObjectKind::ClusterIssuer, deserializer).map(WideIssuer)
    }
}

fn read<'de, D: Deserializer<'de>>(kind: ObjectKind, deserializer: D) -> Result<Issuer, D::Error> {
    #[derive(Deserialize)]
    #[serde(expecting = "a mapping")]
    struct Raw {
        metadata: RawMeta,
        #[serde(default)]
        spec: Option<serde_json::Value>,
    }
    let raw = Raw::deserialize(deserializer)?;
    let mut notes = Notes::default();
    notes.enter(Step::Field("spec"));
    // An absent spec is an empty one: what it lacks, the message says.
    let spec = raw.spec.unwrap_or_else(|| serde_json::Map::new().into());
    let controller = spec.get("controller").and_then(|it| it.as_str());
    let controller: Box<str> = controller.unwrap_or_default().into();
    let spec = <Result<IssuerSpec, SpecProblem> as Read>::read(spec, &mut notes);
    let spec = spec.map_err(D::Error::custom)?;
    notes.leave();
    Ok(Issuer {
        meta: raw.metadata.check(kind)?,
        controller,
        spec,
        bytes: u32::try_from(notes.bytes()).unwrap_or(u32::MAX),
        notes: notes.finish(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Issuer, NamespacedIssuer, WideIssuer};
    use crate::{Object, ObjectKind};

    fn issuer(spec: &serde_json::Value) -> Issuer {
        let object = json!({
            "apiVersion": "myriad.dev/v1alpha1",
            "kind": "Issuer",
            "metadata": {"namespace": "shop", "name": "le"},
            "spec": spec,
        });
        let read: NamespacedIssuer = serde_json::from_value(object).expect("an issuer");
        read.0
    }

    #[test]
    fn every_field_is_read() {
        let read = issuer(&json!({"acme": {
            "directories": [{
                "url": "letsencrypt",
                "email": "ops@shop.example",
                "profile": "shortlived",
                "externalAccountBinding": {
                    "keyID": "kid-1",
                    "keySecretRef": {"name": "eab", "key": "key"},
                },
            }],
            "challenge": "dns-01",
            "ca": {"secretRef": {"name": "roots"}},
            "dns": {"webhook": {
                "url": "https://solver.example",
                "groupName": "acme.example",
                "solverName": "s",
                "config": {"zone": ["a", 1]},
            }},
            "keyType": "rsa-2048",
        }, "controller": "example.com/second", "onDemand": {"ask": "https://ask.example"}}));
        assert!(read.notes.is_empty() && read.bytes > 0);
        assert_eq!(&*read.controller, "example.com/second");
        let spec = read.spec.expect("a spec");
        let on_demand = spec.on_demand.expect("an endpoint");
        assert_eq!(&*on_demand.ask, "https://ask.example");
        let acme = spec.acme;
        let directory = &acme.directories[0];
        assert_eq!(&*directory.url, "letsencrypt");
        let binding = directory.external_account_binding.as_ref();
        let binding = binding.expect("a binding");
        assert_eq!(&*binding.key_id, "kid-1");
        assert_eq!(binding.key_secret_ref.key.as_deref(), Some("key"));
        let dns = acme.dns.expect("a solver");
        let webhook = dns.webhook.as_ref().expect("a webhook");
        let config = webhook.config.as_ref().expect("settings");
        assert_eq!(&*config.0, r#"{"zone":["a",1]}"#);
        assert_eq!((&*acme.challenge, &*acme.key_type), ("dns-01", "rsa-2048"));
    }

    #[test]
    fn an_object_with_a_fault_is_there_and_says_which() {
        for (spec, field, part) in [
            (json!(null), "spec", "acme"),
            (
                json!({"acme": {"directories": "x"}}),
                "spec.acme.directories",
                "a list",
            ),
            (
                json!({"acme": {"directories": [{}]}}),
                "spec.acme.directories[0]",
                "url",
            ),
            (
                json!({"acme": {"ca": {"pem": "x", "secretRef": {"name": "y"}}}}),
                "spec.acme.ca",
                "at most one of pem, secretRef",
            ),
        ] {
            let problem = issuer(&spec).spec.expect_err("a fault");
            assert_eq!(&*problem.field, field);
            assert!(problem.message.contains(part), "{}", problem.message);
        }
        // Whoever it is for is to say so.
        let read = issuer(&json!({"acme": 7, "controller": "example.com/second"}));
        assert!(read.spec.is_err() && &*read.controller == "example.com/second");
        let read = issuer(&json!({"acme": {"challange": "dns-01"}}));
        assert_eq!(&*read.notes[0].field, "spec.acme.challange");
    }

    #[test]
    fn a_cluster_issuer_has_no_namespace() {
        let text = r#"{"metadata": {"name": "le"}, "spec": {"acme": {}}}"#;
        let WideIssuer(read) = serde_json::from_str(text).expect("an issuer");
        assert_eq!(read.meta.key.to_string(), "ClusterIssuer le");
        let kind = ObjectKind::find("myriad.dev/v1alpha1", "ClusterIssuer");
        assert_eq!(kind, Some(ObjectKind::ClusterIssuer));
        assert_eq!(
            ObjectKind::find("cert-manager.io/v1", "ClusterIssuer"),
            None
        );
        let object = Object::from_json(ObjectKind::ClusterIssuer, text).expect("an object");
        assert_eq!(object.key(), &read.meta.key);
    }
}
