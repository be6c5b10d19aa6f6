//! Where redirects lead.

use myriad_model::{Redirect, RedirectTarget, TlsRedirect};

use crate::net::head::Head;

/// The same URL by HTTPS, unless the path is excepted.
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
    url.push_str(head.path);
    if let Some(query) = head.query {
        url.push('?');
        url.push_str(query);
    }
    Some(url)
}

/// What goes into `Location`. A path stays one, so that it holds under whatever scheme and port
/// the client used to get here (RFC 9110, section 10.2.2).
pub fn location(redirect: &Redirect) -> &str {
    match &redirect.target {
        RedirectTarget::Url(target) | RedirectTarget::Path(target) => target,
    }
}

#[cfg(test)]
mod tests {
    use myriad_model::TlsRedirect;

    use super::to_tls;
    use crate::net::{head, limits::Limits};

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
}
