//! The endpoints of an upstream that lie in several resources. What has been made of a resource is
//! taken over for as long as that stays, so that one endpoint that changes costs its own resource.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use myriad_model::{Endpoints, LocalityShares, SealedArc, UpstreamOptions};
use smallvec::SmallVec;

use super::endpoint::EndpointTable;
use crate::balance::locality::{self, Locality};
use crate::balance::{Member, Pool, PoolPart, TransportSettings};

/// The settings by which endpoints become members of a pool.
pub struct SliceSettings<'a> {
    /// The options of the upstream.
    pub options: &'a UpstreamOptions,
    /// The owner of the upstream's tables: a number for its namespace.
    pub owner: u64,
    /// The pool before, whose tables of hashes are used until others are built.
    pub before: Option<&'a Pool>,
    /// How endpoints of the mesh are spoken to.
    pub secured: &'a Arc<TransportSettings>,
    /// How others are spoken to.
    pub plain: &'a Arc<TransportSettings>,
}

/// The endpoints of an upstream by resource, in the order of their addresses; none where they are
/// in one resource.
#[derive(Default)]
pub struct Slices {
    slices: Box<[Arc<Slice>]>,
}

/// The endpoints of one resource, or of several whose addresses overlap: one that moves between two
/// of them is in both for a while, and counts once.
struct Slice {
    /// The first address; no two slices of an upstream have the same.
    first: SocketAddr,
    sealed: Box<[SealedArc]>,
    /// By priority, and by group of localities: mostly one.
    parts: Box<[Arc<PoolPart>]>,
}

/// Resources whose addresses overlap; mostly one.
struct Run<'a> {
    first: SocketAddr,
    last: SocketAddr,
    sealed: SmallVec<[&'a SealedArc; 1]>,
}

impl SliceSettings<'_> {
    /// How an endpoint is spoken to.
    pub fn manner(&self, endpoint: &myriad_model::Endpoint) -> &Arc<TransportSettings> {
        match endpoint.mesh {
            true => self.secured,
            false => self.plain,
        }
    }

    /// The shares of groups of localities, where there are any for a proxy that is at `home`.
    fn shares(&self, home: Option<&Locality>) -> Option<&LocalityShares> {
        locality::shares(self.options.locality.as_deref()?, home?)
    }
}

impl Slices {
    /// The slices of these resources. Those that are known, by equal settings, are taken over.
    pub fn new(
        endpoints: &[SealedArc],
        known: Option<&Slices>,
        settings: &SliceSettings<'_>,
        targets: &mut EndpointTable,
    ) -> Self {
        let slice = |run: Run<'_>| {
            let known = known.and_then(|known| known.find(run.first));
            let known = known.filter(|known| known.is_of(&run.sealed)).cloned();
            known.unwrap_or_else(|| Arc::new(Slice::new(&run, settings, targets)))
        };
        Slices {
            slices: runs(endpoints).into_iter().map(slice).collect(),
        }
    }

    /// A pool of all that is in them.
    pub fn pool(&self, settings: &SliceSettings<'_>, targets: &EndpointTable) -> Pool {
        let parts = self.slices.iter().flat_map(|slice| slice.parts.iter());
        let shares = settings.shares(targets.home());
        let whose = (shares, settings.owner);
        Pool::of_parts(settings.before, parts, settings.options, whose)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    /// Gives back the targets of those that are not kept.
    pub fn release(&self, targets: &mut EndpointTable, kept: Option<&Slices>) {
        for slice in &self.slices {
            let kept = kept.and_then(|kept| kept.find(slice.first));
            if !kept.is_some_and(|kept| Arc::ptr_eq(kept, slice)) {
                slice.members().for_each(|it| targets.release(&it.target));
            }
        }
    }

    /// The member at an address.
    pub fn member_at(&self, address: SocketAddr) -> Option<&Member> {
        let slice = self.up_to(address).last()?;
        let mut members = slice.members();
        members.find(|member| member.target.address == address)
    }

    /// Whether a member has an IP address, at whatever port.
    pub fn has_ip(&self, ip: IpAddr) -> bool {
        self.near(ip).any(|member| member.target.address.ip() == ip)
    }

    /// The members of all slices in which an IP address may be: those that begin at it, and the one
    /// before, which may reach it.
    fn near(&self, ip: IpAddr) -> impl Iterator<Item = &Member> {
        let slices = self.up_to(SocketAddr::new(ip, u16::MAX)).iter().rev();
        let begin = slices.clone().take_while(|slice| slice.first.ip() == ip);
        let count = begin.count() + 1;
        slices.take(count).flat_map(|slice| slice.members())
    }

    /// The slices that begin at an address or before it.
    fn up_to(&self, address: SocketAddr) -> &[Arc<Slice>] {
        let end = self.slices.partition_point(|slice| slice.first <= address);
        self.slices.get(..end).unwrap_or_default()
    }

    fn find(&self, first: SocketAddr) -> Option<&Arc<Slice>> {
        let place = self.slices.binary_search_by_key(&first, |it| it.first);
        self.slices.get(place.ok()?)
    }
}

impl Slice {
    fn new(run: &Run<'_>, settings: &SliceSettings<'_>, targets: &mut EndpointTable) -> Self {
        let listed: Vec<&Endpoints> = run.sealed.iter().filter_map(|it| it.endpoints()).collect();
        let joined = Endpoints::join(&listed);
        let home = targets.home();
        let groups = settings.shares(home).zip(home);
        let groups = groups.map(|(shares, home)| locality::groups(shares, home, &joined));
        let members = members(&joined, groups, settings, targets);
        targets.note_weighed(members.len());
        Slice {
            first: run.first,
            parts: PoolPart::divide(members.into_iter(), &settings.options.balancer),
            sealed: run.sealed.iter().map(|it| (*it).clone()).collect(),
        }
    }

    fn members(&self) -> impl Iterator<Item = &Member> {
        self.parts.iter().flat_map(|part| part.members())
    }

    fn is_of(&self, sealed: &[&SealedArc]) -> bool {
        let mut pairs = self.sealed.iter().zip(sealed);
        self.sealed.len() == sealed.len() && pairs.all(|(own, it)| SealedArc::ptr_eq(own, it))
    }
}

/// The pool of endpoints that are in one resource.
pub fn whole(
    sealed: &SealedArc,
    settings: &SliceSettings<'_>,
    targets: &mut EndpointTable,
) -> Pool {
    let Some(listed) = sealed.endpoints() else {
        return Pool::default();
    };
    let members = members(listed, None, settings, targets).into_iter();
    let members = members.map(|(_, member)| member);
    let pool = Pool::after(settings.before, members, settings.options, settings.owner);
    targets.note_weighed(pool.weighed());
    pool
}

/// The members that endpoints become, with the places of their groups of localities. Without groups
/// they are arranged among each other. Who has no share is none.
fn members(
    listed: &Endpoints,
    groups: Option<Vec<Option<usize>>>,
    settings: &SliceSettings<'_>,
    targets: &mut EndpointTable,
) -> Vec<(usize, Member)> {
    let rule = settings.options.locality.as_deref().zip(targets.home());
    let rule = rule.filter(|_| groups.is_none());
    let places = rule.map(|(rule, home)| locality::arrange(rule, home, listed));
    let endpoints = listed.endpoints.iter().enumerate();
    let members = endpoints.filter_map(|(index, endpoint)| {
        let group = match &groups {
            Some(groups) => groups.get(index).copied().flatten()?,
            None => 0,
        };
        let place = places.as_ref().and_then(|places| places.get(index));
        let own = (endpoint.weight, endpoint.priority);
        let (weight, priority) = place.map_or(own, |place| (place.weight, place.priority));
        // Without a share it is in no pool, which would give it back.
        (weight > 0).then(|| {
            let target = targets.acquire(endpoint.address, settings.manner(endpoint));
            let member = Member {
                target,
                weight,
                priority,
            };
            (group, member)
        })
    });
    members.collect()
}

/// Resources in the order of their addresses, joined where these overlap.
fn runs(endpoints: &[SealedArc]) -> Vec<Run<'_>> {
    let mut singles: Vec<Run<'_>> = endpoints.iter().filter_map(Run::of).collect();
    singles.sort_by_key(|run| run.first);
    let mut runs: Vec<Run<'_>> = Vec::with_capacity(singles.len());
    for run in singles {
        match runs.last_mut() {
            Some(before) if run.first <= before.last => {
                before.last = before.last.max(run.last);
                before.sealed.extend(run.sealed);
            }
            _ => runs.push(run),
        }
    }
    runs
}

impl<'a> Run<'a> {
    /// A resource by itself; `None` where it has no endpoints.
    fn of(sealed: &'a SealedArc) -> Option<Self> {
        let listed = &sealed.endpoints()?.endpoints;
        let (first, last) = (listed.first()?.address, listed.last()?.address);
        Some(Run {
            first,
            last: last.max(first),
            sealed: SmallVec::from_buf([sealed]),
        })
    }
}

#[cfg(test)]
mod tests;
