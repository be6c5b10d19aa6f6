//! The owner of a host, whatever dialect claims it: the namespace of the object that has claimed it
//! longest. [`super::above`] says what wildcards of others do with requests for it.

use myriad_model::Host;

use crate::dialect::ingress::Claimant;
use crate::dialect::istio;
use crate::engine::Reader;
use crate::resolve::{Claim, Claims, twin};
use crate::settings::HostSharing;

/// The oldest claim to a host; none where hosts are shared.
pub(crate) fn owner(
    reader: &mut Reader<'_>,
    host: &Host,
    claimants: &[Claimant],
    claims: &Claims,
) -> Option<Claim> {
    if reader.settings().host_sharing == HostSharing::Cluster {
        return None;
    }
    let mains = claimants.iter().filter(|known| !known.is_canary());
    let mut all: Vec<Claim> = mains
        .map(|known| reader.claim(&known.ingress.meta, host))
        .collect();
    all.extend(istio::claims_to(reader, host, claims));
    if let Some(twin) = twin(host) {
        // Two spellings of one wildcard: of one label in an Ingress, of any number in Istio.
        let claims = reader.claims_above(&twin);
        all.extend(istio::claims_to(reader, &twin, &claims));
    }
    all.into_iter().min_by(|a, b| a.age().cmp(&b.age()))
}
