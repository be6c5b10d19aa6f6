//! The options that the annotations of an Ingress ask for.

use std::sync::Arc;
use std::time::Duration;

use myriad_api::secret::UsersForm;
use myriad_model::{Cors, Policy, Protocol, RateLimit, SameSite, SourceRanges};

use super::sheet::Sheet;
use super::{AskedService, ClientCertificates, DENIED, Errors, RequestCopies, SOURCES, values};
use crate::resolve::Namespaces;
use crate::settings::Hsts;

/// The options that the annotations of an Ingress ask for, defaults filled in.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether plain HTTP is redirected on hosts with TLS.
    pub ssl_redirect: bool,
    /// Whether plain HTTP is redirected on every host.
    pub force_ssl_redirect: bool,
    /// `rewrite-target`.
    pub rewrite: Option<Box<str>>,
    /// `upstream-vhost`; empty leaves the host as it came.
    pub upstream_host: Box<str>,
    /// `use-regex`.
    pub use_regex: bool,
    /// The protocol of the backends.
    pub protocol: Protocol,
    /// Client addresses that are admitted; empty for all.
    pub sources_allowed: SourceRanges,
    /// Client addresses that are refused, admitted or not.
    pub sources_denied: SourceRanges,
    /// Whether an admitted address or an authentication suffices.
    pub satisfies_any: bool,
    /// The users whose passwords are asked for.
    pub basic: Option<Basic>,
    /// The certificates that clients are asked for on its hosts.
    pub clients: Option<Box<ClientCertificates>>,
    /// The service that is asked whether requests may pass.
    pub inquiry: Option<Box<AskedService>>,
    /// The largest request body. Unlimited by default, where ingress-nginx has 1 MiB.
    pub request_body_bytes_max: u64,
    /// The longest handshake with an endpoint.
    pub connect_timeout: Duration,
    /// The longest wait between two reads.
    pub read_timeout: Duration,
    /// The longest wait between two writes.
    pub send_timeout: Duration,
    /// `enable-cors` and what belongs to it.
    pub cors: Option<Box<Cors>>,
    /// The path that `/` redirects to.
    pub app_root: Option<Box<str>>,
    /// The redirect of all paths, instead of their backends: status and location.
    pub redirect: Option<(u16, Box<str>)>,
    /// The answer of all paths, instead of their backends: status and body.
    pub respond: Option<(u16, Box<str>)>,
    /// The conditions and share of a canary, if the Ingress is one.
    pub canary: Option<Canary>,
    /// `affinity`.
    pub affinity: Option<Affinity>,
    /// `upstream-hash-by`: what makes requests equal, that go to the same endpoint.
    pub hash_by: Option<Box<str>>,
    /// Where copies of requests go.
    pub copies: Option<Box<RequestCopies>>,
    /// Errors that pages take the place of.
    pub errors: Option<Box<Errors>>,
    /// How often its paths are served.
    pub rate_limits: Box<[RateLimit]>,
    /// Namespaces whose hosts below its wildcards may be served with its certificates; `*` for
    /// all. Each of its wildcards has them.
    pub wildcard_sharing: Namespaces,
    /// The `Strict-Transport-Security` that browsers are sent.
    pub hsts: Option<Hsts>,
    /// The issuer that provides the certificates of its `tls`.
    pub issuer: Option<Box<str>>,
    /// The ConfigMap of header fields for responses, as `namespace/name`.
    pub headers: Option<Box<str>>,
    /// The paths that have to stay closed.
    pub blocked: Blocked,
}

impl Options {
    /// Whether somebody may not ask for its paths, or nobody may.
    pub fn restricts(&self) -> bool {
        let answers = self.respond.as_ref().map(|(status, _)| *status);
        !self.sources_allowed.is_empty()
            || !self.sources_denied.is_empty()
            || self.basic.is_some()
            || self.clients.is_some()
            || self.inquiry.is_some()
            || self.blocked != Blocked::No
            || matches!(answers, Some(401 | 403 | 503))
    }
}

/// The paths that have to stay closed because something that restricts access has no effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blocked {
    /// Nothing.
    #[default]
    No,
    /// The paths of the Ingress.
    Paths,
    /// All paths of its hosts.
    Host,
}

/// Which requests a canary takes from the main Ingress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Canary {
    /// A header (lower case) and what it has to be.
    pub header: Option<(Box<str>, HeaderTest)>,
    /// A cookie that says `always` or `never`.
    pub cookie: Option<Box<str>>,
    /// Its share of all others.
    pub weight: u32,
    /// The total that the share is a part of.
    pub weight_total: u32,
}

/// The test of a canary's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderTest {
    /// `always` or `never`.
    Switch,
    /// This value.
    Exact(Box<str>),
    /// Matched by this regex.
    Regex(Box<str>),
}

/// `auth-type: basic` and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Basic {
    /// The Secret with the users, as `namespace/name`.
    pub secret: Arc<str>,
    /// Where they stand in it.
    pub form: UsersForm,
    /// The realm that clients are shown when they are asked for a password.
    pub realm: Box<str>,
}

/// A cookie that keeps clients on their endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Affinity {
    /// The cookie's name.
    pub cookie: Box<str>,
    /// Its path; none means that of the route.
    pub path: Option<Box<str>>,
    /// Its age in seconds; 0 for a session cookie.
    pub age_max_s: u32,
    /// Whether it is for HTTPS only; none means where the host has TLS.
    pub secure: Option<bool>,
    /// Its domain; empty for the host alone.
    pub domain: Box<str>,
    /// The sites whose requests it goes along with.
    pub same_site: SameSite,
    /// Whether it stays as it is when its endpoint fails.
    pub stays_on_failure: bool,
}

impl Default for Options {
    fn default() -> Self {
        let policy = Policy::default();
        Options {
            ssl_redirect: true,
            force_ssl_redirect: false,
            rewrite: None,
            upstream_host: Box::default(),
            use_regex: false,
            protocol: Protocol::Http1,
            sources_allowed: SourceRanges::default(),
            sources_denied: SourceRanges::default(),
            satisfies_any: false,
            basic: None,
            clients: None,
            inquiry: None,
            request_body_bytes_max: policy.request_body_bytes_max,
            connect_timeout: policy.connect_timeout,
            read_timeout: policy.read_timeout,
            send_timeout: policy.send_timeout,
            cors: None,
            app_root: None,
            redirect: None,
            respond: None,
            canary: None,
            affinity: None,
            hash_by: None,
            copies: None,
            errors: None,
            rate_limits: Box::default(),
            wildcard_sharing: Namespaces::default(),
            issuer: None,
            hsts: None,
            headers: None,
            blocked: Blocked::No,
        }
    }
}

/// Reads what concerns the backends and who may reach them.
pub(super) fn read(sheet: &mut Sheet<'_>, options: &mut Options) {
    // Read as text, a regex would let go by what it was meant to catch.
    options.use_regex = sheet.flag_closing("use-regex");
    options.rewrite = sheet.read_closing(
        "rewrite-target",
        "write a path that starts with '/', with $1 to $9 for groups of the path's regex",
        values::rewrite,
    );
    let expected = "write a host, with a port where it has one";
    let host = sheet.read("upstream-vhost", expected, values::authority);
    options.upstream_host = host.unwrap_or_default();
    let protocol = sheet.read_closing(
        "backend-protocol",
        "write \"HTTP\", \"HTTPS\", \"GRPC\" or \"GRPCS\"; other protocols are not supported yet",
        |value| match value.to_ascii_uppercase().as_str() {
            "HTTP" => Some(Protocol::Http1),
            "HTTPS" => Some(Protocol::Https1),
            "GRPC" => Some(Protocol::H2c),
            "GRPCS" => Some(Protocol::H2),
            _ => None,
        },
    );
    options.protocol = protocol.unwrap_or(options.protocol);
    read_sources(sheet, options);
    let expected = "write namespaces separated by commas, or \"*\" for all";
    let namespaces = sheet.read("wildcard-sharing", expected, values::namespaces);
    options.wildcard_sharing = namespaces.unwrap_or_default();
    read_hsts(sheet, options);
    let expected = "write the name of an issuer";
    options.issuer = sheet.read("issuer", expected, |value| {
        is_name(value).then(|| value.into())
    });
    let expected = "write NAMESPACE/NAME of a ConfigMap";
    let headers = sheet.read("custom-headers", expected, |value| match value {
        "" => Some(None),
        value => is_object(value).then(|| Some(value.into())),
    });
    options.headers = headers.flatten();
    let expected = "write a number of bytes such as 8m, or 0 for no limit";
    if let Some(bytes) = sheet.read("proxy-body-size", expected, values::size) {
        options.request_body_bytes_max = bytes;
    }
    for (name, timeout) in [
        ("proxy-connect-timeout", &mut options.connect_timeout),
        ("proxy-read-timeout", &mut options.read_timeout),
        ("proxy-send-timeout", &mut options.send_timeout),
    ] {
        if let Some(seconds) = sheet.seconds(name) {
            *timeout = Duration::from_secs(seconds.into());
        }
    }
}

/// Reads which client addresses are admitted, which are refused whatever admits them, and whether
/// an authentication does instead.
fn read_sources(sheet: &mut Sheet<'_>, options: &mut Options) {
    if let Some(name) = SOURCES.iter().find(|name| sheet.text(name).is_some()) {
        options.sources_allowed = sheet.networks(name, true).unwrap_or_default();
    }
    if sheet.text(DENIED).is_some() {
        options.sources_denied = sheet.networks(DENIED, true).unwrap_or_default();
    }
    // Whatever else stands there means the stricter of both.
    let any = sheet.read("satisfy", "write \"any\" or \"all\"", |value| match value {
        "any" => Some(true),
        "all" | "" => Some(false),
        _ => None,
    });
    options.satisfies_any = any == Some(true);
}

/// Reads what browsers are asked, in place of what is said for all Ingresses.
fn read_hsts(sheet: &mut Sheet<'_>, options: &mut Options) {
    let expected = "write such as \"max-age=31536000; includeSubDomains\", or \"off\"";
    let hsts = sheet.read("hsts", expected, |value| match value {
        "off" => Some(None),
        value => Hsts::parse(value).map(Some),
    });
    options.hsts = hsts.unwrap_or(options.hsts);
}

/// Whether a text is a namespace and a name.
fn is_object(text: &str) -> bool {
    let parts = text.split_once('/');
    parts.is_some_and(|(namespace, name)| is_name(namespace) && is_name(name))
}

fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    !text.is_empty() && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
}
