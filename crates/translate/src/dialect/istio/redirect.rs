//! The redirects of a rule of a VirtualService.

use std::sync::Arc;

use myriad_api::istio::virtual_service::{HttpRedirect, HttpRoute, RedirectPort};
use myriad_model::{Action, Redirect, RedirectParts, RedirectPath, RedirectTarget};

use super::rule_problem::RuleProblem;
use crate::resolve::sendable;

/// The most bytes of what is written of a URL: many clients may wait for it at once.
const URL_BYTES_MAX: usize = 8 << 10;

/// The action of a rule that redirects. What cannot be sent is left out of it: see [`is_closed`].
pub(super) fn build(written: &HttpRedirect, problems: &mut Vec<RuleProblem>) -> Action {
    let status = match written.redirect_code {
        0 => 301,
        code @ (301 | 302 | 303 | 307 | 308) => code,
        code => {
            problems.push(RuleProblem {
                field: "redirect.redirectCode".into(),
                message: format!("is {code}, which is no redirect, so 301 is sent"),
                remedy: "write 301, 302, 303, 307 or 308",
            });
            301
        }
    };
    if is_too_long(written) {
        problems.push(RuleProblem {
            field: "redirect".into(),
            message: format!(
                "leads to a URL of more than {URL_BYTES_MAX} bytes, so the rule answers 503"
            ),
            remedy: "write a shorter uri, prefixRewrite or authority",
        });
    }
    let path = path(written).unwrap_or_else(|problem| {
        problems.push(problem);
        None
    });
    let (host, of_authority) = authority(written).unwrap_or_else(|problem| {
        problems.push(problem);
        ("", None)
    });
    let port = match written.derive_port {
        Some(RedirectPort::FromRequestPort) => None,
        _ => written.port.or(of_authority),
    };
    let scheme = match &*written.scheme {
        known @ ("" | "http" | "https") => known,
        other => {
            problems.push(RuleProblem {
                field: "redirect.scheme".into(),
                message: format!("is {other:?}, so the scheme stays as it came"),
                remedy: "write http or https",
            });
            ""
        }
    };
    let parts = RedirectParts {
        scheme: scheme.into(),
        host: host.into(),
        port,
        path,
        keeps_port: false,
    };
    Action::Redirect(Arc::new(Redirect {
        status,
        target: RedirectTarget::Parts(Box::new(parts)),
    }))
}

/// Whether a rule redirects to where no client can be sent: then it answers 503.
pub(super) fn is_closed(route: &HttpRoute) -> bool {
    let rare = route.rare.as_deref();
    let written = rare.and_then(|rare| rare.redirect.as_ref());
    written.is_some_and(|written| {
        is_too_long(written) || path(written).is_err() || authority(written).is_err()
    })
}

fn is_too_long(written: &HttpRedirect) -> bool {
    let path = match &*written.uri {
        "" => &written.prefix_rewrite,
        _ => &written.uri,
    };
    path.len() + written.authority.len() > URL_BYTES_MAX
}

fn path(written: &HttpRedirect) -> Result<Option<RedirectPath>, RuleProblem> {
    match (&*written.uri, &*written.prefix_rewrite) {
        ("", "") => Ok(None),
        ("", start) => {
            let text = sendable::escaped(start).ok_or_else(|| bad_path("prefixRewrite"))?;
            Ok(Some(RedirectPath::Matched(text)))
        }
        (whole, _) => {
            let text = sendable::escaped(whole).filter(|text| text.starts_with('/'));
            Ok(Some(RedirectPath::Whole(
                text.ok_or_else(|| bad_path("uri"))?,
            )))
        }
    }
}

fn bad_path(field: &str) -> RuleProblem {
    RuleProblem {
        field: format!("redirect.{field}"),
        message: "is no path that can be sent, so the rule answers 503".into(),
        remedy: "write a path that starts with /, without control characters",
    }
}

fn authority(written: &HttpRedirect) -> Result<(&str, Option<u16>), RuleProblem> {
    sendable::authority(&written.authority).ok_or_else(|| RuleProblem {
        field: "redirect.authority".into(),
        message: "is no host with or without a port, so the rule answers 503".into(),
        remedy: "write a host such as a.example.com, or a.example.com:8443",
    })
}

#[cfg(test)]
mod tests {
    use super::{HttpRedirect, URL_BYTES_MAX, authority, build, is_too_long, path};

    #[test]
    fn a_redirect_beyond_the_bound_is_a_problem() {
        for (uri, prefix, is_beyond) in [
            (URL_BYTES_MAX, 0, false),
            (URL_BYTES_MAX, 1, false),
            (URL_BYTES_MAX + 1, 0, true),
            (0, URL_BYTES_MAX, false),
            (0, URL_BYTES_MAX + 1, true),
        ] {
            let text = |count: usize| -> Box<str> { "/".repeat(count).into() };
            let written = HttpRedirect {
                uri: text(uri),
                prefix_rewrite: text(prefix),
                ..HttpRedirect::default()
            };
            let mut problems = Vec::new();
            build(&written, &mut problems);
            assert_eq!(problems.len(), usize::from(is_beyond));
            assert_eq!(is_too_long(&written), is_beyond);
        }
    }

    #[test]
    fn what_would_end_its_field_leads_nowhere() {
        let is_fine = |authority_text: &str, uri: &str, start: &str| {
            let written = HttpRedirect {
                authority: authority_text.into(),
                uri: uri.into(),
                prefix_rewrite: start.into(),
                ..HttpRedirect::default()
            };
            path(&written).is_ok() && authority(&written).is_ok()
        };
        assert!(is_fine("", "", ""));
        assert!(is_fine("a.example:80", "/x?y=z#w", ""));
        assert!(is_fine("", "", "x/"));
        let split = "/x\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK";
        assert!(!is_fine("", split, ""));
        assert!(!is_fine("", "", split));
        assert!(!is_fine("", "x", ""));
        assert!(!is_fine("a.example\r\nx: y", "", ""));
        assert!(!is_fine("a.example:80\n", "", ""));
    }
}
