//! The API at the price of a request: a kept connection instead of a kubectl for each call.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

use super::Cluster;
use crate::world::eventually;

/// The owner of the fields that stories apply.
const FIELD_OWNER: &str = "fieldManager=story&force=true";

/// A door to the API server; it is shut when dropped.
pub struct Api {
    socket: PathBuf,
    _proxy: Child,
}

/// The path where the API keeps an object.
struct Place {
    collection: String,
    name: String,
}

impl Cluster {
    /// Opens a door to the API.
    ///
    /// # Panics
    /// Where kubectl does not keep it open.
    pub async fn api(&self) -> Api {
        let socket = self.path("api.sock");
        let mut command = Command::new(&self.enter);
        command.args(["kubectl", "proxy", "--unix-socket"]);
        command.arg(&socket).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let proxy = command.spawn().expect("kubectl starts");
        let open = eventually(async || UnixStream::connect(&socket).await.ok());
        drop(open.await.expect("kubectl listens"));
        Api {
            socket,
            _proxy: proxy,
        }
    }
}

impl Api {
    /// Applies objects, in the order in which they are written.
    ///
    /// # Panics
    /// Where the API refuses one.
    pub async fn apply(&self, objects: &str) {
        for document in objects.split("---\n") {
            let Place { collection, name } = place(document);
            let path = format!("{collection}/{name}?{FIELD_OWNER}");
            let media_type = "application/apply-patch+yaml";
            self.call("PATCH", &path, media_type, document).await;
        }
    }

    /// Creates objects that are not there yet.
    ///
    /// # Panics
    /// Where the API refuses one.
    pub async fn create(&self, objects: &str) {
        for document in objects.split("---\n") {
            let path = place(document).collection;
            self.call("POST", &path, "application/yaml", document).await;
        }
    }

    /// Deletes objects.
    ///
    /// # Panics
    /// Where one is not there.
    pub async fn delete(&self, objects: &str) {
        for document in objects.split("---\n") {
            let Place { collection, name } = place(document);
            let path = format!("{collection}/{name}");
            self.call("DELETE", &path, "application/json", "").await;
        }
    }

    /// Changes the status of an object at a path, as whoever is responsible for it.
    ///
    /// # Panics
    /// Where the API refuses it.
    pub async fn set_status(&self, path: &str, status: &serde_json::Value) {
        let path = format!("{path}/status");
        let body = serde_json::json!({"status": status}).to_string();
        let media_type = "application/merge-patch+json";
        self.call("PATCH", &path, media_type, &body).await;
    }

    /// Puts a pod on a node, as a scheduler does.
    ///
    /// # Panics
    /// Where the API refuses it.
    pub async fn bind(&self, pod: &str, node: &str) {
        let name = pod.rsplit('/').next();
        let binding = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name},
            "target": {"kind": "Node", "name": node},
        });
        let (path, body) = (format!("{pod}/binding"), binding.to_string());
        self.call("POST", &path, "application/json", &body).await;
    }

    /// Says that a pod which is being deleted has ended.
    ///
    /// # Panics
    /// Where the API refuses it.
    pub(super) async fn bury(&self, pod: &str) {
        let path = format!("{pod}?gracePeriodSeconds=0");
        self.call("DELETE", &path, "application/json", "").await;
    }

    /// The object at a path.
    ///
    /// # Panics
    /// Where there is nothing, or it cannot be read.
    pub async fn get(&self, path: &str) -> serde_json::Value {
        let body = self.call("GET", path, "application/json", "").await;
        serde_json::from_str(&body).expect("JSON")
    }

    /// The notes of the Events in a namespace, each after the name of its object.
    pub async fn notes(&self, namespace: &str) -> Vec<String> {
        let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        let list = self.get(&path).await;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        items
            .iter()
            .map(|item| {
                format!(
                    "{} {}",
                    text(&item["regarding"]["name"]),
                    text(&item["note"])
                )
            })
            .collect()
    }

    async fn call(&self, method: &str, path: &str, media_type: &str, body: &str) -> String {
        let answered = exchange(&self.socket, method, path, media_type, body).await;
        let (status, answer) = answered.expect("kubectl passes it on");
        assert!(
            (200..300).contains(&status),
            "{method} {path}: {status} {answer}"
        );
        answer
    }
}

/// A request of HTTP/1.0, whose answer ends with the connection.
async fn exchange(
    socket: &Path,
    method: &str,
    path: &str,
    media_type: &str,
    body: &str,
) -> std::io::Result<(u16, String)> {
    let mut stream = UnixStream::connect(socket).await?;
    let head = format!(
        "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: {media_type}\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    Ok((status.unwrap_or(0), body.to_owned()))
}

/// Reads where an object belongs from its first lines, which stories write one field a line.
fn place(document: &str) -> Place {
    let field = |name: &str| {
        let mut lines = document.lines();
        let value = lines.find_map(|line| line.strip_prefix(name));
        value.map(|value| value.trim().to_owned())
    };
    let kind = field("kind: ").expect("an object has a kind");
    let version = field("apiVersion: ").expect("an object has a version");
    let root = match version.contains('/') {
        true => format!("/apis/{version}"),
        false => format!("/api/{version}"),
    };
    let plural = match kind.ends_with('s') {
        true => format!("{}es", kind.to_lowercase()),
        false => format!("{}s", kind.to_lowercase()),
    };
    let namespace = field("  namespace: ");
    let namespace = namespace.map_or(String::new(), |it| format!("/namespaces/{it}"));
    Place {
        collection: format!("{root}{namespace}/{plural}"),
        name: field("  name: ").expect("an object has a name"),
    }
}
