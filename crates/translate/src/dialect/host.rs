//! One host pattern: what all dialects that claim it add up to.

pub(crate) mod above;
mod kept;
pub(crate) mod loser;
pub(crate) mod ownership;
mod record;
mod wildcard;

use std::sync::Arc;

use myriad_api::{Finding, ObjectKey, ObjectKind, Severity};
use myriad_model::Host;

use super::{gateway, ingress, istio};
use crate::engine::{Output, Reader, Shared, Unit, namespace_of};
use crate::resolve::losers::{self, LOSERS_MAX};
use crate::resolve::proof;
use crate::resolve::{Above, Claim, Claims};

/// Translates one host. The routes of Ingresses go before those of VirtualServices, and the domains
/// of both before those of Gateway API, whose routes are translated for themselves.
pub(crate) fn translate(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    let Some(host) = unit.host() else {
        return Output::default();
    };
    let (shared, claims) = (reader.shared(), &reader.claims());
    let mut output = Output::default();
    let mut contenders = ingress::contenders(reader, host, &claims.ingresses);
    let unadmitted = ingress::leave_unadmitted(reader, host, &mut contenders);
    losers::tell(host, None, unadmitted, &mut output);
    let (mut entrants, may_be_more) = gateway::gather(reader, host, claims);
    let owner = ownership::owner(reader, host, &contenders, (claims, &*entrants));
    let mut strangers: Vec<Claim> = Vec::new();
    if let Some(owner) = &owner {
        output.findings.extend(unnoted(reader, host, claims, owner));
        let both = (&mut contenders, (&mut entrants, may_be_more));
        strangers = leave_strangers(reader, host, (owner, claims), both, &mut output);
    }
    let is_istio = !claims.gateways.is_empty() || !claims.services.is_empty();
    let sites = match is_istio {
        true => istio::gather_sites(reader, host, claims, owner.as_ref(), &mut strangers),
        false => Vec::new(),
    };
    let has_it = owner.as_ref().map(|it| &it.key);
    proof::tell(reader.settings(), host, has_it, strangers, &mut output);
    let claimants = ingress::gather(reader, &contenders);
    let ends = above::Ends {
        sites: &sites,
        by_ingress: match ingress::tls_claimant(host, &claimants) {
            Some(_) => &shared.tls_listeners,
            None => &[],
        },
        by_gateway: gateway::tls_sockets(host, &entrants),
    };
    // An Ingress that ends TLS answers at every listener that it may, where it has routes: no
    // wildcard is read for it, of whose kind most hosts are.
    let is_alone = !is_istio && entrants.is_empty() && !ends.by_ingress.is_empty();
    let mut above = match is_alone {
        true => Above::default(),
        false => above::find(reader, shared, host, (claims, owner.as_ref()), &ends),
    };
    if !claimants.is_empty() {
        let is_closed = ingress::is_closed(reader, &claims.ingresses, &claimants);
        let scene = (&*claimants, &*above.shades, is_closed);
        ingress::translate_host(reader, shared, host, scene, &mut output);
    }
    if is_alone && !kept::is_routed(&output, host, &shared.tls_listeners[0]) {
        above = above::find(reader, shared, host, (claims, owner.as_ref()), &ends);
    }
    if is_istio {
        let scene = istio::HostScene {
            host,
            claims,
            sites,
            owner: owner.clone(),
            above: &above,
        };
        istio::add_host(reader, shared, scene, &mut output);
    }
    gateway::add_domains(reader, shared, host, (&*entrants, &above), &mut output);
    gateway::leave_entered(&entrants, &mut above);
    // One that is kept for who does not claim it now is as any that nobody claims.
    let is_claimed = is_istio || !entrants.is_empty() || !claimants.is_empty();
    let is_had = |it: &&Claim| !it.is_reserved() && is_claimed;
    if let Some(owner) = owner.as_ref().filter(is_had) {
        let whose = (owner, &*claimants);
        kept::add(reader, shared, host, whose, &above, &mut output);
    }
    finish(reader, shared, (host, &owner, &*entrants), &mut output);
    output
}

/// The Ingresses and the objects with listeners on a host, and whether there may be more of these.
type Present<'a> = (
    &'a mut Vec<ingress::Contender>,
    (&'a mut Vec<gateway::Entrant>, bool),
);

/// Takes out what objects of others than the owner of a host are to it, and returns their claims.
fn leave_strangers(
    reader: &Reader<'_>,
    host: &Host,
    (owner, claims): (&Claim, &Claims),
    (contenders, (entrants, may_be_more)): Present<'_>,
    output: &mut Output,
) -> Vec<Claim> {
    let mut strangers = ingress::leave_strangers(owner, contenders);
    let of_api = gateway::leave_strangers(host, owner, entrants);
    let losers = (&*of_api, may_be_more);
    let stakes = gateway::owner_stakes(reader, host, (owner, claims), losers);
    output.stakes.extend(stakes);
    strangers.extend(of_api);
    strangers
}

/// Takes out what no issuer may provide, and notes what the rest means to the hosts below.
fn finish(
    reader: &mut Reader<'_>,
    shared: &Shared,
    (host, owner, entrants): (&Host, &Option<Claim>, &[gateway::Entrant]),
    output: &mut Output,
) {
    record::judge(reader, host, (owner.as_ref(), entrants), output);
    output.meaning = wildcard::meaning(reader, shared, host, output);
}

/// The findings about objects that lose a host because their namespace came to more hosts later
/// than is noted, for some of them.
fn unnoted(reader: &Reader<'_>, host: &Host, claims: &Claims, owner: &Claim) -> Vec<Finding> {
    let losers = claims.ids().filter(|(_, id)| {
        let namespace = namespace_of(id);
        !owner.is_of(namespace) && reader.is_youngest(namespace)
    });
    let mut losers: Vec<(ObjectKind, &Arc<str>)> = losers.collect();
    if losers.len() > LOSERS_MAX {
        losers.select_nth_unstable(LOSERS_MAX);
        losers.truncate(LOSERS_MAX);
    }
    let bound = reader.settings().bounds.late_claims;
    let finding = |(kind, id): (ObjectKind, &Arc<str>)| {
        let namespace = namespace_of(id);
        Finding::new(
            Severity::Warning,
            &ObjectKey::from_id(kind, id.clone()),
            "",
            format!(
                "claims {host} after everybody else, as all objects of namespace {namespace} do: \
                 they came to more than {bound} hosts after their creation"
            ),
            format!(
                "create objects with the hosts that they are for; raise --bound \
                 late-claims={bound}, and take the namespace out of the ConfigMaps myriad-claims"
            ),
        )
    };
    losers.into_iter().map(finding).collect()
}
