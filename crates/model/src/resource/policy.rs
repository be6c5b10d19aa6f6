//! The rules of a route beside its match and its action.

use std::time::Duration;

use crate::{Fault, HeaderEdits, Inquiry, Mirror, Name, Provider, RateLimit, Retry, SourceRanges};

/// The policy of a route. Many routes share one by pointer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// The answer of a listener without TLS, instead of the route's action.
    pub tls_redirect: Option<TlsRedirect>,
    /// The change to the target of the request; the query is kept.
    pub rewrite: Option<Box<Rewrite>>,
    /// Client addresses that are admitted; empty admits everyone, others get 403.
    pub sources_allowed: SourceRanges,
    /// Client addresses that get 403, also where they are admitted otherwise.
    pub sources_denied: SourceRanges,
    /// Whether one of both suffices: an address that is admitted, or an authentication by the
    /// route's own rules. Otherwise it takes both.
    pub satisfies_any: bool,
    /// The largest request body in bytes, 413 beyond; `u64::MAX` for no limit.
    pub request_body_bytes_max: u64,
    /// The longest TCP and TLS handshake with an endpoint. 504 after the last try.
    pub connect_timeout: Duration,
    /// The longest wait between two reads from the endpoint. 504 before the response has started.
    pub read_timeout: Duration,
    /// The longest wait between two writes to the endpoint. 504 before the response has started.
    pub send_timeout: Duration,
    /// Cross-origin resource sharing (Fetch standard); none leaves its headers to the endpoint.
    pub cors: Option<Box<Cors>>,
    /// A cookie that keeps a client on its endpoint.
    pub affinity: Option<Box<Affinity>>,
    /// The longest time from the end of the request to the end of the response, over all tries;
    /// zero for no limit. 504 before the response has started.
    pub request_timeout: Duration,
    /// The longest that one try may take from its start to the end of its response; zero for no
    /// limit. 504 before the response has started.
    pub attempt_timeout: Duration,
    /// When a request is sent again; none sends it to one other endpoint where no connection to
    /// the first could be had.
    pub retry: Option<Box<Retry>>,
    /// Delays and failures that are injected on purpose.
    pub fault: Option<Box<Fault>>,
    /// The upstreams that get copies; their answers change nothing for the client.
    pub mirrors: Box<[Mirror]>,
    /// The changes to headers.
    pub headers: Option<Box<HeaderEdits>>,
    /// How often requests are served; at most [`RateLimit::PER_POLICY_MAX`], all of which hold.
    pub rate_limits: Box<[RateLimit]>,
    /// The provider that requests and their responses pass by; one that is not there is one that is
    /// down.
    pub processor: Option<Name>,
    /// The treatment of header fields of the request with underscores in their names.
    pub underscores: Underscores,
    /// The reading of a request's path that the route's path is compared with.
    pub path_reading: PathReading,
    /// The trust whose users are asked for their passwords, 401 without; none asks nobody. One that
    /// is not there admits nobody.
    pub users: Option<Name>,
    /// The realm that clients are shown when they are asked for a password (RFC 7617, section 2),
    /// without control characters; at most [`Policy::REALM_BYTES_MAX`].
    pub realm: Box<str>,
    /// The `Strict-Transport-Security` of responses over TLS with a certificate of the host's own,
    /// where the endpoint sends none (RFC 6797); empty for none.
    pub hsts: Box<str>,
    /// Errors that pages of another upstream take the place of.
    pub error_pages: Option<Box<ErrorPages>>,
    /// The service that is asked whether a request may pass; none asks nobody.
    pub inquiry: Option<Box<Inquiry>>,
    /// The certificate that a client has to have shown; none asks for nothing beside the handshake.
    pub client_certificate: Option<Box<CertificateDemand>>,
    /// The provider that is asked whether a request may pass, beside those of access policies; none
    /// asks nobody. It is no processor.
    pub authorizer: Option<Box<Provider>>,
    /// Whether a namespace has a say in it that is not the one of the route's object: then what
    /// becomes of its requests tells as little of endpoints as if they were another namespace's.
    pub is_foreign: bool,
    /// Whether it is the operator's, of the namespace of the gateway itself, so that what becomes
    /// of its requests tells of endpoints of every namespace.
    pub is_operators: bool,
}

impl Policy {
    /// The most bytes of a realm.
    pub const REALM_BYTES_MAX: usize = 256;

    /// Whether some who ask do not get what the route leads to.
    pub fn restricts(&self) -> bool {
        self.weighs_sources() || self.authenticates() || self.client_certificate.is_some()
    }

    /// Whether somebody is refused for the address that a request comes from.
    pub fn weighs_sources(&self) -> bool {
        !self.sources_allowed.is_empty() || !self.sources_denied.is_empty()
    }

    /// Whether rules of its own say who has to be authenticated.
    pub fn authenticates(&self) -> bool {
        self.users.is_some() || self.inquiry.is_some() || self.authorizer.is_some()
    }

    /// Whether who is authenticated may ask from any address, and who asks from one that is
    /// admitted need not be authenticated.
    pub fn is_satisfied_by_any(&self) -> bool {
        self.satisfies_any && self.authenticates()
    }
}

/// The certificate that a client has to have shown, where the handshake leaves that to routes
/// ([`ClientAuthMode::Shown`](crate::ClientAuthMode::Shown)). One in plain text has shown none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CertificateDemand {
    /// The trust that has to have verified it: where the handshake went by another, it counts as
    /// none.
    pub trust: Name,
    /// The clients that are served; others get 400.
    pub need: CertificateNeed,
    /// A regex that its subject (RFC 2253) has to match from one of its common names on, 403
    /// otherwise; empty for any.
    pub subject: Box<str>,
    /// The URL where clients are sent in place of 400; empty for none.
    pub error_page: Box<str>,
    /// Whether the endpoint is told the certificate itself, beside what became of it.
    pub is_passed_on: bool,
    /// Whether requests in plain text are served all the same.
    pub spares_plain_text: bool,
}

/// The clients that a route serves, by their certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CertificateNeed {
    /// Clients with a verified certificate.
    Verified = 1,
    /// Clients with a verified certificate, or with none.
    VerifiedIfAny = 2,
    /// These, and those with one of an authority that nobody knows.
    AnyAuthority = 3,
}

/// Errors that pages of another upstream take the place of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ErrorPages {
    /// The statuses, 400 to 599, sorted.
    pub statuses: Box<[u16]>,
    /// The upstream that has the pages.
    pub upstream: Name,
    /// Fields of the question for a page, which tell whose error it is; at most
    /// [`ErrorPages::FIELDS_MAX`].
    pub fields: Box<[(Box<str>, Box<str>)]>,
}

impl ErrorPages {
    /// The most statuses.
    pub const STATUSES_MAX: usize = 200;
    /// The most fields.
    pub const FIELDS_MAX: usize = 8;
}

/// The treatment of header fields of a request with underscores or other punctuation in their
/// names, which servers may take for dashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Underscores {
    /// Fields that would be taken for ones that the proxy sets, verifies or frames by are dropped.
    #[default]
    Colliding = 0,
    /// All are dropped.
    Dropped = 1,
    /// All are passed on.
    Passed = 2,
}

/// A reading of a request's path, as the software that a dialect was made for documents it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PathReading {
    /// The bytes that go to the endpoint.
    #[default]
    AsSent = 0,
    /// Istio's BASE: escapes of letters, digits, `-`, `.`, `_` and `~` are undone.
    Base = 1,
    /// The one that nginx compares with its locations: escapes are undone, and many slashes are
    /// one. `%25`, and escapes of what is not UTF-8, stay as they are.
    Decoded = 2,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            tls_redirect: None,
            rewrite: None,
            sources_allowed: SourceRanges::default(),
            sources_denied: SourceRanges::default(),
            satisfies_any: false,
            request_body_bytes_max: u64::MAX,
            connect_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(60),
            send_timeout: Duration::from_secs(60),
            cors: None,
            affinity: None,
            request_timeout: Duration::ZERO,
            attempt_timeout: Duration::ZERO,
            retry: None,
            fault: None,
            mirrors: Box::default(),
            headers: None,
            rate_limits: Box::default(),
            processor: None,
            underscores: Underscores::Colliding,
            path_reading: PathReading::AsSent,
            users: None,
            realm: Box::default(),
            hsts: Box::default(),
            error_pages: None,
            inquiry: None,
            client_certificate: None,
            authorizer: None,
            is_foreign: false,
            is_operators: false,
        }
    }
}

/// A redirect of the same URL to HTTPS.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TlsRedirect {
    /// 301, 302, 307 or 308.
    pub status: u16,
    /// The port of the HTTPS URL; 443 is left out of the URL.
    pub port: u16,
    /// Requests whose path starts with this are answered by the route's action instead; empty
    /// for none.
    pub except_prefix: Box<str>,
}

/// Answers to cross-origin requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cors {
    /// Origins that are allowed: `*`, an origin, or an origin whose host is `*` or starts with
    /// `*.`, for any number of labels.
    pub origins: Box<[Box<str>]>,
    /// `Access-Control-Allow-Methods`.
    pub methods: Box<str>,
    /// `Access-Control-Allow-Headers`.
    pub headers_allowed: Box<str>,
    /// `Access-Control-Expose-Headers`; empty for none.
    pub headers_exposed: Box<str>,
    /// `Access-Control-Allow-Credentials`.
    pub credentials: bool,
    /// `Access-Control-Max-Age` in seconds.
    pub age_max_s: u32,
    /// Regexes of origins that are allowed as well; each matches an origin as a whole.
    pub origin_patterns: Box<[Box<str>]>,
    /// Whether preflights of other origins are passed on, instead of answered with no leave.
    pub forwards_unmatched: bool,
    /// Whether `*` among origins, methods or headers is answered by what the request names, and not
    /// as it stands there.
    pub echoes_wildcards: bool,
    /// Whether preflights are told of exposed headers too.
    pub exposes_in_preflights: bool,
}

/// The change to the target of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rewrite {
    /// The path; none leaves it as it came.
    pub path: Option<PathRewrite>,
    /// The authority; empty leaves it as it came.
    pub authority: Box<str>,
}

/// The change to a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PathRewrite {
    /// The path, where `$1` to `$9` are groups of the route's regex.
    Template(Box<str>),
    /// The replacement of the part that the path match covers.
    Matched(Box<str>),
    /// The replacement of each match of a regex; `$1` to `$9` are its groups.
    Substitution {
        /// The regex; it need not match at the start.
        regex: Box<str>,
        /// The text in place of each match.
        template: Box<str>,
    },
}

impl PathRewrite {
    /// The groups that a template may refer to.
    pub const GROUPS_MAX: usize = 9;

    /// The most instructions of a regex whose groups are followed: one for each character, class,
    /// repetition, alternative and border of a group, as often as they are repeated, and one for
    /// the end. What a thread keeps for the places of groups is bounded so.
    pub const INSTRUCTIONS_MAX: usize = 1_638;
}

/// A cookie, or a header field, that keeps a client on its endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Affinity {
    /// The cookie's name, or that of the field in lower case.
    pub cookie: Box<str>,
    /// Its `Path` attribute.
    pub path: Box<str>,
    /// Its `Max-Age` in seconds; 0 for a session cookie.
    pub age_max_s: u32,
    /// Whether it has the attribute `Secure`.
    pub secure: bool,
    /// Its `Domain` attribute; empty for the host alone.
    pub domain: Box<str>,
    /// Its `SameSite` attribute.
    pub same_site: SameSite,
    /// Whether it stays as it is where another endpoint has to take over for once; otherwise it
    /// leads to that one from then on.
    pub stays_on_failure: bool,
    /// Whether it is a header field of responses, which clients send back, in place of a cookie.
    pub in_header: bool,
    /// The age from which on it leads nowhere, whatever the client keeps; zero for none.
    pub absolute_timeout: Duration,
}

/// The sites whose requests a cookie goes along with, by its attribute `SameSite`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SameSite {
    /// No attribute: browsers decide.
    #[default]
    Unsaid = 0,
    /// Its own, and others that lead there.
    Lax = 1,
    /// Its own.
    Strict = 2,
    /// All.
    None = 3,
    /// All, and no attribute for browsers that are known to mistake this one.
    NoneWhereTaken = 4,
}
