use myriad_api::{EndpointPort, Meta, ObjectKey};

use super::*;

fn port(name: &str, number: u16, protocol: Option<&str>) -> ServicePort {
    ServicePort {
        name: name.into(),
        port: number,
        target_port: None,
        app_protocol: None,
        protocol: protocol.map(Into::into),
    }
}

fn opened(padding: u16) -> OpenedService {
    let mut ports = vec![
        port("dns", 53, Some("UDP")),
        port("dns", 53, Some("TCP")),
        port("web", 80, None),
        port("web", 81, None),
    ];
    ports.extend((0..padding).map(|at| port(&format!("p{at}"), 1_000 + at, None)));
    OpenedService::new(Arc::new(Service {
        meta: Meta::new(ObjectKey::new(ObjectKind::Service, "n", "s")),
        external_name: None,
        selector: Labels::default(),
        ports: ports.into(),
        addresses: Box::default(),
        is_headless: false,
    }))
}

#[test]
fn an_index_of_ports_finds_what_a_walk_finds() {
    for padding in [0, LINEAR_MAX as u16] {
        let opened = opened(padding);
        assert_eq!(opened.places.is_some(), padding > 0);
        let by_name = |name: &str| opened.find(&BackendPort::Name(name.into()));
        assert_eq!(by_name("dns"), PortFound::Listed(53));
        assert_eq!(by_name("web"), PortFound::Listed(80));
        assert_eq!(by_name("none"), PortFound::NoPort);
        let by_number = |number| opened.find(&BackendPort::Number(number));
        assert_eq!(by_number(81), PortFound::Listed(81));
        assert_eq!(by_number(82), PortFound::NoPort);
        let protocol = opened.port(53).and_then(|port| port.protocol.as_deref());
        assert_eq!(protocol, Some("TCP"));
        let datagrams = opened.datagram_port(53);
        let protocol = datagrams.and_then(|port| port.protocol.as_deref());
        assert_eq!(protocol, Some("UDP"));
        assert!(opened.datagram_port(80).is_none());
        let is_repeated = |number| {
            let port = opened.port(number);
            port.map(|port| opened.is_repeated(port))
        };
        assert_eq!(
            [53, 80, 81].map(is_repeated),
            [false, false, true].map(Some)
        );
    }
}

#[test]
fn an_index_of_slices_finds_what_a_walk_finds() {
    let head = |at: usize, padding: u16| {
        let mut ports = vec![
            ("web".to_owned(), Some(80), None),
            ("web".to_owned(), Some(81), Some("UDP")),
            ("web".to_owned(), None, None),
            ("web".to_owned(), Some(82), Some("TCP")),
        ];
        ports.extend((0..padding).map(|at| (format!("p{at}"), Some(9), None)));
        let ports = ports
            .into_iter()
            .map(|(name, port, protocol)| EndpointPort {
                name: name.into(),
                port,
                protocol: protocol.map(Into::into),
            });
        SliceHead {
            id: format!("n/s-{at}").into(),
            service: Some("s".into()),
            ports: ports.collect(),
            count: 1,
        }
    };
    for padding in [0, LINEAR_MAX as u16] {
        let opened = OpenedSlices::new([head(0, padding), head(1, padding)].into());
        assert_eq!(opened.by_port.is_some(), padding > 0);
        let found = opened.ports("web").into_iter();
        let found = found.map(|it| (it.slice, it.number, (it.is_tcp, it.is_udp)));
        let found: Vec<_> = found.collect();
        let (tcp, udp) = ((true, false), (false, true));
        let of = |slice| [(slice, 80, tcp), (slice, 81, udp), (slice, 82, tcp)];
        assert_eq!(found, [of(0), of(1)].concat());
        assert!(opened.ports("none").is_empty());
    }
}

#[test]
fn what_is_kept_stays_until_as_much_found_no_room() {
    let mut shelf: Shelf<Arc<str>, usize> = Shelf::default();
    let half = KEPT_ENTRIES_MAX / 2 - 1;
    let known = |shelf: &Shelf<Arc<str>, usize>| ["a", "b", "c"].map(|key| shelf.get(key));
    shelf.keep("a".into(), 1, half);
    shelf.keep("b".into(), 2, half);
    assert_eq!(known(&shelf), [Some(1), Some(2), None]);
    shelf.keep("c".into(), 3, half);
    assert_eq!(known(&shelf), [Some(1), Some(2), None]);
    shelf.keep("c".into(), 3, half);
    assert_eq!(known(&shelf), [None, None, Some(3)]);
    // One that is larger than all is not kept for others.
    shelf.keep("a".into(), 1, KEPT_ENTRIES_MAX / 2);
    assert_eq!(known(&shelf), [None, None, Some(3)]);
}
