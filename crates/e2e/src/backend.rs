//! A backend that answers with what reached it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use axum::response::IntoResponse;
use serde_json::json;

/// An HTTP/1.1 server on a port of its own; it stops when dropped.
pub struct Backend {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Clone)]
struct Shared {
    name: String,
    asked: Arc<AtomicUsize>,
}

impl Backend {
    /// A backend that answers 200 with a JSON object of its name and the request it saw.
    pub async fn start(name: &str) -> Backend {
        Backend::start_at(name, SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    /// A backend at an address of its own.
    ///
    /// # Panics
    /// Where the address is taken, or not of this network.
    pub async fn start_at(name: &str, address: SocketAddr) -> Backend {
        let listener = tokio::net::TcpListener::bind(address)
            .await
            .expect("a port");
        let address = listener.local_addr().expect("an address");
        let asked = Arc::new(AtomicUsize::new(0));
        let shared = Shared {
            name: name.to_owned(),
            asked: asked.clone(),
        };
        let router = Router::new().fallback(tell).with_state(shared);
        let task = tokio::spawn(async move {
            axum::serve(listener, router)
                .await
                .expect("the backend serves");
        });
        Backend {
            address,
            asked,
            task,
        }
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many requests reached it.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn tell(
    State(shared): State<Shared>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> impl IntoResponse {
    shared.asked.fetch_add(1, Ordering::SeqCst);
    let headers: serde_json::Map<String, serde_json::Value> = headers
        .iter()
        .map(|(name, value)| {
            (
                name.to_string(),
                String::from_utf8_lossy(value.as_bytes()).into(),
            )
        })
        .collect();
    json!({
        "backend": shared.name,
        "method": method.as_str(),
        "uri": uri.to_string(),
        "headers": headers,
        "body_bytes": body.len(),
    })
    .to_string()
}
