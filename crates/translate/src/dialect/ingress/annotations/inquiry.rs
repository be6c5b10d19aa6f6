//! The service that is asked whether requests may pass, by annotations and for all Ingresses.

use std::net::IpAddr;
use std::time::Duration;

use myriad_api::{Meta, Severity};
use myriad_model::variables::{self, Piece, Variable, pieces};
use myriad_model::{AnswerMemory, Host, Inquiry, Protocol, is_token};

use super::owned::is_of_way;
use super::sheet::Sheet;
use super::{Blocked, Options, key_of, values};

/// The name of the annotation that says where the service is.
pub(crate) const URL: &str = "auth-url";

/// The name of the annotation by which an Ingress does without the service that is asked for all.
const GLOBAL: &str = "enable-global-auth";

/// The names that mean nothing without [`URL`], and would restrict with it.
const FURTHER: [&str; 9] = [
    "auth-always-set-cookie",
    "auth-cache-duration",
    "auth-cache-key",
    "auth-method",
    "auth-proxy-set-headers",
    "auth-request-redirect",
    "auth-response-headers",
    "auth-signin",
    "auth-signin-redirect-param",
];

/// The parameter of the location where clients become known that says where they come from, where
/// nobody names another.
pub(super) const PARAMETER: &str = "rd";

/// The URL that they come from, as ingress-nginx tells it.
const ORIGIN: &str = "$scheme://$http_host$escaped_request_uri";

/// The answers that are remembered where nobody says which, as ingress-nginx has it.
const DURATION: &str = "200 202 401 5m";

/// The longest that an answer is remembered, in seconds.
const AGE_MAX_S: u64 = 30 * 86_400;

/// The statuses that let pass or refuse and that services use.
const ANY_STATUS: [u16; 6] = [200, 201, 202, 204, 401, 403];

/// The form of a URL, for findings.
pub(super) const EXPECTED_URL: &str = "write such as \
    http://auth.sso.svc.cluster.local:4180/oauth2/auth, with no variables \
    but those of docs/ingress.md";

/// The form of a location with variables.
pub(super) const EXPECTED_LOCATION: &str = "write such as \
    https://$host/oauth2/start, with no variables but those of docs/ingress.md";

/// The form of a list of fields.
pub(super) const EXPECTED_FIELDS: &str = "write at most 64 names separated by commas, none of \
    them of the connection, and none that tells how or from whom a request came";

/// The methods that there are.
pub(super) const EXPECTED_METHOD: &str = "write GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS";

/// The form of durations.
pub(super) const EXPECTED_DURATION: &str = "write statuses and a time such as \"200 202 401 5m\"";

/// The form of the text by which answers are remembered.
pub(super) const EXPECTED_KEY: &str =
    "write such as $remote_user$http_authorization or $cookie_NAME, with variables that are known";

/// The service that is asked whether requests may pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedService {
    /// The URL that it is asked at.
    pub url: AskedUrl,
    /// The method that it is asked by; none where nobody has named any.
    pub method: Option<Box<str>>,
    /// The location that clients are led to in place of 401; empty for none.
    pub signin: Box<str>,
    /// The text that tells it where to lead clients to.
    pub redirect: Box<str>,
    /// Fields of its answer that endpoints get, in lower case.
    pub passed: Box<[Box<str>]>,
    /// Whether its cookies go with every response.
    pub always_sets_cookies: bool,
    /// Which of its answers are remembered.
    pub memory: Option<Box<AnswerMemory>>,
    /// The ConfigMap of fields that it is told, as `namespace/name`.
    pub fields: Option<Box<str>>,
    /// Whether it is asked for all Ingresses, by the one who runs the gateway.
    pub is_for_all: bool,
    /// The starts of paths that it is not asked about.
    pub spared: Box<[Box<str>]>,
}

/// The URL of a service that is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedUrl {
    /// The protocol that is spoken there.
    pub protocol: Protocol,
    /// Its host in lower case; none for that of the request.
    pub host: Option<Box<str>>,
    /// Its port.
    pub port: u16,
    /// The host that it is asked by, with variables.
    pub authority: Box<str>,
    /// Path and query, with variables.
    pub target: Box<str>,
}

impl AskedService {
    /// A service of which nothing is known but where it is.
    pub fn at(url: AskedUrl) -> Self {
        AskedService {
            url,
            method: None,
            signin: Box::default(),
            redirect: "$request_uri".into(),
            passed: Box::default(),
            always_sets_cookies: false,
            memory: None,
            fields: None,
            is_for_all: false,
            spared: Box::default(),
        }
    }

    /// Whether it is not asked about requests of a path.
    pub fn spares(&self, path: &str) -> bool {
        self.spared.iter().any(|start| path.starts_with(&**start))
    }
}

/// Reads all of it. What cannot be read closes, where leaving it out would let somebody pass or
/// believe what a client says. Whether the Ingress does without the service of all.
pub(super) fn read(meta: &Meta, sheet: &mut Sheet<'_>, options: &mut Options) -> bool {
    let switch = "write \"true\" or \"false\"";
    let does_without = sheet.read(GLOBAL, switch, values::boolean) == Some(false);
    if does_without {
        options.inquiry = None;
    }
    let is_written = sheet.text(URL).is_some();
    let url = sheet.read_closing(URL, EXPECTED_URL, url);
    let further = read_further(meta, sheet);
    if is_written {
        options.inquiry = url.map(|url| Box::new(AskedService { url, ..further }));
        return true;
    }
    let lone = FURTHER.iter().find(|name| sheet.text(name).is_some());
    if let Some(name) = lone {
        let message = format!("has no {URL} beside it, so the paths of this Ingress answer 503");
        let remedy = format!("add the annotation {URL}, or remove this one");
        let key = key_of(meta, name).unwrap_or(name);
        sheet.problem(Severity::Error, key, message, remedy);
        sheet.blocked = sheet.blocked.max(Blocked::Paths);
    }
    does_without
}

/// All but where the service is.
fn read_further(meta: &Meta, sheet: &mut Sheet<'_>) -> AskedService {
    let method = sheet.read_closing("auth-method", EXPECTED_METHOD, method);
    let expected = "write the name of a parameter, such as rd";
    let parameter = sheet.read_closing("auth-signin-redirect-param", expected, values::token);
    let parameter = parameter.unwrap_or(PARAMETER);
    let signin = sheet.read_closing("auth-signin", EXPECTED_LOCATION, |text| {
        signin(text, parameter)
    });
    let redirect = sheet.read_closing("auth-request-redirect", EXPECTED_LOCATION, redirect);
    let passed = sheet.read_closing("auth-response-headers", EXPECTED_FIELDS, fields);
    let key = sheet.read("auth-cache-key", EXPECTED_KEY, memory_key);
    let ages = sheet.read("auth-cache-duration", EXPECTED_DURATION, ages);
    let expected = "write NAMESPACE/NAME of a ConfigMap";
    let own = meta.key.namespace();
    let map = sheet.read_closing("auth-proxy-set-headers", expected, |text| {
        config_map(text, own)
    });
    let bare = AskedUrl {
        protocol: Protocol::Http1,
        host: None,
        port: 80,
        authority: Box::default(),
        target: Box::default(),
    };
    let unsaid = AskedService::at(bare);
    AskedService {
        method,
        signin: signin.unwrap_or_default(),
        redirect: redirect.unwrap_or_else(|| unsaid.redirect.clone()),
        passed: passed.unwrap_or_default(),
        always_sets_cookies: sheet.flag("auth-always-set-cookie"),
        memory: key.and_then(|key| remembered(key, ages)),
        fields: map,
        ..unsaid
    }
}

/// The answers that are remembered by a key.
pub(super) fn remembered(
    key: Box<str>,
    written: Option<Box<[(u16, Duration)]>>,
) -> Option<Box<AnswerMemory>> {
    let ages = written.or_else(|| ages(DURATION))?;
    Some(Box::new(AnswerMemory { key, ages }))
}

/// A URL of a service.
pub(super) fn url(text: &str) -> Option<AskedUrl> {
    let (scheme, rest) = text.split_once("://")?;
    let (protocol, usual) = match scheme {
        "http" => (Protocol::Http1, 80),
        "https" => (Protocol::Https1, 443),
        _ => return None,
    };
    if !is_text(text) || text.contains('#') {
        return None;
    }
    // A variable may stand in place of the host, or of what follows it.
    let begin = usize::from(rest.starts_with('$'));
    let end = rest.get(begin..)?.find(['/', '?', '$']);
    let (authority, target) = rest.split_at(end.map_or(rest.len(), |end| end + begin));
    let target = match target.chars().next() {
        None => "/".to_owned(),
        Some('?') => format!("/{target}"),
        Some(_) => target.to_owned(),
    };
    if target.starts_with('$') && !target.starts_with("$request_uri") {
        return None;
    }
    let mut parts = pieces(authority);
    let first = parts.next()?.ok()?;
    let (host, port) = match first {
        Piece::Variable(Variable::Host | Variable::Authority) => (None, None),
        Piece::Text(text) => {
            let (host, port) = named(text)?;
            (Some(host), port)
        }
        Piece::Variable(_) => return None,
    };
    if parts.next().is_some() {
        return None;
    }
    let own = || "$host".into();
    Some(AskedUrl {
        protocol,
        port: port.unwrap_or(usual),
        authority: host.clone().unwrap_or_else(own),
        host,
        target: target.into(),
    })
}

/// A host by its name, and its port.
fn named(authority: &str) -> Option<(Box<str>, Option<u16>)> {
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, Some(port.parse().ok().filter(|port| *port > 0)?)),
        None => (authority, None),
    };
    let host = host.to_ascii_lowercase();
    let is_name = Host::parse(&host).is_ok() && !host.contains('*');
    (is_name && host.parse::<IpAddr>().is_err()).then(|| (host.into(), port))
}

/// The location where clients become known, which is told where they come from.
pub(super) fn signin(text: &str, parameter: &str) -> Option<Box<str>> {
    let is_path = text.starts_with('/') && !text.starts_with("//");
    let schemes = [
        "http://",
        "https://",
        "$scheme://",
        "$pass_access_scheme://",
    ];
    let has_host = schemes.iter().any(|scheme| {
        let rest = text.strip_prefix(scheme);
        rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
    });
    if !is_text(text) || !(is_path || has_host) {
        return None;
    }
    let query = text.split_once('?').map_or("", |(_, query)| query);
    let mut said = query.split('&').filter_map(|pair| pair.split_once('='));
    if said.any(|(name, value)| name == parameter && !value.is_empty()) {
        return Some(text.into());
    }
    let between = match (query, text.contains('?')) {
        ("", true) => "",
        ("", false) => "?",
        _ => "&",
    };
    let whole = format!("{text}{between}{parameter}={ORIGIN}");
    (whole.len() <= Inquiry::TEXT_BYTES_MAX).then(|| whole.into())
}

/// The text that tells a service where to lead clients to.
pub(super) fn redirect(text: &str) -> Option<Box<str>> {
    (!text.is_empty() && is_text(text)).then(|| text.into())
}

/// A method of questions.
pub(super) fn method(text: &str) -> Option<Box<str>> {
    let methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    methods.contains(&text).then(|| text.into())
}

/// Names of fields, separated by commas, in lower case.
pub(super) fn fields(text: &str) -> Option<Box<[Box<str>]>> {
    let names = text.split(',').map(|name| name.trim().to_ascii_lowercase());
    let names: Vec<String> = names.filter(|name| !name.is_empty()).collect();
    let is_field = |name: &String| is_token(name) && !is_of_way(name);
    let is_list = names.len() <= Inquiry::FIELDS_MAX && names.iter().all(is_field);
    is_list.then(|| names.into_iter().map(Into::into).collect())
}

/// The text by which answers are remembered.
pub(super) fn memory_key(text: &str) -> Option<Box<str>> {
    let is_short = text.len() <= Inquiry::TEXT_BYTES_MAX;
    let is_clean = !text.is_empty() && !text.chars().any(char::is_control);
    (is_short && is_clean && variables::are_known(text)).then(|| text.into())
}

/// How long answers of statuses are remembered, as nginx writes it: statuses and a time, and more
/// of the same behind commas.
pub(super) fn ages(text: &str) -> Option<Box<[(u16, Duration)]>> {
    let mut ages: Vec<(u16, Duration)> = Vec::new();
    for part in text.split(',') {
        let words: Vec<&str> = part.split_whitespace().collect();
        let (time, statuses) = words.split_last()?;
        let age = Duration::from_millis(milliseconds(time)?);
        let statuses: Vec<u16> = match statuses {
            [] => vec![200],
            ["any"] => ANY_STATUS.to_vec(),
            written => written
                .iter()
                .map(|it| it.parse().ok())
                .collect::<Option<_>>()?,
        };
        let is_status = |status: &u16| (200..=599).contains(status);
        if age.is_zero() || !statuses.iter().all(is_status) {
            return None;
        }
        ages.extend(statuses.into_iter().map(|status| (status, age)));
    }
    (ages.len() <= AnswerMemory::AGES_MAX).then(|| ages.into())
}

/// A time as nginx writes it: numbers with units, and seconds without.
fn milliseconds(text: &str) -> Option<u64> {
    let (mut rest, mut sum) = (text, 0_u64);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, behind) = rest.split_at(digits);
        let letters = behind.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, behind) = behind.split_at(letters);
        let unit = match unit {
            "ms" => 1,
            "" | "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 7 * 86_400_000,
            _ => return None,
        };
        let number: u64 = number.parse().ok()?;
        sum = sum.checked_add(number.checked_mul(unit)?)?;
        rest = behind;
    }
    (sum <= AGE_MAX_S * 1_000).then_some(sum)
}

/// The ConfigMap that a value names, in a namespace of its own or that of the Ingress.
fn config_map(text: &str, own: &str) -> Option<Box<str>> {
    let (namespace, name) = text.split_once('/').unwrap_or((own, text));
    let is_part = |part: &str| {
        let mut bytes = part.bytes();
        !part.is_empty() && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
    };
    (is_part(namespace) && is_part(name)).then(|| format!("{namespace}/{name}").into())
}

/// Whether a text may stand in a URL, with variables of which the form is known.
fn is_text(text: &str) -> bool {
    let is_clean = text.bytes().all(|byte| byte > b' ' && byte != 0x7f);
    is_clean && text.len() <= Inquiry::TEXT_BYTES_MAX && variables::are_of_urls(text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ages, config_map, fields, signin, url};

    fn told(text: &str) -> Option<String> {
        let url = url(text)?;
        let host = url.host.as_deref().unwrap_or("*");
        let (protocol, port, target) = (url.protocol, url.port, &url.target);
        Some(format!(
            "{protocol:?} {host}:{port} as {} {target}",
            url.authority
        ))
    }

    #[test]
    fn urls_name_a_host_or_that_of_the_request() {
        for (text, wanted) in [
            ("http://auth", "Http1 auth:80 as auth /"),
            (
                "https://Auth.example:8443/a/b?c=$escaped_request_uri",
                "Https1 auth.example:8443 as auth.example /a/b?c=$escaped_request_uri",
            ),
            (
                "http://auth.example?a=b",
                "Http1 auth.example:80 as auth.example /?a=b",
            ),
            (
                "https://$host/oauth2/auth",
                "Https1 *:443 as $host /oauth2/auth",
            ),
            ("https://$best_http_host/a", "Https1 *:443 as $host /a"),
            (
                "http://auth$request_uri",
                "Http1 auth:80 as auth $request_uri",
            ),
            (
                "http://$host$request_uri",
                "Http1 *:80 as $host $request_uri",
            ),
        ] {
            assert_eq!(told(text).as_deref(), Some(wanted), "{text}");
        }
        for text in [
            "",
            "auth.example/a",
            "ftp://auth.example/",
            "$scheme://auth.example/",
            "http:///a",
            "http://127.0.0.1/a",
            "http://[::1]/a",
            "http://user@auth/",
            "http://auth:0/",
            "http://*.example/",
            "http://auth/#a",
            "http://auth/a b",
            "http://auth/$uri",
            "http://auth/$http_x_a",
            "http://$remote_addr/",
            "http://$host:80/",
            "http://a$host/",
            "http://auth$host",
        ] {
            assert_eq!(told(text), None, "{text}");
        }
    }

    #[test]
    fn a_location_is_told_where_clients_come_from_unless_it_says_so_itself() {
        let origin = "$scheme://$http_host$escaped_request_uri";
        for (text, parameter, wanted) in [
            (
                "https://a.example/start",
                "rd",
                format!("https://a.example/start?rd={origin}"),
            ),
            ("/start?a=b", "next", format!("/start?a=b&next={origin}")),
            (
                "https://$host/start?",
                "rd",
                format!("https://$host/start?rd={origin}"),
            ),
            ("/start?rd=", "rd", format!("/start?rd=&rd={origin}")),
            ("/start?rd=/x", "rd", "/start?rd=/x".to_owned()),
            (
                "https://$host/start?rd=$escaped_request_uri",
                "rd",
                "https://$host/start?rd=$escaped_request_uri".to_owned(),
            ),
        ] {
            assert_eq!(signin(text, parameter).as_deref(), Some(&*wanted), "{text}");
        }
        let long = format!("/{}", "a".repeat(4_090));
        for text in [
            "",
            "start",
            "//b.example/",
            "https://",
            "https:///a",
            "/$uri",
            "/a b",
            &long,
        ] {
            assert_eq!(signin(text, "rd"), None, "{text}");
        }
    }

    #[test]
    fn times_are_those_of_nginx() {
        let seconds = |text| {
            let ages = ages(text)?.into_vec().into_iter();
            Some(
                ages.map(|(status, age)| (status, age.as_secs()))
                    .collect::<Vec<_>>(),
            )
        };
        let usual = vec![(200, 300), (202, 300), (401, 300)];
        assert_eq!(seconds("200 202 401 5m"), Some(usual));
        assert_eq!(
            seconds("200 1h30m, 401 7"),
            Some(vec![(200, 5_400), (401, 7)])
        );
        assert_eq!(seconds("10s"), Some(vec![(200, 10)]));
        assert_eq!(seconds("any 1d").map(|all| all.len()), Some(6));
        assert_eq!(ages("200 5ms").unwrap()[0].1, Duration::from_millis(5));
        for text in ["", "99 1s", "x 1s", "200 0", "200 1y", "200 99999d", ","] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }

    #[test]
    fn fields_of_the_connection_are_none_that_a_service_sets() {
        let read = |text: &str| fields(text).map(|all| all.join(" "));
        assert_eq!(read("X-User, x-email,").as_deref(), Some("x-user x-email"));
        assert_eq!(read("").as_deref(), Some(""));
        let usual = "authorization x-auth-request-user x-auth-request-email set-cookie";
        assert_eq!(read(&usual.replace(' ', ",")).as_deref(), Some(usual));
        for text in [
            "Host",
            "x a",
            "X-A, Content-Length",
            "x-a, X-Forwarded-For",
            "ssl-client-verify",
            "CDN-Loop",
            "x_real_ip",
            &"x,".repeat(65),
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(config_map("a", "shop").as_deref(), Some("shop/a"));
        assert_eq!(config_map("b/a", "shop").as_deref(), Some("b/a"));
        assert_eq!(config_map("b/a/c", "shop"), None);
        assert_eq!(config_map("", "shop"), None);
    }
}
