use super::*;
use crate::domains::Certificates;

fn tenant(objects: DomainObjects, certificates: Certificates) -> Tenant {
    Tenant {
        namespace: "space".to_owned(),
        class: "class".to_owned(),
        issuer: vec![1],
        layout: Layout {
            objects,
            certificates,
            domains: 40,
        },
    }
}

fn domain(number: u64) -> Domain {
    Domain {
        number,
        host: "www.example.com".to_owned(),
        endpoint: "10.244.3.1:9000".parse().unwrap(),
        own: None,
    }
}

fn body(write: &Write) -> Value {
    serde_json::from_slice(write.body.as_ref().unwrap()).unwrap()
}

fn count(value: &Value, path: &str) -> Option<usize> {
    Some(value.pointer(path)?.as_array()?.len())
}

#[test]
fn a_domain_without_its_own_certificate_names_the_shared_one() {
    let tenant = tenant(DomainObjects::Ingresses, Certificates::Wildcard);
    let domain = domain(7);
    assert!(tenant.create(Kind::Secret, &domain).is_none());
    assert!(tenant.delete(Kind::Secret, &domain).is_none());
    let ingress = tenant.admit(&domain).unwrap();
    let list = "/apis/networking.k8s.io/v1/namespaces/space/ingresses";
    assert_eq!(
        (&*ingress.path, tenant.live_list()),
        (list, list.to_owned())
    );
    let secret = body(&ingress);
    let secret = secret.pointer("/spec/tls/0/secretName");
    assert_eq!(secret, Some(&json!(SHARED_SECRET)));
    let slice = tenant.replace(Kind::EndpointSlice, &domain).unwrap();
    assert!(slice.path.ends_with("/endpointslices/d00000007"));
    assert!(tenant.create_common().is_empty() && tenant.delete_class().is_none());
}

#[test]
fn a_new_domain_is_one_more_listener_of_its_set_and_goes_with_it() {
    let tenant = tenant(DomainObjects::ListenerSets, Certificates::Unique);
    let domain = domain(33);
    assert_eq!(tenant.needs().len(), 4);
    assert_eq!(tenant.live_name(&domain), "s00000001");
    let added = tenant.admit(&domain).unwrap();
    let path = "/apis/gateway.networking.k8s.io/v1/namespaces/space/listenersets/s00000001";
    assert_eq!((&added.method, &*added.path), (&Method::PATCH, path));
    let listeners = body(&added);
    assert_eq!(count(&listeners, "/spec/listeners"), Some(17));
    let last = listeners.pointer("/spec/listeners/16").unwrap();
    assert_eq!(last["hostname"], "www.example.com");
    assert_eq!(last["tls"]["certificateRefs"][0]["name"], SHARED_SECRET);
    let removed = tenant.dismiss(&domain).unwrap();
    assert_eq!(count(&body(&removed), "/spec/listeners"), Some(16));

    let route = body(&tenant.create(Kind::HttpRoute, &domain).unwrap());
    let parent = json!({"kind": "ListenerSet", "name": "s00000001", "sectionName": "d00000033"});
    assert_eq!(route.pointer("/spec/parentRefs/0"), Some(&parent));
    assert_eq!(route.pointer("/spec/hostnames"), None);
}

#[test]
fn sets_are_written_whole_and_one_that_is_there_grows() {
    let tenant = tenant(DomainObjects::ListenerSets, Certificates::Unique);
    let [whole, last] = [1, 2].map(|set| tenant.write_set(set, false));
    assert_eq!(whole.method, Method::POST);
    assert_eq!(count(&body(&whole), "/spec/listeners"), Some(16));
    assert_eq!(count(&body(&last), "/spec/listeners"), Some(8));
    assert_eq!(body(&last)["kind"], "ListenerSet");
    let grown = tenant.write_set(2, true);
    assert_eq!(grown.method, Method::PATCH);
    assert_eq!(
        body(&grown)["spec"]["listeners"],
        body(&last)["spec"]["listeners"]
    );

    let common = tenant.create_common();
    let kinds: Vec<_> = common.iter().map(|it| body(it)["kind"].clone()).collect();
    assert_eq!(kinds, ["GatewayClass", "Gateway"]);
    assert_eq!(
        body(&common[0])["spec"]["controllerName"],
        tenant.controller()
    );
}

#[test]
fn routes_of_one_listener_come_and_go_by_themselves() {
    let tenant = tenant(DomainObjects::HttpRoutes, Certificates::Wildcard);
    let domain = domain(7);
    let added = tenant.admit(&domain).unwrap();
    assert_eq!(
        (&added.method, added.path),
        (&Method::POST, tenant.live_list())
    );
    assert_eq!(tenant.dismiss(&domain).unwrap().method, Method::DELETE);
    let route = body(&tenant.create(Kind::HttpRoute, &domain).unwrap());
    assert_eq!(route["spec"]["hostnames"], json!(["www.example.com"]));
    assert_eq!(tenant.needs(), Kind::NEEDS);
}

#[test]
fn an_edit_adds_a_path() {
    let cases = [
        (DomainObjects::Ingresses, "/spec/rules/0/http/paths"),
        (DomainObjects::ListenerSets, "/spec/rules/0/matches"),
        (DomainObjects::HttpRoutes, "/spec/rules/0/matches"),
    ];
    for (objects, path) in cases {
        let tenant = tenant(objects, Certificates::Wildcard);
        let edits = [false, true].map(|is_edited| body(&tenant.edit(6, is_edited)));
        let paths = edits.each_ref().map(|edit| count(edit, path));
        assert_eq!(paths, [Some(1), Some(2)], "{objects:?}");
    }
}
