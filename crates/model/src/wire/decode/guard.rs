//! What is asked of every request on a set of listeners.

use std::time::Duration;

use super::super::{WireError, generated as wire};
use super::{names, required};
use crate::{
    Authenticate, Authorize, ClaimHeader, Guard, GuardAction, GuardCheck, GuardForm, GuardRule,
    GuardSubject, GuardTest, TokenIssuer, TokenKeys,
};

/// Reads a guard.
pub fn guard(message: wire::Guard) -> Result<Guard, WireError> {
    use wire::guard::Check;
    let check = match message.check.ok_or(WireError::Missing("check"))? {
        Check::Authorize(message) => GuardCheck::Authorize(authorize(message)?),
        Check::Authenticate(message) => GuardCheck::Authenticate(authenticate(message)?),
    };
    Ok(Guard {
        listeners: names(message.listeners)?,
        check,
    })
}

fn authorize(message: wire::Authorize) -> Result<Authorize, WireError> {
    let parts: usize = message.rules.iter().map(parts).sum();
    if parts > Guard::PARTS_MAX {
        return Err(WireError::Invalid("number of tests"));
    }
    let action = match message.action {
        1 => GuardAction::Allow,
        2 => GuardAction::Deny,
        3 => GuardAction::Audit,
        4 => GuardAction::Custom(required(message.provider, "provider")?),
        _ => return Err(WireError::Invalid("action of a guard")),
    };
    Ok(Authorize {
        action,
        is_dry_run: message.dry_run,
        rules: all(message.rules, rule)?,
    })
}

fn parts(rule: &wire::GuardRule) -> usize {
    let groups = rule.from.iter().chain(&rule.to);
    let tests = groups.flat_map(|group| &group.tests).chain(&rule.when);
    1 + rule.from.len()
        + rule.to.len()
        + tests
            .map(|test| 1 + test.parts.len() + test.any.len() + test.none.len())
            .sum::<usize>()
}

fn rule(message: wire::GuardRule) -> Result<GuardRule, WireError> {
    let group = |message: wire::GuardTests| all(message.tests, test);
    Ok(GuardRule {
        from: all(message.from, group)?,
        to: all(message.to, group)?,
        when: all(message.when, test)?,
    })
}

fn test(message: wire::GuardTest) -> Result<GuardTest, WireError> {
    use GuardSubject as Subject;
    let subject = match message.subject {
        1 => Subject::Principal,
        2 => Subject::Namespace,
        3 => Subject::ServiceAccount,
        4 => Subject::TrustDomain,
        5 => Subject::RequestPrincipal,
        6 => Subject::Audience,
        7 => Subject::Presenter,
        8 if !message.parts.is_empty() => Subject::Claim(texts(message.parts)),
        9 => Subject::PeerAddress,
        10 => Subject::ClientAddress,
        11 => Subject::LocalAddress,
        12 => Subject::LocalPort,
        13 => Subject::ServerName,
        14 => Subject::Host,
        15 => Subject::Method,
        16 => Subject::Path,
        17 => {
            let name = message.parts.into_iter().next();
            Subject::Header(field_name(name.unwrap_or_default())?)
        }
        _ => return Err(WireError::Invalid("subject of a test")),
    };
    Ok(GuardTest {
        subject,
        any: all(message.any, form)?,
        none: all(message.none, form)?,
    })
}

fn form(message: wire::GuardForm) -> Result<GuardForm, WireError> {
    use wire::guard_form::Form;
    Ok(match message.form.ok_or(WireError::Missing("form"))? {
        Form::Exact(text) => GuardForm::Exact(text.into()),
        Form::Prefix(text) => GuardForm::Prefix(text.into()),
        Form::Suffix(text) => GuardForm::Suffix(text.into()),
        Form::Present(_) => GuardForm::Present,
        Form::Template(text) => GuardForm::Template(text.into()),
        Form::Block(text) => {
            let block = text.parse();
            GuardForm::Block(block.map_err(|_| WireError::Invalid("block of addresses"))?)
        }
    })
}

fn authenticate(message: wire::Authenticate) -> Result<Authenticate, WireError> {
    if message.issuers.len() > Guard::ISSUERS_MAX {
        return Err(WireError::Invalid("number of issuers"));
    }
    Ok(Authenticate {
        issuers: all(message.issuers, issuer)?,
    })
}

fn issuer(message: wire::TokenIssuer) -> Result<TokenIssuer, WireError> {
    use wire::token_issuer::Keys;
    let keys = match message.keys.ok_or(WireError::Missing("keys"))? {
        Keys::Inline(json) if json.len() > Guard::KEYS_BYTES_MAX => {
            return Err(WireError::Invalid("key set"));
        }
        Keys::Inline(json) => TokenKeys::Inline(json),
        Keys::Fetched(fetch) => TokenKeys::Fetched {
            url: required(fetch.url, "URL of keys")?.as_str().into(),
            is_discovered: fetch.discovered,
            timeout: Duration::from_millis(fetch.timeout_ms.into()),
        },
    };
    let header = |header: wire::Header| Ok((field_name(header.name)?, header.value.into()));
    let passed = |passed: wire::ClaimHeader| {
        if passed.claim.is_empty() {
            return Err(WireError::Missing("claim"));
        }
        Ok(ClaimHeader {
            header: field_name(passed.header)?,
            claim: texts(passed.claim),
        })
    };
    let payload_header = match message.payload_header.is_empty() {
        true => Box::default(),
        false => field_name(message.payload_header)?,
    };
    Ok(TokenIssuer {
        issuer: message.issuer.into(),
        audiences: texts(message.audiences),
        keys,
        headers: all(message.headers, header)?,
        params: texts(message.params),
        cookies: texts(message.cookies),
        is_forwarded: message.forwarded,
        payload_header,
        claim_headers: all(message.claim_headers, passed)?,
        word_claims: texts(message.word_claims),
    })
}

/// The name of a header field in lower case (RFC 9110, section 5.6.2).
fn field_name(text: String) -> Result<Box<str>, WireError> {
    let is_token = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte)
    };
    match !text.is_empty() && text.bytes().all(is_token) {
        true => Ok(text.into()),
        false => Err(WireError::Invalid("name of a header field")),
    }
}

fn texts(texts: Vec<String>) -> Box<[Box<str>]> {
    texts.into_iter().map(Into::into).collect()
}

fn all<From, To>(
    messages: Vec<From>,
    read: impl Fn(From) -> Result<To, WireError>,
) -> Result<Box<[To]>, WireError> {
    messages.into_iter().map(read).collect()
}
