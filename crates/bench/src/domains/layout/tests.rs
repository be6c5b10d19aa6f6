use super::*;

fn layout(objects: DomainObjects, domains: u64) -> Layout {
    let certificates = match objects {
        DomainObjects::HttpRoutes => Certificates::Wildcard,
        DomainObjects::Ingresses | DomainObjects::ListenerSets => Certificates::Unique,
    };
    Layout {
        objects,
        certificates,
        domains,
    }
}

fn domain(layout: &Layout, number: u64) -> Domain {
    Domain {
        number,
        host: layout.certificates.host(number),
        endpoint: ([127, 0, 0, 1], 9_000).into(),
        own: (!layout.certificates.is_shared(number)).then(|| super::super::Pair {
            leaf: vec![1],
            key: vec![2],
        }),
    }
}

/// The kinds and names of objects.
fn heads(text: &str) -> Vec<(&str, &str)> {
    let field = |part: &'static str| move |line: &&str| line.starts_with(part);
    let documents = text.split("---\n").filter(|document| !document.is_empty());
    let heads = documents.map(|document| {
        let kind = document.lines().find(field("kind: ")).unwrap();
        let name = document.lines().find(field("  name: ")).unwrap();
        (&kind["kind: ".len()..], &name["  name: ".len()..])
    });
    heads.collect()
}

#[test]
fn a_tenant_has_a_set_of_16_listeners_and_a_route_for_each() {
    let layout = layout(DomainObjects::ListenerSets, 40);
    assert_eq!(layout.sets(), 3);
    let sizes = [0, 1, 2].map(|set| layout.members(set).len());
    assert_eq!(sizes, [16, 16, 8]);
    let ends: Vec<u64> = (0..40)
        .map(Generator::existing)
        .filter(|&number| layout.set_ended_by(number).is_some())
        .collect();
    assert_eq!(ends, [30, 62, 78]);

    let set = layout.end_document(Generator::existing(16));
    assert_eq!(heads(&set), [("ListenerSet", "s00000001")]);
    assert_eq!(set.matches("protocol: HTTPS").count(), 16);
    assert!(set.contains("hostname: www.d00000032.custom.test"), "{set}");
    assert!(set.contains("- name: d00000032"), "{set}");
    let documents = layout.documents(&domain(&layout, 32), &[3]);
    let kinds = [
        ("HTTPRoute", "d00000032"),
        ("Service", "d00000032"),
        ("EndpointSlice", "d00000032-1"),
        ("Secret", "d00000032"),
    ];
    assert_eq!(heads(&documents), kinds);
    assert!(documents.contains("sectionName: d00000032"), "{documents}");
    assert!(documents.contains("name: s00000001"), "{documents}");
    assert_eq!(heads(&layout.common_documents()), [("Gateway", "edge")]);
}

#[test]
fn one_more_domain_is_one_more_listener_at_the_end_of_a_file() {
    let layout = layout(DomainObjects::ListenerSets, 16);
    let fresh = domain(&layout, Generator::fresh(3));
    let text = layout.end_document(0) + &layout.addition(&fresh, &[3]);
    let (set, rest) = text[4..].split_once("---\n").unwrap();
    assert_eq!(set.matches("protocol: HTTPS").count(), 17);
    assert!(set.ends_with("      - name: d00000007\n"), "{set}");
    assert_eq!(heads(rest).len(), 4);
}

#[test]
fn routes_share_one_listener_and_one_certificate() {
    let layout = layout(DomainObjects::HttpRoutes, 40);
    assert_eq!((layout.sets(), layout.per_file(3)), (0, 3));
    assert_eq!(layout.set_ended_by(78), None);
    assert_eq!(layout.end_document(0), "");
    let gateway = layout.common_documents();
    assert!(gateway.contains("hostname: \"*.shared.test\""), "{gateway}");
    let added = layout.addition(&domain(&layout, 7), &[3]);
    let kinds = [
        ("HTTPRoute", "d00000007"),
        ("Service", "d00000007"),
        ("EndpointSlice", "d00000007-1"),
    ];
    assert_eq!(heads(&added), kinds);
    assert!(added.contains("- d00000007.shared.test"), "{added}");
}

#[test]
fn ingresses_are_as_they_are_without_a_layout() {
    let layout = layout(DomainObjects::Ingresses, 40);
    let domain = domain(&layout, 6);
    assert_eq!(layout.common_documents(), "");
    let written = layout.addition(&domain, &[3]);
    assert_eq!(written, super::super::documents(&domain, &[3]));
    assert_eq!(heads(&written)[0], ("Ingress", "d00000006"));
}

#[test]
fn an_edit_adds_a_path_and_nothing_else() {
    for objects in [
        DomainObjects::Ingresses,
        DomainObjects::ListenerSets,
        DomainObjects::HttpRoutes,
    ] {
        let layout = layout(objects, 40);
        let [plain, edited] = layout.edits(6);
        let documents = layout.documents(&domain(&layout, 6), &[3]);
        assert!(documents.starts_with(&plain), "{plain}");
        let paths = |text: &str| {
            [
                text.matches(": /\n").count(),
                text.matches(": /edited\n").count(),
            ]
        };
        assert_eq!((paths(&plain), paths(&edited)), ([1, 0], [1, 1]));
    }
}
