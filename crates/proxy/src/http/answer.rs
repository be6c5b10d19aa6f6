//! Answers that the proxy gives itself.

use myriad_model::{AbortAnswer, Action};

use super::page::{ErrorPage, Form, grpc_status};
use crate::admission::places::HeldPlace;
use crate::codec::trailer::GRPC;
use crate::failure::FailureKind;
use crate::policy::check::{Answered, OwnedHeader, RefusalResponse, may_pass_on};
use crate::policy::cors::Additions;
use crate::policy::header::Edits;
use crate::route::entry::RouteEntry;

/// An answer without an endpoint.
#[derive(Default)]
pub struct LocalReply {
    /// The status.
    pub status: u16,
    /// The target of a redirect.
    pub location: Option<Box<str>>,
    /// Further fields.
    pub additions: Additions,
    /// Fields that a provider told.
    pub told: Vec<OwnedHeader>,
    /// The body that a provider told.
    pub body: Option<Box<[u8]>>,
    /// The failure that it answers, if it is not the route's own answer.
    pub failure: Option<FailureKind>,
    /// The status that a call of gRPC is told; empty for all other requests.
    pub grpc_status: &'static str,
    /// The body in plain text, where no route has one.
    text: &'static str,
    /// The form of the body, where that is a page.
    page: Option<Form>,
    /// The route whose answer it is.
    route: Option<RouteEntry>,
    /// The place that a page of somebody else's has.
    _place: Option<HeldPlace>,
}

impl LocalReply {
    /// The answer to a failure.
    pub fn failed(kind: FailureKind) -> Self {
        let verdict = kind.verdict();
        let mut answer = LocalReply {
            status: verdict.status,
            text: verdict.text,
            failure: Some(kind),
            ..LocalReply::default()
        };
        if kind == FailureKind::Overloaded {
            answer.additions.push(("retry-after", (*b"1").into()));
        }
        if kind == FailureKind::BadToken {
            let challenge = (*b"Bearer error=\"invalid_token\"").into();
            answer.additions.push(("www-authenticate", challenge));
        }
        answer
    }

    /// The answer that a provider gives in place of everything else.
    pub fn refused(refusal: RefusalResponse) -> Self {
        let fields = refusal.fields.into_iter();
        let fields = fields.filter(|(name, _)| may_pass_on(name));
        let mut answer = LocalReply::failed(FailureKind::ProviderRefused);
        answer.status = refusal.status;
        answer.told = fields.collect();
        answer.body = Some(refusal.body);
        answer
    }

    /// The page that an upstream has for somebody else's error, which keeps its place until it is
    /// sent.
    pub fn page(answered: Answered, place: HeldPlace) -> Self {
        let fields = answered.fields.into_iter();
        let fields = fields.filter(|(name, _)| may_pass_on(name));
        LocalReply {
            told: fields.collect(),
            body: Some(answered.body.into()),
            _place: Some(place),
            ..LocalReply::empty(answered.status)
        }
    }

    /// A redirect that no route's edits have a say in.
    pub fn redirect(status: u16, location: impl Into<Box<str>>) -> Self {
        LocalReply {
            status,
            location: Some(location.into()),
            ..LocalReply::default()
        }
    }

    /// An answer without a body.
    pub fn empty(status: u16) -> Self {
        LocalReply {
            status,
            ..LocalReply::default()
        }
    }

    /// The answer to a request that is answered on purpose. For gRPC it is nothing but a head.
    pub fn aborted(answer: AbortAnswer) -> Self {
        match answer {
            AbortAnswer::Status(status) => LocalReply {
                status,
                ..LocalReply::failed(FailureKind::FaultAbort)
            },
            AbortAnswer::Grpc(status) => {
                let mut made = LocalReply {
                    failure: Some(FailureKind::FaultAbort),
                    ..LocalReply::empty(200)
                };
                let status = status.to_string().into_bytes();
                made.additions
                    .push(("content-type", (*b"application/grpc").into()));
                made.additions.push(("grpc-status", status.into()));
                made
            }
        }
    }

    /// This answer with further fields.
    pub fn with(mut self, additions: Additions) -> Self {
        self.additions.extend(additions);
        self
    }

    /// This answer as that of a route, with its edits, and its body where it has one.
    pub fn of(mut self, route: &RouteEntry) -> Self {
        self.route = Some(route.clone());
        self
    }

    /// Makes a page of the answer to a failure, unless somebody else has said what is answered.
    /// Text for workloads of a mesh, and such as others have for the same, is kept as it is:
    /// programs compare it.
    pub fn put_page(&mut self, form: Form, id: &str) {
        if form == Form::Grpc {
            return self.put_code();
        }
        let Some(kind) = self
            .failure
            .filter(|_| self.body.is_none() && self.status >= 400)
        else {
            return;
        };
        let is_compared = matches!(kind, FailureKind::Unauthorized | FailureKind::NoDestination);
        if self.text.is_empty() || (form == Form::Text && is_compared) {
            return;
        }
        let page = ErrorPage {
            status: self.status,
            phrase: reason(self.status),
            text: self.text,
            flag: kind.verdict().flag,
            id,
        };
        self.body = Some(page.write(form).into_bytes().into());
        self.page = Some(form);
    }

    /// Makes of an error what calls of gRPC read: nothing but a head, with a code and a message.
    fn put_code(&mut self) {
        if self.status < 400 {
            return;
        }
        self.grpc_status = grpc_status(self.status);
        let message = match self.text.trim_end() {
            "" => reason(self.status),
            text => text,
        };
        self.told.retain(|(name, _)| **name != *"content-type");
        for (name, value) in [
            ("content-type", GRPC),
            ("grpc-status", self.grpc_status),
            ("grpc-message", message),
        ] {
            self.additions.push((name, value.as_bytes().into()));
        }
        self.body = Some(Box::default());
        self.status = 200;
    }

    /// How many bytes of memory it takes beside what every answer does, about. What a route has to
    /// say lies there.
    pub fn memory(&self) -> usize {
        let location = self.location.as_ref().map_or(0, |location| location.len());
        let body = self.body.as_ref().map_or(0, |body| body.len());
        location + body + bytes_of(&self.additions, &self.told)
    }

    /// Whether its status has a body at all.
    pub fn has_body(&self) -> bool {
        !matches!(self.status, 100..200 | 204 | 304)
    }

    /// The body.
    pub fn body(&self) -> &[u8] {
        if let Some(body) = &self.body {
            return body;
        }
        let route = self.route.as_ref().and_then(|entry| entry.route());
        match route.map(|route| route.action) {
            Some(Action::Respond(fixed)) => &fixed.body,
            _ => self.text.as_bytes(),
        }
    }

    /// The fields of the answer, but for its length and those of the connection.
    pub fn fields(&self, mut visit: impl FnMut(&str, &[u8])) {
        let route = self.route.as_ref().and_then(|entry| entry.route());
        let edits = route.and_then(|route| route.policy.headers.as_ref());
        let edits = Edits::new(edits.map(|edits| &edits.response), None);
        let mut visit_own = |name: &str, value: &[u8]| {
            if edits.keeps(name) {
                visit(name, value);
            }
        };
        visit_own("date", &super::date::now());
        visit_own("server", b"myriad");
        let has_type = self.told.iter().any(|(name, _)| **name == *"content-type");
        if !self.body().is_empty() && !has_type {
            let form = self.page.unwrap_or_default();
            visit_own("content-type", form.content_type().as_bytes());
        }
        if self.page.is_some() {
            visit_own("vary", b"accept");
        }
        if self.status == 405 {
            visit_own("allow", b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
        }
        if let Some(location) = &self.location {
            visit_own("location", location.as_bytes());
        }
        edits.each(&mut visit);
        for (name, value) in &self.additions {
            visit(name, value);
        }
        for (name, value) in &self.told {
            visit(name, value);
        }
    }
}

/// How many bytes of memory fields of an answer take, about.
pub fn bytes_of(additions: &Additions, told: &[OwnedHeader]) -> usize {
    let additions = additions.iter().map(|(_, value)| value.len());
    let told = told.iter();
    let told = told.map(|(name, value)| name.len() + value.len() + size_of::<OwnedHeader>());
    additions.sum::<usize>() + told.sum::<usize>()
}

/// The reason phrase of a status, for HTTP/1.
pub fn reason(status: u16) -> &'static str {
    // 499 is never sent, and a status that nobody registered has no phrase, which is allowed.
    http::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("")
}
