//! Guards of every form.

use std::time::Duration;

use bytes::Bytes;

use super::names;
use crate::{
    Authenticate, Authorize, ClaimHeader, Guard, GuardAction, GuardCheck, GuardForm, GuardRule,
    GuardSubject, GuardTest, TokenIssuer, TokenKeys,
};

/// A guard with every subject and every form.
pub fn authorizing() -> Guard {
    use GuardSubject as Subject;
    let forms = [
        GuardForm::Exact("a".into()),
        GuardForm::Prefix("b".into()),
        GuardForm::Suffix("c".into()),
        GuardForm::Present,
        GuardForm::Template("/v1/{*}/{**}".into()),
        GuardForm::Block("10.0.0.0/8".parse().unwrap()),
    ];
    let test = |subject: Subject| GuardTest {
        subject,
        any: forms.clone().into(),
        none: [GuardForm::Present].into(),
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
    Guard {
        listeners: names(&["https"]),
        check: GuardCheck::Authorize(Authorize {
            action: GuardAction::Custom("opa".into()),
            is_dry_run: true,
            rules: [GuardRule {
                from: [from.map(test).into()].into(),
                to: [to.map(test).into()].into(),
                when: when.map(test).into(),
            }]
            .into(),
        }),
    }
}

/// A guard with every field of an issuer.
pub fn authenticating() -> Guard {
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
    Guard {
        listeners: names(&[]),
        check: GuardCheck::Authenticate(Authenticate {
            issuers: [inline, fetched].into(),
        }),
    }
}
