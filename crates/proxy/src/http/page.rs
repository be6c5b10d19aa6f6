//! The pages of failures: status, reason and id of the request, in the form that the client reads.

use crate::codec::field::KnownField;
use crate::codec::head::{Head, Version};
use crate::codec::trailer::{GRPC, is_grpc};

/// The form of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Text, for commands and for clients that state no preference.
    #[default]
    Text,
    /// HTML, for browsers.
    Html,
    /// JSON, for programs.
    Json,
    /// None: calls of gRPC are told by fields.
    Grpc,
}

impl Form {
    /// The form that a client likes best (RFC 9110, section 12.5.1), the first of equals.
    pub fn of(head: &Head<'_>) -> Form {
        if is_call(head) {
            return Form::Grpc;
        }
        let mut best = (0, Form::Text);
        let fields = head
            .fields
            .iter()
            .filter(|it| it.known == KnownField::Accept);
        for range in fields.flat_map(|it| it.value.split(|byte| *byte == b',')) {
            let mut parts = range.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let Some(form) = parts.next().and_then(form_of) else {
                continue;
            };
            let weight = parts
                .find_map(|part| part.strip_prefix(b"q="))
                .map_or(1_000, weight);
            if weight == 1_000 && best.0 == 0 {
                return form;
            }
            if weight > best.0 {
                best = (weight, form);
            }
        }
        best.1
    }

    /// Its media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Form::Text => "text/plain; charset=utf-8",
            Form::Html => "text/html; charset=utf-8",
            Form::Json => "application/json",
            Form::Grpc => GRPC,
        }
    }
}

/// Whether a request is a call of gRPC, which takes HTTP/2.
fn is_call(head: &Head<'_>) -> bool {
    head.version == Version::Http2
        && head.method == "POST"
        && head
            .fields
            .iter()
            .any(|field| field.name.eq_ignore_ascii_case("content-type") && is_grpc(field.value))
}

/// The code of gRPC that a status of HTTP stands for, as gateways agree on.
pub fn grpc_status(status: u16) -> &'static str {
    match status {
        400 => "13",
        401 => "16",
        403 => "7",
        404 => "12",
        429 | 502..=504 => "14",
        _ => "2",
    }
}

fn form_of(range: &[u8]) -> Option<Form> {
    const RANGES: [(&str, Form); 8] = [
        ("*/*", Form::Text),
        ("text/html", Form::Html),
        ("application/json", Form::Json),
        ("text/plain", Form::Text),
        ("text/*", Form::Text),
        ("application/xhtml+xml", Form::Html),
        ("application/problem+json", Form::Json),
        ("application/*", Form::Json),
    ];
    let mut known = RANGES.iter();
    let found = known.find(|(name, _)| range.eq_ignore_ascii_case(name.as_bytes()));
    found.map(|(_, form)| *form)
}

/// A weight in thousandths; what cannot be read counts little.
fn weight(text: &[u8]) -> u16 {
    let text = std::str::from_utf8(text).unwrap_or_default();
    let weight = text.parse::<f32>().unwrap_or(0.001);
    (weight.clamp(0.0, 1.0) * 1_000.0) as u16
}

/// The content of a page. Nothing in it is from the request but its id, which needs no escapes.
pub struct ErrorPage<'a> {
    /// The status.
    pub status: u16,
    /// The reason phrase of the status.
    pub phrase: &'static str,
    /// The reason, for people.
    pub text: &'static str,
    /// Why, as the access log and metrics have it.
    pub flag: &'static str,
    /// The id of the request.
    pub id: &'a str,
}

impl ErrorPage<'_> {
    /// Writes it.
    pub fn write(&self, form: Form) -> String {
        let (status, phrase, flag, id) = (self.status, self.phrase, self.flag, self.id);
        let text = self.text.trim_end();
        match form {
            Form::Text => format!("{text}\nrequest id: {id}\n"),
            Form::Html => format!(
                "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
                 <title>{status} {phrase}</title></head>\n<body><h1>{status} {phrase}</h1>\n\
                 <p>{text} ({flag})</p>\n<p>Request id: <code>{id}</code></p></body></html>\n"
            ),
            Form::Json => format!(
                "{{\"status\":{status},\"reason\":\"{flag}\",\"message\":\"{text}\",\
                 \"request_id\":\"{id}\"}}\n"
            ),
            Form::Grpc => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ErrorPage, Form, grpc_status};
    use crate::codec::head::{self, Version};
    use crate::limits::Limits;

    #[test]
    fn the_form_is_what_the_client_likes_best() {
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        for (accept, form) in [
            ("*/*", Form::Text),
            (browser, Form::Html),
            ("application/json, text/plain, */*", Form::Json),
            (
                "text/plain;q=0.5, application/json;q=0.9, text/html;q=0.7",
                Form::Json,
            ),
            ("image/png, TEXT/HTML;q=0.1", Form::Html),
            ("text/html;q=0, */*;q=0.1", Form::Text),
            ("image/png", Form::Text),
            ("text/html;q=x, application/json;q=0.2", Form::Json),
            (",;,", Form::Text),
        ] {
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\n\r\n");
            let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
            assert_eq!(Form::of(&head), form, "{accept}");
        }
        let none = head::parse(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &Limits::default());
        assert_eq!(Form::of(&none.unwrap()), Form::Text);
    }

    #[test]
    fn calls_of_grpc_are_told_by_codes() {
        for (version, method, media_type, is_call) in [
            (Version::Http2, "POST", "application/grpc", true),
            (Version::Http2, "POST", "application/grpc+proto", true),
            (Version::Http2, "POST", "application/grpc; a=b", true),
            (Version::Http2, "POST", "application/grpc-web", false),
            (Version::Http2, "POST", "application/json", false),
            (Version::Http2, "GET", "application/grpc", false),
            (Version::Http11, "POST", "application/grpc", false),
        ] {
            let text = format!(
                "{method} / HTTP/1.1\r\nHost: a\r\nAccept: text/html\r\n\
                 Content-Type: {media_type}\r\n\r\n"
            );
            let mut head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
            head.version = version;
            assert_eq!(Form::of(&head) == Form::Grpc, is_call, "{text}");
        }
        let codes = [400, 401, 403, 404, 413, 421, 429, 500, 502, 503, 504].map(grpc_status);
        let expected = ["13", "16", "7", "12", "2", "2", "14", "2", "14", "14", "14"];
        assert_eq!(codes, expected);
    }

    #[test]
    fn a_page_has_status_reason_and_id() {
        let page = ErrorPage {
            status: 503,
            phrase: "Service Unavailable",
            text: "no endpoint\n",
            flag: "no_endpoint",
            id: "a-b",
        };
        assert_eq!(page.write(Form::Text), "no endpoint\nrequest id: a-b\n");
        assert_eq!(
            page.write(Form::Json),
            "{\"status\":503,\"reason\":\"no_endpoint\",\"message\":\"no endpoint\",\
             \"request_id\":\"a-b\"}\n"
        );
        let html = page.write(Form::Html);
        assert!(html.contains("<h1>503 Service Unavailable</h1>") && html.contains("<code>a-b<"));
    }
}
