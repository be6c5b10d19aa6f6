//! Header fields by which the proxy tells an endpoint whom a request comes from. An endpoint of
//! others is there to serve requests, and not to believe of them what whoever writes a rule says.

use myriad_model::{HeaderEdit, HeaderEdits};

/// Fields that tell of the client of a request and of the gateways that it has passed.
const OF_CLIENT: [&str; 8] = [
    "cdn-loop",
    "forwarded",
    "proxy",
    "x-envoy-external-address",
    "x-forwarded-client-cert",
    "x-forwarded-for",
    "x-original-forwarded-for",
    "x-real-ip",
];

/// How the names of further fields begin that tell of the client: of its certificate, and of its
/// password for a proxy.
const STARTS: [&str; 2] = ["proxy-", "ssl-client-"];

/// The problem of a rule that changes some of them for an endpoint of another namespace.
pub(crate) const KEPT: &str = "changes fields that tell a backend of another namespace whom \
                               requests come from: these changes have no effect";

/// The remedy for [`KEPT`].
pub(crate) const KEPT_REMEDY: &str =
    "change no field such as X-Forwarded-For, X-Real-IP or X-Forwarded-Client-Cert";

/// Whether a field, in lower case, tells of the client of a request or of the gateways that it has
/// passed.
pub(crate) fn tells_of_client(name: &str) -> bool {
    // There are servers that read whatever is neither letter nor digit as a dash.
    let dashed = name.replace(|sign: char| !sign.is_ascii_alphanumeric(), "-");
    let name = dashed.as_str();
    let starts = STARTS.iter().any(|start| name.starts_with(start));
    starts || OF_CLIENT.contains(&name)
}

/// Whether anything is changed of what an endpoint is told of whom a request comes from.
pub(crate) fn changes_client(edits: Option<&HeaderEdits>) -> bool {
    let Some(HeaderEdits { request, .. }) = edits else {
        return false;
    };
    let pairs = request.set.iter().chain(request.add.iter());
    let mut names = request.remove.iter().chain(pairs.map(|(name, _)| name));
    names.any(|name| tells_of_client(name))
}

/// Leaves out what is changed of it; returns whether there is any.
pub(crate) fn keep_client(edits: &mut Option<Box<HeaderEdits>>) -> bool {
    let Some(all) = edits
        .as_deref_mut()
        .filter(|all| changes_client(Some(&**all)))
    else {
        return false;
    };
    let HeaderEdit { remove, set, add } = &all.request;
    let pairs = |pairs: &[(Box<str>, Box<str>)]| -> Vec<(Box<str>, Box<str>)> {
        let kept = pairs.iter().filter(|(name, _)| !tells_of_client(name));
        kept.cloned().collect()
    };
    let names = remove.iter().filter(|name| !tells_of_client(name));
    all.request = HeaderEdit::new(names.cloned().collect(), pairs(set), pairs(add));
    if all.request.is_empty() && all.response.is_empty() {
        *edits = None;
    }
    true
}

#[cfg(test)]
mod tests {
    use myriad_model::{HeaderEdit, HeaderEdits};

    use super::{OF_CLIENT, changes_client, keep_client, tells_of_client};

    fn pairs(names: &[&str]) -> Vec<(Box<str>, Box<str>)> {
        let pair = |name: &&str| -> (Box<str>, Box<str>) { ((*name).into(), "9.9.9.9".into()) };
        names.iter().map(pair).collect()
    }

    fn edits(remove: &[&str], set: &[&str], add: &[&str]) -> Option<Box<HeaderEdits>> {
        let remove = remove.iter().map(|name| (*name).into()).collect();
        Some(Box::new(HeaderEdits {
            request: HeaderEdit::new(remove, pairs(set), pairs(add)),
            response: HeaderEdit::default(),
        }))
    }

    #[test]
    fn what_the_proxy_tells_of_clients_is_known_by_any_spelling() {
        assert!(OF_CLIENT.is_sorted());
        let others = ["ssl-client-verify", "x_real_ip", "x.real.ip"];
        for name in OF_CLIENT.iter().chain(&others) {
            assert!(tells_of_client(name), "{name}");
        }
        for name in ["host", "content-length", "authorization", "x-team"] {
            assert!(!tells_of_client(name), "{name}");
        }
    }

    #[test]
    fn what_tells_whom_a_request_comes_from_is_left_as_it_is() {
        let mut some = edits(
            &["x-forwarded-client-cert", "x-gone"],
            &["x-real-ip", "x-team"],
            &["x_forwarded_for"],
        );
        assert!(changes_client(some.as_deref()) && keep_client(&mut some));
        let kept = some.clone().expect("changes").request;
        assert_eq!(*kept.remove, [Box::<str>::from("x-gone")]);
        assert_eq!((kept.set.len(), kept.add.len()), (1, 0));
        // What is left is nothing of it, and where all of it was nothing is left.
        assert!(!changes_client(some.as_deref()) && !keep_client(&mut some));
        assert!(!changes_client(None) && !keep_client(&mut None));
        for mut one in [
            edits(&["x-real-ip"], &[], &[]),
            edits(&[], &["x-real-ip"], &[]),
            edits(&[], &[], &["x-real-ip"]),
        ] {
            assert!(keep_client(&mut one) && one.is_none());
        }
    }
}
