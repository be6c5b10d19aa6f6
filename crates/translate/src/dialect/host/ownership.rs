//! The owner of a host, whatever dialect claims it: the namespace of the object that has claimed it
//! longest. [`super::above`] says what wildcards of others do with requests for it.

use myriad_model::Host;

use crate::dialect::ingress::Contender;
use crate::dialect::istio;
use crate::engine::Reader;
use crate::resolve::{Claim, Claims, twin};
use crate::settings::HostSharing;

/// The oldest claim to a host; none where hosts are shared.
pub(crate) fn owner(
    reader: &mut Reader<'_>,
    host: &Host,
    contenders: &[Contender],
    claims: &Claims,
) -> Option<Claim> {
    if reader.settings().host_sharing == HostSharing::Cluster {
        return None;
    }
    let mains = contenders.iter().filter(|known| !known.is_canary);
    let by_age = |a: &&Claim, b: &&Claim| a.age().cmp(&b.age());
    let oldest = mains.map(|known| &known.claim).min_by(by_age);
    let mut all: Vec<Claim> = oldest.into_iter().cloned().collect();
    all.extend(istio::oldest_claim(reader, host, claims));
    if let Some(twin) = twin(host) {
        // Two spellings of one wildcard: of one label in an Ingress, of any number in Istio.
        let claims = reader.claims_above(&twin);
        all.extend(istio::oldest_claim(reader, &twin, &claims));
    }
    all.into_iter().min_by(|a, b| a.age().cmp(&b.age()))
}
