//! The namespaces and kinds that listeners and Gateways take.

use myriad_api::ObjectKind;
use myriad_api::gateway::{GROUP, LabelExpression, LabelSelector, Listener, RouteNamespaces};
use myriad_api::istio::Labels;

use super::route::kinds_of;
use crate::engine::Reader;

/// The label that every namespace has with its name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

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

/// Whether a listener of an object of the namespace `own` takes routes of a namespace.
pub(crate) fn takes_routes_of(
    reader: &mut Reader<'_>,
    listener: &Listener,
    own: &str,
    namespace: &str,
) -> bool {
    let allowed = listener.allowed_routes.as_ref();
    let namespaces = allowed.and_then(|allowed| allowed.namespaces.as_ref());
    takes(reader, namespaces, "Same", (own, namespace))
}

/// Whether a listener takes routes of every namespace.
pub(crate) fn is_for_all(listener: &Listener) -> bool {
    let allowed = listener.allowed_routes.as_ref();
    let namespaces = allowed.and_then(|allowed| allowed.namespaces.as_ref());
    namespaces.and_then(|it| it.from.as_deref()) == Some("All")
}

/// Whether a Gateway of the namespace `own` takes ListenerSets of a namespace.
pub(crate) fn takes_sets_of(
    reader: &mut Reader<'_>,
    allowed: Option<&RouteNamespaces>,
    own: &str,
    namespace: &str,
) -> bool {
    takes(reader, allowed, "None", (own, namespace))
}

fn takes(
    reader: &mut Reader<'_>,
    namespaces: Option<&RouteNamespaces>,
    usual: &str,
    (own, namespace): (&str, &str),
) -> bool {
    let from = namespaces.and_then(|it| it.from.as_deref());
    match from.unwrap_or(usual) {
        "All" => true,
        "Same" => own == namespace,
        "Selector" => {
            let selector = namespaces.and_then(|it| it.selector.as_ref());
            selector.is_some_and(|selector| selects(reader, selector, namespace))
        }
        _ => false,
    }
}

fn selects(reader: &mut Reader<'_>, selector: &LabelSelector, namespace: &str) -> bool {
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
