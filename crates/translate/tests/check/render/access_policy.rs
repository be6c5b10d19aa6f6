//! Access policies as compact, stable text.

use std::fmt::Write as _;

use myriad_model::{
    AccessAction, AccessCheck, AccessMatcher, AccessPolicy, AccessRule, AccessSubject, AccessTest,
    Authorize, TokenIssuer, TokenKeys,
};

/// An access policy: what it is, and a line for each of its rules.
pub(super) fn text(access_policy: &AccessPolicy) -> String {
    let mut text = match &access_policy.check {
        AccessCheck::Authorize(authorize) => authorize_text(authorize),
        AccessCheck::Authenticate(authenticate) => {
            let issuers = authenticate.issuers.iter().map(issuer_text);
            issuers.fold("authenticate".to_owned(), |text, line| {
                text + "\n  " + &line
            })
        }
    };
    if !access_policy.listeners.is_empty() {
        let _ = write!(text, "\n  on {:?}", access_policy.listeners);
    }
    text
}

fn authorize_text(authorize: &Authorize) -> String {
    let mut text = match &authorize.action {
        AccessAction::Allow => "allow".to_owned(),
        AccessAction::Deny => "deny".to_owned(),
        AccessAction::Audit => "audit".to_owned(),
        AccessAction::Custom(provider) => format!("custom {provider}"),
    };
    if authorize.is_dry_run {
        text += " dry-run";
    }
    for rule in &authorize.rules {
        let _ = write!(text, "\n  rule{}", rule_text(rule));
    }
    text
}

fn rule_text(rule: &AccessRule) -> String {
    let group = |tests: &[AccessTest]| {
        let tests: Vec<String> = tests.iter().map(test_text).collect();
        format!("({})", tests.join(" "))
    };
    let mut text = String::new();
    for (word, groups) in [("from", &rule.from), ("to", &rule.to)] {
        if !groups.is_empty() {
            let groups: Vec<String> = groups.iter().map(|tests| group(tests)).collect();
            let _ = write!(text, " {word} {}", groups.join(" or "));
        }
    }
    if !rule.when.is_empty() {
        let _ = write!(text, " when {}", group(&rule.when));
    }
    text
}

fn test_text(test: &AccessTest) -> String {
    let subject = match &test.subject {
        AccessSubject::Claim(path) => format!("claim[{}]", path.join("][")),
        AccessSubject::Header(name) => format!("header[{name}]"),
        simple => format!("{simple:?}"),
    };
    let list = |forms: &[AccessMatcher]| forms.iter().map(form_text).collect::<Vec<_>>().join("|");
    match (test.any.is_empty(), test.none.is_empty()) {
        (false, true) => format!("{subject}={}", list(&test.any)),
        (true, false) => format!("{subject}!={}", list(&test.none)),
        _ => format!("{subject}={}!={}", list(&test.any), list(&test.none)),
    }
}

fn form_text(form: &AccessMatcher) -> String {
    match form {
        AccessMatcher::Exact(text) => format!("{text:?}"),
        AccessMatcher::Prefix(text) => format!("{text:?}*"),
        AccessMatcher::Suffix(text) => format!("*{text:?}"),
        AccessMatcher::Present => "*".to_owned(),
        AccessMatcher::Template(text) => format!("template {text:?}"),
        AccessMatcher::Block(block) => block.to_string(),
    }
}

fn issuer_text(issuer: &TokenIssuer) -> String {
    let mut text = format!("issuer {:?}", issuer.issuer);
    match &issuer.keys {
        TokenKeys::Inline(json) => {
            let _ = write!(text, " keys {}", String::from_utf8_lossy(json));
        }
        TokenKeys::Fetched {
            url,
            is_discovered,
            timeout,
        } => {
            let word = if *is_discovered {
                "discovered"
            } else {
                "fetched"
            };
            let _ = write!(text, " {word} {url} within {timeout:?}");
        }
    }
    let _ = write!(text, " headers {:?}", issuer.headers);
    for (word, list) in [
        ("audiences", &issuer.audiences),
        ("params", &issuer.params),
        ("cookies", &issuer.cookies),
        ("words", &issuer.word_claims),
    ] {
        if !list.is_empty() {
            let _ = write!(text, " {word} {list:?}");
        }
    }
    if issuer.is_forwarded {
        text += " forwarded";
    }
    if !issuer.payload_header.is_empty() {
        let _ = write!(text, " payload {}", issuer.payload_header);
    }
    for passed in &issuer.claim_headers {
        let _ = write!(text, " claim {:?} in {}", passed.claim, passed.header);
    }
    text
}
