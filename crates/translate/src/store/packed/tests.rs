//! Any object comes back as it went in.

use std::net::IpAddr;
use std::sync::Arc;

use myriad_api::istio::Labels;
use myriad_api::{
    BackendPort, Conditions, Endpoint, EndpointPort, EndpointSlice, Ingress, IngressBackend,
    IngressClass, IngressPath, IngressRule, IngressTls, Meta, Object, ObjectKey, ObjectKind, Owner,
    PathType, Pod, Service, ServicePort, TargetPort,
};
use proptest::prelude::*;

use super::{SliceHead, created, pack, slice_head, unpack};

fn text() -> impl Strategy<Value = Box<str>> {
    any::<String>().prop_map(Box::from)
}

fn maybe() -> impl Strategy<Value = Option<Box<str>>> {
    proptest::option::of(text())
}

fn list<T: std::fmt::Debug>(of: impl Strategy<Value = T>) -> impl Strategy<Value = Box<[T]>> {
    proptest::collection::vec(of, 0..3).prop_map(Box::from)
}

fn meta(kind: ObjectKind) -> impl Strategy<Value = Meta> {
    let created = prop_oneof![any::<i64>(), Just(Meta::UNKNOWN_AGE), Just(0)];
    (created, list((text(), text()))).prop_map(move |(created, annotations)| Meta {
        key: ObjectKey::new(kind, "a", "b"),
        created,
        annotations,
    })
}

fn backend() -> impl Strategy<Value = IngressBackend> {
    let port = prop_oneof![
        any::<u16>().prop_map(BackendPort::Number),
        text().prop_map(BackendPort::Name)
    ];
    prop_oneof![
        (text(), port).prop_map(|(name, port)| IngressBackend::Service { name, port }),
        (text(), text()).prop_map(|(kind, name)| IngressBackend::Resource { kind, name }),
    ]
}

fn ingress() -> impl Strategy<Value = Object> {
    let types = [
        PathType::Exact,
        PathType::Prefix,
        PathType::ImplementationSpecific,
    ];
    let path = (maybe(), proptest::sample::select(types.to_vec()), backend());
    let path = path.prop_map(|(path, path_type, backend)| IngressPath {
        path,
        path_type,
        backend,
    });
    let rule = (maybe(), list(path)).prop_map(|(host, paths)| IngressRule { host, paths });
    let tls =
        (list(text()), maybe()).prop_map(|(hosts, secret_name)| IngressTls { hosts, secret_name });
    let parts = (
        meta(ObjectKind::Ingress),
        maybe(),
        proptest::option::of(backend()),
        list(tls),
        list(rule),
    );
    parts.prop_map(|(meta, class_name, default_backend, tls, rules)| {
        Object::Ingress(Arc::new(Ingress {
            meta,
            class_name,
            default_backend,
            tls,
            rules,
        }))
    })
}

fn service() -> impl Strategy<Value = Object> {
    let target = prop_oneof![
        any::<u16>().prop_map(TargetPort::Number),
        text().prop_map(TargetPort::Name)
    ];
    let target = proptest::option::of(target);
    let port = (text(), any::<u16>(), target, maybe(), maybe()).prop_map(
        |(name, port, target_port, app_protocol, protocol)| ServicePort {
            name,
            port,
            target_port,
            app_protocol,
            protocol,
        },
    );
    let reached = (list(any::<IpAddr>()), any::<bool>());
    let parts = (
        meta(ObjectKind::Service),
        maybe(),
        list(port),
        labels(),
        reached,
    );
    parts.prop_map(|(meta, external_name, ports, selector, reached)| {
        let (addresses, is_headless) = reached;
        Object::Service(Arc::new(Service {
            meta,
            external_name,
            selector,
            ports,
            addresses,
            is_headless,
        }))
    })
}

fn slice() -> impl Strategy<Value = Object> {
    let address = proptest::option::of(any::<IpAddr>());
    let endpoint =
        (address, maybe(), maybe(), any::<[bool; 3]>()).prop_map(|(address, pod, zone, flags)| {
            Endpoint {
                address,
                pod,
                zone,
                conditions: Conditions {
                    ready: flags[0],
                    serving: flags[1],
                    terminating: flags[2],
                },
            }
        });
    let port =
        (text(), proptest::option::of(any::<u16>()), maybe()).prop_map(|(name, port, protocol)| {
            EndpointPort {
                name,
                port,
                protocol,
            }
        });
    let kind = ObjectKind::EndpointSlice;
    (meta(kind), maybe(), list(endpoint), list(port)).prop_map(
        |(meta, service, endpoints, ports)| {
            Object::EndpointSlice(Arc::new(EndpointSlice {
                meta,
                service,
                endpoints,
                ports,
            }))
        },
    )
}

fn labels() -> impl Strategy<Value = Labels> {
    list((text(), text())).prop_map(|pairs| pairs.into_iter().collect())
}

fn pod() -> impl Strategy<Value = Object> {
    let address = proptest::option::of(any::<IpAddr>());
    let parts = (
        meta(ObjectKind::Pod),
        labels(),
        address,
        maybe(),
        maybe(),
        any::<bool>(),
    );
    parts.prop_map(|(meta, labels, address, account, owner, is_ready)| {
        let owner = owner.map(|name: Box<str>| Owner {
            kind: "ReplicaSet".into(),
            name,
        });
        Object::Pod(Arc::new(Pod {
            meta,
            uid: None,
            labels,
            address,
            account,
            owner,
            is_ready,
        }))
    })
}

fn class() -> impl Strategy<Value = Object> {
    (meta(ObjectKind::IngressClass), text()).prop_map(|(mut meta, controller)| {
        meta.key = ObjectKey::new(ObjectKind::IngressClass, "", "c");
        Object::IngressClass(Arc::new(IngressClass { meta, controller }))
    })
}

proptest! {
    #[test]
    fn what_is_packed_is_unpacked_as_it_was(
        object in prop_oneof![ingress(), service(), slice(), class(), pod()]
    ) {
        let body = pack(&object).unwrap();
        prop_assert_eq!(created(&body), Some(object.meta().created));
        prop_assert_eq!(unpack(object.key().id(), &body), Some(object));
    }

    #[test]
    fn the_head_of_a_slice_is_read_without_its_endpoints(object in slice()) {
        let body = pack(&object).unwrap();
        let id = object.key().id();
        let Object::EndpointSlice(slice) = &object else {
            panic!("a slice");
        };
        let head = SliceHead {
            id: id.clone(),
            service: slice.service.clone(),
            ports: slice.ports.clone(),
            count: slice.endpoints.len(),
        };
        prop_assert_eq!(slice_head(id, &body), Some(head));
    }

    #[test]
    fn what_is_no_slice_has_no_head(object in prop_oneof![ingress(), service(), class(), pod()]) {
        prop_assert_eq!(slice_head(object.key().id(), &pack(&object).unwrap()), None);
    }

    #[test]
    fn bytes_that_were_not_packed_do_no_harm(body in any::<Vec<u8>>()) {
        let _ = (unpack(&"a/b".into(), &body), slice_head(&"a/b".into(), &body));
        let _ = created(&body);
    }
}
