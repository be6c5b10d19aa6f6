//! Gateways of Gateway API that have proxies of their own: what is made for them is called what,
//! and which proxies see what.
//!
//! Proxies of such a Gateway run in its namespace, under a service account that is made for it. As
//! anybody who may run Pods there can be one of them, what they say counts for that namespace.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use myriad_translate::View;

/// The label that has the name of the Gateway.
pub const GATEWAY_LABEL: &str = "gateway.networking.k8s.io/gateway-name";

/// The most Gateways with proxies of their own: each has a view.
pub const DEDICATED_MAX: usize = 4_096;

/// The most of them in one namespace.
pub const DEDICATED_OF_NAMESPACE_MAX: usize = 256;

/// The start of the names of their views ([`View::dedicated`]). No other view's has two slashes.
const VIEW_PREFIX: &str = "gateway/";

/// The end of the names of what is made for them.
const SUFFIX: &str = "-myriad";

/// The longest name of a Gateway that is taken as it is: a label has 63 characters, of which the
/// Service of an address takes some for the hash of that.
const NAME_MAX: usize = 63 - SUFFIX.len() - HASH_DIGITS - 1;

/// The most of a name that is left of a longer one, and the characters of its hash.
const CUT_MAX: usize = 36;
const HASH_DIGITS: usize = 8;

/// Whether a view is of the proxies of one Gateway.
pub fn is_view(name: &str) -> bool {
    let rest = name.strip_prefix(VIEW_PREFIX);
    rest.is_some_and(|rest| rest.contains('/') && !rest.contains('#'))
}

/// The namespace of the proxies of a view, if it is of one Gateway.
pub fn namespace_of_view(name: &str) -> Option<&str> {
    let id = name.strip_prefix(VIEW_PREFIX).filter(|_| is_view(name))?;
    id.split_once('/').map(|(namespace, _)| namespace)
}

/// The view of the proxies of a Gateway, by `namespace/name`.
pub fn view_of(id: &str) -> View {
    let (namespace, name) = id.split_once('/').unwrap_or(("", id));
    View::dedicated(namespace, name)
}

/// The name of what is made for a Gateway of this name: its service account, Deployment and
/// Service.
pub fn made_name(gateway: &str) -> String {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let begins_well = gateway.starts_with(|first: char| first.is_ascii_lowercase());
    if begins_well && gateway.len() <= NAME_MAX && gateway.bytes().all(is_letter) {
        return format!("{gateway}{SUFFIX}");
    }
    // Names of Services have no dots and begin with a letter.
    let letters = gateway.bytes().map(|byte| match is_letter(byte) {
        true => char::from(byte),
        false => '-',
    });
    let start: String = letters.take(CUT_MAX).collect();
    let start = start.trim_matches('-');
    let lead = if begins_well { "" } else { "g-" };
    format!("{lead}{start}-{}{SUFFIX}", digits_of(gateway))
}

/// The name of the Service of an address, where what is made for the Gateway has this one. An
/// address has the same Service whatever others are asked for.
pub fn service_name(made: &str, address: IpAddr) -> String {
    format!("{made}-{}", digits_of(&address.to_string()))
}

fn digits_of(text: &str) -> String {
    let hash = blake3::hash(text.as_bytes()).to_hex();
    hash.chars().take(HASH_DIGITS).collect()
}

/// The Gateways that have views here. Cheap to clone; clones are one list.
#[derive(Clone, Default)]
pub struct DedicatedGateways(Arc<Mutex<Known>>);

/// The namespace and the name of a service account.
type MadeAccount = (Box<str>, Box<str>);

#[derive(Default)]
struct Known {
    /// The names of views, by `namespace/name` of the Gateway.
    views: BTreeMap<Arc<str>, Arc<str>>,
    /// The same by the namespace and the name of the service account.
    accounts: HashMap<MadeAccount, Arc<str>>,
    /// How many there are in each namespace that has any.
    counts: HashMap<Box<str>, usize>,
    /// The Gateways for which there is no room.
    refused: BTreeSet<Arc<str>>,
}

impl DedicatedGateways {
    /// Admits the proxies of a Gateway, by `namespace/name`. Returns the view that they see; none
    /// where it is there already, and where there is no room for it.
    pub fn put(&self, id: &Arc<str>) -> Option<View> {
        let mut known = self.lock();
        if known.views.contains_key(id) {
            return None;
        }
        let (namespace, name) = id.split_once('/')?;
        let count = known.counts.get(namespace).copied().unwrap_or_default();
        let account: MadeAccount = (namespace.into(), made_name(name).into());
        let has_room = known.views.len() < DEDICATED_MAX
            && count < DEDICATED_OF_NAMESPACE_MAX
            && !known.accounts.contains_key(&account);
        if !has_room {
            known.refused.insert(id.clone());
            return None;
        }
        known.refused.remove(id);
        let view = view_of(id);
        known.counts.insert(namespace.into(), count + 1);
        known.accounts.insert(account, view.name.clone());
        known.views.insert(id.clone(), view.name.clone());
        Some(view)
    }

    /// Admits them no more. Returns the name of the view that goes, and a Gateway for which there
    /// may be room now.
    pub fn remove(&self, id: &str) -> Option<(Arc<str>, Option<Arc<str>>)> {
        let mut known = self.lock();
        known.refused.remove(id);
        let view = known.views.remove(id)?;
        let (namespace, name) = id.split_once('/')?;
        let account: MadeAccount = (namespace.into(), made_name(name).into());
        known.accounts.remove(&account);
        match known.counts.get_mut(namespace) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(known.counts.remove(namespace)),
        }
        let is_beside = |id: &&Arc<str>| id.split_once('/').is_some_and(|it| it.0 == namespace);
        let beside = known.refused.iter().find(is_beside);
        let next = beside.or(known.refused.first()).cloned();
        Some((view, next))
    }

    /// The view that the proxies of a service account see; none of one that was made for no
    /// Gateway.
    pub fn view_of_account(&self, namespace: &str, account: &str) -> Option<Arc<str>> {
        let account: MadeAccount = (namespace.into(), account.into());
        self.lock().accounts.get(&account).cloned()
    }

    /// The name of the view of a Gateway's proxies, by `namespace/name`; none where it has none.
    pub fn view_name(&self, id: &str) -> Option<Arc<str>> {
        self.lock().views.get(id).cloned()
    }

    /// The Gateways that have a view, by `namespace/name`.
    pub fn ids(&self) -> Vec<Arc<str>> {
        self.lock().views.keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{
        DEDICATED_OF_NAMESPACE_MAX, DedicatedGateways, GATEWAY_LABEL, is_view, made_name,
        service_name, view_of,
    };

    #[test]
    fn what_is_made_for_a_gateway_has_a_name_that_a_service_may_have() {
        assert_eq!(made_name("edge"), "edge-myriad");
        let long = "a".repeat(47);
        assert_eq!(made_name(&long), format!("{long}-myriad"));
        let names = ["7", "shop.example", "-", "Shop"].map(str::to_owned);
        let long = ["a".repeat(48), "b.".repeat(120)];
        let mut seen = std::collections::BTreeSet::new();
        for name in names.iter().chain(&long) {
            let made = made_name(name);
            let letters = |byte: u8| byte.is_ascii_lowercase() || b"-0123456789".contains(&byte);
            let of_address = service_name(&made, [192, 0, 2, 7].into());
            assert!(
                of_address.len() <= 63 && of_address.bytes().all(letters),
                "{of_address}"
            );
            assert!(
                made.starts_with(|first: char| first.is_ascii_lowercase()),
                "{made}"
            );
            assert_eq!(made, made_name(name));
            assert!(seen.insert(made));
        }
        assert_ne!(made_name("shop.example"), made_name("shop-example"));
    }

    #[test]
    fn a_view_is_told_from_those_of_sidecars_and_other_gateways() {
        let view = view_of("shop/edge");
        assert_eq!(
            (&*view.name, &*view.namespace),
            ("gateway/shop/edge", "shop")
        );
        assert!(view.has_label(GATEWAY_LABEL, "edge") && is_view(&view.name));
        for other in ["gateway", "egress", "gateway/app#1", "shop/app#1"] {
            assert!(!is_view(other), "{other}");
        }
    }

    #[test]
    fn a_service_account_sees_the_view_of_its_gateway_and_none_else() {
        let gateways = DedicatedGateways::default();
        let id: Arc<str> = "shop/edge".into();
        let view = gateways.put(&id).expect("there is room");
        assert_eq!(gateways.put(&id), None, "it is there");
        let found = |namespace, account| gateways.view_of_account(namespace, account);
        assert_eq!(found("shop", "edge-myriad"), Some(view.name.clone()));
        assert_eq!(found("shop", "edge"), None);
        assert_eq!(found("blog", "edge-myriad"), None);
        assert_eq!(gateways.remove("shop/edge"), Some((view.name, None)));
        assert_eq!(found("shop", "edge-myriad"), None);
        assert_eq!(gateways.remove("shop/edge"), None);
        assert!(gateways.lock().counts.is_empty());
    }

    #[test]
    fn a_namespace_has_so_many_and_takes_no_room_from_others() {
        let gateways = DedicatedGateways::default();
        let id =
            |namespace: &str, number: usize| Arc::<str>::from(format!("{namespace}/g{number}"));
        for number in 0..DEDICATED_OF_NAMESPACE_MAX {
            assert!(gateways.put(&id("evil", number)).is_some());
        }
        let beyond = id("evil", DEDICATED_OF_NAMESPACE_MAX);
        assert_eq!(gateways.put(&beyond), None);
        assert_eq!(gateways.view_name(&beyond), None);
        assert!(gateways.put(&id("shop", 0)).is_some());
        let (_, next) = gateways.remove(&id("evil", 0)).expect("it was there");
        assert_eq!(next.as_ref(), Some(&beyond), "there is room now");
        assert!(gateways.put(&beyond).is_some());
        assert!(gateways.lock().refused.is_empty());
    }

    #[test]
    fn two_gateways_whose_names_come_to_the_same_are_not_taken_for_each_other() {
        let gateways = DedicatedGateways::default();
        let cut = made_name("shop.example");
        let forged = cut.strip_suffix("-myriad").expect("its end");
        gateways
            .put(&"shop/shop.example".into())
            .expect("there is room");
        assert_eq!(gateways.put(&format!("shop/{forged}").into()), None);
        let view = gateways
            .view_of_account("shop", &cut)
            .expect("the first one's");
        assert_eq!(&*view, "gateway/shop/shop.example");
    }
}
