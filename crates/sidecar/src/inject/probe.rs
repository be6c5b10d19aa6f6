//! The kubelet's checks of a workload, by way of the proxy: a kubelet has no identity of the
//! mesh, so a workload that takes nothing else would count as ill. The proxy asks in its place,
//! on the Pod's own loopback.

use serde_json::{Map, Value, json};

/// The port where the proxy answers the kubelet.
pub(super) const PROBES_PORT: u16 = 15020;

/// The checks of a container, and the last part of the path under which the proxy knows each.
const CHECKS: [(&str, &str); 5] = [
    ("/startupProbe", "startupz"),
    ("/readinessProbe", "readyz"),
    ("/livenessProbe", "livez"),
    ("/lifecycle/postStart", "poststartz"),
    ("/lifecycle/preStop", "prestopz"),
];

/// Rewrites the checks of all containers, and returns by path what the proxy is to ask.
///
/// # Errors
/// Lists that are none.
pub(super) fn rewrite(
    pod: &mut Value,
    warnings: &mut Vec<String>,
) -> Result<Map<String, Value>, String> {
    let mut asked = Map::new();
    for list in ["initContainers", "containers"] {
        let containers = match pod.pointer_mut(&format!("/spec/{list}")) {
            None | Some(Value::Null) => continue,
            Some(containers) => containers.as_array_mut(),
        };
        let containers = containers.ok_or_else(|| format!("spec.{list} has to be a list"))?;
        for container in containers {
            rewrite_container(container, &mut asked, warnings);
        }
    }
    Ok(asked)
}

fn rewrite_container(
    container: &mut Value,
    asked: &mut Map<String, Value>,
    warnings: &mut Vec<String>,
) {
    let name = container.get("name").and_then(Value::as_str);
    let name = name.unwrap_or_default().to_owned();
    let ports = container.get("ports").cloned().unwrap_or_default();
    for (pointer, last) in CHECKS {
        let Some(check) = container
            .pointer_mut(pointer)
            .and_then(Value::as_object_mut)
        else {
            continue;
        };
        let path = format!("/workload/{name}/{last}");
        match question(check, &ports) {
            Ok(None) => {}
            Ok(Some(question)) => {
                for kind in ["httpGet", "tcpSocket", "grpc"] {
                    check.remove(kind);
                }
                let get = json!({"path": path, "port": PROBES_PORT});
                check.insert("httpGet".to_owned(), get);
                asked.insert(path, question);
            }
            Err(reason) => warnings.push(format!(
                "{}of container {name} is left as it is: {reason}",
                pointer.trim_start_matches('/').replace('/', ".") + " "
            )),
        }
    }
}

/// The question for the proxy to ask; `None` for a check that runs in the container. Why one cannot
/// be asked is told otherwise.
fn question(check: &Map<String, Value>, ports: &Value) -> Result<Option<Value>, String> {
    let seconds = check.get("timeoutSeconds").and_then(Value::as_u64);
    let timeout = seconds.unwrap_or(1);
    if let Some(get) = check.get("httpGet") {
        is_of_the_pod(get)?;
        let port = port(get, ports)?;
        let mut get = get.clone();
        if let Some(get) = get.as_object_mut() {
            get.insert("port".to_owned(), json!(port));
            get.remove("host");
        }
        return Ok(Some(json!({"httpGet": get, "timeoutSeconds": timeout})));
    }
    if let Some(socket) = check.get("tcpSocket") {
        is_of_the_pod(socket)?;
        let port = port(socket, ports)?;
        let socket = json!({"port": port});
        return Ok(Some(
            json!({"tcpSocket": socket, "timeoutSeconds": timeout}),
        ));
    }
    if let Some(grpc) = check.get("grpc") {
        let port = port(grpc, ports)?;
        let service = grpc.get("service").and_then(Value::as_str);
        let grpc = json!({"port": port, "service": service.unwrap_or_default()});
        return Ok(Some(json!({"grpc": grpc, "timeoutSeconds": timeout})));
    }
    Ok(None)
}

/// A check of another host is none of the workload's.
fn is_of_the_pod(handler: &Value) -> Result<(), String> {
    match handler.get("host").and_then(Value::as_str) {
        None | Some("" | "localhost" | "127.0.0.1" | "::1") => Ok(()),
        Some(host) => Err(format!("it asks another host, {host:?}")),
    }
}

/// The number of a port that is given by number, by text of digits, or by name.
fn port(handler: &Value, ports: &Value) -> Result<u16, String> {
    let written = handler.get("port").cloned().unwrap_or_default();
    let of_number = |value: &Value| value.as_u64().and_then(|it| u16::try_from(it).ok());
    let found = match &written {
        Value::String(name) => name.parse().ok().or_else(|| {
            let mut ports = ports.as_array().into_iter().flatten();
            let named = |it: &&Value| it.get("name").and_then(Value::as_str) == Some(name);
            of_number(ports.find(named)?.get("containerPort")?)
        }),
        number => of_number(number),
    };
    let found = found.filter(|port| *port != 0);
    found.ok_or_else(|| format!("it has no port that is known: {written}"))
}
