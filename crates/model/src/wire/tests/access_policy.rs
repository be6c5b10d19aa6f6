//! Access policies of every form.

use std::time::Duration;

use bytes::Bytes;

use super::examples::names;
use crate::{
    AccessAction, AccessCheck, AccessMatcher, AccessPolicy, AccessRule, AccessSubject, AccessTest,
    Authenticate, Authorize, ClaimHeader, TokenIssuer, TokenKeys,
};

/// An access policy with every subject and every form.
pub(super) fn authorizing() -> AccessPolicy {
    use AccessSubject as Subject;
    let forms = [
        AccessMatcher::Exact("a".into()),
        AccessMatcher::Prefix("b".into()),
        AccessMatcher::Suffix("c".into()),
        AccessMatcher::Present,
        AccessMatcher::Template("/v1/{*}/{**}".into()),
        AccessMatcher::Block("10.0.0.0/8".parse().unwrap()),
    ];
    let test = |subject: Subject| AccessTest {
        subject,
        any: forms.clone().into(),
        none: [AccessMatcher::Present].into(),
    };
    let from = [
        Subject::Principal,
        Subject::Namespace,
        Subject::ServiceAccount,
        Subject::TrustDomain,
        Subject::RequestPrincipal,
        Subject::PeerAddress,
        Subject::ClientAddress,
    ];
    let to = [
        Subject::LocalPort,
        Subject::Host,
        Subject::Method,
        Subject::Path,
    ];
    let when = [
        Subject::Audience,
        Subject::Presenter,
        Subject::Claim(["realm".into(), "roles".into()].into()),
        Subject::LocalAddress,
        Subject::ServerName,
        Subject::Header("x-token".into()),
    ];
    AccessPolicy {
        listeners: names(&["https"]),
        check: AccessCheck::Authorize(Authorize {
            action: AccessAction::Custom("opa".into()),
            is_dry_run: true,
            rules: [AccessRule {
                from: [from.map(test).into()].into(),
                to: [to.map(test).into()].into(),
                when: when.map(test).into(),
            }]
            .into(),
        }),
    }
}

/// An access policy with every field of an issuer.
pub(super) fn authenticating() -> AccessPolicy {
    let inline = TokenIssuer {
        issuer: "https://issuer.example".into(),
        audiences: ["shop".into()].into(),
        keys: TokenKeys::Inline(Bytes::from_static(b"{\"keys\":[]}")),
        headers: [("authorization".into(), "Bearer ".into())].into(),
        params: ["access_token".into()].into(),
        cookies: ["session".into()].into(),
        is_forwarded: true,
        payload_header: "x-payload".into(),
        claim_headers: [ClaimHeader {
            header: "x-group".into(),
            claim: ["groups".into(), "first".into()].into(),
        }]
        .into(),
        word_claims: ["roles".into()].into(),
    };
    let fetched = TokenIssuer {
        keys: TokenKeys::Fetched {
            url: "https://issuer.example/.well-known/openid-configuration".into(),
            is_discovered: true,
            timeout: Duration::from_secs(5),
        },
        ..inline.clone()
    };
    AccessPolicy {
        listeners: names(&[]),
        check: AccessCheck::Authenticate(Authenticate {
            issuers: [inline, fetched].into(),
        }),
    }
}
