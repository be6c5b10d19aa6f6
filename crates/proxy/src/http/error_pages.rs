//! Pages that take the place of errors: another upstream is asked for them, and told whose error
//! it was.

use std::rc::Rc;
use std::time::Duration;

use myriad_model::{Origin, Policy};

use super::answer::LocalReply;
use super::keeper::Kept;
use super::plan::Forward;
use super::upstream::own::{Own, converse};
use super::worker::Worker;
use crate::admission::share::space_of;
use crate::codec::buffer::Buffer;
use crate::codec::head::Head;
use crate::policy::hops;
use crate::telemetry::request_id::RequestId;

/// The longest wait for a page.
const PAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest page in bytes: it is kept until its client has read it.
const PAGE_BYTES_MAX: usize = 64 << 10;

/// The question for a page but for its end, which says what the error was; none where errors go on
/// as they are, or pass by a processor. It may be led back here as any request is, so it tells of
/// the gateway where requests do.
pub fn question(
    policy: &Policy,
    (head, is_hop): (&Head<'_>, bool),
    id: Option<&RequestId>,
) -> Option<Box<Buffer>> {
    let pages = policy.error_pages.as_deref();
    let pages = pages.filter(|_| policy.processor.is_none())?;
    let mut out = Buffer::for_head();
    out.append_str(if head.method == "HEAD" { "HEAD" } else { "GET" });
    out.append(b" / HTTP/1.1\r\nhost: ");
    out.append_str(head.authority);
    for (name, value) in &pages.fields {
        begin(name, &mut out);
        out.append_str(value);
    }
    begin("x-original-uri", &mut out);
    out.append_str(&head.path);
    if let Some(query) = head.query {
        out.append(b"?");
        out.append_str(query);
    }
    let mut fields = head.fields.iter();
    if let Some(field) = fields.find(|field| field.name.eq_ignore_ascii_case("accept")) {
        begin("x-format", &mut out);
        out.append(field.value);
    }
    if is_hop {
        begin(hops::FIELD, &mut out);
        hops::told(head).iter().for_each(|part| out.append(part));
    }
    if let Some(id) = id {
        begin("x-request-id", &mut out);
        out.append_str(id.text(&mut [0; 36]));
    }
    Some(Box::new(out))
}

/// An error that a page takes the place of.
pub struct Replaced {
    /// Its status.
    pub status: u16,
    /// The answer where no page can be had.
    pub otherwise: LocalReply,
}

/// The page for an error, or its own answer.
pub async fn answer(worker: &Rc<Worker>, plan: &mut Forward, error: Box<Replaced>) -> LocalReply {
    let Replaced { status, otherwise } = *error;
    let question = plan.page_question.take();
    let pages = plan.policy().and_then(|it| it.error_pages.as_deref());
    let (Some(mut head), Some(pages)) = (question.map(|it| *it), pages) else {
        return otherwise;
    };
    let namespace = plan.route.origin().map_or("", Origin::namespace);
    let Some(place) = worker.pages.take(namespace) else {
        return otherwise;
    };
    begin("x-code", &mut head);
    head.append_decimal(status.into());
    head.append(b"\r\n\r\n");
    let own = Own {
        upstream: &pages.upstream,
        host: &plan.host,
        head,
        is_head: plan.is_head,
        timeout: PAGE_TIMEOUT,
        space: space_of(namespace),
    };
    let answered = converse(worker, own, Kept::Whole(PAGE_BYTES_MAX)).await;
    match answered.filter(|it| (200..=599).contains(&it.status)) {
        Some(answered) => {
            let mut page = LocalReply::page(answered, place);
            page.failure = otherwise.failure;
            page
        }
        None => otherwise,
    }
}

fn begin(name: &str, out: &mut Buffer) {
    out.append(b"\r\n");
    out.append_str(name);
    out.append(b": ");
}

#[cfg(test)]
mod tests {
    use myriad_model::{ErrorPages, Policy};

    use super::question;
    use crate::codec::head;
    use crate::limits::Limits;

    #[test]
    fn a_question_tells_whose_error_it_was() {
        let pages = ErrorPages {
            statuses: [404].into(),
            upstream: "shop/errors:80".into(),
            fields: [("x-namespace".into(), "shop".into())].into(),
        };
        let policy = Policy {
            error_pages: Some(Box::new(pages)),
            ..Policy::default()
        };
        let text = "POST /a?b HTTP/1.1\r\nHost: a.example:80\r\nAccept: text/html\r\n\
                    Content-Length: 3\r\n\r\n";
        let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
        let asked = question(&policy, (&head, false), None).unwrap();
        let asked = String::from_utf8(asked.filled().to_vec()).unwrap();
        assert_eq!(
            asked,
            "GET / HTTP/1.1\r\nhost: a.example:80\r\nx-namespace: shop\r\n\
             x-original-uri: /a?b\r\nx-format: text/html"
        );
        let asked = question(&policy, (&head, true), None).unwrap();
        assert!(asked.filled().ends_with(b"\r\ncdn-loop: myriad"));
        assert!(question(&Policy::default(), (&head, true), None).is_none());
    }
}
