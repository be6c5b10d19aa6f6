//! Copies of requests: sent beside the request, and never waited for.
//!
//! A copy is an exchange like any other, with a client that reads everything and keeps nothing.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use myriad_base::task;

use super::account::Account;
use super::exchange::exchange;
use super::keeper::Keeper;
use super::outgoing::Outgoing;
use super::plan::Forward;
use super::worker::Worker;
use crate::net::body::{BodyLength, Decoder, Encoder};
use crate::net::buffer::Buffer;
use crate::net::count::Count;
use crate::net::deadline::Deadline;
use crate::net::head::split_authority;
use crate::policy::cors::Additions;
use crate::route::credentials::credentials;
use crate::upstream::dial::Credentials;
use crate::upstream::entry::UpstreamEntry;

/// The most copies in flight of one worker; beyond them requests are not copied.
const COPIES_MAX: usize = 256;

/// The longest that a copy may take, connecting included.
const COPY_TIMEOUT: Duration = Duration::from_secs(60);

/// What the host of a copy ends with, so that its receiver knows it for one.
const MARK: &[u8] = b"-shadow";

/// Starts the copies of a request that is complete. Called again, it does nothing.
pub fn start(worker: &Rc<Worker>, plan: &Forward, outgoing: &Outgoing) {
    if plan.is_copied.replace(true) {
        return;
    }
    for upstream in &plan.mirrors {
        let counts = &worker.local.counts;
        if worker.copies.get() >= COPIES_MAX || !outgoing.is_whole() {
            counts.add(Count::MirrorDropped);
            continue;
        }
        let Ok(credentials) = credentials(&worker.tables.load(), upstream) else {
            counts.add(Count::MirrorFailed);
            continue;
        };
        let plan = copy_of(plan, upstream, credentials, outgoing.bytes());
        counts.add(Count::MirrorSent);
        worker.copies.set(worker.copies.get() + 1);
        let copy = Copy(worker.clone());
        task::spawn_local("mirror", run(copy, plan));
    }
}

/// Counts a copy for as long as it lasts.
struct Copy(Rc<Worker>);

impl Drop for Copy {
    fn drop(&mut self) {
        self.0.copies.set(self.0.copies.get() - 1);
    }
}

async fn run(copy: Copy, mut plan: Forward) {
    let worker = &copy.0;
    let deadline = Deadline::new();
    let mut account = Account::untold();
    let mut nobody = Keeper::of_nothing();
    let exchange = exchange(worker, &mut plan, &mut nobody, &mut account, &deadline);
    let ended = tokio::time::timeout(COPY_TIMEOUT, exchange).await;
    if !matches!(ended, Ok(Ok(_))) {
        worker.local.counts.add(Count::MirrorFailed);
    }
}

fn copy_of(
    plan: &Forward,
    upstream: &Arc<UpstreamEntry>,
    credentials: Credentials,
    request: &[u8],
) -> Forward {
    Forward {
        route: plan.route.clone(),
        share: plan.share,
        upstream: upstream.clone(),
        preferred: None,
        hash: plan.hash,
        head: reframed(
            marked(request),
            plan.upstream.is_http2(),
            upstream.is_http2(),
        ),
        encoder: Encoder::Plain,
        scheme: plan.scheme,
        // What there is of one stands in the head already.
        has_body: false,
        is_head: plan.is_head,
        is_idempotent: plan.is_idempotent,
        is_upgrade: false,
        has_to_upgrade: false,
        expects_continue: false,
        host: plan.host.clone(),
        credentials,
        ends: plan.ends,
        original: plan.original,
        additions: Additions::new(),
        told: Vec::new(),
        mirrors: Vec::new(),
        is_copied: true.into(),
        is_copy: true,
    }
}

/// The bytes of a request as they were written, with a mark at the end of the host.
fn marked(request: &[u8]) -> Buffer {
    const HOST: &[u8] = b"\r\nhost: ";
    let mut out = Buffer::for_head();
    let at = memchr::memmem::find(request, HOST).map_or(0, |at| at + HOST.len());
    let (before, after) = request.split_at_checked(at).unwrap_or((request, &[]));
    let end = memchr::memchr(b'\r', after).unwrap_or(0);
    let authority = after.get(..end).unwrap_or_default();
    let authority = std::str::from_utf8(authority).unwrap_or_default();
    let host = split_authority(authority).map_or(0, |(host, _)| host.len());
    let (host, rest) = after.split_at_checked(host).unwrap_or((after, &[]));
    out.append(before);
    out.append(host);
    if !host.is_empty() {
        out.append(MARK);
    }
    out.append(rest);
    out
}

/// The same request for an endpoint of the other version, now that its length is known: HTTP/2
/// frames bodies itself, so what was written for it has no framing of HTTP/1.
fn reframed(request: Buffer, is_http2: bool, becomes_http2: bool) -> Buffer {
    const END: &[u8] = b"\r\n\r\n";
    const CHUNKED: &[u8] = b"\r\ntransfer-encoding: chunked\r\n";
    const LENGTH: &[u8] = b"\r\ncontent-length: ";
    let bytes = request.filled();
    let end = memchr::memmem::find(bytes, END).map_or(bytes.len(), |at| at + END.len());
    let (head, mut body) = bytes.split_at_checked(end).unwrap_or((bytes, &[]));
    let mut out = Buffer::for_head();
    let has = |field| memchr::memmem::find(head, field).is_some();
    match (is_http2, becomes_http2) {
        (true, false) if !body.is_empty() && !has(LENGTH) => {
            out.append(head.strip_suffix(b"\r\n").unwrap_or(head));
            out.append(b"content-length: ");
            out.append_decimal(body.len() as u64);
            out.append(END);
            out.append(body);
        }
        (false, true) if has(CHUNKED) => {
            out.append(head);
            let mut decoder = Decoder::new(BodyLength::Chunked);
            while let Ok(step) = decoder.step(body)
                && step.consumed > 0
            {
                out.append(step.data);
                body = body.get(step.consumed..).unwrap_or_default();
            }
        }
        _ => return request,
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Buffer, marked, reframed};

    #[test]
    fn a_copy_is_framed_as_its_endpoint_reads_it() {
        let reframe = |text: &str, is_http2, becomes_http2| {
            let mut request = Buffer::take();
            request.append_str(text);
            let framed = reframed(request, is_http2, becomes_http2);
            String::from_utf8(framed.filled().to_vec()).unwrap()
        };
        let plain = "POST / HTTP/1.1\r\nhost: a\r\n\r\nabc";
        let long = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc";
        let chunked = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
            1\r\na\r\n2\r\nbc\r\n0\r\n\r\n";
        assert_eq!(reframe(plain, true, false), long);
        assert_eq!(reframe(long, true, false), long);
        assert_eq!(reframe(plain, true, true), plain);
        assert_eq!(reframe(chunked, false, false), chunked);
        assert!(reframe(chunked, false, true).ends_with("\r\n\r\nabc"));
    }

    #[test]
    fn the_host_of_a_copy_is_marked_and_nothing_else() {
        for (host, result) in [
            ("a.example", "a.example-shadow"),
            ("a.example:80", "a.example-shadow:80"),
            ("", ""),
        ] {
            let text = |host: &str| {
                format!("GET / HTTP/1.1\r\nhost: {host}\r\nx-forwarded-host: a.example\r\n\r\nb")
            };
            let found = marked(text(host).as_bytes());
            assert_eq!(found.filled(), text(result).as_bytes());
        }
    }
}
