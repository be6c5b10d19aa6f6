//! The addresses of endpoints of Services without an address, by which connections to them are
//! known.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use myriad_api::ServicePort;

use super::strangers::Author;
use crate::engine::Reader;

/// The addresses of the endpoints that a port of a Service without address has; of a stranger's
/// those of Pods of its namespace alone, since anybody may write any address into EndpointSlices.
pub(super) fn of(
    reader: &mut Reader<'_>,
    (id, author): (&Arc<str>, Author),
    port: &ServicePort,
) -> Vec<IpNet> {
    let mut found = BTreeSet::new();
    let slices = reader.slices(id);
    let mut listed = slices.ports(&port.name);
    listed.dedup_by_key(|port| port.slice);
    for head in listed.iter().filter_map(|port| slices.head(port.slice)) {
        if let Some(slice) = reader.slice(&head.id) {
            reader.count_entries(slice.endpoints.len());
            for endpoint in slice.endpoints.iter() {
                let Some(address) = endpoint.address else {
                    continue;
                };
                let pod = (slice.meta.key.namespace(), endpoint.pod.as_deref());
                if !author.is_stranger() || is_pod(reader, pod, address) {
                    found.insert(IpNet::from(address));
                }
            }
        }
    }
    found.into_iter().collect()
}

/// Whether a Pod of a namespace has an address.
fn is_pod(
    reader: &mut Reader<'_>,
    (namespace, name): (&str, Option<&str>),
    address: IpAddr,
) -> bool {
    let pod = name.and_then(|name| reader.pod(&format!("{namespace}/{name}")));
    let known = pod.and_then(|pod| pod.address);
    known.is_some_and(|known| known.to_canonical() == address.to_canonical())
}

/// The addresses of endpoints, which are sorted, that lie within blocks.
pub(super) fn within(endpoints: &[IpNet], blocks: &[IpNet]) -> Box<[IpNet]> {
    let blocks = IpNet::aggregate(&blocks.to_vec());
    let mut found: Vec<IpNet> = Vec::new();
    for block in blocks {
        let from = endpoints.partition_point(|it| it.addr() < block.network());
        let to = endpoints.partition_point(|it| it.addr() <= block.broadcast());
        found.extend(endpoints.get(from..to).unwrap_or_default());
    }
    found.into()
}
