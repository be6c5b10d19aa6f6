//! An order as its Secret has it, and the answers that proxies give by that.

use std::sync::Arc;

use myriad_api::order::{Order as OrderObject, OrderAnswer};
use myriad_api::{Meta, Object, ObjectKey, ObjectKind};
use myriad_pki::acme::{Order, OrderStage, OrderTextError};
use myriad_source::kubernetes::Texts;

use crate::acme::token::{answers, token};

/// The label of Secrets in which anything is kept.
const LABEL: &str = "myriad.dev/acme";

/// The label of accounts, with its value.
pub(super) const ACCOUNT_LABEL: (&str, &str) = (LABEL, "account");

/// The keys in a Secret of an account: its key, and its text.
pub(super) const ACCOUNT_KEY: &str = "key";
pub(super) const ACCOUNT_TEXT: &str = "account";

/// The keys in a Secret of an order: its text, and the token that its names are asked with.
pub(super) const ORDER_TEXT: &str = "order";
pub(super) const PROOF: &str = "proof";

/// The label of orders, with its value.
pub(in crate::acme) const ORDER_LABEL: (&str, &str) = (LABEL, "order");

/// The label of certificates on demand, with its value, and that of what is wished of them.
pub(in crate::acme) const ON_DEMAND_LABEL: (&str, &str) = (LABEL, "on-demand");
pub(in crate::acme) const WISH_LABEL: (&str, &str) = (LABEL, "wish");

/// The label of budgets, with its value.
pub(super) const SPENT_LABEL: (&str, &str) = (LABEL, "budget");

/// The key in a Secret of a budget: its text.
pub(super) const SPENT_TEXT: &str = "spent";

/// An order as it is kept.
pub(in crate::acme) struct KeptOrder {
    /// The order.
    pub order: Order,
    /// The token that its names are asked with.
    pub nonce: Box<str>,
}

impl KeptOrder {
    /// Reads the values of a Secret.
    ///
    /// # Errors
    /// They are those of no order.
    pub(in crate::acme) fn read(texts: &Texts) -> Result<KeptOrder, OrderTextError> {
        let text = texts.get(ORDER_TEXT).map_or("", String::as_str);
        let nonce = texts.get(PROOF).map_or("", String::as_str);
        Ok(KeptOrder {
            order: Order::from_text(text)?,
            nonce: nonce.into(),
        })
    }

    /// The values of its Secret.
    pub(super) fn texts(&self) -> Texts {
        Texts::from([
            (ORDER_TEXT.to_owned(), self.order.expose_text()),
            (PROOF.to_owned(), self.nonce.to_string()),
        ])
    }

    /// The answers that proxies give: those to open challenges, and the token for each name that
    /// may be asked over HTTP. Once the authority has seen them, there are none.
    pub(super) fn answers(&self) -> Vec<OrderAnswer> {
        let mut given = match &self.order.stage {
            OrderStage::Proving | OrderStage::Placing => Vec::new(),
            stage => match stage.placed() {
                Some(placed) => answers(placed),
                None => return Vec::new(),
            },
        };
        if !self.nonce.is_empty() {
            let names = self.order.names.iter();
            let hosts = names.filter(|name| !name.starts_with("*."));
            given.extend(hosts.map(|name| token(name, &self.nonce)));
        }
        given
    }

    /// The object by which proxies give them; none where there are none.
    pub(in crate::acme) fn object(&self) -> Option<Object> {
        let answers = self.answers();
        if answers.is_empty() {
            return None;
        }
        Some(Object::Order(Arc::new(OrderObject {
            meta: Meta::new(self.key()),
            answers: answers.into(),
        })))
    }

    /// The key of that object.
    pub(in crate::acme) fn key(&self) -> ObjectKey {
        ObjectKey::from_id(ObjectKind::Order, self.order.id.clone())
    }
}
