//! Inquiries: the question whether a request may pass, as ingress-nginx has its service asked, and
//! what of the answer counts.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use myriad_model::Inquiry;
use myriad_model::variables::{Piece, Variable, pieces};

use super::check::{Answered, CheckChanges, OwnedHeader, is_sendable, may_change, told_fields};
use super::hops;
use crate::codec::buffer::Buffer;
use crate::codec::client::ClientAddress;
use crate::codec::field::{BETWEEN_COOKIES, Field, KnownField, is_read_as, tells_of_certificate};
use crate::codec::head::Head;
use crate::pattern::Budget;
use crate::route::condition::cookie;
use crate::telemetry::request_id::RequestId;

/// The most bytes that a text with variables may become.
const FILLED_BYTES_MAX: usize = 16 << 10;

/// So many bytes of a head are looked at in one step for what a variable stands for.
const BYTES_A_STEP: usize = 8;

/// The most bytes of a question.
const QUESTION_BYTES_MAX: usize = 128 << 10;

/// Fields that say how a request came, which the service is told by the proxy alone.
const OWN: [&str; 9] = [
    "x-auth-request-redirect",
    "x-forwarded-proto",
    "x-original-method",
    "x-original-uri",
    "x-original-url",
    "x-real-ip",
    "x-request-id",
    "x-scheme",
    "x-sent-from",
];

/// The start of names of fields by which proxies tell how a request came.
const FORWARDED: &str = "x-forwarded-";

/// The field by which a service sets cookies.
const SET_COOKIE: &str = "set-cookie";

/// The field by which a service says how to be known (RFC 9110, section 11.6.1).
const CHALLENGE: &str = "www-authenticate";

/// A request, as texts with variables speak of it.
#[derive(Clone, Copy)]
pub struct Facts<'a, 'h> {
    /// Its head, with the scheme that the client speaks.
    pub head: &'a Head<'h>,
    /// Its client.
    pub client: ClientAddress,
    /// Whether its sender may say how it came.
    pub may_tell: bool,
    /// The steps that looking for what variables stand for may cost. Once they are spent, no text
    /// can be filled.
    pub budget: &'a Budget,
}

/// The meaning of an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum InquiryVerdict {
    /// The request passes, changed so. Headers for the response are cookies.
    Pass(CheckChanges),
    /// It does not: its client is not known (401), or may not (403).
    Refuse(u16),
    /// The answer is none.
    Unclear,
}

/// A text with what its variables stand for; none where it becomes too long, or takes too many
/// steps.
pub fn filled(text: &str, facts: Facts<'_, '_>) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    for piece in pieces(text) {
        match piece.ok()? {
            Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
            Piece::Variable(variable) => facts.put(variable, &mut out),
        }
        if out.len() > FILLED_BYTES_MAX || facts.budget.is_spent() {
            return None;
        }
    }
    Some(out)
}

/// Whether a key of remembered answers has anything of what its sender is known by: of cookies,
/// user and password where it has such variables, else of fields and parameters. A key in which all
/// of that is empty would be that of everybody.
pub fn knows_sender(key: &str, facts: Facts<'_, '_>) -> bool {
    let is_proof = |variable: Variable<'_>| match variable {
        Variable::User | Variable::Cookie(_) => true,
        Variable::Field(name) => name.eq_ignore_ascii_case("authorization"),
        _ => false,
    };
    let is_said =
        |variable: Variable<'_>| matches!(variable, Variable::Field(_) | Variable::Parameter(_));
    let variables = || {
        pieces(key).flatten().filter_map(|piece| match piece {
            Piece::Variable(variable) => Some(variable),
            Piece::Text(_) => None,
        })
    };
    let is_there = |variable| {
        let mut out = Vec::new();
        facts.put(variable, &mut out);
        !out.is_empty()
    };
    if variables().any(is_proof) {
        return variables().filter(|it| is_proof(*it)).any(is_there);
    }
    let mut said = variables().filter(|it| is_said(*it)).peekable();
    said.peek().is_none() || said.any(is_there)
}

/// A text with variables as a URL, or the part of one: without blanks and control characters.
pub fn filled_url(text: &str, facts: Facts<'_, '_>) -> Option<String> {
    let filled = String::from_utf8(filled(text, facts)?).ok()?;
    let is_clean = filled.bytes().all(|byte| byte > b' ' && byte != 0x7f);
    (is_clean && !filled.is_empty()).then_some(filled)
}

/// Writes the question of a request, which goes to this authority; none where it cannot be asked.
/// `id` is what the endpoint gets as the id of the request, and `is_hop` is whether it is told that
/// the request passed a gateway.
pub fn question(
    inquiry: &Inquiry,
    authority: &str,
    (facts, is_hop): (Facts<'_, '_>, bool),
    id: Option<&RequestId>,
) -> Option<Buffer> {
    let head = facts.head;
    let target = filled_url(&inquiry.target, facts).filter(|it| it.starts_with('/'))?;
    let mut out = Buffer::for_head();
    out.append_str(&inquiry.method);
    out.append(b" ");
    out.append_str(&target);
    out.append(b" HTTP/1.1\r\nhost: ");
    out.append_str(authority);
    out.append(b"\r\n");
    let is_said = |name: &str| {
        let mut said = inquiry.fields.iter();
        said.any(|(known, _)| is_read_as(name, known) && may_be_said(known))
    };
    for (field, value) in told_fields(head, facts.may_tell, is_hop) {
        let is_left_out = is_own(field, facts.may_tell) || is_claimed(inquiry, field.name);
        if !is_left_out && !is_said(field.name) {
            put(&mut out, field.name, &value);
        }
    }
    let address = facts.client.to_string().into_bytes();
    let own: [(&str, Option<Vec<u8>>); 5] = [
        (
            "x-original-url",
            filled("$scheme://$http_host$request_uri", facts),
        ),
        ("x-original-method", Some(head.method.into())),
        ("x-auth-request-redirect", filled(&inquiry.redirect, facts)),
        ("x-real-ip", Some(address.clone())),
        ("x-forwarded-for", Some(address)),
    ];
    for (name, value) in own {
        if !is_said(name) {
            put(&mut out, name, &value?);
        }
    }
    if is_hop {
        put(&mut out, hops::FIELD, &hops::told(head).concat());
    }
    if let Some(id) = id.filter(|_| !is_said("x-request-id")) {
        put(&mut out, "x-request-id", id.text(&mut [0; 36]).as_bytes());
    }
    let said = inquiry.fields.iter().filter(|(name, _)| may_be_said(name));
    for (name, value) in said {
        let value = filled(value, facts)?;
        if !value.is_empty() {
            put(&mut out, name, &value);
        }
        if out.len() > QUESTION_BYTES_MAX {
            return None;
        }
    }
    if !matches!(&*inquiry.method, "GET" | "HEAD") {
        out.append(b"content-length: 0\r\n");
    }
    out.append(b"\r\n");
    Some(out)
}

/// The part of an answer that counts, which is all that is kept of it.
pub fn of_use(inquiry: &Inquiry, answered: Answered) -> Answered {
    let Answered {
        status, mut fields, ..
    } = answered;
    fields.retain(|(name, _)| {
        is_passed(inquiry, name) || **name == *SET_COOKIE || **name == *CHALLENGE
    });
    Answered {
        status,
        fields,
        ..Answered::default()
    }
}

/// The meaning of an answer.
pub fn verdict(inquiry: &Inquiry, answered: &Answered) -> InquiryVerdict {
    match answered.status {
        200..300 => {
            let passed = answered.fields.iter();
            let passed = passed.filter(|(name, _)| is_passed(inquiry, name));
            InquiryVerdict::Pass(CheckChanges {
                set: passed.cloned().collect(),
                downstream: cookies(answered).collect(),
                ..CheckChanges::default()
            })
        }
        status @ (401 | 403) => InquiryVerdict::Refuse(status),
        _ => InquiryVerdict::Unclear,
    }
}

/// The fields of an answer that set cookies.
pub fn cookies(answered: &Answered) -> impl Iterator<Item = OwnedHeader> {
    let fields = answered.fields.iter();
    fields.filter(|(name, _)| **name == *SET_COOKIE).cloned()
}

/// The fields of an answer that say how to be known.
pub fn challenges(answered: &Answered) -> impl Iterator<Item = OwnedHeader> {
    let fields = answered.fields.iter();
    fields.filter(|(name, _)| **name == *CHALLENGE).cloned()
}

fn is_passed(inquiry: &Inquiry, name: &str) -> bool {
    let mut passed = inquiry.passed.iter();
    passed.any(|known| **known == *name) && !KnownField::read_of(name).tells_of_way()
}

/// Whether a client's field would claim what only the answer says. What a client is known by is
/// none: a service that answers with it may have to see the client's first.
fn is_claimed(inquiry: &Inquiry, name: &str) -> bool {
    let mut passed = inquiry.passed.iter();
    let is_proof = |known: &str| ["authorization", "cookie"].contains(&known);
    passed.any(|known| !is_proof(known) && is_read_as(name, known))
}

/// Whether a service may be told a field in place of the proxy's: not how the question is framed,
/// nor whom the request comes from.
fn may_be_said(name: &str) -> bool {
    let is_of_client = matches!(
        KnownField::read_of(name),
        KnownField::ForwardedFor
            | KnownField::ForwardedClientCert
            | KnownField::RealIp
            | KnownField::Forwarded
    );
    may_change(name) && !is_of_client && !tells_of_certificate(name)
}

/// Whether a field would say how the request came, of which its sender has no say.
fn is_own(field: &Field<'_>, may_tell: bool) -> bool {
    let name = field.name;
    if OWN.iter().any(|own| is_read_as(name, own)) {
        return true;
    }
    let start = name.get(..FORWARDED.len()).unwrap_or_default();
    let is_forwarded = field.known == KnownField::Forwarded || is_read_as(start, FORWARDED);
    is_forwarded && !may_tell
}

fn put(out: &mut Buffer, name: &str, value: &[u8]) {
    if is_sendable(name, value) {
        out.append_str(name);
        out.append(b": ");
        out.append(value);
        out.append(b"\r\n");
    }
}

impl Facts<'_, '_> {
    /// The steps of finding what a variable stands for: a text has many, and for each all is looked
    /// at where it may be.
    fn steps(self, variable: Variable<'_>) -> usize {
        let head = self.head;
        let query = head.query.map_or(0, str::len);
        let values = |is_it: &dyn Fn(&Field<'_>) -> bool| -> usize {
            let fields = head.fields.iter().filter(|field| is_it(field));
            fields.map(|field| field.value.len()).sum()
        };
        let bytes = match variable {
            Variable::Scheme
            | Variable::Host
            | Variable::Authority
            | Variable::Method
            | Variable::Address => 0,
            Variable::Target | Variable::EscapedTarget => head.path.len() + query,
            Variable::Parameter(_) => query,
            Variable::User => values(&|field| field.name.eq_ignore_ascii_case("authorization")),
            Variable::Cookie(_) => values(&|field| field.known == KnownField::Cookie),
            Variable::Field(_) => head.fields.iter().map(|field| field.name.len()).sum(),
        };
        1 + bytes / BYTES_A_STEP
    }

    fn put(self, variable: Variable<'_>, out: &mut Vec<u8>) {
        if !self.budget.take(self.steps(variable)) {
            return;
        }
        let head = self.head;
        match variable {
            Variable::Scheme => out.extend_from_slice(head.scheme.as_bytes()),
            Variable::Host => out.extend_from_slice(head.host.as_bytes()),
            Variable::Authority => out.extend_from_slice(head.authority.as_bytes()),
            Variable::Method => out.extend_from_slice(head.method.as_bytes()),
            // A vector takes all that is written.
            Variable::Address => drop(write!(out, "{}", self.client)),
            Variable::Target => {
                out.extend_from_slice(head.path.as_bytes());
                if let Some(query) = head.query {
                    out.push(b'?');
                    out.extend_from_slice(query.as_bytes());
                }
            }
            Variable::EscapedTarget => {
                escape(&head.path, out);
                if let Some(query) = head.query {
                    escape("?", out);
                    escape(query, out);
                }
            }
            Variable::User => out.extend(user(head)),
            Variable::Field(name) => {
                let fields = head.fields.iter();
                for (at, field) in fields.filter(|it| is_read_as(name, it.name)).enumerate() {
                    if at > 0 {
                        out.extend_from_slice(match field.known {
                            KnownField::Cookie => BETWEEN_COOKIES,
                            _ => b", ",
                        });
                    }
                    out.extend_from_slice(field.value);
                }
            }
            Variable::Cookie(name) => {
                out.extend_from_slice(cookie(head, name).unwrap_or_default());
            }
            Variable::Parameter(name) => {
                let pairs = head.query.unwrap_or_default().split('&');
                let mut pairs = pairs.filter_map(|pair| pair.split_once('='));
                let found = pairs.find(|(known, _)| known.eq_ignore_ascii_case(name));
                out.extend_from_slice(found.map_or("", |(_, value)| value).as_bytes());
            }
        }
    }
}

/// Escapes all but what no part of a URL escapes (RFC 3986, section 2.3).
fn escape(text: &str, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |half: u8| DIGITS.get(usize::from(half)).copied().unwrap_or_default();
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => out.push(byte),
            false => out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]),
        }
    }
}

/// The name of the user that a request gives by its password; empty where it gives none.
fn user(head: &Head<'_>) -> Vec<u8> {
    let mut fields = head.fields.iter();
    let field = fields.find(|it| it.name.eq_ignore_ascii_case("authorization"));
    let decoded = field.and_then(|field| {
        let text = std::str::from_utf8(field.value).ok()?;
        let (scheme, encoded) = text.split_once(' ')?;
        let is_basic = scheme.eq_ignore_ascii_case("basic");
        STANDARD
            .decode(encoded.trim_matches(' '))
            .ok()
            .filter(|_| is_basic)
    });
    let mut decoded = decoded.unwrap_or_default();
    let end = decoded.iter().position(|byte| *byte == b':');
    decoded.truncate(end.unwrap_or_default());
    decoded
}

#[cfg(test)]
mod tests;
