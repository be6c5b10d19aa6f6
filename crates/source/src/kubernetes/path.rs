//! The paths and queries of the API server.

use std::fmt::Write as _;

use myriad_api::ObjectKind;

use super::core::{Request, Scope};

/// The path of a kind in all namespaces or in one.
pub(super) fn collection(kind: ObjectKind, api_version: &str, namespace: Option<&str>) -> String {
    let root = match api_version.split_once('/') {
        Some(_) => "/apis/",
        None => "/api/",
    };
    let mut path = format!("{root}{api_version}");
    if let Some(namespace) = namespace.filter(|_| !kind.is_cluster_scoped()) {
        path.push_str("/namespaces/");
        path.push_str(&escape(namespace));
    }
    path.push('/');
    path.push_str(kind.plural());
    path
}

/// The path and query of a request of a watch. The server ends a watch after the timeout.
pub(super) fn of_request(scope: &Scope, request: &Request, timeout_seconds: u64) -> String {
    if let Request::Check { id, version } = request {
        return of_check(scope, id, *version);
    }
    let mut path = collection(scope.kind, scope.api_version, scope.namespace.as_deref());
    let watch = format!("?watch=true&allowWatchBookmarks=true&timeoutSeconds={timeout_seconds}");
    // Writing into a String cannot fail.
    let _ = match request {
        // Without a resourceVersion the list is one of the newest state (KEP-3157).
        Request::Stream => write!(
            path,
            "{watch}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        ),
        Request::Watch(version) => write!(path, "{watch}&resourceVersion={version}"),
        Request::Page { limit, token: None } => write!(path, "?limit={limit}"),
        Request::Page {
            limit,
            token: Some(token),
        } => {
            write!(path, "?limit={limit}&continue={}", escape(token))
        }
        Request::Probe | Request::Check { .. } => write!(path, "?limit=1"),
    };
    if !scope.selector.is_empty() {
        path.push_str("&fieldSelector=");
        path.push_str(&escape(scope.selector));
    }
    // A right to objects of this name is enough, since the question names it.
    if let Some(name) = &scope.name {
        path.push_str("&fieldSelector=metadata.name%3D");
        path.push_str(&escape(name));
    }
    if let Some(name) = &scope.except {
        path.push_str("&fieldSelector=metadata.name%21%3D");
        path.push_str(&escape(name));
    }
    path
}

/// How one object stood at a version; a list, since a single object cannot be asked for that.
fn of_check(scope: &Scope, id: &str, version: u64) -> String {
    let (namespace, name) = id.split_once('/').unwrap_or(("", id));
    let namespace = Some(namespace).filter(|it| !it.is_empty());
    let path = collection(scope.kind, scope.api_version, namespace);
    let name = escape(name);
    let also = match scope.selector {
        "" => String::new(),
        selector => format!("%2C{}", escape(selector)),
    };
    format!(
        "{path}?resourceVersion={version}&resourceVersionMatch=Exact\
         &fieldSelector=metadata.name%3D{name}{also}"
    )
}

/// How one object stands now; a list, as the rights to watch a kind allow.
pub(super) fn of_object(scope: &Scope, id: &str) -> String {
    let (namespace, name) = id.split_once('/').unwrap_or(("", id));
    let namespace = Some(namespace).filter(|it| !it.is_empty());
    let path = collection(scope.kind, scope.api_version, namespace);
    format!("{path}?fieldSelector=metadata.name%3D{}", escape(name))
}

/// Percent-encodes everything that has a meaning in a path or query.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::{Request, Scope, of_request};
    use myriad_api::ObjectKind;

    fn path(kind: ObjectKind, namespace: Option<&str>, request: &Request) -> String {
        let scope = Scope {
            kind,
            namespace: namespace.map(Into::into),
            name: None,
            except: None,
            selector: match kind {
                ObjectKind::Secret => "type=kubernetes.io/tls",
                _ => "",
            },
            is_optional: false,
            api_version: kind.api_version(),
        };
        of_request(&scope, request, 290)
    }

    #[test]
    fn paths_are_those_of_the_api() {
        let page = Request::Page {
            limit: 500,
            token: Some("a+b".into()),
        };
        assert_eq!(
            path(ObjectKind::Secret, Some("n"), &page),
            "/api/v1/namespaces/n/secrets?limit=500&continue=a%2Bb\
             &fieldSelector=type%3Dkubernetes.io%2Ftls"
        );
        assert_eq!(
            path(ObjectKind::Ingress, None, &Request::Watch(7)),
            "/apis/networking.k8s.io/v1/ingresses?watch=true&allowWatchBookmarks=true\
             &timeoutSeconds=290&resourceVersion=7"
        );
        assert_eq!(
            path(ObjectKind::IngressClass, Some("n"), &Request::Probe),
            "/apis/networking.k8s.io/v1/ingressclasses?limit=1"
        );
        let check = Request::Check {
            id: "n/s".into(),
            version: 7,
        };
        assert_eq!(
            path(ObjectKind::Secret, None, &check),
            "/api/v1/namespaces/n/secrets?resourceVersion=7&resourceVersionMatch=Exact\
             &fieldSelector=metadata.name%3Ds%2Ctype%3Dkubernetes.io%2Ftls"
        );
        assert!(
            path(ObjectKind::Service, None, &Request::Stream)
                .ends_with("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
        );
    }

    #[test]
    fn every_question_about_one_object_names_it() {
        let scope = Scope {
            kind: ObjectKind::ConfigMap,
            namespace: Some("n".into()),
            name: Some("nginx".into()),
            except: None,
            selector: "",
            is_optional: false,
            api_version: ObjectKind::ConfigMap.api_version(),
        };
        let page = Request::Page {
            limit: 500,
            token: None,
        };
        let check = Request::Check {
            id: "n/nginx".into(),
            version: 7,
        };
        let requests = [
            Request::Stream,
            Request::Watch(7),
            page,
            Request::Probe,
            check,
        ];
        for request in requests {
            let path = of_request(&scope, &request, 290);
            assert!(
                path.starts_with("/api/v1/namespaces/n/configmaps?"),
                "{path}"
            );
            let named = path.matches("fieldSelector=metadata.name%3Dnginx").count();
            assert_eq!(named, 1, "{path}");
        }
    }

    #[test]
    fn one_object_is_left_out_by_its_name() {
        let scope = Scope {
            kind: ObjectKind::ConfigMap,
            namespace: None,
            name: None,
            except: Some("nginx".into()),
            selector: "",
            is_optional: true,
            api_version: ObjectKind::ConfigMap.api_version(),
        };
        assert_eq!(
            of_request(&scope, &Request::Probe, 290),
            "/api/v1/configmaps?limit=1&fieldSelector=metadata.name%21%3Dnginx"
        );
    }
}
