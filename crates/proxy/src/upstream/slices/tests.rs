use std::net::{IpAddr, SocketAddr};

use myriad_model::{
    Endpoint as Listed, Endpoints, Form, Name, Origin, OriginKind, Protocol, Resource, SealedArc,
    Sealer, Upstream, Value,
};

use super::Slices;
use crate::balance::{Endpoint, TransportSettings};
use crate::upstream::endpoint::EndpointTable;
use crate::upstream::entry::UpstreamEntry;

fn sealed(name: Name, value: Value) -> SealedArc {
    let origin = Origin {
        kind: OriginKind::Ingress,
        id: "ns/u".into(),
    };
    let mut sealer = Sealer::new([7; 32], Form::Value);
    sealer.seal(name, Resource { origin, value }).into()
}

/// The resources of these endpoints, as they are divided.
fn resources(addresses: impl Iterator<Item = SocketAddr>) -> Vec<SealedArc> {
    let mut listed: Vec<Listed> = addresses.map(Listed::even).collect();
    listed.sort_by_key(|it| it.address);
    let parts = Endpoints::new(listed.into()).divide("u").into_iter();
    let parts = parts.map(|(name, part)| sealed(name, Value::Endpoints(Box::new(part))));
    parts.collect()
}

/// An upstream with these endpoints.
fn upstream(addresses: impl Iterator<Item = SocketAddr>) -> UpstreamEntry {
    let value = Upstream {
        protocol: Protocol::Http1,
        dns: None,
        tls: None,
        options: None,
        original_destination: false,
        source_address: None,
    };
    let own = sealed("u".into(), Value::Upstream(Box::new(value)));
    let endpoints = resources(addresses).into_iter().collect();
    let mut targets = EndpointTable::new();
    UpstreamEntry::new("u".into(), Some(own), endpoints, &mut targets, None)
}

fn address(number: u32, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::from((0x0a00_0000 + number).to_be_bytes()), port)
}

fn slices(entry: &UpstreamEntry) -> &Slices {
    let slices = entry.slices();
    assert!(!slices.is_empty(), "there are several resources");
    slices
}

#[test]
fn one_address_of_very_many_is_found_by_looking_at_few() {
    // Every other one, so that there are some between that nobody has.
    let entry = upstream((0..20_000).map(|number| address(2 * number, 80)));
    let slices = slices(&entry);
    for number in (0..40_010).step_by(7) {
        let ip = address(number, 80).ip();
        let is_there = number.is_multiple_of(2) && number < 40_000;
        assert_eq!(entry.has_ip(ip), is_there, "{ip}");
        assert_eq!(slices.member_at(address(number, 80)).is_some(), is_there);
        assert!(slices.member_at(address(number, 81)).is_none());
        assert!(slices.near(ip).count() <= 2 * Endpoints::PART_MAX, "{ip}");
    }
    for ip in ["9.255.255.255", "255.255.255.255", "::", "2001:db8::1"] {
        let ip: IpAddr = ip.parse().unwrap();
        assert!(!entry.has_ip(ip));
        assert!(slices.near(ip).count() <= Endpoints::PART_MAX, "{ip}");
    }
}

#[test]
fn an_address_with_very_many_ports_is_found_at_each() {
    let ports = (1..=2_000).map(|port| address(1, port));
    let entry = upstream([address(0, 9), address(2, 9)].into_iter().chain(ports));
    let slices = slices(&entry);
    for port in 1..=2_000 {
        let found = slices.member_at(address(1, port));
        assert_eq!(found.unwrap().target.address, address(1, port));
    }
    let has = |number| entry.has_ip(address(number, 1).ip());
    assert_eq!([0, 1, 2, 3].map(has), [true, true, true, false]);
}

#[test]
fn an_endpoint_is_listed_as_long_as_it_is_the_same() {
    for count in [2, 1_000] {
        let entry = upstream((0..count).map(|number| address(number, 80)));
        let members: Vec<_> = entry.pool.members().collect();
        assert!(members.iter().all(|member| entry.lists(&member.target)));
        let other = Endpoint::new(address(1, 80), TransportSettings::shared(None));
        assert!(!entry.lists(&other));
    }
}
