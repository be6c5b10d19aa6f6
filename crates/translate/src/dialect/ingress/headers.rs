//! Header fields that an Ingress has put on the responses of its paths: the entries of a ConfigMap
//! of its namespace. Each that cannot be sent is left out, and the others are not.

use std::sync::Arc;

use myriad_api::config_map::HeaderFields;
use myriad_api::{ConfigMap, Finding, Object, ObjectKind, Severity};
use myriad_model::{HeaderEdit, HeaderEdits, is_token};

use super::annotations::owned::is_framing;
use super::annotations::{self, Defaults, Options, values};
use super::facts::IngressFact;
use super::opened::Opened;
use crate::engine::Reader;

/// The field that has an annotation of its own, which knows where browsers may be told.
const HSTS: &str = "strict-transport-security";

/// An Ingress's edits of response headers, which are read once for all of its hosts; none where it
/// asks for none.
pub(super) fn edits(
    reader: &mut Reader<'_>,
    ingress: &Opened,
    options: &Options,
) -> Option<Box<HeaderEdits>> {
    let id = options.headers.as_deref()?;
    let defaults = reader.ingress_defaults();
    let map = find(reader, ingress, id, &defaults).ok()?;
    let response = ingress.response_fields.get_or_init(|| {
        reader.count_text();
        read(&map.fields, &defaults).0
    });
    (!response.is_empty()).then(|| {
        Box::new(HeaderEdits {
            request: HeaderEdit::default(),
            response: response.clone(),
        })
    })
}

/// Findings about the ConfigMap that an Ingress names, and about its entries.
pub(super) fn judge(reader: &mut Reader<'_>, ingress: &Opened, options: &Options) -> Vec<Finding> {
    let Some(id) = options.headers.as_deref() else {
        return Vec::new();
    };
    let key = annotations::key_of(&ingress.meta, "custom-headers").unwrap_or_default();
    let field = format!("metadata.annotations[{key}]");
    let find_out = |message: String, remedy: &str| {
        let object = &ingress.meta.key;
        Finding::new(Severity::Error, object, field.clone(), message, remedy)
    };
    let defaults = reader.ingress_defaults();
    let map = match find(reader, ingress, id, &defaults) {
        Ok(map) => map,
        Err((what, remedy)) => {
            let message = format!("names ConfigMap {id}, {what}, so no header is set");
            return vec![find_out(message, remedy)];
        }
    };
    reader.count_text();
    let (_, refused) = read(&map.fields, &defaults);
    let refused = refused.into_iter().map(|(name, why)| {
        let name = values::quote(name);
        let message = format!("names ConfigMap {id}, whose entry {name} {why}, so it is left out");
        find_out(message, "correct the entry, or remove it")
    });
    refused.collect()
}

/// The ConfigMap that an Ingress may name.
///
/// # Errors
/// The problem with it, and the remedy.
pub(super) fn find(
    reader: &mut Reader<'_>,
    ingress: &Opened,
    id: &str,
    defaults: &Defaults,
) -> Result<Arc<ConfigMap>, (String, &'static str)> {
    let namespace = ingress.meta.key.namespace();
    if id.split('/').next() != Some(namespace) && !defaults.crosses_namespaces {
        let what = "which is of another namespace".to_owned();
        let remedy = "name one of the Ingress's own namespace, or set \
                      allow-cross-namespace-resources in the ConfigMap of ingress-nginx";
        return Err((what, remedy));
    }
    reader.read(IngressFact::Fields(id));
    let Some(Object::ConfigMap(map)) = reader.visit(ObjectKind::ConfigMap, id) else {
        let what = "which is not there or not watched".to_owned();
        return Err((what, "create it, or correct the name"));
    };
    if map.fields.is_too_long {
        let (entries, bytes) = (HeaderFields::ENTRIES_MAX, HeaderFields::BYTES_MAX);
        let what = format!("which has more than {entries} entries or {bytes} bytes");
        return Err((what, "name fewer or shorter fields"));
    }
    Ok(map)
}

/// The change that the entries of a ConfigMap make, and those that make none, with what is wrong
/// with each. An empty value takes the field away, as with ingress-nginx.
fn read<'a>(
    fields: &'a HeaderFields,
    defaults: &Defaults,
) -> (HeaderEdit, Vec<(&'a str, &'static str)>) {
    let (mut set, mut remove, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    let mut known: Vec<Box<str>> = Vec::new();
    for (name, value) in &fields.entries {
        let lower = name.to_ascii_lowercase().into_boxed_str();
        let why = match value {
            _ if !is_token(name) => Some("is no name of a header"),
            _ if is_framing(&lower) => Some("is a header that the proxy alone sets"),
            _ if *lower == *HSTS => Some("is what the annotation myriad.dev/hsts is for"),
            _ if !defaults.admits_header(&lower) => {
                Some("is not in global-allowed-response-headers of the ConfigMap of ingress-nginx")
            }
            _ if known.contains(&lower) => Some("stands there twice"),
            None => Some("has a value that no header has"),
            Some(value) if has_variable(value) => Some("has a variable of nginx"),
            Some(_) => None,
        };
        match (why, value) {
            (Some(why), _) => {
                refused.push((&**name, why));
                continue;
            }
            (None, Some(value)) if !value.is_empty() => set.push((lower.clone(), value.clone())),
            (None, _) => remove.push(lower.clone()),
        }
        known.push(lower);
    }
    (HeaderEdit::new(remove, set, Vec::new()), refused)
}

/// Whether nginx would put something else in place of a part of a value.
fn has_variable(value: &str) -> bool {
    let starts = |rest: &str| rest.starts_with(|it: char| it.is_ascii_alphabetic() || it == '{');
    value.split('$').skip(1).any(starts)
}

#[cfg(test)]
mod tests {
    use myriad_api::config_map::HeaderFields;

    use super::{Defaults, read};

    fn refused(entries: &[(&str, Option<&str>)]) -> Vec<String> {
        let entries = entries.iter();
        let entries = entries.map(|(name, value)| ((*name).into(), value.map(Into::into)));
        let fields = HeaderFields {
            entries: entries.collect(),
            is_too_long: false,
        };
        let (edit, refused) = read(&fields, &Defaults::default());
        let kept = edit.set.len() + edit.remove.len();
        assert_eq!(kept + refused.len(), fields.entries.len());
        refused.iter().map(|(name, _)| (*name).to_owned()).collect()
    }

    #[test]
    fn what_frames_and_what_is_no_field_is_left_out() {
        for name in [
            "connection",
            "content-length",
            "transfer-encoding",
            "Strict-Transport-Security",
            "X A",
            ":path",
            "",
            "é",
        ] {
            let upper = name.to_ascii_uppercase();
            let upper = upper.as_str();
            assert_eq!(refused(&[(upper, Some("1"))]), [upper]);
        }
        for value in [None, Some("$host"), Some("a ${host}")] {
            assert_eq!(refused(&[("X-A", value)]), ["X-A"], "{value:?}");
        }
        for value in ["", "5 $", "$5", "a, b; c=\"d\""] {
            assert_eq!(refused(&[("X-A", Some(value))]), [""; 0], "{value}");
        }
        let twice = [("X-A", Some("1")), ("x-a", Some("2")), ("x-b", Some("3"))];
        assert_eq!(refused(&twice), ["x-a"]);
    }
}
