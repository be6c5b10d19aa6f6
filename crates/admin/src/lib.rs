//! The door for operators: health, readiness, metrics, dumps.
//!
//! **Does** serve the pages that it is handed as closures, on an address of its own, to those who
//! call it by that address, one at a time beside the thread that says how the process is; sites of
//! pages to those whom their guards let in; and lends its server to others that few callers ask.
//! **Knows** HTTP and the paths `/healthz` and `/readyz`.
//! **Never** sees an object, a resource or a secret: what a page shows is decided by who hands
//! it in.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, StatusCode, header};
use myriad_base::drain::Drained;
use myriad_base::readiness::Readiness;
use tokio::net::TcpListener;

mod bodies;
mod caller;
mod guests;
mod patient;
pub mod server;
pub mod site;
pub mod turns;

pub use caller::Hosts;

use self::server::{Answering, Question, Server, status, text, typed};
use self::site::Site;
use self::turns::Turns;

/// The largest body of a request for a page; none of them reads it.
const BODY_BYTES_MAX: usize = 64 << 10;

/// The longest wait for a turn. How many wait is bounded by the connections of the server.
const TURN_WAIT_MAX: Duration = Duration::from_secs(10);

/// The answer to whoever has waited for so long.
const CROWDED: &str = "others are being answered; come again\n";

/// The answer to a request for a name that the admin address does not have.
const MISDIRECTED: &str = "this address is called by an IP address, localhost or a name that \
                           --admin-hosts lists\n";

/// A page that is rendered anew for each request.
pub struct Page {
    /// The path, starting with a slash.
    pub path: &'static str,
    /// Makes the body, behind its `Content-Type`, out of the `Accept` of the request. Runs on a
    /// thread of its own and must not wait for the control loop; one page is rendered at a time, in
    /// turns of the addresses that ask.
    pub render: Render,
}

/// See [`Page::render`].
pub type Render = Box<dyn Fn(&str) -> (&'static str, Vec<u8>) + Send + Sync>;

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
    /// as it came. Runs on a thread of its own and may take its time; one form answers at a time,
    /// in turns of the addresses that ask.
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
    /// Taken while a page is rendered: health and readiness wait for none, and whoever asks too
    /// often waits for itself.
    rendering: Turns,
    /// The same while a form answers.
    answering: Turns,
    sites: Vec<Arc<Site>>,
    /// The same while a page of a site is made.
    visiting: Turns,
}

/// The entry under a path.
enum Entry {
    Index,
    Health,
    Readiness,
    Page(Arc<Page>),
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
            rendering: Turns::default(),
            answering: Turns::default(),
            sites: Vec::new(),
            visiting: Turns::default(),
        };
        admin.add("/healthz", Entry::Health);
        admin.add("/readyz", Entry::Readiness);
        admin
    }

    /// One more page.
    #[must_use]
    pub fn page(mut self, page: Page) -> Self {
        self.add(page.path, Entry::Page(Arc::new(page)));
        self
    }

    /// One more page that answers questions.
    #[must_use]
    pub fn form(mut self, form: Form) -> Self {
        self.add(form.path, Entry::Form(Arc::new(form)));
        self
    }

    /// The pages of one more site.
    #[must_use]
    pub fn site(mut self, site: Site) -> Self {
        self.list(site.path);
        self.sites.push(Arc::new(site));
        self
    }

    fn add(&mut self, path: &'static str, entry: Entry) {
        self.list(path);
        self.entries.insert(path, entry);
    }

    fn list(&mut self, path: &str) {
        self.index.push_str(path);
        self.index.push('\n');
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
        let path = question.uri().path();
        let Some(entry) = self.entries.get(path) else {
            let mut sites = self.sites.iter();
            let site = sites.find_map(|site| Some((site, site.rest(path)?)));
            return match site {
                Some((site, rest)) => self.visit(site, rest, question).await,
                None => status(StatusCode::NOT_FOUND),
            };
        };
        let (is_allowed, methods) = match entry.changes() {
            true => (*question.method() == Method::POST, "POST"),
            false => (is_read(question), READING),
        };
        if !is_allowed {
            return only(methods);
        }
        if entry.changes() && !is_json(question) {
            return status(StatusCode::UNSUPPORTED_MEDIA_TYPE);
        }
        match entry {
            Entry::Index => text(200, self.index.clone()),
            Entry::Health => text(200, "ok\n"),
            Entry::Readiness => server::readiness(&self.readiness),
            Entry::Page(page) => {
                let (page, accept) = (page.clone(), server::accept(question).to_owned());
                let render = move || (page.render)(&accept);
                match in_turn(&self.rendering, server::source(question), render).await {
                    Ok((content_type, body)) => typed(200, content_type, body),
                    Err(refusal) => refusal,
                }
            }
            Entry::Form(form) => {
                let content_type = form.content_type;
                let query = question.uri().query().unwrap_or_default().to_owned();
                let form = form.clone();
                let answer = move || (form.answer)(&query);
                match in_turn(&self.answering, server::source(question), answer).await {
                    Ok(Ok(body)) => typed(200, content_type, body),
                    Ok(Err(problem)) => text(400, problem + "\n"),
                    Err(refusal) => refusal,
                }
            }
        }
    }
}

impl Admin {
    /// Answers with a page of a site. Whoever is not let in takes no turn.
    async fn visit(&self, site: &Arc<Site>, rest: &str, question: &Question) -> server::Answer {
        if !is_read(question) {
            return only(READING);
        }
        if let Err(mut refusal) = (site.guard)(question).await {
            site.protect(refusal.headers_mut());
            return refusal;
        }
        let query = question.uri().query().unwrap_or_default().to_owned();
        let (made, rest) = (site.clone(), rest.to_owned());
        let render = move || (made.render)(&rest, &query);
        match in_turn(&self.visiting, server::source(question), render).await {
            Ok(reply) => site.answer(reply),
            Err(mut refusal) => {
                site.protect(refusal.headers_mut());
                refusal
            }
        }
    }
}

impl Entry {
    fn changes(&self) -> bool {
        matches!(self, Entry::Form(form) if form.changes)
    }
}

/// The methods that change nothing.
const READING: &str = "GET,HEAD";

fn is_read(question: &Question) -> bool {
    matches!(*question.method(), Method::GET | Method::HEAD)
}

/// The answer to another method than these.
fn only(methods: &'static str) -> server::Answer {
    let mut answer = status(StatusCode::METHOD_NOT_ALLOWED);
    let methods = HeaderValue::from_static(methods);
    answer.headers_mut().insert(header::ALLOW, methods);
    answer
}

fn is_json(question: &Question) -> bool {
    let content_type = question.headers().get(header::CONTENT_TYPE);
    content_type.is_some_and(|it| it.as_bytes() == b"application/json")
}

/// Does work on a thread of its own, once it is the turn of the address that asks. It holds the
/// turn to its end, though whoever asked has gone.
async fn in_turn<T: Send + 'static>(
    turns: &Turns,
    address: IpAddr,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, server::Answer> {
    let turn = tokio::time::timeout(TURN_WAIT_MAX, turns.take(address)).await;
    let Ok(Some(turn)) = turn else {
        return Err(text(StatusCode::SERVICE_UNAVAILABLE.as_u16(), CROWDED));
    };
    let done = tokio::task::spawn_blocking(move || {
        let done = work();
        drop(turn);
        done
    });
    let failed = |_| status(StatusCode::INTERNAL_SERVER_ERROR);
    done.await.map_err(failed)
}

#[cfg(test)]
mod tests;
