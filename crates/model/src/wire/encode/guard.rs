//! What is asked of every request on a set of listeners.

use super::super::generated as wire;
use super::{milliseconds, names};
use crate::{
    Authenticate, Authorize, Guard, GuardAction, GuardCheck, GuardForm, GuardRule, GuardSubject,
    GuardTest, TokenIssuer, TokenKeys,
};

/// The message of a guard.
pub fn guard(value: &Guard) -> wire::Guard {
    use wire::guard::Check;
    wire::Guard {
        listeners: names(&value.listeners),
        check: Some(match &value.check {
            GuardCheck::Authorize(value) => Check::Authorize(authorize(value)),
            GuardCheck::Authenticate(value) => Check::Authenticate(authenticate(value)),
        }),
    }
}

fn authorize(value: &Authorize) -> wire::Authorize {
    let (action, provider) = match &value.action {
        GuardAction::Allow => (1, ""),
        GuardAction::Deny => (2, ""),
        GuardAction::Audit => (3, ""),
        GuardAction::Custom(provider) => (4, provider.as_str()),
    };
    wire::Authorize {
        action,
        provider: provider.to_owned(),
        dry_run: value.is_dry_run,
        rules: value.rules.iter().map(rule).collect(),
    }
}

fn rule(value: &GuardRule) -> wire::GuardRule {
    let group = |tests: &[GuardTest]| wire::GuardTests {
        tests: tests.iter().map(test).collect(),
    };
    wire::GuardRule {
        from: value.from.iter().map(|tests| group(tests)).collect(),
        to: value.to.iter().map(|tests| group(tests)).collect(),
        when: value.when.iter().map(test).collect(),
    }
}

fn test(value: &GuardTest) -> wire::GuardTest {
    use GuardSubject as Subject;
    let (subject, parts) = match &value.subject {
        Subject::Principal => (1, Vec::new()),
        Subject::Namespace => (2, Vec::new()),
        Subject::ServiceAccount => (3, Vec::new()),
        Subject::TrustDomain => (4, Vec::new()),
        Subject::RequestPrincipal => (5, Vec::new()),
        Subject::Audience => (6, Vec::new()),
        Subject::Presenter => (7, Vec::new()),
        Subject::Claim(path) => (8, texts(path)),
        Subject::PeerAddress => (9, Vec::new()),
        Subject::ClientAddress => (10, Vec::new()),
        Subject::LocalAddress => (11, Vec::new()),
        Subject::LocalPort => (12, Vec::new()),
        Subject::ServerName => (13, Vec::new()),
        Subject::Host => (14, Vec::new()),
        Subject::Method => (15, Vec::new()),
        Subject::Path => (16, Vec::new()),
        Subject::Header(name) => (17, vec![name.to_string()]),
    };
    wire::GuardTest {
        subject,
        parts,
        any: value.any.iter().map(form).collect(),
        none: value.none.iter().map(form).collect(),
    }
}

fn form(value: &GuardForm) -> wire::GuardForm {
    use wire::guard_form::Form;
    wire::GuardForm {
        form: Some(match value {
            GuardForm::Exact(text) => Form::Exact(text.to_string()),
            GuardForm::Prefix(text) => Form::Prefix(text.to_string()),
            GuardForm::Suffix(text) => Form::Suffix(text.to_string()),
            GuardForm::Present => Form::Present(true),
            GuardForm::Template(text) => Form::Template(text.to_string()),
            GuardForm::Block(block) => Form::Block(block.to_string()),
        }),
    }
}

fn authenticate(value: &Authenticate) -> wire::Authenticate {
    wire::Authenticate {
        issuers: value.issuers.iter().map(issuer).collect(),
    }
}

fn issuer(value: &TokenIssuer) -> wire::TokenIssuer {
    use wire::token_issuer::Keys;
    let header = |(name, value): &(Box<str>, Box<str>)| wire::Header {
        name: name.to_string(),
        value: value.to_string(),
    };
    let claim_headers = value.claim_headers.iter().map(|passed| wire::ClaimHeader {
        header: passed.header.to_string(),
        claim: texts(&passed.claim),
    });
    wire::TokenIssuer {
        issuer: value.issuer.to_string(),
        audiences: texts(&value.audiences),
        keys: Some(match &value.keys {
            TokenKeys::Inline(json) => Keys::Inline(json.clone()),
            TokenKeys::Fetched {
                url,
                is_discovered,
                timeout,
            } => Keys::Fetched(wire::KeyFetch {
                url: url.to_string(),
                discovered: *is_discovered,
                timeout_ms: milliseconds(*timeout),
            }),
        }),
        headers: value.headers.iter().map(header).collect(),
        params: texts(&value.params),
        cookies: texts(&value.cookies),
        forwarded: value.is_forwarded,
        payload_header: value.payload_header.to_string(),
        claim_headers: claim_headers.collect(),
        word_claims: texts(&value.word_claims),
    }
}

fn texts(texts: &[Box<str>]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}
