//! The endpoint that allows names on demand, and the names that it was asked about.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::http::{StatusCode, Uri};
use tokio::net::TcpListener;

/// An endpoint that allows names below `ok.test`, and where it is told so every name.
pub struct AskEndpoint {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl AskEndpoint {
    /// Starts at a port that is free.
    pub async fn start() -> AskEndpoint {
        AskEndpoint::start_at(0, false).await
    }

    /// Starts at a port, and allows every name or those below `ok.test`.
    pub async fn start_at(port: u16, allows_all: bool) -> AskEndpoint {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let listener = TcpListener::bind(address).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let known = asked.clone();
        let answer = move |uri: Uri| {
            let query = uri.query().unwrap_or_default();
            let name = query.strip_prefix("domain=").unwrap_or_default();
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            known.push(name.to_owned());
            let is_allowed = allows_all || name.ends_with("ok.test");
            std::future::ready(match is_allowed {
                true => StatusCode::OK,
                false => StatusCode::FORBIDDEN,
            })
        };
        let router = Router::new().fallback(answer);
        let task = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("it serves");
        });
        AskEndpoint {
            address,
            asked,
            task,
        }
    }

    /// The URL that is to be asked.
    pub fn url(&self) -> String {
        format!("http://{}/check", self.address)
    }

    /// The argument that has it asked.
    pub fn argument(&self) -> String {
        format!("--acme-on-demand-ask={}", self.url())
    }

    /// The names that it was asked about so far.
    pub fn asked(&self) -> Vec<String> {
        self.lock().clone()
    }

    /// How often it was asked about a name.
    pub fn count(&self, name: &str) -> usize {
        self.lock().iter().filter(|it| *it == name).count()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AskEndpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}
