//! Objects as a cluster writes them.

use std::sync::LazyLock;

use myriad_api::{Object, ObjectKind};
use myriad_sidecar::inject::{Decision, Labels, Reason, Sidecar, decide, inject};
use serde_json::Value;

/// Whatever somebody writes as an object is one that has a name, or an error that has a place.
pub(crate) fn object(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    let mut is_any = false;
    for kind in ObjectKind::ALL {
        match Object::from_json(kind, text) {
            Ok(object) => {
                is_any = true;
                assert_eq!(object.key().kind, kind);
                assert!(!object.key().name().is_empty());
                assert!(Object::json_problem(kind, text).is_none());
            }
            Err(error) => {
                let again = Object::json_problem(kind, text).map(|(again, _)| again);
                assert_eq!(again.map(|it| it.to_string()), Some(error.to_string()));
            }
        }
    }
    is_any
}

static SIDECAR: LazyLock<Sidecar> = LazyLock::new(|| Sidecar {
    image: "myriad".to_owned(),
    pull_policy: "IfNotPresent".to_owned(),
    controller: "myriad:8444".to_owned(),
    ca_config_map: "myriad-ca".to_owned(),
    cpu: "10m".to_owned(),
    memory: "32Mi".to_owned(),
    memory_limit: String::new(),
    log: "info".to_owned(),
    drain_delay: 5,
    drain_timeout: 30,
    hold: Vec::new(),
    metrics_from: Vec::new(),
    path_normalization: None,
});

/// A Pod that is given a proxy has one afterwards, once, and all containers that it had.
pub(crate) fn pod(bytes: &[u8]) -> bool {
    let Ok(pod) = serde_json::from_slice::<Value>(bytes) else {
        return false;
    };
    let asks: Labels = [("istio-injection".to_owned(), "enabled".to_owned())].into();
    if decide(&pod, "shop", &asks) != Decision::Inject {
        return false;
    }
    let Ok(injected) = inject(&pod, "owner", &SIDECAR) else {
        return false;
    };
    let again = decide(&injected.pod, "shop", &asks);
    assert_eq!(again, Decision::Leave(Reason::Present));
    let (before, after) = (names(&pod), names(&injected.pod));
    let is_own = |name: &&String| name.starts_with("myriad-");
    let others: Vec<_> = after.iter().filter(|it| !is_own(it)).collect();
    let expected: Vec<_> = before.iter().filter(|it| !is_own(it)).collect();
    assert_eq!(others, expected);
    true
}

/// The names of all containers, in their order.
fn names(pod: &Value) -> Vec<String> {
    let lists = ["/spec/initContainers", "/spec/containers"].into_iter();
    let all = lists.filter_map(|list| pod.pointer(list)?.as_array());
    let names = all
        .flatten()
        .map(|it| it.get("name").and_then(Value::as_str));
    names
        .map(|name| name.unwrap_or_default().to_owned())
        .collect()
}
