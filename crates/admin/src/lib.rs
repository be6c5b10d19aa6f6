//! The door for operators: health, readiness, metrics, dumps.
//!
//! **Does** serve the pages that it is handed as closures, on an address of its own, to those who
//! call it by that address; and lends its server to others that few callers ask.
//! **Knows** HTTP and the paths `/healthz` and `/readyz`.
//! **Never** sees an object, a resource or a secret: what a page shows is decided by who hands
//! it in.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use http::{HeaderValue, Method, StatusCode, header};
use myriad_base::drain::Drained;
use myriad_base::readiness::Readiness;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

mod bodies;
mod caller;
mod guests;
mod patient;
pub mod server;
pub mod turns;

pub use caller::Hosts;

use self::server::{Answering, Question, Server, status, text, typed};

/// The largest body of a request for a page; none of them reads it.
const BODY_BYTES_MAX: usize = 64 << 10;

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
    /// Whether asking changes something. It is asked for by POST then, as JSON, which no page of a
    /// browser sends elsewhere unasked.
    pub changes: bool,
    /// Makes the body, or says what is wrong with the question, out of the query of the request
    /// as it came. Runs on a thread of its own and may take its time; one form answers at once.
    pub answer: Responder,
}

/// See [`Form::answer`].
pub type Responder = Box<dyn Fn(&str) -> Result<String, String> + Send + Sync>;

/// The pages of a process.
pub struct Admin {
    entries: BTreeMap<&'static str, Entry>,
    readiness: Readiness,
    index: String,
    hosts: Hosts,
    /// Held while a form answers: one who asks too often waits, and nobody else does.
    answering: Arc<Semaphore>,
}

/// The entry under a path.
enum Entry {
    Index,
    Health,
    Readiness,
    Page(Page),
    Form(Arc<Form>),
}

impl Admin {
    /// Health and readiness alone, for those who call it by an address or one of these names.
    pub fn new(readiness: Readiness, hosts: Hosts) -> Self {
        let mut admin = Admin {
            entries: BTreeMap::from([("/", Entry::Index)]),
            readiness,
            index: String::new(),
            hosts,
            answering: Arc::new(Semaphore::new(1)),
        };
        admin.add("/healthz", Entry::Health);
        admin.add("/readyz", Entry::Readiness);
        admin
    }

    /// One more page.
    #[must_use]
    pub fn page(mut self, page: Page) -> Self {
        self.add(page.path, Entry::Page(page));
        self
    }

    /// One more page that answers questions.
    #[must_use]
    pub fn form(mut self, form: Form) -> Self {
        self.add(form.path, Entry::Form(Arc::new(form)));
        self
    }

    fn add(&mut self, path: &'static str, entry: Entry) {
        self.index.push_str(path);
        self.index.push('\n');
        self.entries.insert(path, entry);
    }

    /// Serves until the drain is asked for.
    pub async fn serve(self, listener: TcpListener, drained: Drained) {
        let address: Option<SocketAddr> = listener.local_addr().ok();
        tracing::debug!(?address, "admin pages are served");
        let admin = Arc::new(self);
        let server = Server {
            tls: None,
            body_bytes_max: BODY_BYTES_MAX,
            answerer: Arc::new(move |question| -> Answering {
                let admin = admin.clone();
                Box::pin(async move { admin.answer(&question).await })
            }),
        };
        server.serve(listener, drained).await;
    }

    async fn answer(&self, question: &Question) -> server::Answer {
        if !self.hosts.admit(question) {
            return text(StatusCode::MISDIRECTED_REQUEST.as_u16(), MISDIRECTED);
        }
        let Some(entry) = self.entries.get(question.uri().path()) else {
            return status(StatusCode::NOT_FOUND);
        };
        let (is_allowed, methods) = match entry.changes() {
            true => (*question.method() == Method::POST, "POST"),
            false => {
                let is_read = matches!(*question.method(), Method::GET | Method::HEAD);
                (is_read, "GET,HEAD")
            }
        };
        if !is_allowed {
            let mut answer = status(StatusCode::METHOD_NOT_ALLOWED);
            let methods = HeaderValue::from_static(methods);
            answer.headers_mut().insert(header::ALLOW, methods);
            return answer;
        }
        if entry.changes() && !is_json(question) {
            return status(StatusCode::UNSUPPORTED_MEDIA_TYPE);
        }
        match entry {
            Entry::Index => text(200, self.index.clone()),
            Entry::Health => text(200, "ok\n"),
            Entry::Readiness => server::readiness(&self.readiness),
            Entry::Page(page) => {
                let (content_type, body) = (page.render)(server::accept(question));
                typed(200, content_type, body)
            }
            Entry::Form(form) => {
                let query = question.uri().query().unwrap_or_default();
                answer_form(form.clone(), query.to_owned(), self.answering.clone()).await
            }
        }
    }
}

impl Entry {
    fn changes(&self) -> bool {
        matches!(self, Entry::Form(form) if form.changes)
    }
}

fn is_json(question: &Question) -> bool {
    let content_type = question.headers().get(header::CONTENT_TYPE);
    content_type.is_some_and(|it| it.as_bytes() == b"application/json")
}

async fn answer_form(form: Arc<Form>, query: String, answering: Arc<Semaphore>) -> server::Answer {
    let content_type = form.content_type;
    let Ok(permit) = answering.acquire_owned().await else {
        return status(StatusCode::SERVICE_UNAVAILABLE);
    };
    let answer = move || {
        let answer = (form.answer)(&query);
        drop(permit);
        answer
    };
    match tokio::task::spawn_blocking(answer).await {
        Ok(Ok(body)) => typed(200, content_type, body),
        Ok(Err(problem)) => text(400, problem + "\n"),
        Err(_) => status(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

#[cfg(test)]
mod tests;
