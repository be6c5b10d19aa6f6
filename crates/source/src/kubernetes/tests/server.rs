//! An API server in a few lines: collections, a history, watches, and faults on demand.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::body::{Body, Bytes};
use axum::http::{Method, Request, Response, StatusCode};
use futures_util::TryStreamExt as _;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

/// The most events that wait for a watch of a test.
const EVENTS_MAX: usize = 8_192;

/// A server on a port of its own.
#[derive(Clone)]
pub(super) struct Server {
    state: Arc<Mutex<State>>,
    /// How many requests were made.
    requests: Arc<watch::Sender<usize>>,
    port: u16,
}

#[derive(Default)]
struct State {
    version: u64,
    /// Objects by the path of their collection in their namespace, then by name.
    objects: BTreeMap<String, BTreeMap<String, Value>>,
    history: Vec<(u64, String, Value)>,
    watches: Vec<(String, mpsc::Sender<Bytes>)>,
    compacted: u64,
    cannot_stream: bool,
    /// The rest of lists that are read by pages, by the version that they show.
    lists: BTreeMap<u64, Vec<Value>>,
    /// How many first pages the history is forgotten after.
    compacts_lists: usize,
    forbidden: Vec<String>,
    /// Groups with versions, and the collections in them, that need a definition.
    defined: BTreeMap<String, Vec<String>>,
    conflicts: usize,
    busy: usize,
    log: Vec<String>,
}

impl Server {
    /// A server that has a namespace `kube-system` and nothing else.
    pub(super) async fn start() -> Server {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let server = Server {
            state: Arc::default(),
            requests: Arc::new(watch::Sender::new(0)),
            port,
        };
        server.put("/api/v1/namespaces", "kube-system", json!({}));
        let shared = server.clone();
        let app = axum::Router::new().fallback(move |request| {
            let server = shared.clone();
            async move { server.answer(request).await }
        });
        let serving = async move { axum::serve(listener, app).await.expect("it serves") };
        myriad_base::task::spawn("fake API server", serving);
        server
    }

    pub(super) fn uri(&self) -> axum::http::Uri {
        format!("http://127.0.0.1:{}", self.port)
            .parse()
            .expect("a URI")
    }

    /// Creates or replaces an object of a collection, and returns its version.
    pub(super) fn put(&self, collection: &str, name: &str, mut object: Value) -> u64 {
        let mut state = self.lock();
        state.version += 1;
        let version = state.version;
        let metadata = &mut object["metadata"];
        metadata["name"] = name.into();
        metadata["uid"] = format!("uid-{name}").into();
        metadata["resourceVersion"] = version.to_string().into();
        if let Some((_, rest)) = collection.split_once("/namespaces/") {
            metadata["namespace"] = rest.split('/').next().unwrap_or_default().into();
        }
        let objects = state.objects.entry(collection.to_owned()).or_default();
        let known = objects.insert(name.to_owned(), object.clone());
        let event_type = if known.is_some() { "MODIFIED" } else { "ADDED" };
        state.tell(collection, event_type, object);
        version
    }

    pub(super) fn delete(&self, collection: &str, name: &str) {
        let mut state = self.lock();
        state.version += 1;
        let objects = state.objects.get_mut(collection).expect("a collection");
        let mut object = objects.remove(name).expect("an object");
        object["metadata"]["resourceVersion"] = state.version.to_string().into();
        state.tell(collection, "DELETED", object);
    }

    /// An object as it stands.
    pub(super) fn get(&self, collection: &str, name: &str) -> Option<Value> {
        self.lock().objects.get(collection)?.get(name).cloned()
    }

    pub(super) fn names(&self, collection: &str) -> Vec<String> {
        let state = self.lock();
        let objects = state.objects.get(collection);
        objects.map_or_else(Vec::new, |objects| objects.keys().cloned().collect())
    }

    /// Ends all watches.
    pub(super) fn cut(&self) {
        self.lock().watches.clear();
    }

    /// Forgets the history up to now.
    pub(super) fn compact(&self) {
        let mut state = self.lock();
        state.compacted = state.version;
        state.lists.clear();
    }

    /// Lets so many lists that are read by pages end after the first of them, since the history is
    /// forgotten by then.
    pub(super) fn compact_lists(&self, count: usize) {
        self.lock().compacts_lists = count;
    }

    /// From now on streaming lists are not known.
    pub(super) fn forget_streaming(&self) {
        self.lock().cannot_stream = true;
    }

    /// From now on there are collections in a group and version, and no others in it.
    pub(super) fn define(&self, group_version: &str, plurals: &[&str]) {
        let plurals: Vec<String> = plurals.iter().map(|it| (*it).to_owned()).collect();
        let mut state = self.lock();
        let root = format!("/apis/{group_version}/");
        // The watches of a kind end with its definition.
        state.watches.retain(|(watched, _)| {
            let plural = watched.rsplit('/').next().unwrap_or_default();
            !watched.starts_with(&root) || plurals.iter().any(|it| it == plural)
        });
        state.defined.insert(group_version.to_owned(), plurals);
    }

    /// From now on a collection may be read again.
    pub(super) fn permit(&self, collection: &str) {
        self.lock().forbidden.retain(|known| known != collection);
    }

    /// From now on a collection may not be read.
    pub(super) fn forbid(&self, collection: &str) {
        self.lock().forbidden.push(collection.to_owned());
    }

    /// The next writes meet somebody else's.
    pub(super) fn conflict(&self, times: usize) {
        self.lock().conflicts = times;
    }

    /// The next requests are answered with 503 and a `Retry-After` of one second.
    pub(super) fn be_busy(&self, times: usize) {
        self.lock().busy = times;
    }

    /// All requests so far, as method and path with query.
    pub(super) fn log(&self) -> Vec<String> {
        self.lock().log.clone()
    }

    /// Waits until as many requests contain the text.
    pub(super) async fn asked(&self, text: &str, times: usize) {
        let mut requests = self.requests.subscribe();
        let is_met = |_: &usize| {
            let log = self.log();
            log.iter().filter(|line| line.contains(text)).count() >= times
        };
        requests.wait_for(is_met).await.expect("the server lives");
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let body = axum::body::to_bytes(body, 1 << 20).await.expect("a body");
        let accepted = head.headers.get("accept").map(|it| it.to_str());
        let is_partial = matches!(accepted, Some(Ok(it)) if it.contains("PartialObject"));
        let form = if is_partial { " (metadata)" } else { "" };
        let line = format!("{} {}{form}", head.method, head.uri);
        let answer = {
            let mut state = self.lock();
            state.log.push(line);
            let query = head.uri.query().unwrap_or_default();
            let path = head.uri.path();
            if state.busy > 0 {
                state.busy -= 1;
                busy()
            } else if state.forbidden.iter().any(|known| path == known) {
                status(StatusCode::FORBIDDEN)
            } else if let Some(answer) = state.discover(path) {
                answer
            } else if query.contains("watch=true") {
                state.watch(path, query)
            } else {
                state.call(&head.method, path, query, &body)
            }
        };
        let response = self.perform(answer);
        // Counted when it has had its effect, so that who waits for it finds that.
        self.requests.send_modify(|requests| *requests += 1);
        match is_partial {
            true => partial(response),
            false => response,
        }
    }

    fn perform(&self, answer: Answer) -> Response<Body> {
        match answer {
            Answer::Create { collection, object } => {
                let name = object["metadata"]["name"]
                    .as_str()
                    .expect("a name")
                    .to_owned();
                self.put(&collection, &name, object);
                json_answer(
                    StatusCode::CREATED,
                    &self.get(&collection, &name).expect("it is"),
                )
            }
            Answer::Replace {
                collection,
                name,
                object,
            } => {
                self.put(&collection, &name, object);
                json_answer(
                    StatusCode::OK,
                    &self.get(&collection, &name).expect("it is"),
                )
            }
            Answer::Remove { collection, name } => {
                self.delete(&collection, &name);
                json_answer(StatusCode::OK, &json!({"kind": "Status"}))
            }
            Answer::Ready(response) => response,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panicked")
    }
}

enum Answer {
    Create {
        collection: String,
        object: Value,
    },
    Replace {
        collection: String,
        name: String,
        object: Value,
    },
    Remove {
        collection: String,
        name: String,
    },
    Ready(Response<Body>),
}

impl State {
    fn tell(&mut self, collection: &str, event_type: &str, object: Value) {
        let event = json!({"type": event_type, "object": object});
        let line = line(&event);
        self.history
            .push((self.version, collection.to_owned(), event));
        self.watches.retain(|(watched, sender)| {
            !is_within(collection, watched) || sender.try_send(line.clone()).is_ok()
        });
    }

    fn objects_of(&self, path: &str) -> Vec<Value> {
        let within = self
            .objects
            .iter()
            .filter(|(collection, _)| is_within(collection, path));
        within
            .flat_map(|(_, objects)| objects.values().cloned())
            .collect()
    }

    /// An answer about kinds, or about one that needs a definition and has none.
    fn discover(&self, path: &str) -> Option<Answer> {
        let ready = |value: &Value| Some(Answer::Ready(json_answer(StatusCode::OK, value)));
        let path = path.strip_prefix("/apis")?;
        if path.is_empty() {
            let version = |it: &String| json!({"versions": [{"groupVersion": it}]});
            let groups: Vec<Value> = self.defined.keys().map(version).collect();
            return ready(&json!({"kind": "APIGroupList", "groups": groups}));
        }
        let path = path.trim_start_matches('/');
        if let Some(plurals) = self.defined.get(path) {
            let resource = |name: &String| json!({"name": name, "verbs": ["list", "watch"]});
            let resources: Vec<Value> = plurals.iter().map(resource).collect();
            return ready(&json!({"kind": "APIResourceList", "resources": resources}));
        }
        let (group, rest) = path.split_once('/')?;
        let (version, rest) = rest.split_once('/')?;
        let plurals = self.defined.get(&format!("{group}/{version}"));
        let rest = match rest.strip_prefix("namespaces/") {
            Some(rest) => rest.split_once('/')?.1,
            None => rest,
        };
        let plural = rest.split('/').next().unwrap_or_default();
        let is_there = plurals.is_some_and(|all| all.iter().any(|it| it == plural));
        let is_core = group.ends_with(".k8s.io");
        (!is_core && !is_there).then(|| status(StatusCode::NOT_FOUND))
    }

    fn watch(&mut self, path: &str, query: &str) -> Answer {
        let (sender, receiver) = mpsc::channel(EVENTS_MAX);
        let send = |event: &Value| sender.try_send(line(event)).expect("room");
        if query.contains("sendInitialEvents") {
            if self.cannot_stream {
                return status(StatusCode::UNPROCESSABLE_ENTITY);
            }
            for object in self.objects_of(path) {
                send(&json!({"type": "ADDED", "object": object}));
            }
            send(&json!({"type": "BOOKMARK", "object": {"metadata": {
                "resourceVersion": self.version.to_string(),
                "annotations": {"k8s.io/initial-events-end": "true"},
            }}}));
        } else {
            let from: u64 = parameter(query, "resourceVersion")
                .parse()
                .expect("a version");
            if from < self.compacted {
                send(&json!({"type": "ERROR", "object": {"code": 410, "message": "too old"}}));
                return stream(receiver);
            }
            for (version, collection, event) in &self.history {
                if *version > from && is_within(collection, path) {
                    send(event);
                }
            }
        }
        self.watches.push((path.to_owned(), sender));
        stream(receiver)
    }

    fn call(&mut self, method: &Method, path: &str, query: &str, body: &[u8]) -> Answer {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        if *method == Method::POST {
            let name = body["metadata"]["name"].as_str().expect("a name");
            if self
                .objects
                .get(path)
                .is_some_and(|objects| objects.contains_key(name))
            {
                return status(StatusCode::CONFLICT);
            }
            let collection = path.to_owned();
            return Answer::Create {
                collection,
                object: body,
            };
        }
        let path = path.strip_suffix("/status").unwrap_or(path);
        let (collection, name) = path.rsplit_once('/').expect("a path");
        let known = self
            .objects
            .get(collection)
            .and_then(|objects| objects.get(name))
            .cloned();
        match (method, known) {
            (&Method::GET, Some(object)) => Answer::Ready(json_answer(StatusCode::OK, &object)),
            (&Method::GET, None) if query.contains("limit=") => self.page(path, query),
            (&Method::GET, None) if query.contains("fieldSelector=") => {
                let name = parameter(query, "fieldSelector").replace("metadata.name%3D", "");
                let objects = self.objects_of(path).into_iter();
                let found = objects.filter(|it| it["metadata"]["name"] == name);
                Answer::Ready(json_answer(
                    StatusCode::OK,
                    &json!({
                        "metadata": {"resourceVersion": self.version.to_string()},
                        "items": found.collect::<Vec<_>>(),
                    }),
                ))
            }
            (&Method::PATCH, Some(mut object)) => {
                let expected = &body["metadata"]["resourceVersion"];
                let is_stale =
                    !expected.is_null() && *expected != object["metadata"]["resourceVersion"];
                if self.conflicts > 0 || is_stale {
                    self.conflicts = self.conflicts.saturating_sub(1);
                    return status(StatusCode::CONFLICT);
                }
                merge(&mut object, &body);
                let (collection, name) = (collection.to_owned(), name.to_owned());
                Answer::Replace {
                    collection,
                    name,
                    object,
                }
            }
            (&Method::DELETE, Some(object)) => {
                let expected = &body["preconditions"]["resourceVersion"];
                if !expected.is_null() && *expected != object["metadata"]["resourceVersion"] {
                    return status(StatusCode::CONFLICT);
                }
                let (collection, name) = (collection.to_owned(), name.to_owned());
                Answer::Remove { collection, name }
            }
            _ => status(StatusCode::NOT_FOUND),
        }
    }

    /// A page of a list. All of them show the state of the first, as long as that is remembered.
    fn page(&mut self, path: &str, query: &str) -> Answer {
        let limit: usize = parameter(query, "limit").parse().expect("a limit");
        let (version, mut rest) = match parameter(query, "continue").parse() {
            Ok(version) => match self.lists.remove(&version) {
                Some(rest) => (version, rest),
                None => return status(StatusCode::GONE),
            },
            Err(_) => {
                let mut objects = self.objects_of(path);
                objects.retain(|object| has_label(object, query));
                (self.version, objects)
            }
        };
        let later = rest.split_off(limit.min(rest.len()));
        let token = match later.is_empty() {
            true => String::new(),
            false => version.to_string(),
        };
        match later.is_empty() {
            false if self.compacts_lists > 0 => self.compacts_lists -= 1,
            false => drop(self.lists.insert(version, later)),
            true => {}
        }
        let list = json!({
            "kind": "List",
            "metadata": {"resourceVersion": version.to_string(), "continue": token},
            "items": rest,
        });
        Answer::Ready(json_answer(StatusCode::OK, &list))
    }
}

/// Whether objects of the collection are shown under the path: of one or of all namespaces.
fn is_within(collection: &str, path: &str) -> bool {
    if collection == path {
        return true;
    }
    let Some((root, rest)) = collection.split_once("/namespaces/") else {
        return false;
    };
    rest.split_once('/')
        .is_some_and(|(_, plural)| format!("{root}/{plural}") == path)
}

/// Whether an object has the label that a query asks for, if it asks for one.
fn has_label(object: &Value, query: &str) -> bool {
    let wanted = parameter(query, "labelSelector").replace("%2F", "/");
    match wanted.split_once("%3D") {
        Some((label, value)) => object["metadata"]["labels"][label] == value,
        None => true,
    }
}

fn parameter<'a>(query: &'a str, name: &str) -> &'a str {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .filter(|(key, _)| *key == name)
        .map(|(_, value)| value)
        .next()
        .unwrap_or_default()
}

/// A merge patch (RFC 7396).
fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                match value {
                    Value::Null => drop(target.remove(key)),
                    value => merge(target.entry(key.clone()).or_insert(Value::Null), value),
                }
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

fn line(event: &Value) -> Bytes {
    Bytes::from(format!("{event}\n"))
}

fn stream(receiver: mpsc::Receiver<Bytes>) -> Answer {
    let lines = futures_util::stream::unfold(receiver, |mut receiver| async {
        let line = receiver.recv().await?;
        Some((Ok::<_, std::io::Error>(line), receiver))
    });
    Answer::Ready(Response::new(Body::from_stream(lines)))
}

/// The answer to one who asked for metadata alone.
fn partial(response: Response<Body>) -> Response<Body> {
    let reduce = |chunk: Bytes| {
        let mut value: Value = serde_json::from_slice(&chunk).expect("an event or a list");
        let keep = |object: &mut Value| {
            let fields = object.as_object_mut().expect("an object");
            fields.retain(|name, _| ["kind", "apiVersion", "metadata"].contains(&&**name));
        };
        if let Some(items) = value.get_mut("items").and_then(Value::as_array_mut) {
            items.iter_mut().for_each(keep);
        } else if let Some(object) = value.get_mut("object") {
            keep(object);
        }
        line(&value)
    };
    response.map(|body| Body::from_stream(body.into_data_stream().map_ok(reduce)))
}

fn status(code: StatusCode) -> Answer {
    let status = json!({"kind": "Status", "code": code.as_u16(), "message": "as the test wants"});
    Answer::Ready(json_answer(code, &status))
}

fn busy() -> Answer {
    let Answer::Ready(mut response) = status(StatusCode::SERVICE_UNAVAILABLE) else {
        unreachable!("a status is ready");
    };
    let second = axum::http::HeaderValue::from_static("1");
    response.headers_mut().insert("retry-after", second);
    Answer::Ready(response)
}

fn json_answer(code: StatusCode, value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = code;
    response
}
