use myriad_api::gateway::{Gateway, HttpRoute, ListenerSet};

use super::*;
use crate::domains::Certificates;

fn pair(byte: u8) -> Pair {
    Pair {
        leaf: vec![byte; 600],
        key: vec![byte; 138],
    }
}

fn domain(own: Option<Pair>) -> Domain {
    Domain {
        number: 7,
        host: "www.d00000007.custom.test".into(),
        endpoint: ([127, 0, 0, 1], 8_000).into(),
        own,
    }
}

fn objects(of: DomainObjects) -> Objects {
    Objects {
        issuer: vec![1, 2, 3],
        layout: Layout {
            objects: of,
            certificates: Certificates::Unique,
            domains: 40,
        },
    }
}

fn keys(changes: &[Change]) -> Vec<ObjectKey> {
    let mut keys: Vec<_> = changes.iter().map(|it| it.key().clone()).collect();
    keys.sort();
    keys
}

#[test]
fn what_is_written_is_read() {
    let records = [
        Record::Layout(objects(DomainObjects::ListenerSets).layout),
        Record::Edit {
            number: 7,
            is_edited: true,
        },
        Record::Edit {
            number: 8,
            is_edited: false,
        },
        Record::Issuer(vec![1, 2, 3]),
        Record::Shared(pair(4)),
        Record::Put(domain(Some(pair(5)))),
        Record::Put(domain(None)),
        Record::Remove(u64::MAX),
        Record::Synced,
        Record::Count,
    ];
    let mut pipe = Vec::new();
    for record in &records {
        record.write(&mut pipe).unwrap();
    }
    let mut input = pipe.as_slice();
    for record in &records {
        assert_eq!(Record::read(&mut input).unwrap().as_ref(), Some(record));
    }
    assert_eq!(Record::read(&mut input).unwrap(), None);
}

#[test]
fn a_part_that_is_too_long_is_refused_before_it_is_read() {
    let mut pipe = vec![b'I', 1];
    pipe.extend_from_slice(&u32::MAX.to_le_bytes());
    let error = Record::read(&mut pipe.as_slice()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}

#[test]
fn a_removal_names_all_that_was_put() {
    for of in [
        DomainObjects::Ingresses,
        DomainObjects::ListenerSets,
        DomainObjects::HttpRoutes,
    ] {
        let objects = objects(of);
        let put = keys(&objects.put(&domain(Some(pair(1)))).changes);
        assert_eq!(put, keys(&objects.remove(7).changes));
    }
}

/// The ListenerSets of a batch, with the names of their listeners.
fn sets(batch: &Batch) -> Vec<(String, Vec<String>)> {
    let sets = batch.changes.iter().filter_map(|change| match change {
        Change::Put(Object::ListenerSet(set)) => Some(set),
        _ => None,
    });
    let name = |set: &Arc<ListenerSet>| set.meta.key.name().to_owned();
    let sets = sets.map(|set| {
        let listeners = set.spec.listeners.iter();
        (name(set), listeners.map(|it| it.name.to_string()).collect())
    });
    sets.collect()
}

#[test]
fn a_set_comes_whole_and_has_a_listener_more_for_a_new_domain() {
    let objects = objects(DomainObjects::ListenerSets);
    let existing = |number| Domain {
        number,
        ..domain(Some(pair(1)))
    };
    assert!(sets(&objects.put(&existing(28))).is_empty());
    let whole = sets(&objects.put(&existing(30)));
    assert_eq!((whole.len(), whole[0].1.len()), (1, 16));
    assert_eq!(sets(&objects.put(&existing(78)))[0].1.len(), 8);

    let more = sets(&objects.put(&domain(Some(pair(1)))));
    assert_eq!(more[0].0, "s00000000");
    assert_eq!(more[0].1.len(), 17);
    assert_eq!(more[0].1[16], "d00000007");
    assert_eq!(sets(&objects.remove(7)), whole);
    assert!(objects.common().is_some());
}

fn read<T: serde::de::DeserializeOwned>(document: &str) -> T {
    let value: serde_json::Value = serde_saphyr::from_str(document).unwrap();
    serde_json::from_value(value).unwrap()
}

#[test]
fn typed_objects_are_those_that_are_read_of_their_documents() {
    for of in [DomainObjects::ListenerSets, DomainObjects::HttpRoutes] {
        let objects = objects(of);
        let layout = objects.layout;
        let gateway = gateway::gateway(of).expect("a Gateway");
        let written: Gateway = read(&layout.common_documents());
        assert_eq!(gateway.spec, written.spec);
        for (is_edited, text) in [false, true].into_iter().zip(layout.edits(6)) {
            let route = gateway::http_route(of, &layout.site(6), is_edited);
            let written: HttpRoute = read(&text);
            assert_eq!((&route.meta, &route.spec), (&written.meta, &written.spec));
        }
    }
    let layout = objects(DomainObjects::ListenerSets).layout;
    let set = gateway::listener_set(1, &layout.members(1));
    let written: ListenerSet = read(&layout.end_document(32));
    assert_eq!((set.meta, set.spec), (written.meta, written.spec));
}
