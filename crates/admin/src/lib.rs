//! The door for operators: health, readiness, metrics, dumps.
//!
//! **Does** serve the pages that it is handed as closures, on an address of its own, to those who
//! call it by that address.
//! **Knows** HTTP and the paths `/healthz` and `/readyz`.
//! **Never** sees an object, a resource or a secret: what a page shows is decided by who hands
//! it in.

use std::future::IntoFuture;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use myriad_base::drain::Drained;
use myriad_base::readiness::Readiness;
use tokio::sync::Semaphore;

mod caller;

pub use caller::Hosts;

/// How long a drain waits for those who were let in and have not asked yet.
const LAST_CALL: Duration = Duration::from_secs(1);

/// The answer to a request for a name that the admin address does not have.
const MISDIRECTED: &str = "this address is called by an IP address, localhost or a name that \
                           --admin-hosts lists\n";

/// A page that is rendered anew for each request.
pub struct Page {
    /// The path, starting with a slash.
    pub path: &'static str,
    /// Makes the body, behind its `Content-Type`, out of the `Accept` of the request. Runs on the
    /// admin thread and must not wait for the control loop.
    pub render: Render,
}

/// See [`Page::render`].
pub type Render = Box<dyn Fn(&str) -> (&'static str, String) + Send + Sync>;

/// A page that answers a question.
pub struct Form {
    /// The path, starting with a slash.
    pub path: &'static str,
    /// The `Content-Type`.
    pub content_type: &'static str,
    /// Makes the body, or says what is wrong with the question, out of the query of the request
    /// as it came. Runs on a thread of its own and may take its time; one form answers at once.
    pub answer: Answer,
}

/// See [`Form::answer`].
pub type Answer = Box<dyn Fn(&str) -> Result<String, String> + Send + Sync>;

/// The pages of a process.
pub struct Admin {
    router: Router,
    index: String,
    hosts: Hosts,
    /// Held while a form answers: one who asks too often waits, and nobody else does.
    answering: Arc<Semaphore>,
}

impl Admin {
    /// Health and readiness alone, for those who call it by an address or one of these names.
    pub fn new(readiness: Readiness, hosts: Hosts) -> Self {
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
            hosts,
            answering: Arc::new(Semaphore::new(1)),
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
            get(move |headers: HeaderMap| {
                let page = page.clone();
                async move { answer(&page, &headers) }
            }),
        );
        self
    }

    /// One more page that answers questions.
    #[must_use]
    pub fn form(mut self, form: Form) -> Self {
        let path = form.path;
        let (form, answering) = (Arc::new(form), self.answering.clone());
        self.index.push_str(path);
        self.index.push('\n');
        self.router = self.router.route(
            path,
            get(move |RawQuery(query): RawQuery| {
                let (form, answering) = (form.clone(), answering.clone());
                async move { answer_form(form, query.unwrap_or_default(), answering).await }
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
        let hosts = Arc::new(self.hosts);
        let router = router.layer(middleware::from_fn(move |request: Request, next: Next| {
            let is_called = hosts.admit(&request);
            async move {
                match is_called {
                    true => next.run(request).await,
                    false => (StatusCode::MISDIRECTED_REQUEST, MISDIRECTED).into_response(),
                }
            }
        }));
        let address: Option<SocketAddr> = listener.local_addr().ok();
        tracing::debug!(?address, "admin pages are served");
        let signal = drained.clone();
        let serving = axum::serve(listener, router)
            .with_graceful_shutdown(async move { signal.signalled().await });
        // Idle connections end at once. One that has just come is answered, if it asks.
        let over = async {
            drained.signalled().await;
            tokio::time::sleep(LAST_CALL).await;
        };
        tokio::select! {
            result = serving.into_future() => result,
            () = over => Ok(()),
        }
    }
}

fn answer(page: &Page, headers: &HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT);
    let accept = accept.and_then(|it| it.to_str().ok()).unwrap_or_default();
    let (content_type, body) = (page.render)(accept);
    ([(header::CONTENT_TYPE, content_type)], body).into_response()
}

async fn answer_form(form: Arc<Form>, query: String, answering: Arc<Semaphore>) -> Response {
    let content_type = form.content_type;
    let Ok(permit) = answering.acquire_owned().await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let answer = move || {
        let answer = (form.answer)(&query);
        drop(permit);
        answer
    };
    match tokio::task::spawn_blocking(answer).await {
        Ok(Ok(body)) => ([(header::CONTENT_TYPE, content_type)], body).into_response(),
        Ok(Err(problem)) => (StatusCode::BAD_REQUEST, problem + "\n").into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
