//! The injected Pod: an init step that leads its connections to the proxy, and the proxy as a
//! native sidecar, which starts before the workload and ends after it.

use serde_json::{Map, Value, json};

use super::annotation::Wishes;
use super::decision::{CONTAINER, Labels};
use super::probe::{self, PROBES_PORT};
use super::sidecar::Sidecar;

/// The user and group of the proxy, by which rules tell its connections from the workload's.
pub(super) const PROXY_USER: u32 = 1337;

/// The init step.
const INIT_CONTAINER: &str = "myriad-init";

/// The addresses where the proxy accepts captured connections. What the Pod sends arrives on the
/// loopback, what it is sent on the address that it was sent to.
const CAPTURES: [&str; 2] = [
    "--capture-outbound=127.0.0.1:15001",
    "--capture-inbound=0.0.0.0:15006",
];

/// Names of volumes: they begin with ours, so that they meet nobody else's.
const TOKEN_VOLUME: &str = "myriad-token";
const CA_VOLUME: &str = "myriad-ca";
const STATE_VOLUME: &str = "myriad-state";

/// The annotation that says that it was done, and by which version.
const INJECTED: &str = "myriad.dev/injected";

/// Annotations that say whose metrics are read, and whether the proxy's are.
const SCRAPE: &str = "prometheus.io/scrape";
const MERGE_METRICS: &str = "prometheus.istio.io/merge-metrics";

/// The path of the proxy's metrics, at the port of its checks.
const METRICS_PATH: &str = "/stats/prometheus";

/// The longest value of a label.
const LABEL_BYTES_MAX: usize = 63;

/// The most containers of a Pod, and as many init containers.
const CONTAINERS_MAX: usize = 256;

/// The most ports of all containers of a Pod: those that checks name are looked for in them.
const PORTS_MAX: usize = 4_096;

/// The most bytes that the checks of a Pod may have as the proxy is told of them: a program cannot
/// be started with a longer variable.
const CHECKS_BYTES_MAX: usize = 120 << 10;

/// The label that keeps a Pod without a proxy.
const INJECT: &str = "sidecar.istio.io/inject";
/// The annotation that leaves the checks of a Pod as they are.
const REWRITES_PROBES: &str = "sidecar.istio.io/rewriteAppHTTPProbers";

/// A Pod with its proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injected {
    /// The Pod, or the template of one, with its proxy.
    pub pod: Value,
    /// Warnings about what is not honoured, for the author of the Pod.
    pub warnings: Vec<String>,
}

/// Gives a Pod, or the template of one, its proxy. `owner` is the name that it goes by where it
/// has none of its own.
///
/// # Errors
/// Annotations that do not hold, by name; or an object that is none.
pub fn inject(pod: &Value, owner: &str, sidecar: &Sidecar) -> Result<Injected, String> {
    bound(pod)?;
    let wishes = Wishes::read(&texts(pod, "annotations"))?;
    let mut pod = pod.clone();
    let mut warnings = wishes.warnings.clone();
    warn_of_user(&pod, &mut warnings);
    let probes = match wishes.rewrites_probes {
        true => probe::rewrite(&mut pod, &mut warnings)?,
        false => Map::new(),
    };
    let checks = match probes.is_empty() {
        true => String::new(),
        false => Value::Object(probes).to_string(),
    };
    if checks.len() > CHECKS_BYTES_MAX {
        return Err(format!(
            "the checks of its containers have {} bytes, and a Pod with a proxy has at most \
             {CHECKS_BYTES_MAX}: shorten their headers and paths, or leave them to the kubelet by \
             the annotation {REWRITES_PROBES}: \"false\"",
            checks.len()
        ));
    }
    let own = [
        wishes
            .redirect
            .as_deref()
            .map(|it| init_container(it, &wishes, sidecar)),
        Some(proxy_container(&wishes, &checks, sidecar)),
    ];
    let containers = list(&mut pod, "initContainers")?;
    // In front of the workload's own init containers, so that these have a network as well.
    containers.splice(0..0, own.into_iter().flatten());
    let volumes = list(&mut pod, "volumes")?;
    volumes.extend(self::volumes(sidecar));
    describe(&mut pod, owner)?;
    scrape(&mut pod, &mut warnings)?;
    Ok(Injected { pod, warnings })
}

/// Refuses what no Pod has that runs, before anything is made of it: anybody may ask.
fn bound(pod: &Value) -> Result<(), String> {
    let mut ports = 0;
    for list in ["containers", "initContainers"] {
        let all = pod.pointer(&format!("/spec/{list}"));
        let all = all.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        if all.len() > CONTAINERS_MAX {
            return Err(format!(
                "spec.{list} has {} entries, and a Pod with a proxy at most {CONTAINERS_MAX}: \
                 divide it, or leave it without a proxy by the label {INJECT}: \"false\"",
                all.len()
            ));
        }
        let of = |it: &Value| it.get("ports")?.as_array().map(Vec::len);
        ports += all.iter().filter_map(of).sum::<usize>();
    }
    if ports > PORTS_MAX {
        return Err(format!(
            "its containers have {ports} ports, and those of a Pod with a proxy at most \
             {PORTS_MAX}: leave out those that no check names, or the proxy by the label \
             {INJECT}: \"false\""
        ));
    }
    Ok(())
}

/// The labels or annotations of an object; what is no text is passed over.
pub(super) fn texts(object: &Value, which: &str) -> Labels {
    let of = object.pointer(&format!("/metadata/{which}"));
    let of = of.and_then(Value::as_object).into_iter().flatten();
    let pairs = of.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    pairs.collect()
}

/// A list of the Pod's spec; it is made where there is none.
fn list<'a>(pod: &'a mut Value, name: &str) -> Result<&'a mut Vec<Value>, String> {
    let spec = pod.get_mut("spec").and_then(Value::as_object_mut);
    let spec = spec.ok_or("spec has to be an object")?;
    let list = spec.entry(name).or_insert(Value::Null);
    if list.is_null() {
        *list = json!([]);
    }
    let list = list.as_array_mut();
    list.ok_or_else(|| format!("spec.{name} has to be a list"))
}

fn warn_of_user(pod: &Value, warnings: &mut Vec<String>) {
    let all = ["/spec/containers", "/spec/initContainers"].into_iter();
    let all = all
        .filter_map(|list| pod.pointer(list)?.as_array())
        .flatten();
    for container in all.chain(pod.get("spec")) {
        let user = container.pointer("/securityContext/runAsUser");
        if user.and_then(Value::as_u64) == Some(u64::from(PROXY_USER)) {
            let name = container.get("name").and_then(Value::as_str);
            let name = name.unwrap_or("the Pod");
            warnings.push(format!(
                "{name} runs as user {PROXY_USER}, which is the proxy's: its connections \
                 pass the proxy by"
            ));
        }
    }
}

fn init_container(redirect: &[String], wishes: &Wishes, sidecar: &Sidecar) -> Value {
    let arguments = ["redirect".to_owned()].into_iter();
    let arguments: Vec<String> = arguments.chain(redirect.iter().cloned()).collect();
    json!({
        "name": INIT_CONTAINER,
        "image": wishes.image.as_ref().unwrap_or(&sidecar.image),
        "imagePullPolicy": sidecar.pull_policy,
        "args": arguments,
        "resources": resources(wishes, sidecar),
        // The rules belong to the Pod's own network namespace, and nobody else may write them.
        "securityContext": {
            "runAsUser": 0,
            "runAsGroup": 0,
            "runAsNonRoot": false,
            "privileged": false,
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW"]},
        },
    })
}

fn proxy_arguments(wishes: &Wishes, sidecar: &Sidecar) -> Vec<String> {
    let mut arguments = vec![
        "proxy".to_owned(),
        format!("--controller={}", sidecar.controller),
        "--token-file=/var/run/secrets/myriad/token".to_owned(),
        "--ca-file=/etc/myriad/ca/ca.crt".to_owned(),
        "--state-dir=/var/lib/myriad".to_owned(),
        "--mesh".to_owned(),
        format!("--probes=0.0.0.0:{PROBES_PORT}"),
        format!("--log={}", wishes.log.as_ref().unwrap_or(&sidecar.log)),
        format!("--drain-delay={}", sidecar.drain_delay),
        format!("--drain-timeout={}", sidecar.drain_timeout),
        "--workers=2".to_owned(),
    ];
    arguments.extend(sidecar.hold.iter().cloned());
    if !sidecar.metrics_from.is_empty() {
        let blocks = sidecar.metrics_from.join(",");
        arguments.push(format!("--probes-metrics-from={blocks}"));
    }
    let paths = sidecar.path_normalization.iter();
    arguments.extend(paths.map(|rule| format!("--path-normalization={rule}")));
    if wishes.redirect.is_some() {
        arguments.extend(CAPTURES.map(str::to_owned));
    }
    arguments
}

fn proxy_container(wishes: &Wishes, checks: &str, sidecar: &Sidecar) -> Value {
    let ready = json!({"path": "/readyz", "port": PROBES_PORT});
    let mut container = json!({
        "name": CONTAINER,
        "image": wishes.image.as_ref().unwrap_or(&sidecar.image),
        "imagePullPolicy": sidecar.pull_policy,
        // A native sidecar: the workload starts when this is ready, and ends before it.
        "restartPolicy": "Always",
        "args": proxy_arguments(wishes, sidecar),
        "ports": [{"name": "myriad-probes", "containerPort": PROBES_PORT}],
        "startupProbe": {"httpGet": ready, "periodSeconds": 1, "failureThreshold": 600},
        "readinessProbe": {"httpGet": ready, "periodSeconds": 15, "failureThreshold": 4},
        "resources": resources(wishes, sidecar),
        "securityContext": {
            "runAsUser": PROXY_USER,
            "runAsGroup": PROXY_USER,
            "runAsNonRoot": true,
            "privileged": false,
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": STATE_VOLUME, "mountPath": "/var/lib/myriad"},
            {"name": TOKEN_VOLUME, "mountPath": "/var/run/secrets/myriad", "readOnly": true},
            {"name": CA_VOLUME, "mountPath": "/etc/myriad/ca", "readOnly": true},
        ],
    });
    let of_pod =
        json!({"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}});
    let asked =
        (!checks.is_empty()).then(|| json!({"name": "MYRIAD_WORKLOAD_PROBES", "value": checks}));
    let env: Vec<Value> = [of_pod].into_iter().chain(asked).collect();
    if let Some(container) = container.as_object_mut() {
        container.insert("env".to_owned(), env.into());
    }
    container
}

fn resources(wishes: &Wishes, sidecar: &Sidecar) -> Value {
    let requests = json!({
        "cpu": wishes.cpu.as_ref().unwrap_or(&sidecar.cpu),
        "memory": wishes.memory.as_ref().unwrap_or(&sidecar.memory),
    });
    let mut limits = Map::new();
    if let Some(cpu) = &wishes.cpu_limit {
        limits.insert("cpu".to_owned(), json!(cpu));
    }
    let memory = wishes
        .memory_limit
        .as_ref()
        .unwrap_or(&sidecar.memory_limit);
    if !memory.is_empty() {
        limits.insert("memory".to_owned(), json!(memory));
    }
    json!({"requests": requests, "limits": limits})
}

fn volumes(sidecar: &Sidecar) -> [Value; 3] {
    let token = json!({"audience": "myriad", "expirationSeconds": 3600, "path": "token"});
    [
        json!({"name": STATE_VOLUME, "emptyDir": {"sizeLimit": "64Mi"}}),
        json!({
            "name": TOKEN_VOLUME,
            "projected": {"sources": [{"serviceAccountToken": token}]},
        }),
        json!({"name": CA_VOLUME, "configMap": {"name": sidecar.ca_config_map}}),
    ]
}

/// Labels by which others know that it speaks mutual TLS and what it is called, where it does
/// not say so itself.
fn describe(pod: &mut Value, owner: &str) -> Result<(), String> {
    let labels = texts(pod, "labels");
    let first = |names: [&str; 3], otherwise: &str| {
        let found = names.into_iter().find_map(|name| labels.get(name));
        let name = found.map_or(otherwise, String::as_str);
        name.to_owned()
    };
    let canonical = "service.istio.io/canonical-name";
    let names = [canonical, "app.kubernetes.io/name", "app"];
    let name = first(names, owner);
    let revision = "service.istio.io/canonical-revision";
    let revisions = [revision, "app.kubernetes.io/version", "version"];
    let added = [
        ("security.istio.io/tlsMode", "istio".to_owned()),
        (canonical, name),
        (revision, first(revisions, "latest")),
    ];
    let texts = map(pod, "labels")?;
    for (key, value) in added {
        if value.len() <= LABEL_BYTES_MAX && !value.is_empty() {
            texts.entry(key).or_insert(json!(value));
        }
    }
    let version = json!(env!("CARGO_PKG_VERSION"));
    map(pod, "annotations")?.insert(INJECTED.to_owned(), version);
    Ok(())
}

/// Annotations by which Prometheus finds the proxy's metrics, as Istio's users have them, unless
/// the workload has some of its own: there is room for one place alone.
fn scrape(pod: &mut Value, warnings: &mut Vec<String>) -> Result<(), String> {
    let annotations = texts(pod, "annotations");
    if annotations.get(MERGE_METRICS).map(String::as_str) == Some("false") {
        return Ok(());
    }
    match annotations.get(SCRAPE).map(String::as_str) {
        None => {}
        Some("true") => {
            warnings.push(format!(
                "{SCRAPE} leads to the workload's own metrics; the proxy's are at port \
                 {PROBES_PORT} under {METRICS_PATH}, where somebody else has to read them"
            ));
            return Ok(());
        }
        Some(_) => return Ok(()),
    }
    let port = PROBES_PORT.to_string();
    let added = [
        (SCRAPE, "true"),
        ("prometheus.io/port", &port),
        ("prometheus.io/path", METRICS_PATH),
    ];
    let annotations = map(pod, "annotations")?;
    for (key, value) in added {
        annotations.insert(key.to_owned(), json!(value));
    }
    Ok(())
}

/// Labels or annotations; they are made where there are none.
fn map<'a>(pod: &'a mut Value, which: &str) -> Result<&'a mut Map<String, Value>, String> {
    let object = pod.as_object_mut().ok_or("it has to be an object")?;
    let metadata = object.entry("metadata").or_insert(Value::Null);
    if metadata.is_null() {
        *metadata = json!({});
    }
    let metadata = metadata
        .as_object_mut()
        .ok_or("metadata has to be an object")?;
    let map = metadata.entry(which).or_insert(Value::Null);
    if map.is_null() {
        *map = json!({});
    }
    let map = map.as_object_mut();
    map.ok_or_else(|| format!("metadata.{which} has to be an object"))
}

#[cfg(test)]
mod tests;
