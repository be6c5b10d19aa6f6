//! The namespaces and kinds that listeners and Gateways take.
//!
//! A selector may be long, and a namespace may have very many routes, so that in a batch each
//! listener is asked once about a namespace.

use std::any::Any;
use std::collections::HashMap;

use myriad_api::gateway::{GROUP, LabelExpression, LabelSelector, Listener, RouteNamespaces};
use myriad_api::istio::Labels;
use myriad_api::{ObjectKey, ObjectKind};

use super::facts::GatewayFact;
use super::route::kinds_of;
use crate::engine::{Kept, Moment, Reader};

/// The label that every namespace has with its name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The most answers of selectors that are kept open at a time.
const ANSWERS_MAX: usize = 1 << 16;

/// The answers of selectors in a batch: of a listener to a namespace, by the hash that stands for
/// both.
#[derive(Default)]
struct OpenAnswers(HashMap<u64, bool>);

impl OpenAnswers {
    /// Keeps an answer, in place of all others where these are too many.
    fn keep(&mut self, asked: u64, answer: bool) {
        if self.0.len() >= ANSWERS_MAX {
            self.0.clear();
        }
        self.0.insert(asked, answer);
    }
}

impl Kept for OpenAnswers {
    fn forget(&mut self, at: Moment) {
        if at != Moment::Run {
            self.0 = HashMap::new();
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// The object with a selector, its listener that has it, if any, and the namespace that is asked
/// about.
type Asked<'a> = (&'a ObjectKey, &'a str, &'a str);

/// The kinds of routes that a listener takes, and whether it names any that it cannot.
pub(crate) fn kinds(listener: &Listener) -> (Vec<ObjectKind>, bool) {
    let usual = kinds_of(&listener.protocol);
    let listed = listener.allowed_routes.as_ref();
    let listed = listed.map_or(&[][..], |allowed| &allowed.kinds[..]);
    if listed.is_empty() {
        return (usual.to_vec(), false);
    }
    let mut kinds = Vec::new();
    let mut has_others = false;
    for wanted in listed {
        let mut known = usual.iter().copied();
        let found = known.find(|kind| wanted.group() == GROUP && *wanted.kind == *kind.as_str());
        match found {
            Some(kind) if !kinds.contains(&kind) => kinds.push(kind),
            Some(_) => {}
            None => has_others = true,
        }
    }
    (kinds, has_others)
}

/// Whether a listener of an object takes routes of a namespace.
pub(crate) fn takes_routes_of(
    reader: &mut Reader<'_>,
    listener: &Listener,
    of: &ObjectKey,
    namespace: &str,
) -> bool {
    let allowed = listener.allowed_routes.as_ref();
    let namespaces = allowed.and_then(|allowed| allowed.namespaces.as_ref());
    takes(reader, namespaces, "Same", (of, &*listener.name, namespace))
}

/// Whether a listener takes routes of every namespace.
pub(crate) fn is_for_all(listener: &Listener) -> bool {
    let allowed = listener.allowed_routes.as_ref();
    let namespaces = allowed.and_then(|allowed| allowed.namespaces.as_ref());
    namespaces.and_then(|it| it.from.as_deref()) == Some("All")
}

/// Whether a Gateway takes ListenerSets of a namespace.
pub(crate) fn takes_sets_of(
    reader: &mut Reader<'_>,
    allowed: Option<&RouteNamespaces>,
    gateway: &ObjectKey,
    namespace: &str,
) -> bool {
    takes(reader, allowed, "None", (gateway, "", namespace))
}

fn takes(
    reader: &mut Reader<'_>,
    namespaces: Option<&RouteNamespaces>,
    usual: &str,
    asked: Asked<'_>,
) -> bool {
    let from = namespaces.and_then(|it| it.from.as_deref());
    match from.unwrap_or(usual) {
        "All" => true,
        "Same" => asked.0.namespace() == asked.2,
        "Selector" => {
            let selector = namespaces.and_then(|it| it.selector.as_ref());
            selector.is_some_and(|selector| answer(reader, selector, asked))
        }
        _ => false,
    }
}

/// The answer of a selector, as it is known from before in the batch or else as it is found.
fn answer(
    reader: &mut Reader<'_>,
    selector: &LabelSelector,
    (of, listener, namespace): Asked<'_>,
) -> bool {
    let asked = reader.hash(GatewayFact::Taken(of.kind, of.id(), listener, namespace));
    let open = reader.open::<OpenAnswers>();
    if let Some(known) = open.and_then(|open| open.0.get(&asked).copied()) {
        reader.read(GatewayFact::Labels(namespace));
        return known;
    }
    let found = selects(reader, selector, namespace);
    if let Some(open) = reader.open_mut::<OpenAnswers>() {
        open.keep(asked, found);
    }
    found
}

fn selects(reader: &mut Reader<'_>, selector: &LabelSelector, namespace: &str) -> bool {
    let entries = selector.match_expressions.iter();
    let values: usize = entries.map(|expression| expression.values.len()).sum();
    reader.count_entries(selector.match_labels.len() + values);
    let known = reader.namespace_labels(namespace);
    let labels = known.as_ref().map(|known| &known.labels);
    let value = |key: &str| -> Option<&str> {
        match key {
            NAME_LABEL => Some(namespace),
            key => labels.and_then(|labels| label(labels, key)),
        }
    };
    let mut wanted = selector.match_labels.iter();
    let mut expressions = selector.match_expressions.iter();
    wanted.all(|(key, wanted)| value(key) == Some(&**wanted))
        && expressions.all(|expression| holds(expression, value(&expression.key)))
}

fn label<'a>(labels: &'a Labels, key: &str) -> Option<&'a str> {
    labels.get(key).map(|value| &**value)
}

fn holds(expression: &LabelExpression, value: Option<&str>) -> bool {
    let is_listed = || {
        let mut values = expression.values.iter();
        values.any(|listed| value == Some(&**listed))
    };
    match &*expression.operator {
        "In" => is_listed(),
        "NotIn" => !is_listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use myriad_api::ObjectKind;
    use myriad_api::gateway::{AllowedRoutes, LabelExpression, Listener, RouteGroupKind};

    use super::{holds, kinds};

    fn expression(operator: &str, values: &[&str]) -> LabelExpression {
        LabelExpression {
            key: "stage".into(),
            operator: operator.into(),
            values: values.iter().map(|value| (*value).into()).collect(),
        }
    }

    #[test]
    fn conditions_of_labels_hold_as_kubernetes_has_it() {
        let of = |operator, values: &[&str], value| holds(&expression(operator, values), value);
        assert!(of("In", &["a", "b"], Some("b")) && !of("In", &["a"], Some("b")));
        assert!(!of("In", &["a"], None) && of("NotIn", &["a"], None));
        assert!(of("NotIn", &["a"], Some("b")) && !of("NotIn", &["a"], Some("a")));
        assert!(of("Exists", &[], Some("")) && !of("Exists", &[], None));
        assert!(of("DoesNotExist", &[], None) && !of("DoesNotExist", &[], Some("a")));
        assert!(
            !of("Near", &["a"], Some("a")),
            "an operator that nobody knows"
        );
    }

    #[test]
    fn a_listener_takes_the_kinds_that_it_names_and_its_protocol_has() {
        let of = |protocol: &str, named: &[&str]| {
            let kind = |kind: &&str| RouteGroupKind {
                group: None,
                kind: (*kind).into(),
            };
            let allowed = AllowedRoutes {
                namespaces: None,
                kinds: named.iter().map(kind).collect(),
            };
            kinds(&Listener {
                protocol: protocol.into(),
                allowed_routes: Some(Box::new(allowed)),
                ..Listener::default()
            })
        };
        let both = vec![ObjectKind::HttpRoute, ObjectKind::GrpcRoute];
        assert_eq!(of("HTTPS", &[]), (both, false));
        assert_eq!(
            of("TLS", &["TLSRoute"]),
            (vec![ObjectKind::TlsRoute], false)
        );
        assert_eq!(of("TLS", &["HTTPRoute"]), (Vec::new(), true));
        let some = vec![ObjectKind::HttpRoute];
        assert_eq!(
            of("HTTP", &["HTTPRoute", "Other", "HTTPRoute"]),
            (some, true)
        );
        assert_eq!(of("OTHER", &[]), (Vec::new(), false));
    }
}
