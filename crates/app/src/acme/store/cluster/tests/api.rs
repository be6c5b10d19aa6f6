//! An API server that has Secrets, in a few lines.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use myriad_source::kubernetes::Client;
use serde_json::{Value, json};

use crate::fake_api;

/// The server.
#[derive(Clone, Default)]
pub(super) struct Api(Arc<Mutex<State>>);

#[derive(Default)]
pub(super) struct State {
    version: u64,
    /// Secrets by `namespace/name`.
    pub(super) secrets: BTreeMap<String, Value>,
    /// Namespaces in which no Secret may be written.
    pub(super) forbidden: BTreeSet<String>,
    /// Whether nobody may remove a Secret.
    pub(super) keeps_all: bool,
    /// The answers to so many writes are lost, which have their effect all the same.
    pub(super) loses: usize,
    /// The requests that write, as method and `namespace/name`.
    pub(super) writes: Vec<String>,
}

impl Api {
    /// Begins to serve, and returns its client.
    pub(super) async fn start(&self) -> Client {
        let api = self.clone();
        let answer = move |method: &str, path: &str, body: &Value| {
            let (status, answer) = api.lock().call(method, path, body);
            // An answer that is lost.
            (status != 0).then_some((status, answer))
        };
        fake_api::serve(answer).await
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Somebody writes a Secret.
    pub(super) fn put(&self, id: &str, secret: Value) {
        self.lock().put(id, secret);
    }

    /// A Secret, if it is there.
    pub(super) fn secret(&self, id: &str) -> Option<Value> {
        self.lock().secrets.get(id).cloned()
    }

    /// How many Secrets there are.
    pub(super) fn count(&self) -> usize {
        self.lock().secrets.len()
    }
}

impl State {
    fn put(&mut self, id: &str, mut secret: Value) -> Value {
        self.version += 1;
        let (namespace, name) = id.split_once('/').unwrap();
        secret["metadata"]["namespace"] = namespace.into();
        secret["metadata"]["name"] = name.into();
        secret["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.secrets.insert(id.to_owned(), secret.clone());
        secret
    }

    fn call(&mut self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        if path.ends_with("selfsubjectaccessreviews") {
            let namespace = &body["spec"]["resourceAttributes"]["namespace"];
            let is_forbidden = self.forbidden.contains(namespace.as_str().unwrap());
            return (201, json!({"status": {"allowed": !is_forbidden}}));
        }
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let rest = path.strip_prefix("/api/v1/namespaces/").unwrap();
        let (namespace, rest) = rest.split_once("/secrets").unwrap();
        let name = rest.trim_start_matches('/');
        if method == "GET" && name.is_empty() {
            return (200, self.list(namespace, query));
        }
        let name = match method {
            "POST" => body["metadata"]["name"].as_str().unwrap(),
            _ => name,
        };
        let id = format!("{namespace}/{name}");
        let answer = self.one(method, &id, body);
        if method != "GET" {
            self.writes.push(format!("{method} {id}"));
            if self.loses > 0 {
                self.loses -= 1;
                return (0, Value::Null);
            }
        }
        answer
    }

    fn list(&self, namespace: &str, query: &str) -> Value {
        let selector = query
            .split('&')
            .find_map(|it| it.strip_prefix("labelSelector="));
        let selector = selector.unwrap().replace("%2F", "/");
        let (label, value) = selector.split_once("%3D").unwrap();
        let secrets = self.secrets.values();
        let found = secrets.filter(|it| {
            it["metadata"]["namespace"] == namespace && it["metadata"]["labels"][label] == value
        });
        let found: Vec<Value> = found.cloned().collect();
        json!({
            "metadata": {"resourceVersion": self.version.to_string()},
            "items": found,
        })
    }

    fn one(&mut self, method: &str, id: &str, body: &Value) -> (u16, Value) {
        let status = |code: u16| (code, json!({"kind": "Status", "code": code}));
        let is_stale = |known: &Value, expected: &Value| {
            !expected.is_null() && *expected != known["metadata"]["resourceVersion"]
        };
        match (method, self.secrets.get(id).cloned()) {
            ("DELETE", _) if self.keeps_all => status(403),
            ("GET", Some(known)) => (200, known),
            ("POST", Some(_)) => status(409),
            ("POST", None) => (201, self.put(id, body.clone())),
            ("PATCH", Some(known)) if is_stale(&known, &body["metadata"]["resourceVersion"]) => {
                status(409)
            }
            ("PATCH", Some(mut known)) => {
                merge(&mut known, body);
                (200, self.put(id, known))
            }
            ("DELETE", Some(known))
                if is_stale(&known, &body["preconditions"]["resourceVersion"]) =>
            {
                status(409)
            }
            ("DELETE", Some(known)) => {
                self.secrets.remove(id);
                (200, known)
            }
            _ => status(404),
        }
    }
}

/// A merge patch (RFC 7396) without removals.
fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}
