//! The door for operators: health, readiness, metrics, dumps.
//!
//! **Does** serve the pages that it is handed as closures, on an address of its own.
//! **Knows** HTTP and the paths `/healthz` and `/readyz`.
//! **Never** sees an object, a resource or a secret: what a page shows is decided by who hands
//! it in.

use std::future::IntoFuture;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use myriad_base::drain::Drained;
use myriad_base::readiness::Readiness;

/// A page that is rendered anew for each request.
pub struct Page {
    /// The path, starting with a slash.
    pub path: &'static str,
    /// The `Content-Type`.
    pub content_type: &'static str,
    /// Makes the body. Runs on the admin thread and must not wait for the control loop.
    pub render: Box<dyn Fn() -> String + Send + Sync>,
}

/// The pages of a process.
pub struct Admin {
    router: Router,
    index: String,
}

impl Admin {
    /// Health and readiness alone.
    pub fn new(readiness: Readiness) -> Self {
        let ready = move || async move {
            let pending = readiness.pending();
            if pending.is_empty() {
                return (StatusCode::OK, "ready\n".to_owned());
            }
            (
                StatusCode::SERVICE_UNAVAILABLE,
                format!("waiting for {}\n", pending.join(", ")),
            )
        };
        let router = Router::new()
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(ready));
        Admin {
            router,
            index: "/healthz\n/readyz\n".to_owned(),
        }
    }

    /// One more page.
    #[must_use]
    pub fn page(mut self, page: Page) -> Self {
        let path = page.path;
        let page = Arc::new(page);
        self.index.push_str(path);
        self.index.push('\n');
        self.router = self.router.route(
            path,
            get(move || {
                let page = page.clone();
                async move { answer(&page) }
            }),
        );
        self
    }

    /// Serves until the drain is asked for.
    ///
    /// # Errors
    /// Those of the listening socket.
    pub async fn serve(
        self,
        listener: tokio::net::TcpListener,
        drained: Drained,
    ) -> std::io::Result<()> {
        let index = self.index;
        let router = self.router.route("/", get(move || async move { index }));
        let address: Option<SocketAddr> = listener.local_addr().ok();
        tracing::debug!(?address, "admin pages are served");
        // Requests here are answered at once, so the drain cuts off nothing but idle
        // connections, for which it must not wait.
        tokio::select! {
            result = axum::serve(listener, router).into_future() => result,
            () = drained.signalled() => Ok(()),
        }
    }
}

fn answer(page: &Page) -> Response {
    ([(header::CONTENT_TYPE, page.content_type)], (page.render)()).into_response()
}
