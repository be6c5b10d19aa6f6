//! RequestAuthentication: whose tokens are known.

use std::time::Duration;

use bytes::Bytes;
use myriad_api::istio::RequestAuthenticationSpec;
use myriad_api::istio::request_authentication::JwtRule;
use myriad_model::{AccessPolicy, Authenticate, ClaimHeader, TokenIssuer, TokenKeys, is_token};

use super::Report;

/// How long a fetch of keys may take where nothing is said.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// The path where issuers describe themselves (OpenID Connect Discovery, section 4).
const DISCOVERY_PATH: &str = "/.well-known/openid-configuration";

/// Fields that frame a message or belong to its connection.
const FRAMING: [&str; 11] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "proxy-connection",
    "upgrade",
    "te",
    "trailer",
    "expect",
    "http2-settings",
];

/// Reads the spec of a RequestAuthentication.
pub(super) fn authenticate(
    spec: &RequestAuthenticationSpec,
    report: &mut Report<'_>,
) -> Authenticate {
    let rules = spec.jwt_rules.iter().enumerate();
    let issuers = rules.map(|(at, rule)| issuer(&format!("spec.jwtRules[{at}]"), rule, report));
    let mut issuers: Vec<TokenIssuer> = issuers.collect();
    if issuers.len() > AccessPolicy::ISSUERS_MAX {
        issuers.truncate(AccessPolicy::ISSUERS_MAX);
        let problem = format!(
            "has more than {} rules, of which the rest is left out",
            AccessPolicy::ISSUERS_MAX
        );
        report.error(
            "spec.jwtRules",
            problem,
            "write several RequestAuthentications",
        );
    }
    Authenticate {
        issuers: issuers.into(),
    }
}

fn issuer(field: &str, rule: &JwtRule, report: &mut Report<'_>) -> TokenIssuer {
    let keys = keys(rule).unwrap_or_else(|(end, problem, remedy)| {
        let problem = format!("{problem}, so its tokens are refused");
        report.error(format!("{field}.{end}"), problem, remedy);
        TokenKeys::Inline(Bytes::new())
    });
    let mut headers = Vec::new();
    for (at, header) in rule.from_headers.iter().enumerate() {
        let field = format!("{field}.fromHeaders[{at}].name");
        let name = field_name(&header.name, field, report);
        headers.extend(name.map(|name| (name, header.prefix.clone())));
    }
    let mut params = rule.from_params.clone();
    if rule.from_headers.is_empty() && params.is_empty() && rule.from_cookies.is_empty() {
        headers.push(("authorization".into(), "Bearer ".into()));
        params = ["access_token".into()].into();
    }
    let mut claim_headers = Vec::new();
    for (at, passed) in rule.output_claim_to_headers.iter().enumerate() {
        let field = format!("{field}.outputClaimToHeaders[{at}].header");
        if let Some(header) = passed_name(&passed.header, field, report) {
            let claim = passed.claim.split('.').map(Into::into).collect();
            claim_headers.push(ClaimHeader { header, claim });
        }
    }
    let payload_header = match rule.output_payload_to_header.is_empty() {
        true => Box::default(),
        false => {
            let field = format!("{field}.outputPayloadToHeader");
            let name = passed_name(&rule.output_payload_to_header, field, report);
            name.unwrap_or_default()
        }
    };
    TokenIssuer {
        issuer: rule.issuer.clone(),
        audiences: rule.audiences.clone(),
        keys,
        headers: headers.into(),
        params,
        cookies: rule.from_cookies.clone(),
        is_forwarded: rule.forward_original_token,
        payload_header,
        claim_headers: claim_headers.into(),
        word_claims: rule.space_delimited_claims.clone(),
    }
}

/// Field, problem and remedy.
type Problem = (&'static str, &'static str, &'static str);

fn keys(rule: &JwtRule) -> Result<TokenKeys, Problem> {
    if rule.issuer.is_empty() {
        return Err(("issuer", "is empty", "write the claim iss of its tokens"));
    }
    if let Some(jwks) = &rule.jwks {
        let looks_right = jwks.trim_start().starts_with('{') && jwks.contains("\"keys\"");
        if !looks_right || jwks.len() > AccessPolicy::KEYS_BYTES_MAX {
            return Err((
                "jwks",
                "is no key set",
                "write a JSON Web Key Set (RFC 7517)",
            ));
        }
        return Ok(TokenKeys::Inline(Bytes::copy_from_slice(jwks.as_bytes())));
    }
    let timeout = rule.timeout.unwrap_or(FETCH_TIMEOUT);
    if let Some(uri) = &rule.jwks_uri {
        if !is_url(uri) {
            let remedy = "write a URL that starts with https:// or http://";
            return Err(("jwksUri", "is no such URL", remedy));
        }
        return Ok(TokenKeys::Fetched {
            url: uri.clone(),
            is_discovered: false,
            timeout,
        });
    }
    if !is_url(&rule.issuer) {
        let remedy = "write jwks or jwksUri";
        return Err(("issuer", "is no URL that leads to its keys", remedy));
    }
    let url = format!("{}{DISCOVERY_PATH}", rule.issuer.trim_end_matches('/'));
    Ok(TokenKeys::Fetched {
        url: url.into(),
        is_discovered: true,
        timeout,
    })
}

fn is_url(text: &str) -> bool {
    let rest = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_graphic()))
}

/// The name of a field that is put in.
fn passed_name(text: &str, field: String, report: &mut Report<'_>) -> Option<Box<str>> {
    let lower = text.to_ascii_lowercase();
    if FRAMING.contains(&&*lower) {
        let problem = "is a field that frames requests, so it is left out";
        report.error(field, problem, "name another field");
        return None;
    }
    field_name(text, field, report)
}

fn field_name(text: &str, field: String, report: &mut Report<'_>) -> Option<Box<str>> {
    if is_token(text) {
        return Some(text.to_ascii_lowercase().into());
    }
    let problem = "is no name of a header field, so it is left out";
    report.error(field, problem, "write a name such as x-token");
    None
}
