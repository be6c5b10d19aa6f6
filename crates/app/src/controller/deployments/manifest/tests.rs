use std::collections::BTreeMap;

use myriad_api::gateway::status::{DeployedPort, Deployment, WantedAddress};
use myriad_source::kubernetes::MadeKind;
use serde_json::{Value, json};

use super::{MADE_BY, Owner, Parts, SELECTED, is_made_here, owners};
use crate::dedicated::service_name;
use crate::settings::{GatewayTemplate, MetadataTemplate, NetworkPolicyTemplate, ServiceTemplate};

fn template() -> GatewayTemplate {
    GatewayTemplate {
        roots: "myriad-gateway-ca".to_owned(),
        labels: BTreeMap::from([("app.kubernetes.io/name".to_owned(), "myriad".to_owned())]),
        replicas: Some(2),
        service: ServiceTemplate {
            kind: "LoadBalancer".to_owned(),
            annotations: BTreeMap::from([("lb/internal".to_owned(), "true".to_owned())]),
            external_traffic_policy: Some("Local".to_owned()),
        },
        metadata: MetadataTemplate {
            allow: vec!["lb/".to_owned()],
        },
        addresses: vec!["192.0.2.0/24".to_owned()],
        network_policy: Some(NetworkPolicyTemplate {
            admin_from: vec![json!({"podSelector": {}})],
        }),
        pod: json!({
            "automountServiceAccountToken": false,
            "securityContext": {
                "runAsNonRoot": true,
                "sysctls": [
                    {"name": "net.core.somaxconn", "value": "4096"},
                    {"name": "net.ipv4.ip_unprivileged_port_start", "value": "80"},
                ],
            },
            "containers": [{
                "name": "proxy",
                "ports": [
                    {"name": "http", "containerPort": 8080},
                    {"name": "admin", "containerPort": 9901},
                ],
                "securityContext": {"readOnlyRootFilesystem": true},
            }, {
                "name": "exporter",
                "ports": [{"name": "metrics", "containerPort": 9100, "protocol": "UDP"}],
            }],
        }),
    }
}

fn port(number: u16, is_udp: bool) -> DeployedPort {
    DeployedPort { number, is_udp }
}

fn text_pair(key: &str, value: &str) -> (Box<str>, Box<str>) {
    (key.into(), value.into())
}

fn deployment(ports: &[DeployedPort]) -> Deployment {
    Deployment {
        ports: ports.into(),
        labels: [
            text_pair("team", "shop"),
            text_pair("app.kubernetes.io/name", "forged"),
            text_pair(MADE_BY, "forged"),
            text_pair(SELECTED, "forged"),
            text_pair("myriad.dev/inject", "true"),
        ]
        .into(),
        annotations: [
            text_pair("note", "hello"),
            text_pair("lb/internal", "false"),
            text_pair("lb/name", "web"),
            text_pair("eks.amazonaws.com/role-arn", "forged"),
            text_pair("metallb.universe.tf/allow-shared-ip", "forged"),
        ]
        .into(),
        scaling: None,
    }
}

fn address(kind: &str, value: &str) -> WantedAddress {
    WantedAddress {
        kind: kind.into(),
        value: value.into(),
    }
}

fn objects(ports: &[DeployedPort], addresses: &[WantedAddress]) -> Vec<(MadeKind, Value)> {
    with_parts(ports, addresses, |parts| parts.objects())
}

fn with_parts<R>(
    ports: &[DeployedPort],
    addresses: &[WantedAddress],
    look: impl FnOnce(&Parts<'_>) -> R,
) -> R {
    let (template, deployment) = (template(), deployment(ports));
    let owner = Owner {
        namespace: "shop",
        name: "web",
        uid: "u-1",
        class: "myriad",
        api_version: "gateway.networking.k8s.io/v1",
    };
    let parts = Parts {
        template: &template,
        installation: "edge",
        owner,
        deployment: &deployment,
        addresses,
    };
    look(&parts)
}

/// The only object of a kind.
fn object(objects: &[(MadeKind, Value)], kind: MadeKind) -> &Value {
    let mut found = objects.iter().filter(|(it, _)| *it == kind);
    let (_, object) = found.next().unwrap();
    assert!(found.next().is_none());
    object
}

#[test]
fn a_gateway_is_given_an_account_a_deployment_and_a_service_that_it_owns() {
    let objects = objects(&[port(80, false), port(53, true)], &[]);
    let kinds: Vec<MadeKind> = objects.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, MadeKind::OWN);
    for (kind, object) in &objects {
        let metadata = &object["metadata"];
        assert_eq!(object["kind"], kind.as_str());
        assert_eq!(metadata["name"], "web-myriad");
        assert_eq!(metadata["namespace"], "shop");
        let owner = &metadata["ownerReferences"][0];
        assert_eq!(
            (&owner["uid"], &owner["name"]),
            (&json!("u-1"), &json!("web"))
        );
        assert!(is_made_here(object, "edge") && !is_made_here(object, "other"));
        assert_eq!(owners(object, "web").collect::<Vec<_>>(), ["u-1"]);
        assert_eq!(owners(object, "other").count(), 0);
        let labels = json!({
            "team": "shop",
            "app.kubernetes.io/name": "myriad",
            "gateway.networking.k8s.io/gateway-name": "web",
            "gateway.networking.k8s.io/gateway-class-name": "myriad",
            "myriad.dev/made-by": "edge",
            "myriad.dev/gateway": "web-myriad",
        });
        assert_eq!(
            metadata["labels"], labels,
            "what is ours is not the tenant's to change"
        );
        let annotations = &metadata["annotations"];
        assert_eq!(
            (&annotations["note"], &annotations["lb/name"]),
            (&json!("hello"), &json!("web"))
        );
        for refused in [
            "eks.amazonaws.com/role-arn",
            "metallb.universe.tf/allow-shared-ip",
        ] {
            assert_eq!(annotations[refused], Value::Null, "{refused}");
        }
    }
    let service = object(&objects, MadeKind::Service);
    assert_eq!(service["metadata"]["annotations"]["lb/internal"], "true");
    assert_eq!(service["spec"]["externalTrafficPolicy"], "Local");
    assert_eq!(
        service["spec"]["selector"],
        json!({"myriad.dev/gateway": "web-myriad"})
    );
    assert_eq!(service["spec"]["loadBalancerIP"], Value::Null);
    let ports = json!([
        {"name": "tcp-80", "port": 80, "targetPort": 80, "protocol": "TCP"},
        {"name": "udp-53", "port": 53, "targetPort": 53, "protocol": "UDP"},
    ]);
    assert_eq!(service["spec"]["ports"], ports);
}

#[test]
fn its_pods_are_those_of_the_template_with_its_ports() {
    let objects = objects(&[port(443, false)], &[]);
    let spec = &object(&objects, MadeKind::Deployment)["spec"];
    assert_eq!(spec["replicas"], 2);
    let selected = &spec["selector"]["matchLabels"]["myriad.dev/gateway"];
    let template = &spec["template"];
    assert_eq!(
        *selected,
        template["metadata"]["labels"]["myriad.dev/gateway"]
    );
    let metadata = &template["metadata"];
    assert_eq!(metadata["annotations"]["note"], "hello");
    assert_eq!(
        metadata["annotations"]["eks.amazonaws.com/role-arn"],
        Value::Null
    );
    for label in ["sidecar.istio.io/inject", "myriad.dev/inject"] {
        assert_eq!(metadata["labels"][label], "false", "it is no workload");
    }
    let pod = &template["spec"];
    assert_eq!(pod["serviceAccountName"], "web-myriad");
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    let sysctls = json!([
        {"name": "net.core.somaxconn", "value": "4096"},
        {"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"},
    ]);
    assert_eq!(pod["securityContext"]["sysctls"], sysctls);
    let proxy = &pod["containers"][0];
    assert_eq!(proxy["securityContext"]["readOnlyRootFilesystem"], true);
    let ports = proxy["ports"].as_array().unwrap();
    let names: Vec<&str> = ports.iter().filter_map(|it| it["name"].as_str()).collect();
    assert_eq!(names, ["admin", "tcp-443"]);
}

#[test]
fn each_address_that_is_asked_for_has_a_service_and_a_gateway_without_ports_has_none() {
    let ports = [port(80, false)];
    let addresses = [
        address("IPAddress", "192.0.2.7"),
        address("IPAddress", ""),
        address("Hostname", "lb.example"),
        address("IPAddress", "192.0.2.8"),
        address("IPAddress", "198.51.100.7"),
        address("IPAddress", "192.0.2.8"),
    ];
    let made = objects(&ports, &addresses);
    let services = made.iter().filter(|(kind, _)| *kind == MadeKind::Service);
    let services: Vec<_> = services
        .map(|(_, it)| {
            (
                it["metadata"]["name"].clone(),
                it["spec"]["loadBalancerIP"].clone(),
            )
        })
        .collect();
    let expected = ["192.0.2.7", "192.0.2.8"].map(|address| {
        let name = service_name("web-myriad", address.parse().unwrap());
        (json!(name), json!(address))
    });
    assert_eq!(services, expected);
    let none = objects(&[], &addresses);
    assert!(none.iter().all(|(kind, _)| *kind != MadeKind::Service));
}

#[test]
fn a_listener_at_a_port_of_the_pod_itself_is_left_out_everywhere() {
    let ports = [
        port(80, false),
        port(9100, false),
        port(9901, false),
        port(9100, true),
        port(9901, true),
    ];
    let made = objects(&ports, &[]);
    let pod = &object(&made, MadeKind::Deployment)["spec"]["template"]["spec"];
    let names = |ports: &Value| {
        let ports = ports.as_array().unwrap().iter();
        let names = ports.map(|it| it["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    let own = ["tcp-80", "tcp-9100", "udp-9901"];
    let [tcp, beside, udp] = own;
    assert_eq!(
        names(&pod["containers"][0]["ports"]),
        ["admin", tcp, beside, udp]
    );
    let service = object(&made, MadeKind::Service);
    assert_eq!(names(&service["spec"]["ports"]), own);
    // Nothing is left of that one.
    let none = objects(&[port(9901, false)], &[]);
    assert!(none.iter().all(|(kind, _)| *kind != MadeKind::Service));
}

#[test]
fn the_admin_address_is_for_those_whom_the_operator_names() {
    let made = objects(&[port(80, false)], &[]);
    let spec = &object(&made, MadeKind::NetworkPolicy)["spec"];
    let expected = json!({
        "podSelector": {"matchLabels": {"myriad.dev/gateway": "web-myriad"}},
        "policyTypes": ["Ingress"],
        "ingress": [
            {"ports": [
                {"protocol": "UDP", "port": 1, "endPort": 65535},
                {"protocol": "TCP", "port": 1, "endPort": 9900},
                {"protocol": "TCP", "port": 9902, "endPort": 65535},
            ]},
            {
                "from": [{"podSelector": {}}],
                "ports": [{"protocol": "TCP", "port": 9901}],
            },
        ],
    });
    assert_eq!(*spec, expected);
}

#[test]
fn what_is_not_put_on_objects_is_told_and_only_what_is_made_is_named() {
    let addresses = [address("IPAddress", "192.0.2.7")];
    let (refused, names) = with_parts(&[], &addresses, |parts| {
        (parts.refused_metadata(), parts.service_names())
    });
    let refused: Vec<&str> = refused.iter().map(|key| &**key).collect();
    let expected = [
        "app.kubernetes.io/name",
        "eks.amazonaws.com/role-arn",
        "metallb.universe.tf/allow-shared-ip",
        "myriad.dev/gateway",
        "myriad.dev/inject",
        "myriad.dev/made-by",
    ];
    assert_eq!(refused, expected);
    let name = service_name("web-myriad", [192, 0, 2, 7].into());
    assert_eq!(
        names.into_iter().collect::<Vec<_>>(),
        [name.into_boxed_str()]
    );
}
