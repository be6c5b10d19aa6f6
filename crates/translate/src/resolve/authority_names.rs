//! The names of trusts: a Secret's is its own, a ConfigMap's is marked, and several are one, of the
//! namespace that names them together.

use std::sync::Arc;

/// The end of the name of a trust of a ConfigMap. No name of a Secret has a `+`.
const CONFIG_MAP: &str = "+configmap";

/// The separator of the names of several objects whose authorities are one trust.
const AND: &str = ",";

/// The name of the trust of the authorities in a ConfigMap.
pub(crate) fn of_config_map(namespace: &str, name: &str) -> Arc<str> {
    format!("{namespace}/{name}{CONFIG_MAP}").into()
}

/// The separator of the namespace that names several trusts together, and of these.
const OF: char = '+';

/// The name of the trust of the authorities of several trusts that objects of a namespace name
/// together; none where there are none. It is a copy of them, and counts for that namespace.
pub(crate) fn joined(namespace: &str, names: &[Arc<str>]) -> Option<Arc<str>> {
    match names {
        [] => None,
        [alone] => Some(alone.clone()),
        several => Some(format!("{namespace}{OF}{}", several.join(AND)).into()),
    }
}

/// The namespace that names the trusts together which one is made of; none where it is made of no
/// others.
pub(crate) fn owner(name: &str) -> Option<&str> {
    joint(name).map(|(owner, _)| owner)
}

/// The namespace that names several trusts, and these.
fn joint(name: &str) -> Option<(&str, &str)> {
    let joint = name.contains(AND).then(|| name.split_once(OF));
    joint.flatten()
}

/// Whether a trust is that of one Secret.
pub(crate) fn is_secret(name: &str) -> bool {
    !name.contains(AND) && !name.ends_with(CONFIG_MAP)
}

/// The trusts that one is made of.
pub(crate) fn parts(name: &str) -> impl Iterator<Item = &str> {
    joint(name).map_or(name, |(_, names)| names).split(AND)
}

/// The `namespace/name` of the ConfigMap that a trust is of; none where it is that of a Secret.
pub(crate) fn config_map(name: &str) -> Option<&str> {
    name.strip_suffix(CONFIG_MAP)
}

#[cfg(test)]
mod tests {
    use super::{config_map, is_secret, joined, of_config_map, owner, parts};

    #[test]
    fn trusts_of_several_objects_are_told_apart_from_those_of_one() {
        let map = of_config_map("shop", "ca");
        assert_eq!(config_map(&map), Some("shop/ca"));
        assert!(!is_secret(&map) && is_secret("shop/ca"));
        assert_eq!(config_map("shop/ca"), None);
        assert_eq!(joined("shop", &[]), None);
        assert_eq!(
            joined("shop", std::slice::from_ref(&map)),
            Some(map.clone())
        );
        assert_eq!((owner(&map), owner("shop/ca")), (None, None));
        assert_eq!(parts(&map).collect::<Vec<_>>(), [&*map]);
        let names = [map.clone(), "shop/own".into()];
        let both = joined("blog", &names).expect("a name");
        assert!(!is_secret(&both));
        assert_eq!(parts(&both).collect::<Vec<_>>(), [&*map, "shop/own"]);
        // What another namespace names is another copy.
        assert_eq!(owner(&both), Some("blog"));
        assert_ne!(joined("shop", &names), Some(both));
    }
}
