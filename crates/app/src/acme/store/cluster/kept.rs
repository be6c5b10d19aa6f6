//! An order as its Secret has it, and the answers that proxies give by that.

use std::sync::Arc;

use myriad_api::order::{Order as OrderObject, OrderAnswer};
use myriad_api::{Meta, Object, ObjectKey, ObjectKind};
use myriad_pki::acme::{Order, OrderStage, OrderTextError};
use myriad_source::kubernetes::Texts;

use crate::acme::token::{answers, placed_nonce, token};

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

    /// The answers that proxies give: those to open challenges, and the tokens for each name that
    /// may be asked over HTTP. Once the authority has seen them, there are none.
    pub(super) fn answers(&self) -> Vec<OrderAnswer> {
        let placed = self.order.stage.placed();
        let is_open = matches!(self.order.stage, OrderStage::Proving | OrderStage::Placing);
        if placed.is_none() && !is_open {
            return Vec::new();
        }
        let mut given = placed.map(answers).unwrap_or_default();
        if !self.nonce.is_empty() {
            let of_order = placed.map(|placed| placed_nonce(&self.nonce, placed));
            for nonce in [Some(&self.nonce), of_order.as_ref()].into_iter().flatten() {
                let names = self.order.names.iter();
                let hosts = names.filter(|name| !name.starts_with("*."));
                given.extend(hosts.map(|name| token(name, nonce)));
            }
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

#[cfg(test)]
mod tests {
    use myriad_pki::acme::{Challenge, OrderStage, PlacedOrder};

    use super::{KeptOrder, answers};
    use crate::acme::testing;
    use crate::acme::token::{placed_nonce, token};

    #[test]
    fn the_token_of_a_placed_order_is_given_with_its_answers_alone() {
        let kept = |stage| KeptOrder {
            order: testing::order("shop/web", stage),
            nonce: "nonce".into(),
        };
        let proving = kept(OrderStage::Proving);
        let name = proving.order.names[0].clone();
        assert_eq!(proving.answers(), [token(&name, "nonce")]);

        let placed = PlacedOrder {
            url: "https://ca.example/order/1".into(),
            challenges: vec![Challenge {
                name: name.clone(),
                kind: "http-01".into(),
                token: "token".into(),
                answer: "token.key".into(),
            }],
        };
        let of_order = token(&name, &placed_nonce("nonce", &placed));
        assert!(!proving.answers().contains(&of_order));
        let answering = kept(OrderStage::Answering(placed.clone())).answers();
        assert!(answering.contains(&of_order) && answering.contains(&token(&name, "nonce")));
        assert!(answers(&placed).iter().all(|it| answering.contains(it)));
        // Another order of the same names has another one.
        let mut other = placed.clone();
        other.url = "https://ca.example/order/2".into();
        assert_ne!(
            placed_nonce("nonce", &other),
            placed_nonce("nonce", &placed)
        );
    }
}
