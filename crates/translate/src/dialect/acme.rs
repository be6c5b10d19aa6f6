//! Certificates that are obtained of authorities: the answers to their challenges become resources,
//! and which certificates are wanted, and of which issuers, is told to whoever obtains them.

pub(crate) mod facts;
pub(crate) mod issuer;
pub(crate) mod units;

use myriad_api::{Object, ObjectKind};
use myriad_model::{
    ChallengeAnswer, ChallengeForm, Host, Origin, OriginKind, Resource, Value, is_demandable,
    on_demand_name,
};

use crate::engine::{Dialect, Output, Reader, Unit};
use crate::resolve::certificate;

/// The rules that the engine has for orders, certificates on demand and issuers.
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
        let Ok(host) = Host::of_name(&answer.host) else {
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

/// Translates a certificate that was obtained on demand, which handshakes find by its host. One
/// that cannot be served is left out: whoever obtained it has checked it.
pub(crate) fn translate_on_demand(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    let mut output = Output::default();
    let Some(id) = unit.name() else {
        return output;
    };
    let Some(Object::OnDemand(found)) = reader.visit(ObjectKind::OnDemand, id) else {
        return output;
    };
    let served = certificate::own(&found.secret);
    if let Some(certificate) = served.filter(|_| is_demandable(&found.host)) {
        let resource = Resource {
            origin: Origin {
                kind: OriginKind::Secret,
                id: id.clone(),
            },
            value: Value::Certificate(Box::new(certificate)),
        };
        let name = on_demand_name(&found.host);
        output.resources.push((name, resource));
    }
    output
}
