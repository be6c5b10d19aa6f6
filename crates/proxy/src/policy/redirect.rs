//! The targets of redirects.

use std::borrow::Cow;

use myriad_model::{Redirect, RedirectParts, RedirectPath, RedirectTarget, TlsRedirect};

use super::rewrite::{Matched, replace, sendable};
use crate::codec::head::{Head, split_authority};
use crate::failure::FailureKind;

/// The URL by HTTPS, unless the path is excepted.
pub fn to_tls(redirect: &TlsRedirect, head: &Head<'_>) -> Option<String> {
    let except = &*redirect.except_prefix;
    if !except.is_empty() && head.path.starts_with(except) {
        return None;
    }
    // Without a host there is no URL to redirect to; the request is then served as it came.
    if head.host.is_empty() || head.path == "*" {
        return None;
    }
    let mut url = format!("https://{}", head.host);
    if redirect.port != 443 {
        url.push(':');
        url.push_str(&redirect.port.to_string());
    }
    url.push_str(&head.path);
    if let Some(query) = head.query {
        url.push('?');
        url.push_str(query);
    }
    Some(url)
}

/// The value of `Location`. A path stays one, so that it holds under whatever scheme and port
/// the client used to get here (RFC 9110, section 10.2.2).
///
/// # Errors
/// A request that has nothing to redirect to.
pub fn location<'a>(
    redirect: &'a Redirect,
    matched: Matched<'_>,
    head: &Head<'_>,
) -> Result<Cow<'a, str>, FailureKind> {
    match &redirect.target {
        RedirectTarget::Url(target) | RedirectTarget::Path(target) => Ok((&**target).into()),
        RedirectTarget::Parts(parts) => change(parts, matched, head).map(Cow::Owned),
    }
}

fn change(
    parts: &RedirectParts,
    matched: Matched<'_>,
    head: &Head<'_>,
) -> Result<String, FailureKind> {
    let scheme = match &*parts.scheme {
        "" => head.scheme,
        scheme => scheme,
    };
    let host = match &*parts.host {
        "" => &*head.host,
        host => host,
    };
    let mut url = String::with_capacity(scheme.len() + host.len() + head.path.len() + 9);
    // HTTP/1.0 may name no host; what is left of the URL still leads to the right place.
    if !host.is_empty() {
        url.push_str(scheme);
        url.push_str("://");
        url.push_str(host);
        // The port that a request came by is that of its own scheme and host.
        let is_kept = parts.host.is_empty() || parts.keeps_port;
        let is_own = scheme == head.scheme && is_kept;
        let own = is_own.then(|| own_port(head)).flatten();
        let port = parts
            .port
            .or(own)
            .filter(|port| *port != usual_port(scheme));
        if let Some(port) = port {
            url.push(':');
            url.push_str(&port.to_string());
        }
    }
    let path = match &*head.path {
        "*" => "/",
        path => path,
    };
    let mut query = head.query;
    match &parts.path {
        None => url.push_str(path),
        Some(RedirectPath::Whole(path)) => {
            url.push_str(path);
            // A path that brings its query along leaves no room for another.
            query = query.filter(|_| !path.contains('?'));
        }
        Some(RedirectPath::Matched(with)) => {
            let read = match path {
                "/" => path,
                _ => head.read(matched.reading)?,
            };
            let path = sendable(replace(with, matched, read), matched, head)?;
            url.push_str(&path);
        }
    }
    if let Some(query) = query {
        url.push('?');
        url.push_str(query);
    }
    Ok(url)
}

fn own_port(head: &Head<'_>) -> Option<u16> {
    split_authority(head.authority).ok()?.1
}

fn usual_port(scheme: &str) -> u16 {
    if scheme == "https" { 443 } else { 80 }
}

#[cfg(test)]
mod tests {
    use myriad_model::{
        PathReading, PathView, Redirect, RedirectParts, RedirectPath, RedirectTarget, TlsRedirect,
    };

    use super::{location, to_tls};
    use crate::codec::head;
    use crate::limits::Limits;
    use crate::pattern::Budget;
    use crate::policy::rewrite::Matched;

    fn redirected(port: u16, target: &str) -> Option<String> {
        let text = format!("GET {target} HTTP/1.1\r\nHost: A.example:8080\r\n\r\n");
        let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
        let redirect = TlsRedirect {
            status: 308,
            port,
            except_prefix: "/.well-known/acme-challenge/".into(),
        };
        to_tls(&redirect, &head)
    }

    #[test]
    fn a_redirect_keeps_path_and_query() {
        let url = redirected(443, "/a%20b?c=d");
        assert_eq!(url.as_deref(), Some("https://a.example/a%20b?c=d"));
        let url = redirected(8443, "/");
        assert_eq!(url.as_deref(), Some("https://a.example:8443/"));
    }

    #[test]
    fn what_is_excepted_is_served() {
        assert_eq!(redirected(443, "/.well-known/acme-challenge/x"), None);
    }

    fn changed(authority: &str, scheme: &'static str, parts: RedirectParts) -> String {
        let text = format!("GET /a/b?c=d HTTP/1.1\r\nHost: {authority}\r\n\r\n");
        let mut head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
        head.scheme = scheme;
        let redirect = Redirect {
            status: 301,
            target: RedirectTarget::Parts(Box::new(parts)),
        };
        let matched = Matched {
            path: PathView::Prefix("/a"),
            regex: None,
            reading: PathReading::AsSent,
            budget: &Budget::default(),
        };
        location(&redirect, matched, &head).unwrap().into_owned()
    }

    #[test]
    fn parts_of_a_url_are_changed_and_the_rest_stays() {
        let parts = |scheme: &str, host: &str, port: Option<u16>| RedirectParts {
            scheme: scheme.into(),
            host: host.into(),
            port,
            ..RedirectParts::default()
        };
        let kept = |scheme: &str, port| RedirectParts {
            keeps_port: true,
            ..parts(scheme, "i", port)
        };
        for (authority, scheme, parts, url) in [
            ("h", "http", parts("", "", None), "http://h/a/b?c=d"),
            (
                "h:8080",
                "http",
                parts("", "", None),
                "http://h:8080/a/b?c=d",
            ),
            (
                "h:8080",
                "http",
                parts("https", "", None),
                "https://h/a/b?c=d",
            ),
            ("h:8080", "http", parts("", "i", None), "http://i/a/b?c=d"),
            (
                "h:8080",
                "http",
                parts("", "i", Some(80)),
                "http://i/a/b?c=d",
            ),
            (
                "h",
                "https",
                parts("", "", Some(8443)),
                "https://h:8443/a/b?c=d",
            ),
            ("h:443", "https", parts("", "", None), "https://h/a/b?c=d"),
            (
                "h:443",
                "https",
                parts("http", "", Some(443)),
                "http://h:443/a/b?c=d",
            ),
            ("h:8080", "http", kept("", None), "http://i:8080/a/b?c=d"),
            ("h", "http", kept("", None), "http://i/a/b?c=d"),
            ("h:443", "https", kept("", None), "https://i/a/b?c=d"),
            ("h:8080", "http", kept("https", None), "https://i/a/b?c=d"),
            ("h:8080", "http", kept("", Some(81)), "http://i:81/a/b?c=d"),
        ] {
            assert_eq!(changed(authority, scheme, parts.clone()), url, "{parts:?}");
        }
    }

    #[test]
    fn the_path_of_a_url_is_changed_as_a_whole_or_where_it_matched() {
        for (path, url) in [
            (RedirectPath::Whole("/x".into()), "http://h/x?c=d"),
            (RedirectPath::Whole("/x?y".into()), "http://h/x?y"),
            (RedirectPath::Matched("/x".into()), "http://h/x/b?c=d"),
            (RedirectPath::Matched("/".into()), "http://h/b?c=d"),
        ] {
            let parts = RedirectParts {
                path: Some(path),
                ..RedirectParts::default()
            };
            assert_eq!(changed("h", "http", parts), url);
        }
    }
}
