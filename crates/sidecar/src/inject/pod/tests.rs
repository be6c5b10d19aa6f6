//! A Pod before and after.

use serde_json::{Value, json};

use super::super::Sidecar;
use super::{Injected, inject};

fn sidecar() -> Sidecar {
    Sidecar {
        image: "registry.example/myriad:1".to_owned(),
        pull_policy: "IfNotPresent".to_owned(),
        controller: "myriad-controller.myriad-system.svc:15010".to_owned(),
        ca_config_map: "myriad-ca".to_owned(),
        cpu: "10m".to_owned(),
        memory: "32Mi".to_owned(),
        memory_limit: String::new(),
        log: "info".to_owned(),
        drain_delay: 5,
        drain_timeout: 20,
        hold: Vec::new(),
        metrics_from: Vec::new(),
        path_normalization: None,
    }
}

fn injected(pod: &Value) -> Injected {
    inject(pod, "cart", &sidecar()).unwrap()
}

fn pod() -> Value {
    json!({
        "metadata": {"labels": {"app": "cart", "version": "v2"}},
        "spec": {
            "initContainers": [{"name": "migrate", "image": "cart"}],
            "containers": [{
                "name": "cart",
                "image": "cart",
                "ports": [{"name": "web", "containerPort": 8080}],
                "readinessProbe": {
                    "httpGet": {"path": "/ready", "port": "web", "scheme": "HTTPS"},
                    "periodSeconds": 3,
                    "timeoutSeconds": 4,
                },
                "livenessProbe": {"exec": {"command": ["true"]}},
                "startupProbe": {"tcpSocket": {"port": 8080}},
                "lifecycle": {"preStop": {"httpGet": {"path": "/bye", "port": 8080}}},
            }],
        },
    })
}

#[test]
fn the_proxy_comes_first_and_the_workload_keeps_what_it_had() {
    let Injected {
        pod: after,
        warnings,
    } = injected(&pod());
    let name = |at: usize| {
        after
            .pointer(&format!("/spec/initContainers/{at}/name"))
            .cloned()
    };
    let names = [name(0), name(1), name(2)].map(Option::unwrap);
    assert_eq!(names, ["myriad-init", "myriad-proxy", "migrate"]);
    let proxy = after.pointer("/spec/initContainers/1").unwrap();
    assert_eq!(proxy["restartPolicy"], "Always");
    assert_eq!(
        proxy["securityContext"]["capabilities"],
        json!({"drop": ["ALL"]})
    );
    assert_eq!(proxy["securityContext"]["runAsUser"], 1337);
    assert_eq!(proxy["resources"]["limits"], json!({}));
    let init = after.pointer("/spec/initContainers/0").unwrap();
    assert_eq!(init["args"], json!(["redirect"]));
    let labels = after.pointer("/metadata/labels").unwrap();
    let expected = json!({
        "app": "cart",
        "version": "v2",
        "security.istio.io/tlsMode": "istio",
        "service.istio.io/canonical-name": "cart",
        "service.istio.io/canonical-revision": "v2",
    });
    assert_eq!((labels, warnings.len()), (&expected, 0));
    let volumes = after
        .pointer("/spec/volumes")
        .and_then(Value::as_array)
        .unwrap();
    assert_eq!(volumes.len(), 3);
}

#[test]
fn paths_are_normalised_as_the_mesh_says() {
    let proxied = |path_normalization: Option<Box<str>>| {
        let sidecar = Sidecar {
            path_normalization,
            ..sidecar()
        };
        let Injected { pod, .. } = inject(&pod(), "cart", &sidecar).unwrap();
        pod["spec"]["initContainers"][1]["args"].to_string()
    };
    assert!(proxied(Some("BASE".into())).contains("\"--path-normalization=BASE\""));
    assert!(!proxied(None).contains("--path-normalization"));
}

#[test]
fn metrics_are_told_to_whom_the_operator_says() {
    let mut sidecar = sidecar();
    let has = |sidecar: &Sidecar, argument: &str| {
        let injected = inject(&pod(), "cart", sidecar).unwrap();
        injected.pod.to_string().contains(argument)
    };
    assert!(!has(&sidecar, "--probes-metrics-from"));
    sidecar.metrics_from = ["10.1.0.0/16", "2001:db8::1"].map(String::from).into();
    let argument = "\"--probes-metrics-from=10.1.0.0/16,2001:db8::1\"";
    assert!(has(&sidecar, argument));
}

#[test]
fn checks_of_the_kubelet_go_by_way_of_the_proxy_and_keep_their_times() {
    let after = injected(&pod()).pod;
    let container = after.pointer("/spec/containers/0").unwrap();
    let get = |last: &str| json!({"path": format!("/workload/cart/{last}"), "port": 15020});
    let ready = json!({
        "httpGet": get("readyz"),
        "periodSeconds": 3,
        "timeoutSeconds": 4,
    });
    assert_eq!(container["readinessProbe"], ready);
    assert_eq!(
        container["livenessProbe"],
        json!({"exec": {"command": ["true"]}})
    );
    assert_eq!(
        container["startupProbe"],
        json!({"httpGet": get("startupz")})
    );
    assert_eq!(
        container["lifecycle"]["preStop"],
        json!({"httpGet": get("prestopz")})
    );
    let env = after.pointer("/spec/initContainers/1/env/1/value").unwrap();
    let asked: Value = serde_json::from_str(env.as_str().unwrap()).unwrap();
    let read = crate::probes::read(env.as_str().unwrap()).unwrap();
    assert_eq!(read.len(), 3);
    let expected = json!({
        "/workload/cart/readyz": {
            "httpGet": {"path": "/ready", "port": 8080, "scheme": "HTTPS"},
            "timeoutSeconds": 4,
        },
        "/workload/cart/startupz": {"tcpSocket": {"port": 8080}, "timeoutSeconds": 1},
        "/workload/cart/prestopz": {
            "httpGet": {"path": "/bye", "port": 8080},
            "timeoutSeconds": 1,
        },
    });
    assert_eq!(asked, expected);
}

#[test]
fn metrics_of_the_proxy_are_found_unless_the_workload_has_its_own() {
    let scraped = |annotations: Value| {
        let mut pod = pod();
        pod["metadata"]["annotations"] = annotations;
        let after = injected(&pod);
        let of = |name: &str| after.pod["metadata"]["annotations"][name].clone();
        let names = ["scrape", "port", "path"];
        let told = names.map(|name| of(&format!("prometheus.io/{name}")));
        (told, after.warnings.len())
    };
    let own = ["true", "15020", "/stats/prometheus"].map(Value::from);
    assert_eq!(scraped(json!({})), (own.clone(), 0));
    assert_eq!(scraped(json!({"prometheus.io/port": "80"})), (own, 0));
    let (workloads, warnings) = scraped(json!({
        "prometheus.io/scrape": "true",
        "prometheus.io/port": "9090",
    }));
    assert_eq!(workloads, [json!("true"), json!("9090"), Value::Null]);
    assert_eq!(warnings, 1);
    let none = scraped(json!({"prometheus.io/scrape": "false"})).0;
    assert_eq!(none, [json!("false"), Value::Null, Value::Null]);
    let none = scraped(json!({"prometheus.istio.io/merge-metrics": "false"}));
    assert_eq!(none, ([Value::Null, Value::Null, Value::Null], 0));
}

#[test]
fn annotations_change_what_is_injected() {
    let mut pod = pod();
    pod["metadata"]["annotations"] = json!({
        "sidecar.istio.io/interceptionMode": "NONE",
        "sidecar.istio.io/rewriteAppHTTPProbers": "false",
        "sidecar.istio.io/proxyMemoryLimit": "1Gi",
        "sidecar.istio.io/proxyImage": "registry.example/myriad:2",
    });
    let after = injected(&pod).pod;
    let first = after.pointer("/spec/initContainers/0").unwrap();
    assert_eq!(first["name"], "myriad-proxy");
    assert_eq!(first["image"], "registry.example/myriad:2");
    assert_eq!(first["resources"]["limits"], json!({"memory": "1Gi"}));
    let probe = after.pointer("/spec/containers/0/readinessProbe/httpGet/path");
    assert_eq!(probe.unwrap(), "/ready");
}

#[test]
fn what_cannot_be_asked_is_left_with_a_warning() {
    let mut pod = pod();
    let container = pod.pointer_mut("/spec/containers/0").unwrap();
    container["readinessProbe"]["httpGet"]["port"] = json!("none");
    container["startupProbe"]["tcpSocket"]["host"] = json!("db.example");
    container["securityContext"] = json!({"runAsUser": 1337});
    let Injected {
        pod: after,
        warnings,
    } = injected(&pod);
    let probe = after.pointer("/spec/containers/0/readinessProbe/httpGet/path");
    assert_eq!(probe.unwrap(), "/ready");
    let expected = [
        "cart runs as user 1337, which is the proxy's: its connections pass the proxy by",
        "startupProbe of container cart is left as it is: it asks another host, \"db.example\"",
        "readinessProbe of container cart is left as it is: it has no port that is known: \"none\"",
    ];
    assert_eq!(warnings, expected);
}

#[test]
fn what_is_no_pod_is_an_error_and_no_panic() {
    let wrong = [
        json!({}),
        json!([]),
        json!({"spec": {"containers": {}}}),
        json!({"spec": {"volumes": 1}}),
        json!({"spec": {}, "metadata": []}),
        json!({"spec": {}, "metadata": {"labels": 7}}),
    ];
    for pod in wrong {
        assert!(inject(&pod, "a", &sidecar()).is_err(), "{pod}");
    }
}

fn refused(pod: &Value) -> String {
    inject(pod, "cart", &sidecar()).unwrap_err()
}

#[test]
fn containers_ports_and_checks_have_bounds_that_say_what_to_do() {
    for list in ["containers", "initContainers"] {
        let many = |count: usize| {
            let mut pod = pod();
            let all = (0..count).map(|it| json!({"name": format!("c{it}"), "image": "c"}));
            pod["spec"][list] = all.collect();
            pod
        };
        assert!(inject(&many(256), "cart", &sidecar()).is_ok());
        let problem = refused(&many(257));
        let expected = format!("spec.{list} has 257 entries");
        assert!(problem.starts_with(&expected), "{problem}");
        assert!(problem.contains("sidecar.istio.io/inject"), "{problem}");
    }
    let ports = |count: usize| {
        let mut pod = pod();
        let all = (0..count).map(|_| json!({"containerPort": 80}));
        pod["spec"]["containers"][0]["ports"] = all.collect();
        pod["spec"]["containers"][0]["readinessProbe"]["httpGet"]["port"] = json!(80);
        pod
    };
    assert!(inject(&ports(4_096), "cart", &sidecar()).is_ok());
    let problem = refused(&ports(4_097));
    assert!(problem.contains("4097 ports"), "{problem}");
    let mut pod = pod();
    let path = "/".repeat(130 << 10);
    pod["spec"]["containers"][0]["readinessProbe"]["httpGet"]["path"] = json!(path);
    let problem = refused(&pod);
    assert!(problem.contains("rewriteAppHTTPProbers"), "{problem}");
}
