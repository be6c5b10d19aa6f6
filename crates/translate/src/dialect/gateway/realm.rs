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

/// The claim by which objects with listeners learn that a host is of another namespace. There is
/// none where nobody is known to claim it in vain, in whatever view.
pub(crate) fn owner_stake(
    reader: &Reader<'_>,
    host: &Host,
    (owner, claims): (&Claim, &Claims),
    losers: &[Claim],
) -> Option<Stake> {
    let count = claims.entities.len() + claims.routes.len();
    // Who loses it in one view may have it in another, which says so as well.
    let is_disputed = || claims.are_of_api() && reader.is_needed_by_several();
    let may_be_lost = !losers.is_empty() || count > CLAIMS_READ_ALL || is_disputed();
    let claim = StakeClaim {
        order: 0,
        created: 0,
        id: owner.key.namespace().into(),
        value: 0,
    };
    may_be_lost.then(|| Stake {
        seat: reader.hash(GatewayFact::OwnerSeat(host.as_str())),
        claim,
    })
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
    let seat = reader.hash(GatewayFact::OwnerSeat(host.as_str()));
    let owners = reader.first_claims(seat, OWNERS_READ_MAX);
    let is_other = |owner: &StakeClaim| *owner.id != *realm;
    match is_in_any_view {
        true => owners.iter().any(is_other),
        false => !owners.is_empty() && owners.iter().all(is_other),
    }
}
