//! Answers that lead clients elsewhere.

use std::sync::Arc;

use myriad_api::gateway::{PathModifier, RequestRedirect};
use myriad_model::{Redirect, RedirectParts, RedirectPath, RedirectTarget};

use super::fault::{CORRECT, RuleFaults};
use crate::resolve::sendable::{authority, escaped};

/// The status of redirects that say none.
const FOUND: u16 = 302;

/// The most ports of one Gateway of which each has rows of its own for a redirect that names no
/// port. At more of them clients are led to the port that their requests name.
pub(super) const PORTS_MAX: usize = 8;

/// A redirect whose port may be that of the listener.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PlannedRedirect {
    status: u16,
    parts: RedirectParts,
}

impl PlannedRedirect {
    /// Whether clients are led to the port of the listener.
    pub(super) fn is_by_port(&self) -> bool {
        self.parts.port.is_none()
    }

    /// The redirect at listeners with this port, or with many of them.
    pub(super) fn at(&self, port: Option<u16>) -> Arc<Redirect> {
        let port = self.parts.port.or(port);
        let parts = RedirectParts {
            port,
            keeps_port: port.is_none(),
            ..self.parts.clone()
        };
        Arc::new(Redirect {
            status: self.status,
            target: RedirectTarget::Parts(Box::new(parts)),
        })
    }
}

/// Reads a filter. Nothing, where a part of it cannot be honoured.
pub(super) fn read(
    written: &RequestRedirect,
    field: &str,
    is_by_prefix: bool,
    faults: &mut RuleFaults,
) -> Option<PlannedRedirect> {
    let status = written.status_code.unwrap_or(FOUND);
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        faults.drop(
            format!("{field}.statusCode"),
            format!("is {status}, which leads nowhere"),
            "write 301, 302, 303, 307 or 308",
        );
        return None;
    }
    let (scheme, usual) = match written.scheme.as_deref() {
        None | Some("") => ("", None),
        Some("http") => ("http", Some(80)),
        Some("https") => ("https", Some(443)),
        Some(other) => {
            faults.drop(
                format!("{field}.scheme"),
                format!("is {other}, which clients cannot be led to"),
                "write http or https",
            );
            return None;
        }
    };
    let host = host(written.hostname.as_deref(), field, faults)?;
    let path = match &written.path {
        Some(path) => Some(read_path(path, field, is_by_prefix, faults)?),
        None => None,
    };
    Some(PlannedRedirect {
        status,
        parts: RedirectParts {
            scheme: scheme.into(),
            host,
            port: written.port.or(usual),
            keeps_port: false,
            path,
        },
    })
}

/// The host that requests or clients are led to; empty for that of the request.
pub(super) fn host(
    written: Option<&str>,
    field: &str,
    faults: &mut RuleFaults,
) -> Option<Box<str>> {
    let Some(host) = written else {
        return Some(Box::default());
    };
    match authority(host) {
        Some((_, None)) if !host.ends_with(':') => Some(host.into()),
        _ => {
            faults.drop(
                format!("{field}.hostname"),
                "is no host",
                "write a host such as a.example.com, without a port",
            );
            None
        }
    }
}

/// Whether the prefix of a path can be replaced, which is told where it cannot.
pub(super) fn is_prefix_fit(
    text: &str,
    field: &str,
    is_by_prefix: bool,
    faults: &mut RuleFaults,
) -> bool {
    if !is_by_prefix {
        faults.drop(
            format!("{field}.path"),
            "replaces the prefix of a path, and a match of the rule has none",
            "write matches of the type PathPrefix alone, or the type ReplaceFullPath",
        );
        return false;
    }
    let is_fit = escaped(text).is_some() && !text.contains(['?', '#']);
    if !is_fit {
        bad_path(format!("{field}.path.replacePrefixMatch"), faults);
    }
    is_fit
}

/// Adds that a path cannot be sent.
pub(super) fn bad_path(field: String, faults: &mut RuleFaults) {
    faults.drop(field, "is no path that can be sent", CORRECT);
}

/// Adds that a way to replace a path is not known.
pub(super) fn unknown_modifier(kind: &str, field: &str, faults: &mut RuleFaults) {
    faults.drop(
        format!("{field}.path.type"),
        format!("is {kind}, which replaces nothing that is known"),
        "write ReplaceFullPath or ReplacePrefixMatch",
    );
}

fn read_path(
    written: &PathModifier,
    field: &str,
    is_by_prefix: bool,
    faults: &mut RuleFaults,
) -> Option<RedirectPath> {
    match written {
        PathModifier::Full(text) => {
            // One that brings a query takes the place of the request's.
            let Some(path) = escaped(text).filter(|_| !text.contains('#')) else {
                bad_path(format!("{field}.path.replaceFullPath"), faults);
                return None;
            };
            Some(RedirectPath::Whole(rooted(path)))
        }
        PathModifier::Prefix(text) => {
            let is_fit = is_prefix_fit(text, field, is_by_prefix, faults);
            let path = escaped(text).filter(|_| is_fit)?;
            Some(RedirectPath::Matched(path))
        }
        PathModifier::Other(kind) => {
            unknown_modifier(kind, field, faults);
            None
        }
    }
}

/// Every path begins with a slash.
pub(super) fn rooted(path: Box<str>) -> Box<str> {
    match path.starts_with('/') {
        true => path,
        false => format!("/{path}").into(),
    }
}

#[cfg(test)]
mod tests {
    use myriad_api::gateway::{PathModifier, RequestRedirect};
    use myriad_model::{RedirectParts, RedirectPath, RedirectTarget};

    use super::{PlannedRedirect, RuleFaults, read};

    fn planned(written: &RequestRedirect) -> PlannedRedirect {
        let mut faults = RuleFaults::default();
        let planned = read(written, "f", true, &mut faults);
        assert!(faults.told().is_empty(), "{faults:?}");
        planned.expect("a redirect")
    }

    fn parts(planned: &PlannedRedirect, port: u16) -> RedirectParts {
        match &planned.at(Some(port)).target {
            RedirectTarget::Parts(parts) => (**parts).clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_port_is_that_of_the_filter_of_the_scheme_or_of_the_listener() {
        for (scheme, port, expected) in [
            (None, None, 8080),
            (None, Some(80), 80),
            (None, Some(9), 9),
            (Some("https"), None, 443),
            (Some("https"), Some(8443), 8443),
            (Some("http"), None, 80),
            (Some("http"), Some(8000), 8000),
        ] {
            let planned = planned(&RequestRedirect {
                scheme: scheme.map(Into::into),
                port,
                ..RequestRedirect::default()
            });
            assert_eq!(parts(&planned, 8080).port, Some(expected));
            assert_eq!(planned.is_by_port(), scheme.is_none() && port.is_none());
            assert_eq!(&*parts(&planned, 8080).scheme, scheme.unwrap_or(""));
            assert_eq!(planned.at(Some(1)).status, 302);
            // Of many ports that of the request is kept, whatever its host.
            let RedirectTarget::Parts(parts) = &planned.at(None).target else {
                panic!("other than parts");
            };
            assert_eq!(parts.keeps_port, planned.is_by_port());
            assert_eq!(parts.port.is_none(), planned.is_by_port());
        }
    }

    #[test]
    fn a_redirect_changes_parts_of_the_url() {
        let full = |text: &str| PathModifier::Full(text.into());
        let prefix = |text: &str| PathModifier::Prefix(text.into());
        for (path, expected) in [
            (full("/new"), RedirectPath::Whole("/new".into())),
            (full("new"), RedirectPath::Whole("/new".into())),
            (full(""), RedirectPath::Whole("/".into())),
            (
                full("/ä b?c=d"),
                RedirectPath::Whole("/%C3%A4%20b?c=d".into()),
            ),
            (prefix("/new"), RedirectPath::Matched("/new".into())),
            (prefix(""), RedirectPath::Matched("".into())),
        ] {
            let planned = planned(&RequestRedirect {
                hostname: Some("b.example".into()),
                path: Some(path.clone()),
                status_code: Some(308),
                ..RequestRedirect::default()
            });
            let parts = parts(&planned, 80);
            let status = planned.at(Some(80)).status;
            assert_eq!((&*parts.host, status), ("b.example", 308));
            assert_eq!(parts.path, Some(expected), "{path:?}");
            assert!(!parts.keeps_port);
        }
    }

    #[test]
    fn what_leads_nowhere_drops_the_rule_and_is_named() {
        let path = |path: PathModifier| RequestRedirect {
            path: Some(path),
            ..RequestRedirect::default()
        };
        let host = |host: &str| RequestRedirect {
            hostname: Some(host.into()),
            ..RequestRedirect::default()
        };
        let split = "/x\r\nContent-Length: 0";
        for (written, is_by_prefix, field) in [
            (
                RequestRedirect {
                    status_code: Some(300),
                    ..RequestRedirect::default()
                },
                true,
                "f.statusCode",
            ),
            (
                RequestRedirect {
                    scheme: Some("ftp".into()),
                    ..RequestRedirect::default()
                },
                true,
                "f.scheme",
            ),
            (host("a b"), true, "f.hostname"),
            (host("*.a.example"), true, "f.hostname"),
            (host("a.example:80"), true, "f.hostname"),
            (
                path(PathModifier::Full(split.into())),
                true,
                "f.path.replaceFullPath",
            ),
            (
                path(PathModifier::Prefix(split.into())),
                true,
                "f.path.replacePrefixMatch",
            ),
            (
                path(PathModifier::Prefix("/x?y".into())),
                true,
                "f.path.replacePrefixMatch",
            ),
            (path(PathModifier::Prefix("/x".into())), false, "f.path"),
            (
                path(PathModifier::Other("Regex".into())),
                true,
                "f.path.type",
            ),
        ] {
            let mut faults = RuleFaults::default();
            assert!(read(&written, "f", is_by_prefix, &mut faults).is_none());
            let found = faults.dropping().map(|fault| &*fault.field);
            assert_eq!(found, Some(field));
        }
    }
}
