//! The owner of a host, whatever dialect claims it: the namespace that has proven the host to be
//! its own, where there are proofs, and otherwise that of the object that has claimed it longest.
//! [`super::above`] says what wildcards of others do with requests for it.

use myriad_model::Host;

use crate::dialect::gateway::{self, Entrant};
use crate::dialect::ingress::Contender;
use crate::dialect::istio;
use crate::engine::Reader;
use crate::resolve::{Claim, Claims, twin};
use crate::settings::HostSharing;

/// The claim by which a host is had; none where hosts are shared.
pub(crate) fn owner(
    reader: &mut Reader<'_>,
    host: &Host,
    contenders: &[Contender],
    (claims, entrants): (&Claims, &[Entrant]),
) -> Option<Claim> {
    // Proxies of one Gateway serve whomever it lets in.
    if !entrants.is_empty() && reader.view().is_dedicated() {
        return None;
    }
    if reader.settings().host_sharing == HostSharing::Cluster {
        return None;
    }
    let proven = proven(reader, host, contenders, (claims, entrants));
    let of_api = gateway::oldest_claim(host, entrants.iter());
    proven.or_else(|| oldest(reader, host, contenders.iter(), (claims, of_api, None)))
}

/// The claim of the namespace that has proven the host to be its own, which may claim it. Where no
/// object of it does so now, the host is kept for it all the same: otherwise whoever makes an
/// object anew would lose its host meanwhile.
fn proven(
    reader: &mut Reader<'_>,
    host: &Host,
    contenders: &[Contender],
    (claims, entrants): (&Claims, &[Entrant]),
) -> Option<Claim> {
    reader.settings().host_proof.as_ref()?;
    let namespace = reader.proven_by(host)?;
    let namespace = &*namespace;
    if !reader.settings().may_claim(namespace, host) {
        return None;
    }
    let contenders = contenders.iter().filter(|it| it.claim.is_of(namespace));
    let own = claims.of_namespace(namespace);
    let entrants = entrants.iter().filter(|it| it.claim.is_of(namespace));
    let of_api = gateway::oldest_claim(host, entrants);
    let oldest = oldest(reader, host, contenders, (&own, of_api, Some(namespace)));
    Some(match oldest {
        Some(claim) => claim.proven(),
        None => Claim::reserved(host, namespace),
    })
}

/// The oldest claim among some, which may be those of one namespace alone.
fn oldest<'a>(
    reader: &mut Reader<'_>,
    host: &Host,
    contenders: impl Iterator<Item = &'a Contender>,
    (claims, of_api, namespace): (&Claims, Option<Claim>, Option<&str>),
) -> Option<Claim> {
    let mains = contenders.filter(|known| !known.is_canary);
    let by_age = |a: &&Claim, b: &&Claim| a.age().cmp(&b.age());
    let oldest = mains.map(|known| &known.claim).min_by(by_age);
    let mut all: Vec<Claim> = oldest.into_iter().cloned().chain(of_api).collect();
    all.extend(istio::oldest_claim(reader, host, claims));
    if let Some(twin) = twin(host) {
        // Two spellings of one wildcard: of one label in an Ingress, of any number in Istio.
        let mut claims = reader.claims_above(&twin);
        if let Some(namespace) = namespace {
            claims = claims.of_namespace(namespace);
        }
        all.extend(istio::oldest_claim(reader, &twin, &claims));
    }
    all.into_iter().min_by(|a, b| a.age().cmp(&b.age()))
}
