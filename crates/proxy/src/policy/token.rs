//! Signed tokens (RFC 7519, RFC 7515): who a request says that it comes from.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use myriad_model::TokenIssuer;
use serde_json::Value;

use crate::net::field::{Field, Known, is_read_as};
use crate::net::head::Head;
use crate::route::claims::{Claims, Said, each_text};
use crate::route::guards::Guards;
use crate::route::keys::{Algorithm, KeySet};
use crate::route::visit::Visit;

/// The longest token.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// The most tokens of one request that are looked at.
const TOKENS_MAX: usize = 16;

/// How far clocks may differ, in seconds.
const SKEW_S: i64 = 60;

/// The most verified tokens that a worker remembers, twice over.
const REMEMBERED_MAX: usize = 512;

/// The request has tokens, and none of them is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadToken;

/// A token that was found valid.
pub struct Verified<'a> {
    claims: Arc<Claims>,
    issuer: &'a TokenIssuer,
    place: Place<'a>,
}

/// What is kept of a valid token for as long as somebody is asked about its request.
pub struct KeptToken {
    claims: Arc<Claims>,
    word_claims: Box<[Box<str>]>,
}

impl KeptToken {
    /// What the token says.
    pub fn said(&self) -> Said<'_> {
        Said::new(&self.claims, &self.word_claims)
    }
}

/// Tokens whose signature was verified lately: a full younger generation becomes the older one.
#[derive(Default)]
pub struct Remembered {
    younger: RefCell<HashMap<Box<str>, Kept, foldhash::fast::RandomState>>,
    older: RefCell<HashMap<Box<str>, Kept, foldhash::fast::RandomState>>,
}

/// A token, and the keys that verified it: others may not.
#[derive(Clone)]
struct Kept {
    keys: Arc<KeySet>,
    claims: Arc<Claims>,
}

/// Where a token was found.
#[derive(Clone, Copy)]
enum Place<'a> {
    Header(&'a str),
    Param(&'a str),
    Cookie,
}

/// Looks for tokens and verifies them. None where there is no token.
///
/// # Errors
/// There are tokens, and none is valid.
pub fn authenticate<'a>(
    guards: &'a Guards,
    visit: &'a Visit,
    head: &Head<'_>,
    remembered: &Remembered,
    now: i64,
) -> Result<Option<Verified<'a>>, BadToken> {
    let mut seen = 0;
    for (issuer, keys) in guards.issuers(&visit.listener) {
        let mut valid = None;
        each_token(issuer, head, |place, token| {
            seen += 1;
            if seen > TOKENS_MAX || valid.is_some() {
                return;
            }
            let Some(keys) = keys.now() else { return };
            if let Some(claims) = verify(token, &keys, remembered)
                && is_acceptable(&claims, issuer, now)
            {
                valid = Some((place, claims));
            }
        });
        if let Some((place, claims)) = valid {
            return Ok(Some(Verified {
                claims,
                issuer,
                place,
            }));
        }
    }
    match seen {
        0 => Ok(None),
        _ => Err(BadToken),
    }
}

/// The head as everything behind sees it: without fields that only a verified token may fill,
/// without the token where it is not passed on, and with what the token says. None where
/// nothing changes.
pub fn change<'a>(
    guards: &'a Guards,
    visit: &'a Visit,
    head: &'a Head<'_>,
    verified: Option<&Verified<'_>>,
    room: &'a mut Room,
) -> Option<Head<'a>> {
    let is_reserved = |name: &str| {
        let mut issuers = guards.issuers(&visit.listener).map(|(issuer, _)| issuer);
        issuers.any(|issuer| fills(issuer, name))
    };
    let taken = verified.filter(|verified| !verified.issuer.is_forwarded);
    let is_taken = |name: &str| {
        matches!(taken, Some(Verified { place: Place::Header(known), .. })
            if known.eq_ignore_ascii_case(name))
    };
    let goes = |field: &Field<'_>| is_taken(field.name) || is_reserved(field.name);
    if let Some(verified) = verified {
        verified.passed_on(&mut room.values);
        if let (Some(_), Place::Param(name)) = (taken, verified.place) {
            room.query = head.query.map(|query| without_param(query, name));
        }
    }
    let room = &*room;
    if room.values.is_empty() && room.query.is_none() && !head.fields.iter().any(goes) {
        return None;
    }
    let kept = head.fields.iter().filter(|field| !goes(field)).copied();
    let put_in = room.values.iter().map(|(name, value)| Field {
        known: Known::of(name),
        name,
        value: value.as_bytes(),
    });
    let query = room.query.as_deref();
    // What a client declares to be of its connection must not take away what is put in here.
    let connection_fields = head.connection_fields.iter().copied();
    Some(Head {
        version: head.version,
        method: head.method,
        path: Cow::Borrowed(&head.path),
        readings: head.readings.clone(),
        query: query.or(head.query).filter(|query| !query.is_empty()),
        host: Cow::Borrowed(&head.host),
        authority: head.authority,
        scheme: head.scheme,
        fields: kept.chain(put_in).collect(),
        body: head.body,
        keep_alive: head.keep_alive,
        upgrade: head.upgrade,
        expects_continue: head.expects_continue,
        connection_fields: connection_fields
            .filter(|name| !is_reserved(name))
            .collect(),
    })
}

/// What a changed head borrows from.
#[derive(Default)]
pub struct Room {
    values: Vec<(Box<str>, Box<str>)>,
    query: Option<Box<str>>,
}

impl Verified<'_> {
    /// What the token says.
    pub fn said(&self) -> Said<'_> {
        Said::new(&self.claims, &self.issuer.word_claims)
    }

    /// The token without what it borrows.
    pub fn kept(&self) -> KeptToken {
        KeptToken {
            claims: self.claims.clone(),
            word_claims: self.issuer.word_claims.clone(),
        }
    }

    /// The fields that the endpoint gets.
    fn passed_on(&self, values: &mut Vec<(Box<str>, Box<str>)>) {
        if !self.issuer.payload_header.is_empty() {
            values.push((
                self.issuer.payload_header.clone(),
                self.claims.payload().into(),
            ));
        }
        for passed in &self.issuer.claim_headers {
            let value = self.claims.get(&passed.claim);
            let text = match value {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Number(number)) => number.to_string(),
                Some(Value::Bool(truth)) => truth.to_string(),
                Some(value @ (Value::Object(_) | Value::Array(_))) => {
                    URL_SAFE_NO_PAD.encode(value.to_string())
                }
                Some(Value::Null) | None => continue,
            };
            // A value that would end its field is not passed on.
            if !text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
                values.push((passed.header.clone(), text.into()));
            }
        }
    }
}

impl Remembered {
    fn get(&self, token: &str, keys: &Arc<KeySet>) -> Option<Arc<Claims>> {
        let is_by = |known: &&Kept| Arc::ptr_eq(&known.keys, keys);
        let younger = self.younger.borrow();
        if let Some(known) = younger.get(token).filter(is_by) {
            return Some(known.claims.clone());
        }
        drop(younger);
        let known = self.older.borrow().get(token).filter(is_by).cloned()?;
        let claims = known.claims.clone();
        self.put(token, known);
        Some(claims)
    }

    fn put(&self, token: &str, known: Kept) {
        let mut younger = self.younger.borrow_mut();
        if younger.len() >= REMEMBERED_MAX {
            self.older.replace(std::mem::take(&mut younger));
        }
        younger.insert(token.into(), known);
    }
}

/// The claims of a token whose signature one of the keys made.
fn verify(token: &str, keys: &Arc<KeySet>, remembered: &Remembered) -> Option<Arc<Claims>> {
    if token.len() > TOKEN_BYTES_MAX {
        return None;
    }
    if let Some(claims) = remembered.get(token, keys) {
        return Some(claims);
    }
    let claims = Arc::new(read(token, keys)?);
    let known = Kept {
        keys: keys.clone(),
        claims: claims.clone(),
    };
    remembered.put(token, known);
    Some(claims)
}

/// The claims of a token in its compact form (RFC 7515, section 7.1), where a key made its
/// signature. Nothing of a token without a signature is ever returned.
pub fn read(token: &str, keys: &KeySet) -> Option<Claims> {
    let (message, signature) = token.rsplit_once('.')?;
    let (header, payload) = message.split_once('.')?;
    let header: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
    let algorithm = Algorithm::of(header.get("alg")?.as_str()?)?;
    // What is declared critical has to be understood, and nothing of that kind is here.
    if header.get("crit").is_some() {
        return None;
    }
    let id = header.get("kid").and_then(Value::as_str);
    let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
    if !keys.verifies(algorithm, id, message.as_bytes(), &signature) {
        return None;
    }
    let decoded = URL_SAFE_NO_PAD.decode(payload).ok()?;
    let Value::Object(members) = serde_json::from_slice(&decoded).ok()? else {
        return None;
    };
    Some(Claims::new(members, payload))
}

/// Whether a token is of an issuer, for one of its audiences, and of this moment.
fn is_acceptable(claims: &Claims, issuer: &TokenIssuer, now: i64) -> bool {
    let members = claims.members();
    let is_of_issuer = issuer.issuer.is_empty()
        || members.get("iss").and_then(Value::as_str) == Some(&*issuer.issuer);
    if !is_of_issuer {
        return false;
    }
    // A time that is not a number is no time that has not passed.
    let time = |name: &str| match members.get(name) {
        None => Ok(None),
        Some(value) => value.as_f64().map(Some).ok_or(()),
    };
    let (Ok(expires), Ok(begins)) = (time("exp"), time("nbf")) else {
        return false;
    };
    let (now, skew) = (now as f64, SKEW_S as f64);
    if expires.is_some_and(|expires| now >= expires + skew)
        || begins.is_some_and(|begins| now + skew < begins)
    {
        return false;
    }
    let mut is_meant = issuer.audiences.is_empty();
    if let Some(audience) = members.get("aud") {
        each_text(audience, &mut |text| {
            let mut known = issuer.audiences.iter();
            // A slash at the end of either is no difference.
            is_meant |=
                known.any(|known| known.trim_end_matches('/') == text.trim_end_matches('/'));
        });
    }
    is_meant
}

/// Whether only a token of this issuer may fill a field, or one that a server takes it for.
pub fn fills(issuer: &TokenIssuer, name: &str) -> bool {
    let mut passed = issuer.claim_headers.iter().map(|passed| &passed.header);
    is_read_as(name, &issuer.payload_header) || passed.any(|header| is_read_as(name, header))
}

fn each_token<'a>(
    issuer: &'a TokenIssuer,
    head: &Head<'_>,
    mut visit: impl FnMut(Place<'a>, &str),
) {
    for (name, prefix) in &issuer.headers {
        for field in &head.fields {
            if !field.name.eq_ignore_ascii_case(name) {
                continue;
            }
            let value = std::str::from_utf8(field.value).unwrap_or_default();
            let token = strip_word(value, prefix).map(str::trim);
            if let Some(token) = token.filter(|token| !token.is_empty()) {
                visit(Place::Header(name), token);
            }
        }
    }
    for name in &issuer.params {
        for (known, token) in params(head.query.unwrap_or_default()) {
            if known == &**name && !token.is_empty() {
                visit(Place::Param(name), token);
            }
        }
    }
    for name in &issuer.cookies {
        let fields = head.fields.iter();
        for field in fields.filter(|field| field.known == Known::Cookie) {
            let value = std::str::from_utf8(field.value).unwrap_or_default();
            let pairs = value
                .split(';')
                .filter_map(|pair| pair.trim().split_once('='));
            for (_, token) in pairs.filter(|(known, _)| known == &&**name) {
                visit(Place::Cookie, token.trim_matches('"'));
            }
        }
    }
}

/// What follows a prefix. Schemes of authentication have no case (RFC 9110, section 11.1).
fn strip_word<'a>(value: &'a str, prefix: &str) -> Option<&'a str> {
    let start = value.get(..prefix.len())?;
    match start.eq_ignore_ascii_case(prefix) {
        true => value.get(prefix.len()..),
        false => None,
    }
}

fn params(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').filter_map(|pair| pair.split_once('='))
}

fn without_param(query: &str, name: &str) -> Box<str> {
    let is_other = |pair: &&str| pair.split('=').next() != Some(name);
    let kept: Vec<&str> = query.split('&').filter(is_other).collect();
    kept.join("&").into()
}

#[cfg(test)]
mod tests;
