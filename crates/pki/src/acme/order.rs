//! An order: how far a certificate has come that is being obtained, and its form on disk.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{ChallengeKind, Millis, SpentBudget};

/// The most bytes of an order's text.
pub const ORDER_BYTES_MAX: u64 = 256 << 10;

/// One certificate that is being obtained. It is kept before each step that the authority sees, so
/// that whoever finds it goes on where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The certificate, as `namespace/name`.
    pub id: Arc<str>,
    /// The DNS names, sorted.
    pub names: Vec<Box<str>>,
    /// The issuer.
    pub issuer: Box<str>,
    /// The directory of the authority.
    pub directory: Box<str>,
    /// How far it has come.
    pub stage: OrderStage,
    /// The certificate that it takes the place of, as renewal information names it.
    pub replaces: Option<Box<str>>,
    /// How often its names or their servers did not answer as they should, or the authority did not
    /// know it any more: the measure of the waits between such tries.
    pub failures: u32,
    /// How often authorities have refused it: that of the waits between orders that are refused.
    pub refusals: u32,
    /// How many directories have refused it since it last waited.
    pub tried: u32,
    /// When it goes on.
    pub not_before: Millis,
    /// When it was placed last; 0 for never.
    pub placed_at: Millis,
    /// The records of DNS that its challenges need. They are kept here before they are set, and
    /// until they are removed.
    pub records: Vec<DnsRecord>,
    /// The budgets of its authority that are spent with it, where that is to be kept when it is
    /// placed: beside its text, since they outlive it.
    pub spent: Option<Arc<SpentBudget>>,
}

/// A record of DNS that answers a challenge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnsRecord {
    /// The name that is proven by it, without `*.`.
    pub name: Box<str>,
    /// The name of the record, where the challenge's own name leads by CNAME.
    pub fqdn: Box<str>,
    /// The zone that it is in.
    pub zone: Box<str>,
    /// The text; none while none is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Box<str>>,
}

/// How far an order has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderStage {
    /// It is not known yet whether its names lead here.
    Proving,
    /// They do, and the authority is to be asked.
    Placing,
    /// The authority has it, and the answers to its challenges are to be in service.
    Answering(PlacedOrder),
    /// They are, and the authority is to be told.
    Accepting(PlacedOrder),
    /// The authority looks at them.
    Validating(PlacedOrder),
    /// The authority knows whose the names are, and is to be asked for the certificate.
    Finalising(Box<str>, OrderKey),
    /// It has been asked.
    Fetching(Box<str>, OrderKey),
    /// It is over, but for records of DNS that are to be removed.
    Leaving,
}

/// An order as the authority has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedOrder {
    /// Its URL.
    pub url: Box<str>,
    /// The challenges that have to be answered.
    pub challenges: Vec<Challenge>,
}

/// A challenge, and its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    /// The name that it is about.
    pub name: Box<str>,
    /// The name of its kind.
    pub kind: Box<str>,
    /// The token.
    pub token: Box<str>,
    /// The key authorization (RFC 8555, section 8.1); of a challenge in DNS the text of the record.
    pub answer: Box<str>,
}

/// The private key of the certificate that is ordered, in PKCS#8 DER. It has no way to be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct OrderKey(Box<[u8]>);

/// Why a text is no order.
#[derive(Debug, thiserror::Error)]
pub enum OrderTextError {
    /// It is not JSON, or not of this form.
    #[error("it is no order: {0}")]
    Form(#[from] serde_json::Error),
    /// A part has a value that it must not have.
    #[error("its {0} is not valid")]
    Invalid(&'static str),
}

impl OrderStage {
    /// The order as the authority has it, while its challenges are open.
    pub fn placed(&self) -> Option<&PlacedOrder> {
        match self {
            OrderStage::Answering(placed)
            | OrderStage::Accepting(placed)
            | OrderStage::Validating(placed) => Some(placed),
            _ => None,
        }
    }

    /// Whether the authority has it.
    pub fn is_open(&self) -> bool {
        !matches!(
            self,
            OrderStage::Proving | OrderStage::Placing | OrderStage::Leaving
        )
    }
}

impl DnsRecord {
    /// The name that records of a name are for: a wildcard has those of the name below its star.
    pub fn base(name: &str) -> &str {
        name.strip_prefix("*.").unwrap_or(name)
    }
}

impl Challenge {
    /// Its kind, where it is one that is known.
    pub fn kind(&self) -> Option<ChallengeKind> {
        ChallengeKind::from_word(&self.kind)
    }
}

impl OrderKey {
    /// Takes over the bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        OrderKey(bytes.into())
    }

    /// The bytes, for whoever signs or keeps them.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for OrderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OrderKey(hidden)")
    }
}

/// The form of an order on disk.
#[derive(Serialize, Deserialize)]
struct Text {
    id: Arc<str>,
    names: Vec<Box<str>>,
    issuer: Box<str>,
    directory: Box<str>,
    stage: Box<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    challenges: Vec<Challenge>,
    /// Hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replaces: Option<Box<str>>,
    failures: u32,
    /// Before there was this, refusals counted among the failures.
    #[serde(default, skip_serializing_if = "is_none")]
    refusals: u32,
    tried: u32,
    not_before: Millis,
    placed_at: Millis,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    records: Vec<DnsRecord>,
}

impl Order {
    /// Whether it has failed, one way or the other.
    pub(super) fn has_failed(&self) -> bool {
        self.failures > 0 || self.refusals > 0
    }

    /// Whether records of DNS may be set for it.
    pub fn is_set(&self) -> bool {
        self.records.iter().any(|record| record.value.is_some())
    }

    /// Whether its answers are to be in service before it goes on.
    pub(super) fn is_answering(&self) -> bool {
        matches!(self.stage, OrderStage::Answering(_))
    }

    /// Whether records are to be removed before anything else: nobody looks at them any more.
    pub(super) fn is_to_clean(&self) -> bool {
        match self.stage {
            OrderStage::Leaving => true,
            OrderStage::Proving | OrderStage::Placing => self.is_set(),
            _ => false,
        }
    }

    /// The text that is kept. It has the key of the certificate in it.
    pub fn expose_text(&self) -> String {
        let (stage, url, challenges, key) = match &self.stage {
            OrderStage::Proving => ("proving", None, &[][..], None),
            OrderStage::Placing => ("placing", None, &[][..], None),
            OrderStage::Answering(it) => ("answering", Some(&it.url), &it.challenges[..], None),
            OrderStage::Accepting(it) => ("accepting", Some(&it.url), &it.challenges[..], None),
            OrderStage::Validating(it) => ("validating", Some(&it.url), &it.challenges[..], None),
            OrderStage::Finalising(url, key) => ("finalising", Some(url), &[][..], Some(key)),
            OrderStage::Fetching(url, key) => ("fetching", Some(url), &[][..], Some(key)),
            OrderStage::Leaving => ("leaving", None, &[][..], None),
        };
        let text = Text {
            id: self.id.clone(),
            names: self.names.clone(),
            issuer: self.issuer.clone(),
            directory: self.directory.clone(),
            stage: stage.into(),
            url: url.cloned(),
            challenges: challenges.to_vec(),
            key: key.map(|key| to_hex(key.expose())),
            replaces: self.replaces.clone(),
            failures: self.failures,
            refusals: self.refusals,
            tried: self.tried,
            not_before: self.not_before,
            placed_at: self.placed_at,
            records: self.records.clone(),
        };
        serde_json::to_string(&text).unwrap_or_default()
    }

    /// The order of a text.
    ///
    /// # Errors
    /// It is none.
    pub fn from_text(text: &str) -> Result<Order, OrderTextError> {
        let text: Text = serde_json::from_str(text)?;
        let url = text.url.ok_or(OrderTextError::Invalid("URL"));
        let placed = || OrderTextError::Invalid("key");
        let key = text.key.as_deref().and_then(from_hex).ok_or_else(placed);
        let challenges = text.challenges;
        let stage = match &*text.stage {
            "proving" => OrderStage::Proving,
            "placing" => OrderStage::Placing,
            "answering" => OrderStage::Answering(PlacedOrder {
                url: url?,
                challenges,
            }),
            "accepting" => OrderStage::Accepting(PlacedOrder {
                url: url?,
                challenges,
            }),
            "validating" => OrderStage::Validating(PlacedOrder {
                url: url?,
                challenges,
            }),
            "finalising" => OrderStage::Finalising(url?, OrderKey::new(key?)),
            "fetching" => OrderStage::Fetching(url?, OrderKey::new(key?)),
            "leaving" => OrderStage::Leaving,
            _ => return Err(OrderTextError::Invalid("stage")),
        };
        Ok(Order {
            id: text.id,
            names: text.names,
            issuer: text.issuer,
            directory: text.directory,
            stage,
            replaces: text.replaces,
            failures: text.failures,
            refusals: text.refusals,
            tried: text.tried,
            not_before: text.not_before,
            placed_at: text.placed_at,
            records: text.records,
            spent: None,
        })
    }
}

fn is_none(count: &u32) -> bool {
    *count == 0
}

fn to_hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    digits.collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    let read = |pair: &[u8]| match *pair {
        [high, low] => {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            u8::try_from(digit(high)? * 16 + digit(low)?).ok()
        }
        _ => None,
    };
    pairs.map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::{Challenge, DnsRecord, Order, OrderKey, OrderStage, PlacedOrder};

    fn order(stage: OrderStage) -> Order {
        Order {
            id: "shop/web".into(),
            names: vec!["a.example".into()],
            issuer: "default".into(),
            directory: "https://ca.example/dir".into(),
            stage,
            replaces: Some("aki.serial".into()),
            failures: 2,
            refusals: 3,
            tried: 1,
            not_before: 7,
            placed_at: 5,
            records: Vec::new(),
            spent: None,
        }
    }

    #[test]
    fn an_order_is_found_again_as_it_was_kept_at_each_stage() {
        let placed = || PlacedOrder {
            url: "https://ca.example/order/1".into(),
            challenges: vec![Challenge {
                name: "a.example".into(),
                kind: "http-01".into(),
                token: "t".into(),
                answer: "t.k".into(),
            }],
        };
        let key = || OrderKey::new(vec![0, 1, 0xfe, 0xff]);
        for stage in [
            OrderStage::Proving,
            OrderStage::Placing,
            OrderStage::Answering(placed()),
            OrderStage::Accepting(placed()),
            OrderStage::Validating(placed()),
            OrderStage::Finalising("u".into(), key()),
            OrderStage::Fetching("u".into(), key()),
            OrderStage::Leaving,
        ] {
            let mut order = order(stage);
            let found = Order::from_text(&order.expose_text()).unwrap();
            assert_eq!(found, order);
            order.records = vec![record(None), record(Some("v"))];
            let found = Order::from_text(&order.expose_text()).unwrap();
            assert_eq!(found, order);
        }
    }

    #[test]
    fn an_order_that_was_kept_without_a_number_of_refusals_is_found_with_none() {
        let order = order(OrderStage::Proving);
        let text = order.expose_text();
        let before = text.replace("\"refusals\":3,", "");
        assert_ne!(before, text);
        let found = Order::from_text(&before).unwrap();
        assert_eq!((found.failures, found.refusals), (2, 0));
        // Where there are none, it reads as it did before.
        assert_eq!(found.expose_text(), before);
    }

    fn record(value: Option<&str>) -> DnsRecord {
        DnsRecord {
            name: "a.example".into(),
            fqdn: "_acme-challenge.a.example".into(),
            zone: "example".into(),
            value: value.map(Box::from),
        }
    }

    #[test]
    fn records_are_removed_once_nobody_looks_at_them_any_more() {
        let placed = PlacedOrder {
            url: "u".into(),
            challenges: Vec::new(),
        };
        for (stage, is_due) in [
            (OrderStage::Proving, true),
            (OrderStage::Placing, true),
            (OrderStage::Answering(placed.clone()), false),
            (OrderStage::Validating(placed), false),
            (OrderStage::Leaving, true),
        ] {
            let mut order = order(stage);
            order.records = vec![record(None)];
            assert!(!order.is_set());
            assert_eq!(order.is_to_clean(), order.stage == OrderStage::Leaving);
            order.records.push(record(Some("v")));
            assert!(order.is_set());
            assert_eq!(order.is_to_clean(), is_due, "{:?}", order.stage);
        }
        assert_eq!(DnsRecord::base("*.a.example"), "a.example");
        assert_eq!(DnsRecord::base("a.example"), "a.example");
    }

    #[test]
    fn what_is_no_order_is_refused_and_no_key_is_printed() {
        let stage = OrderStage::Fetching("u".into(), OrderKey::new(vec![0xab; 8]));
        let order = order(stage);
        let text = order.expose_text();
        assert!(text.contains("abababab") && !format!("{order:?}").contains("abab"));
        assert!(!format!("{order:?}").contains("171, 171"));
        for broken in [
            text.replace("fetching", "elsewhere"),
            text.replace("abab", "xyab"),
            text.replace("\"url\":\"u\",", ""),
            text[..text.len() - 1].to_owned(),
            String::new(),
        ] {
            assert!(Order::from_text(&broken).is_err(), "{broken}");
        }
    }
}
