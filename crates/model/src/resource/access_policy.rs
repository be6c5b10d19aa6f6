//! A check of every request on a set of listeners, before its route has a say.
//!
//! One access policy stands for one policy that people wrote, so that a changed policy is one
//! changed resource, whatever the number of routes behind it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ipnet::IpNet;

use crate::Name;

/// One policy over all requests on some listeners.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessPolicy {
    /// The listeners, sorted; empty for all of them but those of a workload's own connections,
    /// whose names begin with `outbound/`.
    pub listeners: Arc<[Name]>,
    /// The check.
    pub check: AccessCheck,
}

/// The check that an access policy makes.
#[derive(Clone, Debug, PartialEq)]
pub enum AccessCheck {
    /// Whether the request is admitted.
    Authorize(Authorize),
    /// The identity of the sender, by a signed token that the request bears.
    Authenticate(Authenticate),
}

/// Whether requests are admitted. Of all access policies on a listener, those that ask somebody
/// else come first, then those that deny, then those that allow; where any allows, one of these has
/// to fit.
#[derive(Clone, Debug, PartialEq)]
pub struct Authorize {
    /// The outcome for requests that match.
    pub action: AccessAction,
    /// Whether the outcome is counted and nothing else.
    pub is_dry_run: bool,
    /// Requests fit that fit any of these; none fits without one.
    pub rules: Box<[AccessRule]>,
}

/// The outcome for requests that match the access policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessAction {
    /// They are admitted, and those that fit no access policy of this action are not.
    Allow,
    /// They are refused.
    Deny,
    /// They are marked in the access log.
    Audit,
    /// The provider of this name decides.
    Custom(Name),
}

/// Conditions on a request. All three parts have to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessRule {
    /// One of these has to hold with all of its tests; empty holds for every request.
    pub from: Box<[Box<[AccessTest]>]>,
    /// Likewise.
    pub to: Box<[Box<[AccessTest]>]>,
    /// All of these have to hold.
    pub when: Box<[AccessTest]>,
}

/// A test of one property of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessTest {
    /// The property. Where it has several values, one of them has to fit.
    pub subject: AccessSubject,
    /// One of these has to fit; empty asks for nothing.
    pub any: Box<[AccessMatcher]>,
    /// None of these may fit.
    pub none: Box<[AccessMatcher]>,
}

/// A property of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessSubject {
    /// The identity in the client's certificate, as a SPIFFE URI without its scheme.
    Principal,
    /// The namespace in that identity.
    Namespace,
    /// `namespace/account` in that identity.
    ServiceAccount,
    /// The trust domain of that identity.
    TrustDomain,
    /// `issuer/subject` of the verified token.
    RequestPrincipal,
    /// The audiences of the verified token.
    Audience,
    /// The authorized party of the verified token.
    Presenter,
    /// A claim of the verified token, by its path.
    Claim(Box<[Box<str>]>),
    /// The address of the other end of the connection.
    PeerAddress,
    /// The address of the client, as far as proxies in front are trusted.
    ClientAddress,
    /// The address that was connected to.
    LocalAddress,
    /// The port that was connected to.
    LocalPort,
    /// The name that the client asked for in its TLS handshake.
    ServerName,
    /// The authority, with its port and without.
    Host,
    /// The method.
    Method,
    /// The normalised path.
    Path,
    /// A header field, by its name in lower case.
    Header(Box<str>),
}

/// A condition on a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessMatcher {
    /// It is this.
    Exact(Box<str>),
    /// It starts with this.
    Prefix(Box<str>),
    /// It ends with this.
    Suffix(Box<str>),
    /// There is one, and it is not empty.
    Present,
    /// It is a path like this one, where `{*}` is one segment and `{**}` any number of them.
    Template(Box<str>),
    /// It is an address in this block.
    Block(IpNet),
}

/// The tokens (RFC 7519) that say who requests come from. A request with none is admitted, and
/// one with tokens of which none is valid gets 401.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticate {
    /// The issuers whose tokens are known.
    pub issuers: Box<[TokenIssuer]>,
}

/// Tokens of one issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenIssuer {
    /// The claim `iss`; empty takes tokens of every issuer.
    pub issuer: Box<str>,
    /// One of these is an audience of the token; empty asks for none.
    pub audiences: Box<[Box<str>]>,
    /// The keys that signatures are verified with.
    pub keys: TokenKeys,
    /// Header fields that bear a token, and what stands before it in each.
    pub headers: Box<[(Box<str>, Box<str>)]>,
    /// Query parameters that bear one.
    pub params: Box<[Box<str>]>,
    /// Cookies that bear one.
    pub cookies: Box<[Box<str>]>,
    /// Whether the endpoint gets the token too.
    pub is_forwarded: bool,
    /// A header field for the payload, in base64url; empty for none.
    pub payload_header: Box<str>,
    /// Header fields, each for a claim by its path.
    pub claim_headers: Box<[ClaimHeader]>,
    /// Claims whose text is a list of words, beside `scope` and `permission`.
    pub word_claims: Box<[Box<str>]>,
}

/// The keys that signatures of tokens are verified with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenKeys {
    /// A key set (RFC 7517) as JSON. One that has no usable key verifies nothing.
    Inline(Bytes),
    /// A key set that proxies fetch and keep.
    Fetched {
        /// The URL of the keys, or of the issuer's description (OpenID Connect Discovery).
        url: Box<str>,
        /// Whether the URL leads to a description whose `jwks_uri` leads to the keys.
        is_discovered: bool,
        /// How long one fetch may take.
        timeout: Duration,
    },
}

/// A header field that passes a claim on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimHeader {
    /// Its name, in lower case.
    pub header: Box<str>,
    /// The path of the claim.
    pub claim: Box<[Box<str>]>,
}

impl AccessPolicy {
    /// The most parts that an access policy may have: rules, tests and forms together.
    pub const PARTS_MAX: usize = 65_536;
    /// The most issuers of one access policy.
    pub const ISSUERS_MAX: usize = 64;
    /// The largest key set, in bytes.
    pub const KEYS_BYTES_MAX: usize = 1 << 20;
}
