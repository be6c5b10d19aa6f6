//! The texts of a traffic policy. Each upstream of its hosts has them once more, so each is bounded
//! by what it stands for, and what an upstream takes of them is counted in its namespace.

use myriad_api::istio::destination_rule::balancer::{ConsistentHash, HttpCookie, LocalityBalancer};
use myriad_model::LocalityRule;

use super::merged::Merged;

/// The longest name of a host (RFC 1035).
pub(super) const HOST_BYTES_MAX: usize = 253;

/// The longest name of a field, a parameter or a cookie that is hashed.
pub(super) const NAME_BYTES_MAX: usize = 256;

/// The longest cookie with its attributes: clients need not keep a longer one (RFC 6265, section
/// 6.1).
pub(super) const COOKIE_BYTES_MAX: usize = 4_096;

/// The most names of certificates that are looked at.
const NAMES_READ_MAX: usize = 1_024;

/// The most bytes of all of them.
pub(super) const NAMES_BYTES_MAX: usize = 64 << 10;

/// The most bytes of the localities of a policy.
pub(super) const LOCALITIES_BYTES_MAX: usize = 64 << 10;

/// The longest locality of an endpoint: the values of three labels, and what divides them.
pub(crate) const LOCALITY_BYTES_MAX: usize = 3 * 63 + 2;

/// The bytes that an entry of a list takes beside its text.
const ENTRY_BYTES: usize = 4;

/// The names of certificates that are looked at, of very many the first, since every upstream does;
/// no names at all where they are too long together.
pub(crate) fn alt_names(written: &[Box<str>]) -> Option<&[Box<str>]> {
    let first = written.get(..NAMES_READ_MAX).unwrap_or(written);
    (bytes_of(first) <= NAMES_BYTES_MAX).then_some(first)
}

/// The attributes of a cookie as far as it can be: whether clients keep it.
pub(super) fn is_cookie(written: &HttpCookie) -> bool {
    cookie_bytes(written) <= COOKIE_BYTES_MAX
}

/// Whether the localities of a policy are no longer than they may be, as far as they are looked at.
pub(super) fn are_localities(written: &LocalityBalancer) -> bool {
    locality_bytes(written) <= LOCALITIES_BYTES_MAX
}

/// The bytes that an upstream takes for the texts of its policy, and of the names that stand in for
/// those which the policy does not have.
pub(super) fn bytes(policy: &Merged<'_>, names: &[Box<str>]) -> usize {
    let of_tls = policy.tls.map_or(0, |tls| {
        let own = &tls.subject_alt_names;
        let names = if own.is_empty() { names } else { own };
        kept(tls.sni.len(), HOST_BYTES_MAX) + alt_names(names).map_or(0, bytes_of)
    });
    let of_balancer = policy.balancer.map_or(0, |balancer| {
        let hash = balancer.consistent_hash.as_ref();
        let locality = balancer.locality.as_ref().map_or(0, locality_bytes);
        hash.map_or(0, hash_bytes) + kept(locality, LOCALITIES_BYTES_MAX)
    });
    of_tls + of_balancer
}

fn hash_bytes(written: &ConsistentHash) -> usize {
    let names = [
        &written.http_header_name,
        &written.http_query_parameter_name,
    ];
    let names = names.into_iter().flatten();
    let longest = names.map(|name| kept(name.len(), NAME_BYTES_MAX)).max();
    let cookie = written.http_cookie.as_ref().map_or(0, cookie_bytes);
    longest.unwrap_or(0) + kept(cookie, COOKIE_BYTES_MAX)
}

fn cookie_bytes(written: &HttpCookie) -> usize {
    let attributes = written.attributes.iter();
    let attributes = attributes.map(|it| it.name.len() + it.value.len() + ENTRY_BYTES);
    let texts = [written.name.len(), written.path.len()].into_iter();
    sum(texts.chain(attributes), COOKIE_BYTES_MAX)
}

fn locality_bytes(written: &LocalityBalancer) -> usize {
    let max = LocalityRule::ENTRIES_MAX;
    let shares = written.distribute.iter().take(max).flat_map(|shares| {
        let to = shares.to.iter().take(max);
        let to = to.map(|(locality, _)| locality.len() + ENTRY_BYTES);
        to.chain([shares.from.len() + ENTRY_BYTES])
    });
    let pairs = written.failover.iter().take(max);
    let pairs = pairs.map(|pair| pair.from.len() + pair.to.len() + ENTRY_BYTES);
    let labels = written.failover_priority.iter().take(max);
    let labels = labels.map(|label| label.len() + ENTRY_BYTES);
    sum(shares.chain(pairs).chain(labels), LOCALITIES_BYTES_MAX)
}

fn bytes_of(texts: &[Box<str>]) -> usize {
    sum(
        texts.iter().map(|text| text.len() + ENTRY_BYTES),
        NAMES_BYTES_MAX,
    )
}

/// The sum of sizes, as far as it has to be known to be beyond a bound.
fn sum(mut sizes: impl Iterator<Item = usize>, max: usize) -> usize {
    let added = sizes.try_fold(0_usize, |sum, size| {
        let sum = sum.saturating_add(size);
        if sum <= max { Ok(sum) } else { Err(sum) }
    });
    added.unwrap_or_else(|beyond| beyond)
}

/// The bytes that are kept of a text: none of one that is too long.
fn kept(bytes: usize, max: usize) -> usize {
    if bytes <= max { bytes } else { 0 }
}

#[cfg(test)]
mod tests {
    use myriad_api::istio::destination_rule::balancer::LoadBalancer;
    use myriad_api::istio::destination_rule::connection::ClientTls;

    use super::*;

    #[test]
    fn an_upstream_counts_for_the_texts_that_it_keeps_and_for_no_others() {
        let of = |sni: usize, names: &[usize], header: usize| {
            let names = names.iter().map(|bytes| "n".repeat(*bytes).into());
            let tls = ClientTls {
                sni: "s".repeat(sni).into(),
                subject_alt_names: names.collect(),
                ..ClientTls::default()
            };
            let hash = ConsistentHash {
                http_header_name: Some("h".repeat(header).into()),
                ..ConsistentHash::default()
            };
            let balancer = LoadBalancer {
                consistent_hash: Some(hash),
                ..LoadBalancer::default()
            };
            let policy = Merged {
                tls: Some(&tls),
                balancer: Some(&balancer),
                ..Merged::default()
            };
            bytes(&policy, &["of the entry".into()])
        };
        assert_eq!(of(10, &[], 5), 10 + 16 + 5);
        assert_eq!(of(253, &[100, 200], 256), 253 + 308 + 256);
        // What is too long is not kept.
        assert_eq!(of(254, &[NAMES_BYTES_MAX], 257), 0);
        assert_eq!(of(0, &[60; 1_024], 0), NAMES_BYTES_MAX);
        assert_eq!(of(0, &[61; 1_024], 0), 0);
        // Beyond 1,024 names none is looked at.
        assert_eq!(of(0, &[60; 2_000], 0), NAMES_BYTES_MAX);
    }
}
