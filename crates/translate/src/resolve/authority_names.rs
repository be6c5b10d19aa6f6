//! The names of trusts: a Secret's is its own, a ConfigMap's is marked, and several are one.

use std::sync::Arc;

/// The end of the name of a trust of a ConfigMap. No name of a Secret has a `+`.
const CONFIG_MAP: &str = "+configmap";

/// The separator of the names of several objects whose authorities are one trust.
const AND: &str = ",";

/// The name of the trust of the authorities in a ConfigMap.
pub(crate) fn of_config_map(namespace: &str, name: &str) -> Arc<str> {
    format!("{namespace}/{name}{CONFIG_MAP}").into()
}

/// The name of the trust of the authorities of several trusts; none where there are none.
pub(crate) fn joined(names: &[Arc<str>]) -> Option<Arc<str>> {
    match names {
        [] => None,
        [alone] => Some(alone.clone()),
        several => Some(several.join(AND).into()),
    }
}

/// Whether a trust is that of one Secret.
pub(crate) fn is_secret(name: &str) -> bool {
    !name.contains(AND) && !name.ends_with(CONFIG_MAP)
}

/// The trusts that one is made of.
pub(crate) fn parts(name: &str) -> impl Iterator<Item = &str> {
    name.split(AND)
}

/// The `namespace/name` of the ConfigMap that a trust is of; none where it is that of a Secret.
pub(crate) fn config_map(name: &str) -> Option<&str> {
    name.strip_suffix(CONFIG_MAP)
}

#[cfg(test)]
mod tests {
    use super::{config_map, is_secret, joined, of_config_map, parts};

    #[test]
    fn trusts_of_several_objects_are_told_apart_from_those_of_one() {
        let map = of_config_map("shop", "ca");
        assert_eq!(config_map(&map), Some("shop/ca"));
        assert!(!is_secret(&map) && is_secret("shop/ca"));
        assert_eq!(config_map("shop/ca"), None);
        assert_eq!(joined(&[]), None);
        assert_eq!(joined(std::slice::from_ref(&map)), Some(map.clone()));
        let both = joined(&[map.clone(), "shop/own".into()]).expect("a name");
        assert!(!is_secret(&both));
        assert_eq!(parts(&both).collect::<Vec<_>>(), [&*map, "shop/own"]);
    }
}
