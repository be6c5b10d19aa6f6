//! Texts of resources that go into heads as they are. One that could end its field would let
//! whoever wrote it say the rest of the message, so that its resource is not taken.
//!
//! They are looked at once, when a resource comes. Headers that are set or added, and paths and
//! authorities that are rewritten, are looked at where they are written: what is made of them is
//! known there.

use myriad_model::{
    Action, Balancer, CheckProtocol, Cors, HashSource, Mirror, Policy, Provider, Redirect,
    RedirectPath, RedirectTarget, ShareAnswer, ShareFilters, TraceProtocol, Tracing,
    UpstreamOptions, Value,
};

/// A text that could end its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("has a control character in its {0}, which goes into a head")]
pub struct Splitting(pub &'static str);

/// Looks at all texts of a resource that go into heads as they are.
///
/// # Errors
/// The first that could end its field.
pub fn check(value: &Value) -> Result<(), Splitting> {
    match value {
        Value::Route(route) => {
            check_action(&route.action)?;
            check_policy(&route.policy)
        }
        Value::Routes(block) => {
            block.actions().iter().try_for_each(check_action)?;
            let mut policies = block.policies().iter();
            policies.try_for_each(|policy| check_policy(policy))
        }
        Value::Upstream(upstream) => upstream.options.as_deref().map_or(Ok(()), check_options),
        Value::Provider(provider) => check_provider(provider),
        Value::Telemetry(telemetry) => telemetry.tracing.as_deref().map_or(Ok(()), check_tracing),
        Value::Listener(_)
        | Value::Domain(_)
        | Value::Certificate(_)
        | Value::Endpoints(_)
        | Value::Trust(_)
        | Value::StreamRoute(_)
        | Value::AccessPolicy(_)
        // Its text is no longer than a line, by its wire form.
        | Value::ChallengeAnswer(_) => Ok(()),
    }
}

fn check_action(action: &Action) -> Result<(), Splitting> {
    match action {
        Action::Redirect(redirect) => check_redirect(redirect),
        Action::Forward(shares) => {
            let mut filters = shares.iter().filter_map(|share| share.filters.as_deref());
            filters.try_for_each(check_filters)
        }
        Action::Respond(_) => Ok(()),
    }
}

fn check_filters(filters: &ShareFilters) -> Result<(), Splitting> {
    if let Some(ShareAnswer::Redirect(redirect)) = &filters.answer {
        check_redirect(redirect)?;
    }
    if let Some(cors) = &filters.cors {
        check_cors(cors)?;
    }
    check_mirrors(&filters.mirrors)
}

fn check_cors(cors: &Cors) -> Result<(), Splitting> {
    whole(&cors.methods, "CORS methods")?;
    whole(&cors.headers_allowed, "CORS headers")?;
    whole(&cors.headers_exposed, "CORS headers")
}

fn check_mirrors(mirrors: &[Mirror]) -> Result<(), Splitting> {
    let mut authorities = mirrors.iter().map(|mirror| &*mirror.authority);
    authorities.try_for_each(|authority| whole(authority, "authority of copies"))
}

fn check_redirect(redirect: &Redirect) -> Result<(), Splitting> {
    match &redirect.target {
        RedirectTarget::Url(text) | RedirectTarget::Path(text) => whole(text, "location"),
        RedirectTarget::Parts(parts) => {
            whole(&parts.scheme, "scheme")?;
            whole(&parts.host, "host")?;
            match &parts.path {
                Some(RedirectPath::Whole(text) | RedirectPath::Matched(text)) => {
                    whole(text, "path")
                }
                None => Ok(()),
            }
        }
    }
}

fn check_policy(policy: &Policy) -> Result<(), Splitting> {
    if let Some(cors) = &policy.cors {
        check_cors(cors)?;
    }
    check_mirrors(&policy.mirrors)?;
    if let Some(provider) = &policy.authorizer {
        check_provider(provider)?;
    }
    if let Some(pages) = &policy.error_pages {
        check_headers(&pages.fields)?;
    }
    if let Some(affinity) = &policy.affinity {
        whole(&affinity.cookie, "cookie name")?;
        whole(&affinity.path, "cookie path")?;
        whole(&affinity.domain, "cookie domain")?;
    }
    if let Some(demand) = &policy.client_certificate {
        whole(&demand.error_page, "location")?;
    }
    whole(&policy.realm, "realm")?;
    whole(&policy.hsts, "Strict-Transport-Security")
}

fn check_options(options: &UpstreamOptions) -> Result<(), Splitting> {
    if let Some(tunnel) = &options.tunnel {
        whole(&tunnel.host, "tunnel")?;
    }
    let Balancer::Hash(hash) = &options.balancer else {
        return Ok(());
    };
    let HashSource::Cookie(cookie) = &hash.source else {
        return Ok(());
    };
    whole(&cookie.name, "cookie name")?;
    whole(&cookie.path, "cookie path")?;
    for (name, value) in &cookie.attributes {
        whole(name, "cookie attribute")?;
        whole(value, "cookie attribute")?;
    }
    Ok(())
}

fn check_provider(provider: &Provider) -> Result<(), Splitting> {
    whole(&provider.authority, "authority")?;
    let CheckProtocol::Http(http) = &provider.protocol else {
        return Ok(());
    };
    whole(&http.path_prefix, "path prefix")?;
    check_headers(&http.additional)
}

fn check_tracing(tracing: &Tracing) -> Result<(), Splitting> {
    whole(&tracing.authority, "authority")?;
    if let TraceProtocol::Http(path) = &tracing.protocol {
        whole(path, "path")?;
    }
    check_headers(&tracing.headers)
}

fn check_headers(headers: &[(Box<str>, Box<str>)]) -> Result<(), Splitting> {
    for (name, value) in headers {
        whole(name, "header name")?;
        whole(value, "header value")?;
    }
    Ok(())
}

fn whole(text: &str, what: &'static str) -> Result<(), Splitting> {
    let is_control = |byte: u8| (byte < b' ' && byte != b'\t') || byte == 0x7f;
    match text.bytes().any(is_control) {
        true => Err(Splitting(what)),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use myriad_model::{
        Action, Affinity, Balancer, CheckProtocol, Cors, HashBalancer, HashCookie, HashSource,
        HashTable, Host, Mirror, PathMatch, Policy, Protocol, Provider, Redirect, RedirectParts,
        RedirectPath, RedirectTarget, Route, Share, ShareAnswer, ShareFilters, Upstream,
        UpstreamOptions, Value, WeightedUpstream,
    };

    use super::{Splitting, check};

    fn route(action: Action, policy: Policy) -> Value {
        Value::Route(Box::new(Route {
            listeners: Arc::default(),
            hosts: [Host::parse("a.example").unwrap()].into(),
            path: PathMatch::Prefix("/".into()),
            conditions: Box::default(),
            rank: 0,
            action,
            policy: Arc::new(policy),
        }))
    }

    fn redirected(target: RedirectTarget) -> Result<(), Splitting> {
        let redirect = Redirect {
            status: 302,
            target,
        };
        let action = Action::Redirect(Arc::new(redirect));
        check(&route(action, Policy::default()))
    }

    fn parts(host: &str, path: RedirectPath) -> RedirectTarget {
        RedirectTarget::Parts(Box::new(RedirectParts {
            host: host.into(),
            path: Some(path),
            ..RedirectParts::default()
        }))
    }

    #[test]
    fn a_redirect_that_could_end_its_field_is_not_taken() {
        for split in ["/x\r\na: b", "/x\n", "/x\r", "/\0"] {
            let text = || Box::from(split);
            let refused = |what| -> Result<(), Splitting> { Err(Splitting(what)) };
            assert_eq!(redirected(RedirectTarget::Url(text())), refused("location"));
            assert_eq!(
                redirected(RedirectTarget::Path(text())),
                refused("location")
            );
            let whole = parts("h", RedirectPath::Whole(text()));
            assert_eq!(redirected(whole), refused("path"));
            let matched = parts("h", RedirectPath::Matched(text()));
            assert_eq!(redirected(matched), refused("path"));
            let host = parts(split, RedirectPath::Whole("/".into()));
            assert_eq!(redirected(host), refused("host"));
        }
        let fine = parts("a.example", RedirectPath::Whole("/x?y=z#w".into()));
        assert_eq!(redirected(fine), Ok(()));
    }

    #[test]
    fn a_policy_that_could_end_a_field_is_not_taken() {
        let with = |methods: &str, exposed: &str, cookie: &str| {
            let cors = Cors {
                origins: Box::default(),
                methods: methods.into(),
                headers_allowed: "x-a,*".into(),
                headers_exposed: exposed.into(),
                credentials: false,
                age_max_s: 0,
                origin_patterns: Box::default(),
                forwards_unmatched: false,
                echoes_wildcards: false,
                exposes_in_preflights: false,
            };
            let affinity = Affinity {
                cookie: cookie.into(),
                path: "/".into(),
                age_max_s: 0,
                secure: false,
                ..Affinity::default()
            };
            let policy = Policy {
                cors: Some(Box::new(cors)),
                affinity: Some(Box::new(affinity)),
                ..Policy::default()
            };
            check(&route(Action::Forward(Arc::default()), policy))
        };
        assert_eq!(with("GET", "", "c"), Ok(()));
        assert_eq!(with("GET\r\n", "", "c"), Err(Splitting("CORS methods")));
        assert_eq!(with("GET", "x\n", "c"), Err(Splitting("CORS headers")));
        assert_eq!(with("GET", "", "c\0"), Err(Splitting("cookie name")));
    }

    #[test]
    fn what_a_share_says_is_looked_at_as_what_its_route_says() {
        let with = |filters: ShareFilters| {
            let share = WeightedUpstream {
                upstream: "u".into(),
                weight: 1,
                headers: None,
                filters: Some(Box::new(filters)),
            };
            check(&route(Action::Forward([share].into()), Policy::default()))
        };
        let redirect = |url: &str| ShareFilters {
            answer: Some(ShareAnswer::Redirect(Arc::new(Redirect {
                status: 302,
                target: RedirectTarget::Url(url.into()),
            }))),
            ..ShareFilters::default()
        };
        let mirror = |authority: &str| ShareFilters {
            mirrors: [Mirror {
                upstream: "u".into(),
                share: Share::ALL,
                authority: authority.into(),
                omits_body: false,
                keeps_authority: false,
            }]
            .into(),
            ..ShareFilters::default()
        };
        let cors = |methods: &str| ShareFilters {
            cors: Some(Box::new(Cors {
                methods: methods.into(),
                ..Cors::default()
            })),
            ..ShareFilters::default()
        };
        for fine in [redirect("/x"), mirror("a.example"), cors("GET")] {
            assert_eq!(with(fine), Ok(()));
        }
        assert_eq!(with(redirect("/x\r\n")), Err(Splitting("location")));
        assert_eq!(with(mirror("a\n")), Err(Splitting("authority of copies")));
        assert_eq!(with(cors("GET\r")), Err(Splitting("CORS methods")));
    }

    #[test]
    fn what_the_provider_of_a_route_is_asked_by_is_looked_at() {
        let with = |authority: &str| {
            let provider = Provider {
                upstream: "u".into(),
                protocol: CheckProtocol::Grpc,
                timeout: Duration::from_secs(1),
                fail_open: false,
                error_status: 403,
                reroutes: false,
                body: None,
                authority: authority.into(),
                told: Box::default(),
            };
            let policy = Policy {
                authorizer: Some(Box::new(provider)),
                ..Policy::default()
            };
            check(&route(Action::Forward(Arc::default()), policy))
        };
        assert_eq!(with("check.ns"), Ok(()));
        assert!(with("check\r\nx: y").is_err());
    }

    #[test]
    fn a_cookie_that_could_end_its_field_is_not_taken() {
        let with = |name: &str, path: &str, value: &str| {
            let cookie = HashCookie {
                name: name.into(),
                path: path.into(),
                age: Some(Duration::ZERO),
                attributes: [("SameSite".into(), value.into())].into(),
            };
            let options = UpstreamOptions {
                balancer: Balancer::Hash(Box::new(HashBalancer {
                    source: HashSource::Cookie(Box::new(cookie)),
                    parts: Box::default(),
                    table: HashTable::Ring(1_024),
                })),
                ..UpstreamOptions::default()
            };
            check(&Value::Upstream(Box::new(Upstream {
                options: Some(Box::new(options)),
                ..Upstream::plain(Protocol::Http1)
            })))
        };
        assert_eq!(with("c", "/", "Strict"), Ok(()));
        assert_eq!(with("c\r\n", "/", ""), Err(Splitting("cookie name")));
        assert_eq!(with("c", "/\n", ""), Err(Splitting("cookie path")));
        assert_eq!(with("c", "/", "\r"), Err(Splitting("cookie attribute")));
    }
}
