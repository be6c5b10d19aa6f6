//! The names of a Pod's workload, by the rules that Istio's metrics go by.

use myriad_api::{Owner, Pod};
use myriad_model::WorkloadNames;

/// The label by which a Deployment tells its ReplicaSets apart.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// The name, app, version and canonical service of the workload that a Pod belongs to.
pub fn workload_names(pod: &Pod) -> WorkloadNames {
    let label = |key: &str| {
        let mut labels = pod.labels.iter();
        let found = labels.find(|(known, value)| **known == *key && !value.is_empty());
        found.map(|(_, value)| &**value)
    };
    let first = |keys: [&str; 3]| keys.into_iter().find_map(label);
    let workload = match &pod.owner {
        Some(owner) => runner(owner, label(TEMPLATE_HASH)),
        None => pod.meta.key.name(),
    };
    let service = [
        "service.istio.io/canonical-name",
        "app.kubernetes.io/name",
        "app",
    ];
    let revision = [
        "service.istio.io/canonical-revision",
        "app.kubernetes.io/version",
        "version",
    ];
    WorkloadNames {
        workload: workload.into(),
        app: label("app").unwrap_or_default().into(),
        version: label("version").unwrap_or_default().into(),
        service: first(service).unwrap_or(workload).into(),
        revision: first(revision).unwrap_or("latest").into(),
    }
}

/// The object that runs the owner: a Deployment has ReplicaSets named after it and the
/// template, a CronJob has Jobs named after it and the minute.
fn runner<'a>(owner: &'a Owner, template_hash: Option<&str>) -> &'a str {
    let name = &*owner.name;
    let before = |suffix: &str| name.strip_suffix(suffix)?.strip_suffix('-');
    let known = match (&*owner.kind, template_hash) {
        ("ReplicaSet", Some(hash)) => before(hash),
        ("Job", _) => name.rsplit_once('-').and_then(|(start, minute)| {
            let is_minute = (8..=10).contains(&minute.len());
            let is_number = minute.bytes().all(|byte| byte.is_ascii_digit());
            (is_minute && is_number).then_some(start)
        }),
        _ => None,
    };
    known.filter(|known| !known.is_empty()).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use myriad_api::{Meta, ObjectKey, ObjectKind, Owner, Pod};

    use super::workload_names;

    fn names(pod: &str, labels: &[(&str, &str)], owner: Option<(&str, &str)>) -> [String; 5] {
        let labels = labels
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).into()));
        let names = workload_names(&Pod {
            meta: Meta::new(ObjectKey::new(ObjectKind::Pod, "shop", pod)),
            uid: None,
            labels: labels.collect(),
            address: None,
            account: None,
            owner: owner.map(|(kind, name)| Owner {
                kind: kind.into(),
                name: name.into(),
            }),
            is_ready: true,
        });
        let all = [
            names.workload,
            names.app,
            names.version,
            names.service,
            names.revision,
        ];
        all.map(String::from)
    }

    #[test]
    fn a_pod_goes_by_what_people_wrote() {
        let labels = [
            ("app", "cart"),
            ("version", "v1"),
            ("pod-template-hash", "5d8"),
        ];
        for (kind, owner, expected) in [
            ("ReplicaSet", "cart-v1-5d8", "cart-v1"),
            ("ReplicaSet", "by-hand", "by-hand"),
            ("StatefulSet", "cart", "cart"),
            ("Job", "nightly-27654321", "nightly"),
            ("Job", "once-2", "once-2"),
        ] {
            let found = names("cart-v1-5d8-x", &labels, Some((kind, owner)));
            assert_eq!(found, [expected, "cart", "v1", "cart", "v1"]);
        }
        let alone = names("alone", &[], None);
        assert_eq!(alone, ["alone", "", "", "alone", "latest"]);
        let labels = [
            ("app", "x"),
            ("app.kubernetes.io/name", "y"),
            ("service.istio.io/canonical-name", "z"),
            ("app.kubernetes.io/version", "2"),
        ];
        assert_eq!(names("a", &labels, None), ["a", "x", "", "z", "2"]);
    }
}
