//! The issuers that objects name, and the Secrets that issuers do.
//!
//! A name is never one of another namespace: what an object says is looked up beside it, then among
//! the issuers that are for all namespaces, and then among those of the settings.

use std::sync::Arc;

use myriad_api::{Finding, Issuer, Object, ObjectKey, ObjectKind, Secret, Severity};
use myriad_model::Host;

use super::claim::suffix_of;
use super::facts::SharedFact;
use crate::engine::{HintFact, KeyTerms, Reader};
use crate::settings::{CONTROLLER_NAME, CertManager, Settings};

impl Reader<'_> {
    /// The issuer that an object of a namespace means by a name, by the name that wishes have for
    /// it; none where there is none.
    pub fn issuer_named(&mut self, namespace: &str, name: &str) -> Option<Box<str>> {
        let own = self.issuer_of(ObjectKind::Issuer, namespace, name);
        let found = own.or_else(|| self.issuer_of(ObjectKind::ClusterIssuer, namespace, name));
        found.or_else(|| self.settings().has_issuer(name).then(|| name.into()))
    }

    /// The same where the kind is said: an Issuer of that namespace, or a ClusterIssuer.
    pub fn issuer_of(&mut self, kind: ObjectKind, namespace: &str, name: &str) -> Option<Box<str>> {
        let key = ObjectKey::new(kind, namespace, name);
        self.read_object(kind, key.id());
        let found = self.stored().get(kind, key.id());
        let is_ours = is_issuer_ours(self.settings(), found.as_ref());
        is_ours.then(|| issuer_name(&key))
    }

    /// The controller of an issuer that an object of a namespace means by a name, where that is
    /// another one's. For who has found none of that name.
    fn other_controller(&self, namespace: &str, name: &str) -> Option<Box<str>> {
        let kinds = [ObjectKind::Issuer, ObjectKind::ClusterIssuer].into_iter();
        let mut found = kinds.filter_map(|kind| {
            let key = ObjectKey::new(kind, namespace, name);
            self.stored().get(kind, key.id())
        });
        let Some(Object::Issuer(issuer)) = found.next() else {
            return None;
        };
        Some(controller_of(&issuer).into())
    }

    /// Whether an issuer provides two certificates for a host, by the name that wishes have for it.
    /// For who has found that issuer.
    pub fn gives_pair(&mut self, issuer: &str) -> bool {
        let key = match issuer.split_once('/') {
            Some((namespace, name)) => ObjectKey::new(ObjectKind::Issuer, namespace, name),
            None => ObjectKey::new(ObjectKind::ClusterIssuer, "", issuer),
        };
        let found = self.visit(key.kind, key.id());
        match is_issuer_ours(self.settings(), found.as_ref()) {
            true => is_pairing(found.as_ref()),
            false => self.settings().pairing_issuers.contains(issuer),
        }
    }

    /// Whether an issuer is for objects of all namespaces and proves a host by records of DNS,
    /// which it sets for whoever names it. By the name that wishes have for it, for who has found
    /// it.
    pub fn sets_records_for_all(&mut self, issuer: &str, host: &Host) -> bool {
        if issuer.contains('/') {
            return false;
        }
        // A wildcard can be proven by DNS alone.
        if suffix_of(host).is_some() {
            return true;
        }
        let key = ObjectKey::new(ObjectKind::ClusterIssuer, "", issuer);
        let found = self.visit(key.kind, key.id());
        match is_issuer_ours(self.settings(), found.as_ref()) {
            true => proves_by_dns(found.as_ref()),
            false => self.settings().dns_issuers.contains(issuer),
        }
    }

    /// Whether cert-manager provides certificates in the same cluster.
    pub fn cert_manager(&mut self) -> CertManager {
        self.read(HintFact);
        self.settings().cert_manager
    }

    /// A Secret whose values issuers may use; none where there is no such Secret.
    pub fn issuer_keys(&mut self, id: &str) -> Option<Arc<Secret>> {
        self.read(SharedFact::Keys(id));
        self.secret(id).filter(|secret| secret.keys.is_some())
    }
}

/// Whether an object makes an issuer that is for this installation. One that names no controller is
/// for the installation whose controller has the usual name, so that of several one alone uses it
/// and tells how it is; and for whoever serves what names no class.
pub(crate) fn is_issuer_ours(settings: &Settings, object: Option<&Object>) -> bool {
    let Some(Object::Issuer(issuer)) = object else {
        return false;
    };
    let is_anybodys = issuer.controller.is_empty() && settings.serve_classless;
    is_anybodys || *controller_of(issuer) == *settings.controller_name
}

fn controller_of(issuer: &Issuer) -> &str {
    match issuer.controller.is_empty() {
        true => CONTROLLER_NAME,
        false => &issuer.controller,
    }
}

/// Whether an object makes an issuer that provides two certificates for a host.
pub(crate) fn is_pairing(object: Option<&Object>) -> bool {
    let Some(Object::Issuer(issuer)) = object else {
        return false;
    };
    let spec = issuer.spec.as_ref().ok();
    let key = spec.and_then(|spec| KeyTerms::from_word(&spec.acme.key_type));
    key == Some(KeyTerms::EcdsaAndRsa)
}

/// Whether an object makes an issuer that proves all names by records of DNS.
fn proves_by_dns(object: Option<&Object>) -> bool {
    let Some(Object::Issuer(issuer)) = object else {
        return false;
    };
    let acme = issuer.spec.as_ref().map(|spec| &spec.acme);
    acme.is_ok_and(|acme| match &*acme.challenge {
        "" => acme.dns.is_some(),
        word => matches!(word, "dns-01" | "dns-persist-01"),
    })
}

/// The name that wishes have for the issuer that an object makes.
pub(crate) fn issuer_name(key: &ObjectKey) -> Box<str> {
    match key.kind {
        ObjectKind::Issuer => (**key.id()).into(),
        _ => key.name().into(),
    }
}

/// The finding about an object that names an issuer which is not there.
pub(crate) fn no_issuer(
    reader: &mut Reader<'_>,
    object: &ObjectKey,
    field: String,
    issuer: &str,
) -> Option<Finding> {
    let found = reader.issuer_named(object.namespace(), issuer);
    let is_missing = found.is_none() && reader.settings().issuers.is_some();
    if !is_missing {
        return None;
    }
    if let Some(controller) = reader.other_controller(object.namespace(), issuer) {
        return Some(Finding::new(
            Severity::Error,
            object,
            field,
            format!(
                "names issuer {issuer}, which is for controller {controller}, so no certificate is \
                 obtained"
            ),
            format!(
                "write spec.controller: {} in that issuer, or name another one",
                reader.settings().controller_name
            ),
        ));
    }
    Some(Finding::new(
        Severity::Error,
        object,
        field,
        format!("names issuer {issuer}, which is not there, so no certificate is obtained"),
        format!(
            "write an Issuer {issuer} beside it or a ClusterIssuer {issuer}, which controllers \
             read with --acme, or name the issuer default and start with --acme-email or \
             --acme-directory"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use myriad_api::{Object, ObjectKind};

    use super::is_issuer_ours;
    use crate::settings::Settings;

    #[test]
    fn of_several_installations_one_alone_uses_an_issuer() {
        let issuer = |controller: &str| {
            let spec = format!(r#"{{"acme": {{}}, "controller": "{controller}"}}"#);
            let text = format!(r#"{{"metadata": {{"name": "le"}}, "spec": {spec}}}"#);
            Object::from_json(ObjectKind::ClusterIssuer, &text).unwrap()
        };
        let installation = |name: &str, serve_classless| Settings {
            controller_name: name.into(),
            serve_classless,
            ..Settings::default()
        };
        let usual = installation("myriad.dev/ingress-controller", false);
        let second = installation("example.com/second", false);
        for (named, uses) in [
            ("", [true, false]),
            ("myriad.dev/ingress-controller", [true, false]),
            ("example.com/second", [false, true]),
            ("example.com/third", [false, false]),
        ] {
            let issuer = issuer(named);
            let used = [&usual, &second].map(|it| is_issuer_ours(it, Some(&issuer)));
            assert_eq!(used, uses, "{named}");
        }
        // Whoever serves files alone is whoever is meant, unless another one is named.
        let alone = installation("example.com/second", true);
        assert!(is_issuer_ours(&alone, Some(&issuer(""))));
        assert!(!is_issuer_ours(&alone, Some(&issuer("example.com/third"))));
        assert!(!is_issuer_ours(&alone, None));
    }
}
