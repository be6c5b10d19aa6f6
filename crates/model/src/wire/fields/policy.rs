//! The rules of a route beside its match and its action.

use std::time::Duration;

use super::route::redirect_status;
use super::*;
use crate::{
    Abort, AbortAnswer, Affinity, CertificateDemand, CertificateNeed, CheckProtocol, Cors, Delay,
    ErrorPages, Fault, HeaderEdit, HeaderEdits, Inquiry, Mirror, PathReading, PathRewrite, Policy,
    RateLimit, Retry, RetryConditions, Rewrite, SameSite, TlsRedirect, Underscores, is_lower_token,
};

message! {
    /// The rules of a route beside its match and action.
    Policy {
        1 tls_redirect: some::<TlsRedirect>();
        2 rewrite: boxed::<Rewrite>();
        /// CIDR notation; empty admits everyone.
        3 sources_allowed: ranges("source range");
        4 request_body_bytes_max: uint64();
        5 connect_timeout as connect_timeout_ms: milliseconds();
        6 read_timeout as read_timeout_ms: milliseconds();
        7 send_timeout as send_timeout_ms: milliseconds();
        8 cors: boxed::<Cors>();
        9 affinity: boxed::<Affinity>();
        /// 0 for none.
        10 request_timeout as request_timeout_ms: milliseconds(), since 2;
        11 retry: boxed::<Retry>(), since 2;
        12 fault: boxed::<Fault>(), since 2;
        13 mirrors: list(each::<Mirror>()), since 2;
        14 headers: boxed::<HeaderEdits>(), since 2;
        40 rate_limits: list_of(
            RateLimit::PER_POLICY_MAX, "number of rate limits", each::<RateLimit>()
        ), since 3;
        /// A provider; empty for none.
        41 processor: optional_name(), since 3;
        // The next two need no newer schema: an older proxy reads these in all routes as it
        // always did, and would serve no new route of an Ingress if it had to know better.
        /// 0 drops header fields that collide, 1 all, 2 none.
        42 underscores: choice::<Underscores>("underscores");
        /// 1 for Istio's BASE, 2 for nginx's; 0 for the path as it is sent.
        43 path_reading: choice::<PathReading>("reading of paths");
        /// A trust; empty asks nobody for a password.
        44 users: optional_name(), since 3;
        /// The realm that clients are shown when they are asked for a password.
        45 realm: checked(header_text("realm"), |it| check_realm(it));
        // To an older proxy what becomes of all requests tells of endpoints, as it always did.
        /// Whether another namespace than the object's has a say in it.
        46 is_foreign as foreign: boolean();
        /// CIDR notation; empty denies nobody.
        60 sources_denied: ranges("source range"), since 3;
        /// Whether an admitted address or an authentication suffices.
        61 satisfies_any: boolean(), since 3;
        /// The value of Strict-Transport-Security; empty for none.
        62 hsts: header_text("value of a header");
        63 error_pages: boxed::<ErrorPages>();
        // To an older proxy the operator is one more namespace, as ever.
        /// Whether it is of the namespace of the gateway itself.
        64 is_operators as operators: boolean();
        /// Absent asks nobody.
        65 inquiry: boxed::<Inquiry>(), since 4;
        /// The demand on the client's certificate, where the handshake leaves it to routes.
        70 client_certificate: boxed::<CertificateDemand>(), since 4;
        /// 0 for none.
        71 attempt_timeout as attempt_timeout_ms: milliseconds(), since 5;
        /// The provider that is asked; absent asks nobody.
        72 authorizer: optional::<_, Box<Provider>>(
            checked(each::<Provider>(), is_asked)
        ), since 5;
    }
}

/// A processor accompanies requests, and says of none whether it may pass.
fn is_asked(provider: &Provider) -> Result<(), WireError> {
    match provider.protocol {
        CheckProtocol::Http(_) | CheckProtocol::Grpc => Ok(()),
        CheckProtocol::Process(_) => Err(WireError::Invalid("protocol of an authorizer")),
    }
}

fn check_realm(text: &str) -> Result<(), WireError> {
    match text.len() <= Policy::REALM_BYTES_MAX {
        true => Ok(()),
        false => Err(WireError::Invalid("realm")),
    }
}

choices! {
    Underscores { Colliding, Dropped, Passed }
    PathReading { AsSent, Base, Decoded }
    CertificateNeed { Verified, VerifiedIfAny, AnyAuthority }
}

message! {
    /// The certificate that a client has to have shown.
    CertificateDemand {
        /// By which it was verified.
        1 trust: resource_name("trust");
        /// 1 a verified one, 2 that or none, 3 one of any authority or none.
        2 need: choice::<CertificateNeed>("need of a certificate");
        /// A regex of its subject from a common name on; empty for any.
        3 subject: string();
        /// A URL for those who have none; empty for 400.
        4 error_page: header_text("page of an error");
        5 is_passed_on as passed_on: boolean();
        6 spares_plain_text: boolean();
    }
}

message! {
    /// When a request is sent again.
    Retry {
        /// Beside the first try.
        1 attempts: at_most(Retry::ATTEMPTS_MAX, "number of retries");
        /// 0 for none.
        2 try_timeout as try_timeout_ms: milliseconds();
        /// Bits, see the values.
        3 conditions: retry_conditions();
        /// Statuses of responses, sorted.
        4 statuses: Packed(http_status(200..=599, "status"));
        /// Before the first repetition; doubles with each.
        5 backoff as backoff_ms: milliseconds();
    }
}

fn retry_conditions() -> impl Item<Value = RetryConditions, Out = RetryConditions> {
    number_as(
        "uint32",
        |it: &RetryConditions| it.0.into(),
        |it| {
            let bits = it as u32;
            match bits & !RetryConditions::ALL.0 {
                0 => Ok(RetryConditions(bits)),
                _ => Err(WireError::Invalid("condition of a retry")),
            }
        },
    )
}

message! {
    /// Trouble that is made on purpose.
    Fault {
        1 delay: some::<Delay>();
        2 abort: some::<Abort>();
    }
}

message! {
    /// Requests that wait.
    Delay {
        /// How many of a million requests.
        1 share as share_ppm: millionths();
        2 delay as delay_ms: milliseconds();
    }
}

message! {
    /// Requests that are answered instead of handled.
    Abort, abort {
        /// How many of a million requests.
        1 share as share_ppm: millionths();
        /// An HTTP status, or 0.
        2 status: uint32(), of match abort.answer {
            AbortAnswer::Status(status) => u32::from(status),
            AbortAnswer::Grpc(_) => 0,
        };
        /// A gRPC status, where the other is 0.
        3 grpc_status: uint32(), of match abort.answer {
            AbortAnswer::Status(_) => 0,
            AbortAnswer::Grpc(status) => u32::from(status),
        };
    } => {
        let answer = match (status, grpc_status) {
            (0, grpc @ 1..=16) => AbortAnswer::Grpc(grpc as u8),
            (status @ 200..=599, 0) => AbortAnswer::Status(status as u16),
            _ => return Err(WireError::Invalid("status")),
        };
        Abort { share, answer }
    }
}

message! {
    /// A destination of copies of requests.
    Mirror {
        1 upstream: resource_name("upstream");
        /// How many of a million requests.
        2 share as share_ppm: millionths();
        /// Empty for that of the request, with a mark.
        3 authority: header_text("authority of copies");
        /// Whether copies come without their bodies.
        4 omits_body: boolean();
        // To an older proxy copies are marked, as ever.
        /// Whether they have no mark where they name no other authority.
        5 keeps_authority: boolean();
    }
}

message! {
    /// The changes to the headers of requests and responses.
    HeaderEdits {
        1 request: defaulted::<HeaderEdit>();
        2 response: defaulted::<HeaderEdit>();
    }
}

message! {
    /// Removals come first, then what is set, then what is added.
    HeaderEdit, edit {
        1 remove: list(header_name("header name"));
        2 set: header_list();
        3 add: header_list();
    } => HeaderEdit::new(remove, set, add)
}

message! {
    /// Errors that pages of another upstream take the place of.
    ErrorPages, pages {
        /// Sorted.
        1 statuses: Packed(http_status(400..=599, "status of an error"));
        2 upstream: resource_name("upstream");
        /// They tell whose error it is.
        3 fields: list_of(
            ErrorPages::FIELDS_MAX, "number of fields", checked(each::<Header>(), header_field)
        );
    } => {
        if statuses.len() > ErrorPages::STATUSES_MAX || !statuses.is_sorted() {
            return Err(WireError::Invalid("statuses of errors"));
        }
        ErrorPages { statuses: statuses.into(), upstream, fields: fields.into() }
    }
}

/// Header fields, their names in lower case.
pub(super) fn header_list() -> List<impl Item<Value = Pair, Out = Pair>> {
    list(checked(each::<Header>(), header_field))
}

type Pair = (Box<str>, Box<str>);

pub(super) fn header_field((name, value): &Pair) -> Result<(), WireError> {
    match (is_lower_token(name), has_control(value)) {
        (false, _) => Err(WireError::Invalid("header name")),
        (true, true) => Err(WireError::Invalid("header value")),
        (true, false) => Ok(()),
    }
}

message! {
    /// A redirect of the same URL to HTTPS.
    TlsRedirect {
        1 status: redirect_status();
        2 port: port_number();
        /// Requests under this path prefix are not redirected; empty for none.
        3 except_prefix: string();
    }
}

message! {
    /// The change to the target of a request.
    Rewrite, rewrite {
        1 path as form: some_of::<PathForm>(), of rewrite.path.as_ref().map(PathForm::new);
        /// The new authority; empty keeps it.
        4 authority: header_text("authority"), since 2;
    } => Rewrite { path: path.map(PathForm::rewrite), authority }
}

/// The forms that a path is rewritten in.
enum PathForm {
    Path(Box<str>),
    Matched(Box<str>),
    Substitution((Box<str>, Box<str>)),
}

forms! {
    PathForm {
        /// Replacement of the path; $1 to $9 are groups of the route's regex.
        1 path: header_text("rewrite") => Path;
        /// Replacement of what the path match covers.
        2 matched: header_text("rewrite") => Matched, since 2;
        /// Replacement of what a regex finds in the path.
        3 substitution: each::<Substitution>() => Substitution, since 2;
    }
}

impl PathForm {
    fn new(value: &PathRewrite) -> PathForm {
        match value {
            PathRewrite::Template(template) => PathForm::Path(template.clone()),
            PathRewrite::Matched(text) => PathForm::Matched(text.clone()),
            PathRewrite::Substitution { regex, template } => {
                PathForm::Substitution((regex.clone(), template.clone()))
            }
        }
    }

    fn rewrite(self) -> PathRewrite {
        match self {
            PathForm::Path(template) => PathRewrite::Template(template),
            PathForm::Matched(text) => PathRewrite::Matched(text),
            PathForm::Substitution((regex, template)) => {
                PathRewrite::Substitution { regex, template }
            }
        }
    }
}

message! {
    /// Every place that a regex matches is replaced.
    Substitution for (Box<str>, Box<str>), pair {
        1 regex: required_text("regex"), of pair.0;
        /// $1 to $9 are groups.
        2 template: header_text("rewrite"), of pair.1;
    } => (regex, template)
}

message! {
    /// Answers to cross-origin requests.
    Cors {
        /// Origins as written; "*" for all, "*." wildcards of one host.
        1 origins: list(header_text("CORS origin"));
        2 methods: header_text("CORS methods");
        3 headers_allowed: header_text("CORS headers");
        4 headers_exposed: header_text("CORS headers");
        5 credentials: boolean();
        6 age_max_s: uint32();
        /// Regexes that match origins as a whole.
        7 origin_patterns: list(string()), since 2;
        8 forwards_unmatched: boolean(), since 3;
        /// Whether "*" is answered by what the request names.
        9 echoes_wildcards: boolean(), since 5;
        10 exposes_in_preflights: boolean();
    }
}

message! {
    /// A cookie that keeps a client on its endpoint.
    Affinity, affinity {
        1 cookie: header_text("cookie name");
        2 path: header_text("cookie path");
        /// 0 for a session cookie.
        3 age_max_s: uint32();
        4 secure: boolean();
        /// Empty for the host alone.
        5 domain: header_text("cookie domain");
        /// 1 Lax, 2 Strict, 3 None, 4 None where browsers take it; 0 for no attribute.
        6 same_site: choice::<SameSite>("SameSite");
        /// Whether it stays as it is when the endpoint fails.
        7 stays_on_failure: boolean();
        /// Whether it is a header field, and the name of the cookie is that of the field.
        8 in_header: boolean(), since 5;
        /// 0 for none.
        9 absolute_timeout as absolute_timeout_ms: milliseconds(), since 5;
    } => {
        if cookie.is_empty() {
            return Err(WireError::Missing("cookie name"));
        }
        if in_header && !is_lower_token(&cookie) {
            return Err(WireError::Invalid("header name"));
        }
        Affinity {
            cookie,
            path,
            age_max_s,
            secure,
            domain,
            same_site,
            stays_on_failure,
            in_header,
            absolute_timeout,
        }
    }
}

choices! {
    SameSite { Unsaid, Lax, Strict, None, NoneWhereTaken }
}

message! {
    /// How often requests are served.
    RateLimit, limit {
        /// Limits of one name are one count.
        1 name: string();
        2 requests: uint32();
        3 interval as interval_ms: milliseconds();
        4 burst: at_most(RateLimit::REQUESTS_MAX, "rate limit");
        5 is_per_client: boolean();
        /// CIDR notation.
        6 exempt: ranges("source range");
        /// Whether it is about requests at the same time, whatever the interval is.
        7 is_at_once: boolean();
    } => {
        let is_interval = (Duration::from_secs(1)..=RateLimit::INTERVAL_MAX).contains(&interval);
        let is_rate = (1..=RateLimit::REQUESTS_MAX).contains(&requests);
        if !is_interval || !is_rate {
            return Err(WireError::Invalid("rate limit"));
        }
        RateLimit { name, requests, interval, burst, is_per_client, exempt, is_at_once }
    }
}
