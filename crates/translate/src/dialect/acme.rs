//! Certificates that are obtained of authorities: the answers to their challenges become resources,
//! and which certificates are wanted, and of which issuers, is told to whoever obtains them.

pub(crate) mod facts;
pub(crate) mod issuer;
pub(crate) mod units;

use myriad_api::{Object, ObjectKind};
use myriad_model::{ChallengeAnswer, ChallengeForm, Host, Origin, OriginKind, Resource, Value};

use crate::engine::{Dialect, Output, Reader, Unit};

/// The rules that the engine has for orders and issuers.
pub(crate) const DIALECT: Dialect = Dialect {
    touch: facts::touch,
    ..Dialect::BLANK
};

/// Translates the answers of one order. One that cannot be given is left out: the authority says
/// what it misses.
pub(crate) fn translate(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    let mut output = Output::default();
    let Some(id) = unit.name() else {
        return output;
    };
    let Some(Object::Order(order)) = reader.visit(ObjectKind::Order, id) else {
        return output;
    };
    let origin = Origin {
        kind: OriginKind::Order,
        id: id.clone(),
    };
    for answer in &order.answers {
        let Ok(host) = Host::parse(&answer.host) else {
            continue;
        };
        let answer = ChallengeAnswer {
            host,
            form: match answer.by_tls {
                true => ChallengeForm::TlsAlpn,
                false => ChallengeForm::Http,
            },
            token: answer.token.clone(),
            text: answer.text.clone(),
        };
        if ChallengeAnswer::is_token(&answer.token) && ChallengeAnswer::is_text(&answer.text) {
            let resource = Resource {
                origin: origin.clone(),
                value: Value::ChallengeAnswer(Box::new(answer.clone())),
            };
            output.resources.push((answer.name(id), resource));
        }
    }
    output
}
