//! Gateway API: classes, Gateways, ListenerSets and routes.
//!
//! A listener of a Gateway or a ListenerSet is a part of a socket, which a domain names for the
//! host of the listener. The rules of a route bear the names of the parts where it is attached, so
//! that they are translated for themselves, and a changed route costs what it is. What a listener
//! has to know of others (who has its port and its host, how many routes there are) are seats that
//! units claim: no Gateway knows its ListenerSets or routes.

mod allowed;
mod attach;
pub(crate) mod backend;
pub(crate) mod backend_problem;
pub(crate) mod backend_tls;
mod beside;
mod callers;
pub(crate) mod certificate;
mod class;
mod clients;
mod domain;
mod entity;
mod entrance;
mod entries;
pub(crate) mod facts;
mod gateway_status;
mod grants;
mod guests;
mod host;
mod hostname;
mod judgement;
mod listener_status;
pub(crate) mod mesh;
mod parent;
mod places;
mod ports;
mod reader;
mod realm;
pub(crate) mod route;
mod rows;
pub(crate) mod rules;
mod scaling;
mod standing;
mod streams;
pub(crate) mod tenants;
pub(crate) mod units;
pub(crate) mod weight;

use myriad_api::{Finding, ObjectKind};

pub(crate) use class::translate as translate_class;
pub(crate) use domain::add as add_domains;
pub(crate) use entrance::{translate as translate_entrance, translate_listeners};
pub(crate) use gateway_status::{translate_gateway as translate_gateway_status, translate_set};
pub(crate) use guests::deeds as deeds_of_guests;
pub(crate) use host::{
    Entrant, deeds, gather, leave_entered, leave_strangers, oldest_claim, tls_sockets,
};
pub(crate) use parent::translate as translate_route;
pub(crate) use realm::owner_stakes;
pub(crate) use rows::{translate as translate_rows, translate_port};

use crate::dialect::istio::scene::foreign;
use crate::engine::{Dialect, Reader};
use crate::resolve::losers::Loss;

/// The rules that the engine has for objects of Gateway API.
pub(crate) const DIALECT: Dialect = Dialect {
    touch: facts::touch,
    found_under: facts::found_under,
    claimant: units::claimant,
    newly_claimed: |old, new, _| units::newly(old, new),
    ..Dialect::BLANK
};

/// The finding about an object that claims a host in vain, for the unit that tells it.
pub(crate) fn lost(reader: &Reader<'_>, loss: &Loss) -> Option<Finding> {
    let owner = loss.owner.as_ref()?;
    let field = match loss.loser.kind {
        ObjectKind::Gateway | ObjectKind::ListenerSet => "spec.listeners",
        _ => "spec.hostnames",
    };
    let (host, settings) = (&loss.host, reader.settings());
    Some(foreign(&loss.loser, field, host, owner, settings))
}
