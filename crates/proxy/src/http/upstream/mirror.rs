//! Copies of requests: sent beside the request, and never waited for.
//!
//! A copy is an exchange like any other, with a client that reads everything and keeps nothing.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http::header::CONTENT_LENGTH;
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use myriad_base::task;

use super::outgoing::Outgoing;
use super::retry::exchange;
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
use crate::route::credentials::credentials;
use crate::telemetry::count::Count;
use crate::upstream::dial::Credentials;
use crate::upstream::entry::UpstreamEntry;

/// The most copies in flight of one worker; beyond them requests are not copied.
const COPIES_MAX: usize = 256;

/// The longest that a copy may take, connecting included.
const COPY_TIMEOUT: Duration = Duration::from_secs(60);

/// What the host of a copy ends with, so that its receiver knows it for one.
const MARK: &str = "-shadow";

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
        let Some((head, body)) = copied(outgoing, upstream) else {
            counts.add(Count::MirrorFailed);
            continue;
        };
        let plan = copy_of(plan, upstream, credentials, (head, body));
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
    let mut account = RequestAccount::untold();
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
    (head, body): (EndpointHead, Buffer),
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

/// Head and body of a copy, for the version of its endpoint; none where that cannot say it. Now
/// that the length is known, a copy has no chunks in HTTP/2, and a length in HTTP/1.
fn copied(outgoing: &Outgoing, upstream: &UpstreamEntry) -> Option<(EndpointHead, Buffer)> {
    let bytes = outgoing.bytes();
    let Some(request) = outgoing.request() else {
        return match upstream.is_http2() {
            true => EndpointHead::written(unframed(marked(bytes)), true, upstream.is_tls()),
            false => Some((EndpointHead::Http1(marked(bytes)), Buffer::none())),
        };
    };
    if !upstream.is_http2() {
        return Some((EndpointHead::Http1(text_of(request, bytes)), Buffer::none()));
    }
    let mut body = Buffer::none();
    body.append(bytes);
    let mut request = Box::new(request.clone());
    let mut uri = request.uri().clone().into_parts();
    if let Some(authority) = &uri.authority {
        let (host, port) = parts_of(authority.as_str());
        if !host.is_empty() {
            uri.authority = Authority::try_from(format!("{host}{MARK}{port}")).ok();
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
fn text_of(request: &Request<()>, body: &[u8]) -> Buffer {
    let mut out = Buffer::for_head();
    let uri = request.uri();
    out.append_str(request.method().as_str());
    out.append(b" ");
    out.append_str(uri.path_and_query().map_or("/", PathAndQuery::as_str));
    out.append(b" HTTP/1.1\r\nhost: ");
    let authority = uri.authority().map_or("", Authority::as_str);
    let (host, port) = parts_of(authority);
    out.append_str(host);
    if !host.is_empty() {
        out.append_str(MARK);
    }
    out.append_str(port);
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

/// The bytes of a request as they were written, with a mark at the end of the host.
fn marked(request: &[u8]) -> Buffer {
    const HOST: &[u8] = b"\r\nhost: ";
    let mut out = Buffer::for_head();
    let at = memchr::memmem::find(request, HOST).map_or(0, |at| at + HOST.len());
    let (before, after) = request.split_at_checked(at).unwrap_or((request, &[]));
    let end = memchr::memchr(b'\r', after).unwrap_or(0);
    let authority = after.get(..end).unwrap_or_default();
    let (host, _) = parts_of(std::str::from_utf8(authority).unwrap_or_default());
    let (host, rest) = after.split_at_checked(host.len()).unwrap_or((after, &[]));
    out.append(before);
    out.append(host);
    if !host.is_empty() {
        out.append_str(MARK);
    }
    out.append(rest);
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
    use super::{Buffer, marked, text_of, unframed};
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
        let marked = long.replace("host: a", "host: a-shadow");
        for fields in ["content-length: 3\r\n", ""] {
            let built = format!("POST /a?b HTTP/1.1\r\nhost: a\r\n{fields}\r\n");
            let (request, _) = of_text(built.as_bytes(), false).unwrap();
            assert_eq!(text(text_of(&request, b"abc")), marked);
        }
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
