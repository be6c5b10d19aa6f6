//! The authorities in ConfigMaps, and those of several objects together.

use std::sync::Arc;

use bytes::Bytes;
use myriad_api::secret::Users as ApiUsers;
use myriad_api::{Finding, Object, ObjectKey, ObjectKind, SecretProblem, Severity, TrustDer};
use myriad_model::{Name, Origin, OriginKind, Resource, Trust, Users, Value};

use super::authority_names::{config_map, owner, parts};
use super::facts::SharedFact;
use super::trust::{excess, judge, told_as_costly};
use crate::engine::{Output, Reader, Weight};
use crate::settings::{CERTIFICATE_BYTES, Holding};

/// The authorities of one object, as they were read.
enum Held {
    /// The object is not there, or has none.
    Nothing,
    /// They cannot be read.
    Unreadable,
    /// These.
    Authorities(TrustDer),
}

impl Held {
    fn of(trust: Result<Option<&TrustDer>, &SecretProblem>) -> Self {
        match trust {
            Ok(Some(trust)) if !trust.roots.is_empty() => Held::Authorities(trust.clone()),
            Ok(_) => Held::Nothing,
            Err(_) => Held::Unreadable,
        }
    }
}

/// The authorities of a trust that is made of no others.
fn held(reader: &mut Reader<'_>, name: &str) -> Held {
    reader.read(SharedFact::Trust(name));
    match config_map(name) {
        Some(id) => match reader.visit(ObjectKind::ConfigMap, id) {
            Some(Object::ConfigMap(map)) => Held::of(map.trust.as_ref().map(|it| it.as_deref())),
            _ => Held::Nothing,
        },
        None => match reader.secret(name) {
            Some(secret) => Held::of(secret.trust.as_ref().map(|it| it.as_deref())),
            None => Held::Nothing,
        },
    }
}

/// Why nobody is verified by a trust that is made of no others; none where somebody is.
pub(crate) fn fault(reader: &mut Reader<'_>, name: &str) -> Option<&'static str> {
    match held(reader, name) {
        Held::Nothing => Some("is not there, or has no ca.crt"),
        Held::Unreadable => Some("has a ca.crt that holds no certificate"),
        Held::Authorities(trust) => match judge(&trust.roots) {
            _ if excess(&trust).is_some() => Some("has more authorities than a trust may have"),
            (roots, ..) if roots.is_empty() => {
                Some("has a ca.crt that holds no certificate which can be parsed")
            }
            _ => None,
        },
    }
}

/// The namespace that the authorities of several objects count for together; none where they are
/// those of one object. None of them goes before another but by age.
pub(crate) fn place(name: &str) -> Option<(&str, bool)> {
    owner(name).map(|namespace| (namespace, false))
}

/// The amount that authorities of several objects count for together, known before they are
/// translated: proxies have them once more, so that they count as a Secret with all of them would.
/// They are as old as the youngest object.
pub(crate) fn weigh(reader: &mut Reader<'_>, name: &str) -> Option<Weight> {
    let bounds = reader.settings().bounds_of(owner(name)?);
    bounds.get(Holding::Certificates)?;
    let (mut created, mut bytes) = (i64::MIN, 0);
    for part in parts(name) {
        let Held::Authorities(trust) = held(reader, part) else {
            continue;
        };
        let key = key_of(part);
        created = created.max(reader.created(key.kind, key.id()).unwrap_or(created));
        let all = trust.roots.iter().chain(&trust.crls);
        bytes += all.map(Bytes::len).sum::<usize>();
    }
    let pieces = (bytes as u64).div_ceil(CERTIFICATE_BYTES);
    Weight::new(created, usize::try_from(pieces).unwrap_or(usize::MAX))
}

/// The finding about authorities of several objects that are together more than the namespace which
/// names them may hold.
fn beyond(reader: &Reader<'_>, name: &str) -> Option<Finding> {
    let namespace = owner(name)?;
    let (settings, holding) = (reader.settings(), Holding::Certificates);
    let bound = settings.bounds_of(namespace).get(holding)?;
    let own = parts(name).map(key_of);
    let key = own.min_by_key(|key| key.namespace() != namespace)?;
    Some(Finding::new(
        Severity::Error,
        &key,
        "data[ca.crt]",
        format!(
            "would, with others that objects of namespace {namespace} name beside it, bring the \
             namespace beyond {bound} {}, so nobody is verified by them together",
            holding.words()
        ),
        format!(
            "name fewer authorities, put them into one object, or raise {}",
            settings.raise(namespace, holding, bound)
        ),
    ))
}

/// Translates the authorities of ConfigMaps, or of several objects together. Those that are not
/// there, or cannot be read, verify nobody.
pub(crate) fn translate(reader: &mut Reader<'_>, name: &Arc<str>) -> Output {
    let mut output = Output::default();
    if reader.is_joined_beyond(name) {
        // What it is made of is read all the same, so that it runs and is weighed with that.
        parts(name).for_each(|part| drop(held(reader, part)));
        output.findings.extend(beyond(reader, name));
        return output;
    }
    let (mut roots, mut crls): (Vec<Bytes>, Vec<Bytes>) = (Vec::new(), Vec::new());
    for part in parts(name) {
        let Held::Authorities(trust) = held(reader, part) else {
            continue;
        };
        let key = key_of(part);
        let (usable, unread, costly) = judge(&trust.roots);
        if unread > 0 {
            output.findings.push(Finding::new(
                Severity::Warning,
                &key,
                "data[ca.crt]",
                "holds a certificate that cannot be parsed, and is left out",
                "write certificates of authorities in PEM",
            ));
        }
        if costly > 0 {
            output.findings.push(told_as_costly(&key, costly));
        }
        roots.extend(usable.iter().cloned());
        crls.extend(trust.crls.iter().cloned());
    }
    let trust = TrustDer {
        roots: roots.into(),
        crls: crls.into(),
        users: ApiUsers::default(),
    };
    if trust.roots.is_empty() {
        return output;
    }
    let first = parts(name).next().unwrap_or_default();
    if let Some(message) = excess(&trust) {
        let remedy = "name fewer authorities";
        let key = key_of(first);
        let finding = Finding::new(Severity::Error, &key, "data[ca.crt]", message, remedy);
        output.findings.push(finding);
        return output;
    }
    let resource = Resource {
        origin: Origin {
            kind: match config_map(first) {
                Some(_) => OriginKind::Object,
                None => OriginKind::Secret,
            },
            id: key_of(first).id().clone(),
        },
        value: Value::Trust(Box::new(Trust {
            roots: trust.roots,
            crls: trust.crls,
            users: Users::default(),
        })),
    };
    output.resources.push((Name::new(name.clone()), resource));
    output
}

/// The object of a trust that is made of no others.
fn key_of(name: &str) -> ObjectKey {
    match config_map(name) {
        Some(id) => ObjectKey::from_id(ObjectKind::ConfigMap, id.into()),
        None => ObjectKey::from_id(ObjectKind::Secret, name.into()),
    }
}
