//! A site: pages below a path, for those whom a guard lets in.

use std::future::Future;
use std::pin::Pin;

use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::server::{Answer, Question, typed};

/// Pages below a path, for those whom a guard lets in.
pub struct Site {
    /// The path, starting with a slash. All paths below it are of the site too.
    pub path: &'static str,
    /// The guard, which is asked before anything else is done. It bounds its own time and work.
    pub guard: SiteGuard,
    /// Makes an answer. Runs on a thread of its own and must not wait for the control loop; one is
    /// made at a time, in turns of the addresses that ask.
    pub render: SiteRender,
    /// The `Content-Security-Policy` of every page.
    pub policy: HeaderValue,
}

/// See [`Site::guard`].
pub type SiteGuard = Box<dyn Fn(&Question) -> Guarding + Send + Sync>;

/// The decision of a guard on its way: the answer to those that are not let in.
pub type Guarding = Pin<Box<dyn Future<Output = Result<(), Answer>> + Send>>;

/// See [`Site::render`]; given the path behind that of the site, and the query as it came.
pub type SiteRender = Box<dyn Fn(&str, &str) -> Reply + Send + Sync>;

/// A page of a site.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The `Content-Type`.
    pub content_type: &'static str,
    /// The body.
    pub body: String,
}

/// The headers of every page beside its type and policy: no browser keeps it, shows it inside of
/// another's page, takes it for something else or tells others of its address.
const HEADERS: [(&str, &str); 6] = [
    ("cache-control", "no-store"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("referrer-policy", "no-referrer"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
];

impl Site {
    /// The rest of a path that is of the site.
    pub(crate) fn rest<'p>(&self, path: &'p str) -> Option<&'p str> {
        let rest = path.strip_prefix(self.path)?;
        (rest.is_empty() || rest.starts_with('/')).then_some(rest)
    }

    /// The answer with a page.
    pub(crate) fn answer(&self, reply: Reply) -> Answer {
        let mut answer = typed(reply.status, reply.content_type, reply.body);
        self.protect(answer.headers_mut());
        answer
    }

    /// Says how little a browser may do with an answer.
    pub(crate) fn protect(&self, headers: &mut HeaderMap) {
        for (name, value) in HEADERS {
            headers.insert(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
        }
        headers.insert(header::CONTENT_SECURITY_POLICY, self.policy.clone());
    }
}
