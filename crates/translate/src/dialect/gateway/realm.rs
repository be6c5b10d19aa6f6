//! The owners of hosts at sockets that Gateways share.
//!
//! A seat for a host is for the objects of one namespace, of which the oldest has it. Which of
//! several namespaces has a host its unit says, which knows of proofs and of the claims of all
//! dialects: whoever is older at a socket may be nobody there. It says so by a claim to a seat of
//! its own, for statuses, which run behind it, and for the hosts below a wildcard.

use myriad_model::Host;

use super::facts::GatewayFact;
use super::standing::{GatewayStanding, Mode};
use crate::engine::{Reader, Stake, StakeClaim};
use crate::resolve::{Claim, Claims};
use crate::settings::{HostSharing, Settings};

/// The objects that claim a host of which the unit of the host reads all. Where there are more,
/// some may be of others though none of those is known.
const CLAIMS_READ_ALL: usize = 64;

/// How many owners of a host are looked at: it has one in each view, and hardly ever two.
const OWNERS_READ_MAX: usize = 64;

/// The namespace whose objects alone keep each other from a host at a socket; empty where those of
/// all namespaces do.
pub(crate) fn realm<'a>(
    settings: &Settings,
    standing: &'a GatewayStanding,
    host: &Host,
) -> &'a str {
    let is_of_all = standing.mode == Mode::Dedicated
        || *host == Host::any()
        || settings.host_sharing == HostSharing::Cluster;
    match is_of_all {
        true => "",
        false => standing.entity.key().namespace(),
    }
}

/// The claims by which objects with listeners learn that a host is of another namespace. There are
/// none where nobody is known to claim it in vain, in whatever view, and no more were left out. Who
/// loses is told apart from who has it, so that the owner need not hear of those that come and go.
pub(crate) fn owner_stakes(
    reader: &Reader<'_>,
    host: &Host,
    (owner, claims): (&Claim, &Claims),
    (losers, may_be_more): (&[Claim], bool),
) -> Vec<Stake> {
    // A route makes a claim at each listener, so that few of them may make very many.
    let objects = claims.entities.len() + claims.routes.len();
    let is_crowd = may_be_more || objects > CLAIMS_READ_ALL;
    // Who loses it in one view may have it in another, which says so as well.
    let is_disputed = || claims.are_of_api() && reader.is_needed_by_several();
    if losers.is_empty() && !is_crowd && !is_disputed() {
        return Vec::new();
    }
    let stake = |fact: GatewayFact<'_>, namespace: &str| Stake {
        seat: reader.hash(fact),
        claim: StakeClaim {
            order: 0,
            created: 0,
            id: namespace.into(),
            value: 0,
        },
    };
    let host = host.as_str();
    let lost = losers.iter().map(|loser| loser.key.namespace());
    // Of very many nobody knows all.
    let lost = lost.chain(is_crowd.then_some(""));
    let lost = lost.map(|namespace| stake(GatewayFact::LostSeat(host, namespace), namespace));
    let owned = stake(GatewayFact::OwnerSeat(host), owner.key.namespace());
    lost.chain([owned]).collect()
}

/// Whether a host that an object with listeners claims belongs to other namespaces alone, or to one
/// of them in some view at least.
pub(crate) fn is_owned_apart(
    reader: &mut Reader<'_>,
    standing: &GatewayStanding,
    host: &Host,
    is_in_any_view: bool,
) -> bool {
    let realm = realm(reader.settings(), standing, host);
    if realm.is_empty() {
        return false;
    }
    if !is_in_any_view && !may_be_lost(reader, host, realm) {
        return false;
    }
    let seat = reader.hash(GatewayFact::OwnerSeat(host.as_str()));
    let owners = reader.first_claims(seat, OWNERS_READ_MAX);
    let is_other = |owner: &StakeClaim| *owner.id != *realm;
    match is_in_any_view {
        true => owners.iter().any(is_other),
        false => !owners.is_empty() && owners.iter().all(is_other),
    }
}

/// Whether a namespace may lose a host that it claims, in some view.
fn may_be_lost(reader: &mut Reader<'_>, host: &Host, realm: &str) -> bool {
    let seats = [realm, ""].map(|it| reader.hash(GatewayFact::LostSeat(host.as_str(), it)));
    // Both are asked for, so that what is read depends on nothing that is not.
    seats
        .map(|seat| reader.seat(seat).is_some())
        .contains(&true)
}
