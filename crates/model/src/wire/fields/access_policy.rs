//! Access policies: checks of every request on a set of listeners.

use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::{
    AccessAction, AccessCheck, AccessMatcher, AccessRule, AccessSubject, AccessTest, Authenticate,
    Authorize, ClaimHeader, Name, TokenIssuer, TokenKeys, is_lower_token,
};

message! {
    /// One policy over all requests on some listeners.
    AccessPolicy {
        /// Empty for all.
        1 listeners: list(resource_name("name"));
        2 check: one_of::<AccessCheck>("check");
    }
}

forms! {
    AccessCheck {
        2 authorize: each::<Authorize>() => Authorize;
        3 authenticate: each::<Authenticate>() => Authenticate;
    }
}

message! {
    /// Whether requests are admitted.
    Authorize, authorize {
        /// 1 allow, 2 deny, 3 audit, 4 ask the provider.
        1 action: uint32(), of action_number(&authorize.action);
        2 provider: optional_name(), of provider(&authorize.action);
        3 is_dry_run as dry_run: boolean();
        4 rules: list(each::<AccessRule>());
    } => {
        if rules.iter().map(parts).sum::<usize>() > AccessPolicy::PARTS_MAX {
            return Err(WireError::Invalid("number of tests"));
        }
        let action = match action {
            1 => AccessAction::Allow,
            2 => AccessAction::Deny,
            3 => AccessAction::Audit,
            4 => AccessAction::Custom(provider.ok_or(WireError::Missing("provider"))?),
            _ => return Err(WireError::Invalid("action of an access policy")),
        };
        Authorize { action, is_dry_run, rules: rules.into() }
    }
}

fn action_number(action: &AccessAction) -> u32 {
    match action {
        AccessAction::Allow => 1,
        AccessAction::Deny => 2,
        AccessAction::Audit => 3,
        AccessAction::Custom(_) => 4,
    }
}

fn provider(action: &AccessAction) -> Option<Name> {
    match action {
        AccessAction::Custom(provider) => Some(provider.clone()),
        AccessAction::Allow | AccessAction::Deny | AccessAction::Audit => None,
    }
}

fn parts(rule: &AccessRule) -> usize {
    let groups = rule.from.iter().chain(&rule.to);
    let tests = groups.flat_map(|group| group.iter()).chain(&rule.when);
    let test = |test: &AccessTest| {
        1 + subject_parts(&test.subject).len() + test.any.len() + test.none.len()
    };
    1 + rule.from.len() + rule.to.len() + tests.map(test).sum::<usize>()
}

message! {
    /// Conditions on a request.
    AccessRule {
        1 from: list(each::<AccessTests>());
        2 to: list(each::<AccessTests>());
        3 when: list(each::<AccessTest>());
    }
}

message! {
    /// All of these have to hold.
    AccessTests for Box<[AccessTest]>, tests {
        1 tests: list(each::<AccessTest>()), of *tests;
    } => tests.into()
}

message! {
    /// A test of one property of a request.
    AccessTest, test {
        /// 1 principal, 2 namespace, 3 service account, 4 trust domain, 5 request principal,
        /// 6 audience, 7 presenter, 8 claim, 9 peer address, 10 client address, 11 local address,
        /// 12 local port, 13 server name, 14 host, 15 method, 16 path, 17 header.
        1 subject: uint32(), of subject_number(&test.subject);
        /// The path of a claim, or the name of a header.
        2 parts: list(string()), of *subject_parts(&test.subject);
        3 any: list(each::<AccessMatcher>());
        4 none: list(each::<AccessMatcher>());
    } => AccessTest { subject: access_subject(subject, parts)?, any: any.into(), none: none.into() }
}

/// The subjects without parts, by their numbers.
static SUBJECTS: [(u32, AccessSubject); 15] = [
    (1, AccessSubject::Principal),
    (2, AccessSubject::Namespace),
    (3, AccessSubject::ServiceAccount),
    (4, AccessSubject::TrustDomain),
    (5, AccessSubject::RequestPrincipal),
    (6, AccessSubject::Audience),
    (7, AccessSubject::Presenter),
    (9, AccessSubject::PeerAddress),
    (10, AccessSubject::ClientAddress),
    (11, AccessSubject::LocalAddress),
    (12, AccessSubject::LocalPort),
    (13, AccessSubject::ServerName),
    (14, AccessSubject::Host),
    (15, AccessSubject::Method),
    (16, AccessSubject::Path),
];
const CLAIM: u32 = 8;
const HEADER: u32 = 17;

fn subject_number(subject: &AccessSubject) -> u32 {
    match subject {
        AccessSubject::Claim(_) => CLAIM,
        AccessSubject::Header(_) => HEADER,
        plain => {
            let known = SUBJECTS.iter().find(|(_, known)| known == plain);
            known.map_or(0, |(number, _)| *number)
        }
    }
}

fn subject_parts(subject: &AccessSubject) -> &[Box<str>] {
    match subject {
        AccessSubject::Claim(path) => path,
        AccessSubject::Header(name) => std::slice::from_ref(name),
        _ => &[],
    }
}

fn access_subject(number: u32, parts: Vec<Box<str>>) -> Result<AccessSubject, WireError> {
    match number {
        CLAIM if !parts.is_empty() => Ok(AccessSubject::Claim(parts.into())),
        HEADER => {
            let name = parts.into_iter().next();
            let name = name.filter(|name| is_lower_token(name));
            let name = name.ok_or(WireError::Invalid(FIELD_NAME))?;
            Ok(AccessSubject::Header(name))
        }
        number => {
            let known = SUBJECTS.iter().find(|(known, _)| *known == number);
            let (_, subject) = known.ok_or(WireError::Invalid("subject of a test"))?;
            Ok(subject.clone())
        }
    }
}

const FIELD_NAME: &str = "name of a header field";

message! {
    /// A condition on a value.
    AccessMatcher, form {
        1 form: one_of::<AccessMatcher>("form"), of *form;
    } => form
}

forms! {
    AccessMatcher {
        1 exact: string() => Exact;
        2 prefix: string() => Prefix;
        3 suffix: string() => Suffix;
        4 present => Present;
        /// {*} is one segment, {**} any number of them.
        5 template: string() => Template;
        /// CIDR notation.
        6 block: network("block of addresses") => Block;
    }
}

message! {
    /// Tokens that say who requests come from.
    Authenticate {
        1 issuers: list_of(AccessPolicy::ISSUERS_MAX, "number of issuers", each::<TokenIssuer>());
    }
}

message! {
    /// Tokens of one issuer.
    TokenIssuer, issuer {
        1 issuer: string();
        2 audiences: list(string());
        3 keys: one_of::<KeyForm>("keys"), of KeyForm::new(&issuer.keys);
        /// The value is what stands before the token.
        5 headers: list(checked(each::<Header>(), token_header));
        6 params: list(string());
        7 cookies: list(string());
        8 is_forwarded as forwarded: boolean();
        9 payload_header: string();
        10 claim_headers: list(each::<ClaimHeader>());
        11 word_claims: list(string());
    } => {
        if !payload_header.is_empty() && !is_lower_token(&payload_header) {
            return Err(WireError::Invalid(FIELD_NAME));
        }
        TokenIssuer {
            issuer,
            audiences: audiences.into(),
            keys: keys.keys(),
            headers: headers.into(),
            params: params.into(),
            cookies: cookies.into(),
            is_forwarded,
            payload_header,
            claim_headers: claim_headers.into(),
            word_claims: word_claims.into(),
        }
    }
}

/// The forms that the keys of an issuer have.
enum KeyForm {
    Inline(Bytes),
    Fetched((Box<str>, bool, Duration)),
}

forms! {
    KeyForm {
        /// JSON.
        3 inline: key_set() => Inline;
        4 fetched: each::<KeyFetch>() => Fetched;
    }
}

impl KeyForm {
    fn new(keys: &TokenKeys) -> KeyForm {
        match keys {
            TokenKeys::Inline(json) => KeyForm::Inline(json.clone()),
            TokenKeys::Fetched {
                url,
                is_discovered,
                timeout,
            } => KeyForm::Fetched((url.clone(), *is_discovered, *timeout)),
        }
    }

    fn keys(self) -> TokenKeys {
        match self {
            KeyForm::Inline(json) => TokenKeys::Inline(json),
            KeyForm::Fetched((url, is_discovered, timeout)) => TokenKeys::Fetched {
                url,
                is_discovered,
                timeout,
            },
        }
    }
}

fn key_set() -> impl Item<Value = Bytes, Out = Bytes> {
    bytes_as(|raw| match raw.shared()? {
        json if json.len() > AccessPolicy::KEYS_BYTES_MAX => Err(WireError::Invalid("key set")),
        json => Ok(json),
    })
}

message! {
    /// Keys that proxies fetch.
    KeyFetch for (Box<str>, bool, Duration), fetch {
        1 url: required_text("URL of keys"), of fetch.0;
        /// Whether the URL leads to a description of the issuer.
        2 discovered: boolean(), of fetch.1;
        3 timeout as timeout_ms: milliseconds(), of fetch.2;
    } => (url, discovered, timeout)
}

fn token_header((name, _): &(Box<str>, Box<str>)) -> Result<(), WireError> {
    match is_lower_token(name) {
        true => Ok(()),
        false => Err(WireError::Invalid(FIELD_NAME)),
    }
}

message! {
    /// A header field that passes a claim on.
    ClaimHeader, passed {
        1 header: header_name(FIELD_NAME);
        2 claim: list(string());
    } => {
        if claim.is_empty() {
            return Err(WireError::Missing("claim"));
        }
        ClaimHeader { header, claim: claim.into() }
    }
}
