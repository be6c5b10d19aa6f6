//! Passwords that the paths of an Ingress are asked for.

use std::sync::Arc;

use myriad_api::secret::UsersForm;
use myriad_api::{Finding, Meta, Severity};
use myriad_model::{Name, Policy};

use super::sheet::Sheet;
use super::{Basic, Blocked, Options, key_of};
use crate::engine::{Output, Reader, Unit};
use crate::resolve::facts::SecretContent;

/// The name of the annotation that names the Secret.
const SECRET: &str = "auth-secret";

/// Reads whose passwords are asked for. Where that cannot be told, nobody is let in.
pub(super) fn read(meta: &Meta, sheet: &mut Sheet<'_>, options: &mut Options) {
    let expected = "write at most 256 bytes without control characters";
    let realm = sheet.read("auth-realm", expected, |value| {
        let is_clean = !value.chars().any(char::is_control);
        (is_clean && value.len() <= Policy::REALM_BYTES_MAX).then(|| value.into())
    });
    let expected = "write \"auth-file\" or \"auth-map\"";
    let form = sheet.read_closing("auth-secret-type", expected, |value| match value {
        "auth-file" => Some(UsersForm::File),
        "auth-map" => Some(UsersForm::Map),
        _ => None,
    });
    let expected = "name a Secret of the namespace of the Ingress; those of others are not read";
    let secret = sheet.read_closing(SECRET, expected, |value| secret(value, meta));
    let expected = "write \"basic\"; \"digest\" is not supported";
    let kind = sheet.read_closing("auth-type", expected, |value| {
        (value == "basic").then_some(())
    });
    let is_written = |name| sheet.text(name).is_some();
    match (is_written("auth-type"), is_written(SECRET)) {
        (true, false) => lacks(meta, sheet, "auth-type", SECRET),
        (false, true) => lacks(meta, sheet, SECRET, "auth-type"),
        _ => {}
    }
    options.basic = kind.and(secret).map(|secret| Basic {
        secret,
        form: form.unwrap_or_default(),
        realm: realm.unwrap_or_default(),
    });
}

/// The Secret that a value names, where it is of the namespace of the Ingress.
fn secret(value: &str, meta: &Meta) -> Option<Arc<str>> {
    let own = meta.key.namespace();
    let name = match value.split_once('/') {
        Some((namespace, name)) => Some(name).filter(|_| namespace == own)?,
        None => value,
    };
    let is_name = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    let is_named = (1..=253).contains(&name.len()) && name.bytes().all(is_name);
    is_named.then(|| format!("{own}/{name}").into())
}

/// Closes, where one of two annotations is there that mean something only together.
fn lacks(meta: &Meta, sheet: &mut Sheet<'_>, has: &str, wanted: &str) {
    let message = format!("has no {wanted} beside it, so the paths of this Ingress answer 503");
    let remedy = format!("add the annotation {wanted}, or remove this one");
    let key = key_of(meta, has).unwrap_or(has);
    sheet.problem(Severity::Error, key, message, remedy);
    sheet.blocked = sheet.blocked.max(Blocked::Paths);
}

impl Basic {
    /// Makes a policy ask for passwords. Like behind ingress-nginx, endpoints are not told them.
    /// Whether it can be obeyed; otherwise there is a finding, and nobody may be let in.
    pub fn apply(
        &self,
        reader: &mut Reader<'_>,
        meta: &Meta,
        policy: &mut Policy,
        output: &mut Output,
    ) -> bool {
        let secret = &self.secret;
        let problem = match reader.held(secret) {
            Some(SecretContent::Users(form)) if form == self.form => None,
            Some(SecretContent::Users(UsersForm::Map)) => {
                Some("has users as keys, as auth-secret-type: auth-map says".to_owned())
            }
            Some(SecretContent::Users(UsersForm::File)) => {
                Some("has users in data[auth], as auth-secret-type: auth-file says".into())
            }
            Some(SecretContent::NoUser) => {
                Some("has no user whose password can be verified".to_owned())
            }
            Some(SecretContent::Authorities) => Some("has authorities, and no users".to_owned()),
            None if reader.has_secret(secret) => {
                Some("has no line NAME:HASH in data[auth], and no key whose value is a hash".into())
            }
            None => Some("is not there".to_owned()),
        };
        // What is wrong with its users is told with it.
        output.needs.push(Unit::trust(secret.clone()));
        if let Some(problem) = problem {
            let key = key_of(meta, SECRET).unwrap_or(SECRET);
            output.findings.push(Finding::new(
                Severity::Error,
                &meta.key,
                format!("metadata.annotations[{key}]"),
                format!("names Secret {secret}, which {problem}, so its paths answer 503"),
                "create the Secret, of type Opaque, with key auth of lines as htpasswd -B writes \
                 them",
            ));
            return false;
        }
        policy.users = Some(Name::new(secret.clone()));
        policy.realm = self.realm.clone();
        let mut headers = policy.headers.take().unwrap_or_default();
        headers.request = headers.request.removing(["authorization".into()]);
        policy.headers = Some(headers);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use myriad_api::{Meta, Object, ObjectKind};
    use serde_json::json;

    use super::super::{Blocked, Defaults, Options};

    fn meta(annotations: &[(&str, &str)]) -> Meta {
        let annotations = annotations
            .iter()
            .map(|(name, value)| (format!("nginx.ingress.kubernetes.io/{name}"), json!(value)));
        let value = json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": {
                "namespace": "shop",
                "name": "web",
                "annotations": annotations.collect::<serde_json::Map<_, _>>(),
            },
            "spec": {},
        });
        let Ok(Object::Ingress(ingress)) = Object::deserialize(ObjectKind::Ingress, value) else {
            panic!("not an Ingress")
        };
        ingress.meta.clone()
    }

    fn read(annotations: &[(&str, &str)]) -> (Options, usize) {
        let meta = meta(annotations);
        let none = Defaults::default();
        let (options, problems) = super::super::read(&meta, &BTreeSet::new(), &none);
        (options, problems.len())
    }

    #[test]
    fn a_secret_of_the_own_namespace_is_taken_and_whatever_is_unclear_closes() {
        let kind = ("auth-type", "basic");
        for secret in ["users", "shop/users"] {
            let (options, problems) = read(&[kind, ("auth-secret", secret)]);
            let basic = options.basic.as_ref().expect("passwords are asked for");
            assert_eq!((&*basic.secret, &*basic.realm), ("shop/users", ""));
            assert!(options.restricts() && options.blocked == Blocked::No);
            assert_eq!(problems, 0);
        }
        let users = ("auth-secret", "users");
        for written in [
            &[kind, ("auth-secret", "other/users")][..],
            &[kind, ("auth-secret", "shop/")],
            &[kind, ("auth-secret", "Users")],
            &[kind],
            &[users],
            &[("auth-type", "digest"), users],
            &[kind, users, ("auth-secret-type", "file")],
        ] {
            let (options, problems) = read(written);
            assert_eq!(options.blocked, Blocked::Paths, "{written:?}");
            assert_eq!(problems, 1, "{written:?}");
        }
    }

    #[test]
    fn a_realm_that_would_split_a_header_is_none() {
        let of = |realm| {
            let users = ("auth-secret", "users");
            let (options, _) = read(&[("auth-type", "basic"), users, ("auth-realm", realm)]);
            options.basic.expect("passwords are asked for").realm
        };
        assert_eq!(&*of("Staff \"only\""), "Staff \"only\"");
        assert_eq!(&*of("a\r\nb: c"), "");
        assert_eq!(&*of(&"x".repeat(257)), "");
    }
}
