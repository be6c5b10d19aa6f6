//! Requests of the proxy's own: questions to providers, and what collectors are sent.
//!
//! They are exchanges like any other, over the connections that all exchanges use, with a client
//! that keeps the answer.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use myriad_model::{
    Action, Form, Name, Origin, PathMatch, Policy, Resource, Route, SealedArc, Sealer, Value,
};

use super::retry::exchange;
use crate::admission::spaces::Spots;
use crate::codec::body::Encoder;
use crate::codec::buffer::Buffer;
use crate::codec::endpoint_head::EndpointHead;
use crate::codec::proxy_header::Ends;
use crate::http::account::RequestAccount;
use crate::http::keeper::{Keeper, Kept};
use crate::http::plan::Forward;
use crate::http::worker::Worker;
use crate::net::deadline::Deadline;
use crate::policy::check::Answered;
use crate::policy::cors::Additions;
use crate::route::credentials::credentials;
use crate::route::entry::{BlockArc, BlockEntry, RouteEntry};
use crate::route::tables::upstream_hash;

/// The longest body of an answer in bytes; a longer one is no answer.
pub const ANSWER_BYTES_MAX: usize = 256 << 10;

/// The longest wait between two reads or writes of a question; its provider's timeout is shorter
/// but for the one that Istio has where nobody wrote any.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// A request of the proxy's own.
pub struct Own<'a> {
    /// Where it goes.
    pub upstream: &'a Name,
    /// The name that TLS asks for.
    pub host: &'a str,
    /// The head, with the body behind it.
    pub head: Buffer,
    /// Whether the answer has no body whatever its head says.
    pub is_head: bool,
    /// The longest wait for the answer.
    pub timeout: Duration,
    /// The namespace on whose behalf it is sent: what is kept of the answer is held for that.
    pub space: Spots,
}

/// Sends a request of the proxy's own; none where there is no answer, or none that can be kept so.
pub async fn converse(worker: &Rc<Worker>, own: Own<'_>, kept: Kept) -> Option<Answered> {
    let timeout = own.timeout;
    let mut held = worker.local.fairness.holdings.connection();
    held.belong(own.space);
    let mut plan = own_plan(worker, own)?;
    let deadline = Deadline::new();
    let mut account = RequestAccount::untold();
    let mut keeper = Keeper::new(kept, Some(held));
    let asking = exchange(worker, &mut plan, &mut keeper, &mut account, &deadline);
    let ended = tokio::time::timeout(timeout, asking).await;
    let answered = keeper.into_answered();
    answered.filter(|_| matches!(ended, Ok(Ok(_))))
}

/// The plan of a request of the proxy's own; none where it leads nowhere.
pub fn own_plan(worker: &Worker, own: Own<'_>) -> Option<Forward> {
    let tables = worker.tables.load_full();
    let upstream = tables.upstream(upstream_hash(own.upstream), own.upstream);
    let upstream = upstream.filter(|it| it.upstream.is_some())?.clone();
    let (is_http2, is_tls) = (upstream.is_http2(), upstream.is_tls());
    let (head, body) = EndpointHead::written(own.head, is_http2, is_tls)?;
    Some(Forward {
        route: TERMS.as_ref()?.clone(),
        share: 0,
        preferred: None,
        takes_none: true,
        head,
        body,
        encoder: Encoder::Plain,
        scheme: "http",
        // It stands in the head already.
        has_body: false,
        has_length: false,
        is_head: own.is_head,
        is_idempotent: true,
        is_upgrade: false,
        has_to_upgrade: false,
        expects_continue: false,
        host: own.host.into(),
        credentials: credentials(&tables, &upstream).ok()?,
        upstream,
        // A question is the proxy's own, so no client is told of.
        ends: Ends::of(([0; 4], 0).into(), 0),
        asker: 0,
        original: None,
        additions: Additions::new(),
        told: Vec::new(),
        reserved: Vec::new(),
        told_on_success: 0,
        hash: None,
        mirrors: Vec::new(),
        page_question: None,
        is_copied: true.into(),
        is_copy: true,
        record: None,
        turn: Cell::default(),
    })
}

/// The route of the proxy's own questions, for all that their provider does not say.
static TERMS: LazyLock<Option<RouteEntry>> = LazyLock::new(|| {
    let policy = Policy {
        read_timeout: PATIENCE,
        send_timeout: PATIENCE,
        ..Policy::default()
    };
    let route = Route {
        listeners: Arc::default(),
        hosts: Arc::default(),
        path: PathMatch::Prefix("/".into()),
        conditions: Box::default(),
        rank: 0,
        action: Action::Forward(Arc::default()),
        policy: Arc::new(policy),
    };
    let resource = Resource {
        origin: Origin::settings(),
        value: Value::Route(Box::new(route)),
    };
    let sealed = Sealer::new([0; 32], Form::Value).seal(Name::from("question"), resource);
    let block = BlockEntry::new(SealedArc::new(sealed))?.ok()?;
    Some(RouteEntry::first(BlockArc::new(block)))
});
