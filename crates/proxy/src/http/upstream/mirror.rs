//! Copies of requests: sent beside the request, and never waited for.
//!
//! A copy is an exchange like any other, with a client that reads everything and keeps nothing.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http::header::{CONTENT_LENGTH, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use myriad_base::task;
use myriad_model::{Mirror, Origin};

use super::outgoing::Outgoing;
use super::retry::exchange;
use crate::admission::places::HeldPlace;
use crate::codec::body::{Encoder, unchunked};
use crate::codec::buffer::Buffer;
use crate::codec::endpoint_head::EndpointHead;
use crate::codec::head::split_authority;
use crate::http::account::RequestAccount;
use crate::http::keeper::Keeper;
use crate::http::plan::Forward;
use crate::http::worker::Worker;
use crate::net::deadline::Deadline;
use crate::policy::cors::Additions;
use crate::policy::hops;
use crate::route::credentials::credentials;
use crate::telemetry::count::Count;
use crate::upstream::dial::Credentials;
use crate::upstream::entry::UpstreamEntry;

/// The longest that a copy may take, connecting included.
const COPY_TIMEOUT: Duration = Duration::from_secs(60);

/// The ending of a copy's host, so that its receiver knows it for one.
const MARK: &str = "-shadow";

/// Starts the copies of a request that is complete. Called again, it does nothing.
pub(super) fn start(worker: &Rc<Worker>, plan: &Forward, outgoing: &Outgoing) {
    if plan.mirrors.is_empty() || plan.is_copied.replace(true) {
        return;
    }
    let namespace = plan.route.origin().map_or("", Origin::namespace);
    for (upstream, at) in &plan.mirrors {
        let counts = &worker.local.counts;
        let place = worker.copies.take(namespace);
        let Some(place) = place.filter(|_| outgoing.is_whole()) else {
            counts.add(Count::MirrorDropped);
            continue;
        };
        let Ok(credentials) = credentials(&worker.tables.load(), upstream) else {
            counts.add(Count::MirrorFailed);
            continue;
        };
        let change = plan.mirror(*at).map(Change::of).unwrap_or_default();
        let Some(copy) = copied(outgoing, upstream, change) else {
            counts.add(Count::MirrorFailed);
            continue;
        };
        let host = match change.authority {
            "" => plan.host.clone(),
            authority => parts_of(authority).0.into(),
        };
        let plan = copy_of(plan, upstream, credentials, (host, copy));
        counts.add(Count::MirrorSent);
        let copy = Copy {
            worker: worker.clone(),
            _place: place,
        };
        task::spawn_local("mirror", run(copy, plan));
    }
}

/// The differences of a copy.
#[derive(Clone, Copy, Default)]
struct Change<'a> {
    /// The authority that it names; empty for that of the request.
    authority: &'a str,
    /// Whether that of the request goes without a mark.
    keeps_authority: bool,
    omits_body: bool,
}

impl<'a> Change<'a> {
    fn of(rule: &'a Mirror) -> Self {
        Change {
            authority: &rule.authority,
            keeps_authority: rule.keeps_authority,
            omits_body: rule.omits_body,
        }
    }

    /// The authority of the copy of a request with this one.
    fn put_authority(self, own: &str, out: &mut Buffer) {
        if !self.authority.is_empty() || self.keeps_authority {
            out.append_str(match self.authority {
                "" => own,
                authority => authority,
            });
            return;
        }
        let (host, port) = parts_of(own);
        out.append_str(host);
        if !host.is_empty() {
            out.append_str(MARK);
        }
        out.append_str(port);
    }

    /// The text of a copy, without its body where it has none.
    fn framed(self, request: Buffer) -> Buffer {
        match self.omits_body {
            true => bodiless(request),
            false => request,
        }
    }
}

/// A copy, which has its place for as long as it lasts.
struct Copy {
    worker: Rc<Worker>,
    _place: HeldPlace,
}

async fn run(copy: Copy, mut plan: Forward) {
    let worker = &copy.worker;
    let deadline = Deadline::new();
    let mut account = RequestAccount::untold();
    let mut nobody = Keeper::of_nothing();
    let exchange = exchange(worker, &mut plan, &mut nobody, &mut account, &deadline);
    let ended = tokio::time::timeout(COPY_TIMEOUT, exchange).await;
    if !matches!(ended, Ok(Ok(_))) && !nobody.is_too_long() {
        worker.local.counts.add(Count::MirrorFailed);
    }
}

fn copy_of(
    plan: &Forward,
    upstream: &Arc<UpstreamEntry>,
    credentials: Credentials,
    (host, (head, body)): (Box<str>, (EndpointHead, Buffer)),
) -> Forward {
    Forward {
        route: plan.route.clone(),
        share: plan.share,
        upstream: upstream.clone(),
        preferred: None,
        takes_none: true,
        hash: plan.hash,
        head,
        body,
        encoder: Encoder::Plain,
        scheme: plan.scheme,
        // What there is of one stands in the head already.
        has_body: false,
        has_length: false,
        is_head: plan.is_head,
        is_idempotent: plan.is_idempotent,
        is_upgrade: false,
        has_to_upgrade: false,
        expects_continue: false,
        host,
        credentials,
        ends: plan.ends,
        asker: plan.asker,
        original: plan.original,
        additions: Additions::new(),
        told: Vec::new(),
        reserved: Vec::new(),
        told_on_success: 0,
        mirrors: Vec::new(),
        page_question: None,
        is_copied: true.into(),
        is_copy: true,
        record: None,
        turn: Cell::default(),
    }
}

/// Head and body of a copy, for the version of its endpoint; none where that cannot say it. Now
/// that the length is known, a copy has no chunks in HTTP/2, and a length in HTTP/1.
fn copied(
    outgoing: &Outgoing,
    upstream: &UpstreamEntry,
    change: Change<'_>,
) -> Option<(EndpointHead, Buffer)> {
    let bytes = outgoing.bytes();
    let Some(request) = outgoing.request() else {
        return match upstream.is_http2() {
            true => {
                let text = change.framed(unframed(marked(bytes, change)));
                EndpointHead::written(text, true, upstream.is_tls())
            }
            false => {
                let text = change.framed(marked(bytes, change));
                Some((EndpointHead::Http1(text), Buffer::none()))
            }
        };
    };
    if !upstream.is_http2() {
        let text = change.framed(text_of(request, bytes, change));
        return Some((EndpointHead::Http1(text), Buffer::none()));
    }
    let mut body = Buffer::none();
    let mut request = Box::new(request.clone());
    match change.omits_body {
        true => drop(request.headers_mut().remove(CONTENT_LENGTH)),
        false => body.append(bytes),
    }
    let mark = HeaderValue::from_static(hops::COPY);
    request.headers_mut().try_append(hops::FIELD, mark).ok()?;
    let mut uri = request.uri().clone().into_parts();
    if let Some(authority) = &uri.authority {
        let mut changed = Buffer::for_head();
        change.put_authority(authority.as_str(), &mut changed);
        if !changed.filled().is_empty() {
            uri.authority = Authority::try_from(changed.filled()).ok();
        }
    }
    let scheme = match upstream.is_tls() {
        true => Scheme::HTTPS,
        false => Scheme::HTTP,
    };
    uri.scheme = Some(scheme);
    *request.uri_mut() = Uri::from_parts(uri).ok()?;
    Some((EndpointHead::Http2(request), body))
}

/// The host of an authority, and what is behind it.
fn parts_of(authority: &str) -> (&str, &str) {
    let length = split_authority(authority).map_or(0, |(host, _)| host.len());
    authority
        .split_at_checked(length)
        .unwrap_or((authority, ""))
}

/// The text of a request that was built for HTTP/2, marked, with its body.
fn text_of(request: &Request<()>, body: &[u8], change: Change<'_>) -> Buffer {
    let mut out = Buffer::for_head();
    let uri = request.uri();
    out.append_str(request.method().as_str());
    out.append(b" ");
    out.append_str(uri.path_and_query().map_or("/", PathAndQuery::as_str));
    out.append(b" HTTP/1.1\r\nhost: ");
    let authority = uri.authority().map_or("", Authority::as_str);
    change.put_authority(authority, &mut out);
    put_mark(&mut out);
    out.append(b"\r\n");
    for (name, value) in request.headers() {
        out.append_str(name.as_str());
        out.append(b": ");
        out.append(value.as_bytes());
        out.append(b"\r\n");
    }
    if !body.is_empty() && !request.headers().contains_key(CONTENT_LENGTH) {
        out.append(b"content-length: ");
        out.append_decimal(body.len() as u64);
        out.append(b"\r\n");
    }
    out.append(b"\r\n");
    out.append(body);
    out
}

/// The bytes of a request as they were written, with the authority of a copy.
fn marked(request: &[u8], change: Change<'_>) -> Buffer {
    const HOST: &[u8] = b"\r\nhost: ";
    let mut out = Buffer::for_head();
    let at = memchr::memmem::find(request, HOST).map_or(0, |at| at + HOST.len());
    let (before, after) = request.split_at_checked(at).unwrap_or((request, &[]));
    let end = memchr::memchr(b'\r', after).unwrap_or(0);
    let (authority, rest) = after.split_at_checked(end).unwrap_or((after, &[]));
    out.append(before);
    match std::str::from_utf8(authority) {
        Ok(authority) if at > 0 => {
            change.put_authority(authority, &mut out);
            put_mark(&mut out);
        }
        _ => out.append(authority),
    }
    out.append(rest);
    out
}

/// The line behind that of the host, by which nobody copies a copy again.
fn put_mark(out: &mut Buffer) {
    out.append(b"\r\n");
    out.append_str(hops::FIELD);
    out.append(b": ");
    out.append_str(hops::COPY);
}

/// The same request without its body, and without fields that speak of one.
fn bodiless(request: Buffer) -> Buffer {
    const FIELDS: [&[u8]; 3] = [b"content-length:", b"transfer-encoding:", b"trailer:"];
    let bytes = request.filled();
    let end = memchr::memmem::find(bytes, b"\r\n\r\n").map_or(bytes.len(), |at| at + 2);
    let head = bytes.get(..end).unwrap_or(bytes);
    let mut out = Buffer::for_head();
    for line in head.split_inclusive(|byte| *byte == b'\n') {
        let is_field = |name: &[u8]| {
            let start = line.get(..name.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(name))
        };
        if !FIELDS.into_iter().any(is_field) {
            out.append(line);
        }
    }
    out.append(b"\r\n");
    out
}

/// The same request with its body as it is, without chunks.
fn unframed(request: Buffer) -> Buffer {
    const END: &[u8] = b"\r\n\r\n";
    const CHUNKED: &[u8] = b"\r\ntransfer-encoding: chunked\r\n";
    let bytes = request.filled();
    let end = memchr::memmem::find(bytes, END).map_or(bytes.len(), |at| at + END.len());
    let (head, body) = bytes.split_at_checked(end).unwrap_or((bytes, &[]));
    if memchr::memmem::find(head, CHUNKED).is_none() {
        return request;
    }
    let mut out = Buffer::for_head();
    out.append(head);
    out.append(unchunked(body).filled());
    out
}

#[cfg(test)]
mod tests {
    use super::{Buffer, Change, bodiless, marked, text_of, unframed};
    use crate::codec::endpoint_head::of_text;

    #[test]
    fn a_copy_is_framed_as_its_endpoint_reads_it() {
        let text = |buffer: Buffer| String::from_utf8(buffer.filled().to_vec()).unwrap();
        let unframe = |written: &str| {
            let mut request = Buffer::take();
            request.append_str(written);
            text(unframed(request))
        };
        let long = "POST /a?b HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc";
        let chunked = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
            1\r\na\r\n2\r\nbc\r\n0\r\n\r\n";
        assert_eq!(unframe(long), long);
        assert!(unframe(chunked).ends_with("\r\n\r\nabc"));
        let marked = long.replace("host: a", "host: a-shadow\r\ncdn-loop: myriad;copy=1");
        for fields in ["content-length: 3\r\n", ""] {
            let built = format!("POST /a?b HTTP/1.1\r\nhost: a\r\n{fields}\r\n");
            let (request, _) = of_text(built.as_bytes(), false).unwrap();
            let copy = text_of(&request, b"abc", Change::default());
            assert_eq!(text(copy), marked);
        }
    }

    #[test]
    fn the_host_of_a_copy_is_marked_and_nothing_else() {
        for (host, result) in [
            ("a.example", "a.example-shadow"),
            ("a.example:80", "a.example-shadow:80"),
            ("", ""),
        ] {
            let text = |host: &str, mark: &str| {
                let rest = "x-forwarded-host: a.example\r\n\r\nb";
                format!("GET / HTTP/1.1\r\nhost: {host}\r\n{mark}{rest}")
            };
            let found = marked(text(host, "").as_bytes(), Change::default());
            let expected = text(result, "cdn-loop: myriad;copy=1\r\n");
            assert_eq!(found.filled(), expected.as_bytes());
            let keeping = Change {
                keeps_authority: true,
                ..Change::default()
            };
            let kept = marked(text(host, "").as_bytes(), keeping);
            let expected = text(host, "cdn-loop: myriad;copy=1\r\n");
            assert_eq!(kept.filled(), expected.as_bytes());
        }
    }

    #[test]
    fn a_copy_may_name_another_host_and_leave_its_body_out() {
        let text = |buffer: Buffer| String::from_utf8(buffer.filled().to_vec()).unwrap();
        let change = Change {
            authority: "copy.example:81",
            omits_body: true,
            ..Change::default()
        };
        let chunked = "POST /a HTTP/1.1\r\nhost: a:80\r\ntransfer-encoding: chunked\r\n\
                       x-a: b\r\n\r\n1\r\na\r\n0\r\n\r\n";
        let bare = "POST /a HTTP/1.1\r\nhost: copy.example:81\r\n\
                    cdn-loop: myriad;copy=1\r\nx-a: b\r\n\r\n";
        assert_eq!(
            text(change.framed(marked(chunked.as_bytes(), change))),
            bare
        );
        let long = "POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\nx-a: b\r\n\r\n";
        let (request, _) = of_text(long.as_bytes(), false).unwrap();
        assert_eq!(text(change.framed(text_of(&request, b"abc", change))), bare);
        let mut request = Buffer::take();
        request.append_str(bare);
        assert_eq!(text(bodiless(request)), bare);
    }
}
