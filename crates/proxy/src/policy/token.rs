//! Signed tokens (RFC 7519, RFC 7515): who a request says that it comes from.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use myriad_model::{TokenIssuer, unescape};
use serde_json::Value;
use smallvec::SmallVec;

use crate::codec::field::{Field, KnownField, is_read_as};
use crate::codec::head::Head;
use crate::pattern::Budget;
use crate::route::access_policies::AccessPolicies;
use crate::route::claims::{Claims, VerifiedClaims, each_text};
use crate::route::downstream_connection::DownstreamConnection;
use crate::route::keys::{Algorithm, KeySet};

mod remembered;

pub use remembered::Remembered;

/// The longest token.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// The most tokens of one request, and the most vain attempts to verify them.
const TOKENS_MAX: usize = 16;

/// How far clocks may differ, in seconds.
const SKEW_S: i64 = 60;

/// The request has a token that is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadToken;

/// A token that was found valid.
pub struct Verified<'a> {
    claims: Arc<Claims>,
    issuer: &'a TokenIssuer,
    /// The places of all valid tokens that are not passed on.
    taken: Taken<'a>,
}

type Taken<'a> = SmallVec<[TokenLocation<'a>; 2]>;

/// A token of a request, and whether an issuer has found it valid.
struct Presented {
    at: At,
    is_valid: bool,
}

/// Where a token stands in a request: the address of the field or query that has it, and its
/// number there.
type At = (usize, usize);

/// A token in its compact form (RFC 7515, section 7.1) whose signature is not verified yet.
pub struct Unverified<'a> {
    /// The signed part: header and payload.
    message: &'a str,
    payload: &'a str,
    signature: Vec<u8>,
    algorithm: Algorithm,
    key_id: Option<String>,
}

/// The part of a valid token that is kept for as long as providers are asked about its request.
pub struct KeptToken {
    claims: Arc<Claims>,
    word_claims: Box<[Box<str>]>,
}

impl KeptToken {
    /// A token that is said to be valid, with these claims. Nobody has verified it: it is for
    /// questions, and never for requests.
    pub fn supposed(members: serde_json::Map<String, Value>) -> Self {
        KeptToken {
            claims: Arc::new(Claims::new(members, "")),
            word_claims: Box::default(),
        }
    }

    /// The claims of the token.
    pub fn said(&self) -> VerifiedClaims<'_> {
        VerifiedClaims::new(&self.claims, &self.word_claims)
    }
}

/// The place of a token in a request.
#[derive(Clone, Copy)]
enum TokenLocation<'a> {
    Header(&'a str),
    Param(&'a str),
    Cookie,
}

/// Looks for tokens and verifies them. None where there is no token. Of several valid ones that of
/// the first issuer counts. Signatures take steps of the request's budget, and a token that is not
/// verified before that is spent is not valid.
///
/// # Errors
/// A token that is not valid, in a place that an issuer names: an endpoint might go by it.
pub fn authenticate<'a>(
    access_policies: &'a AccessPolicies,
    visit: &'a DownstreamConnection,
    head: &Head<'_>,
    remembered: &Remembered,
    now: i64,
    budget: &Budget,
) -> Result<Option<Verified<'a>>, BadToken> {
    let mut tokens: SmallVec<[Presented; 2]> = SmallVec::new();
    let (mut failures, mut is_refused) = (0, false);
    let mut first = None;
    let mut taken = Taken::new();
    for (issuer, keys) in access_policies.issuers(&visit.listener) {
        each_token(issuer, head, |place, at, token| {
            let known = tokens.iter().position(|known| known.at == at);
            let number = known.unwrap_or(tokens.len());
            if known.is_none() && number < TOKENS_MAX {
                tokens.push(Presented {
                    at,
                    is_valid: false,
                });
            }
            // One that another issuer has found valid needs no second.
            let presented = tokens.get_mut(number);
            if presented.as_ref().is_some_and(|it| it.is_valid) {
                return;
            }
            let Some(presented) = presented.filter(|_| failures < TOKENS_MAX) else {
                is_refused = true;
                return;
            };
            let claims = keys
                .now()
                .and_then(|keys| verify(token, &keys, remembered, budget))
                .filter(|claims| is_acceptable(claims, issuer, now));
            let Some(claims) = claims else {
                failures += 1;
                return;
            };
            presented.is_valid = true;
            if !issuer.is_forwarded {
                taken.push(place);
            }
            first.get_or_insert((claims, issuer));
        });
    }
    if is_refused || tokens.iter().any(|token| !token.is_valid) {
        return Err(BadToken);
    }
    Ok(first.map(|(claims, issuer)| Verified {
        claims,
        issuer,
        taken,
    }))
}

/// The head as everything behind sees it: without fields that only a verified token may fill,
/// without the token where it is not passed on, and with what the token says. None where
/// nothing changes.
pub fn change<'h>(
    access_policies: &AccessPolicies,
    visit: &DownstreamConnection,
    head: &Head<'h>,
    verified: Option<&Verified<'_>>,
    room: &'h mut HeadMemory,
) -> Option<Head<'h>> {
    let is_reserved = |name: &str| {
        let mut issuers = access_policies
            .issuers(&visit.listener)
            .map(|(issuer, _)| issuer);
        issuers.any(|issuer| fills(issuer, name))
    };
    let taken = verified.map(|verified| verified.taken.as_slice());
    let taken = taken.unwrap_or_default();
    let is_taken = |name: &str| {
        let mut taken = taken.iter();
        taken.any(|place| matches!(place, TokenLocation::Header(known) if is_read_as(name, known)))
    };
    let goes = |field: &Field<'_>| is_taken(field.name) || is_reserved(field.name);
    if let Some(verified) = verified {
        verified.passed_on(&mut room.values);
    }
    for place in taken {
        if let (TokenLocation::Param(name), Some(query)) =
            (place, room.query.as_deref().or(head.query))
        {
            let query = without_param(query, name);
            room.query = Some(query);
        }
    }
    let room = &*room;
    if room.values.is_empty() && room.query.is_none() && !head.fields.iter().any(goes) {
        return None;
    }
    let kept = head.fields.iter().filter(|field| !goes(field)).copied();
    let put_in = room.values.iter().map(|(name, value)| Field {
        known: KnownField::of(name),
        name,
        value: value.as_bytes(),
    });
    let query = room.query.as_deref();
    Some(Head {
        version: head.version,
        method: head.method,
        path: head.path.clone(),
        readings: head.readings.clone(),
        query: query.or(head.query).filter(|query| !query.is_empty()),
        host: head.host.clone(),
        authority: head.authority,
        scheme: head.scheme,
        fields: kept.chain(put_in).collect(),
        body: head.body,
        keep_alive: head.keep_alive,
        upgrade: head.upgrade,
        expects_continue: head.expects_continue,
    })
}

/// The memory that a changed head borrows from.
#[derive(Default)]
pub struct HeadMemory {
    values: Vec<(Box<str>, Box<str>)>,
    query: Option<Box<str>>,
}

impl Verified<'_> {
    /// The claims of the token.
    pub fn said(&self) -> VerifiedClaims<'_> {
        VerifiedClaims::new(&self.claims, &self.issuer.word_claims)
    }

    /// The issuer whose token it is; empty where tokens of every issuer are taken.
    pub fn issuer(&self) -> &str {
        &self.issuer.issuer
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

/// The claims of a token whose signature one of the keys made.
fn verify(
    token: &str,
    keys: &Arc<KeySet>,
    remembered: &Remembered,
    budget: &Budget,
) -> Option<Arc<Claims>> {
    if let Some(claims) = remembered.get(token, keys) {
        return Some(claims);
    }
    if remembered.is_refused(token, keys) {
        return None;
    }
    let Some(claims) = Unverified::parse(token)?.verify_within(keys, budget) else {
        // One that was not tried with all keys may be valid.
        if !budget.is_spent() {
            remembered.refuse(token, keys);
        }
        return None;
    };
    let claims = Arc::new(claims);
    remembered.put(token, keys.clone(), claims.clone());
    Some(claims)
}

/// The claims of a token, where a key made its signature. Nothing of a token without a signature
/// is ever returned.
pub fn read(token: &str, keys: &KeySet) -> Option<Claims> {
    Unverified::parse(token)?.verify(keys)
}

impl<'a> Unverified<'a> {
    /// Takes a token apart; none for one that is too long, is signed by an unknown algorithm or by
    /// none, or declares something critical.
    pub fn parse(token: &'a str) -> Option<Self> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let (message, signature) = token.rsplit_once('.')?;
        let (header, payload) = message.split_once('.')?;
        let mut header: Value =
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
        let algorithm = Algorithm::of(header.get("alg")?.as_str()?)?;
        // What is declared critical has to be understood, and nothing of that kind is here.
        if header.get("crit").is_some() {
            return None;
        }
        let key_id = match header.get_mut("kid").map(Value::take) {
            Some(Value::String(id)) => Some(id),
            _ => None,
        };
        Some(Unverified {
            message,
            payload,
            signature: URL_SAFE_NO_PAD.decode(signature).ok()?,
            algorithm,
            key_id,
        })
    }

    /// The algorithm that it says it is signed by.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The id of the key that it says it is signed with.
    pub fn key_id(&self) -> Option<&str> {
        self.key_id.as_deref()
    }

    /// Its claims, where a key made its signature.
    pub fn verify(&self, keys: &KeySet) -> Option<Claims> {
        self.verify_within(keys, &Budget::default())
    }

    fn verify_within(&self, keys: &KeySet, budget: &Budget) -> Option<Claims> {
        let message = self.message.as_bytes();
        let by = (self.algorithm, self.key_id());
        if !keys.verifies(by, message, &self.signature, budget) {
            return None;
        }
        let decoded = URL_SAFE_NO_PAD.decode(self.payload).ok()?;
        let Value::Object(members) = serde_json::from_slice(&decoded).ok()? else {
            return None;
        };
        Some(Claims::new(members, self.payload))
    }
}

/// Whether a token is of an issuer, for one of its audiences, and of this moment.
fn is_acceptable(claims: &Claims, issuer: &TokenIssuer, now: i64) -> bool {
    let members = claims.members();
    let is_of_issuer = issuer.issuer.is_empty()
        || members.get("iss").and_then(Value::as_str) == Some(&*issuer.issuer);
    if !is_of_issuer || !is_timely(claims, now) {
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

/// Whether a token has begun and has not ended, as far as it says when it does. Clocks may differ
/// by a minute.
pub fn is_timely(claims: &Claims, now: i64) -> bool {
    // A time that is not a number is no time that has not passed.
    let time = |name: &str| match claims.members().get(name) {
        None => Ok(None),
        Some(value) => value.as_f64().map(Some).ok_or(()),
    };
    let (Ok(expires), Ok(begins)) = (time("exp"), time("nbf")) else {
        return false;
    };
    let (now, skew) = (now as f64, SKEW_S as f64);
    expires.is_none_or(|expires| now < expires + skew)
        && begins.is_none_or(|begins| now + skew >= begins)
}

/// Whether only a token of this issuer may fill a field, or one that a server takes it for.
pub fn fills(issuer: &TokenIssuer, name: &str) -> bool {
    let mut passed = issuer.claim_headers.iter().map(|passed| &passed.header);
    is_read_as(name, &issuer.payload_header) || passed.any(|header| is_read_as(name, header))
}

/// Whether a field carries a token on any listener or only a token fills it, or one that a server
/// takes it for.
pub fn is_of_tokens(access_policies: &AccessPolicies, name: &str) -> bool {
    access_policies.all_issuers().any(|issuer| {
        let mut places = issuer.headers.iter();
        fills(issuer, name) || places.any(|(place, _)| is_read_as(name, place))
    })
}

/// Visits what stands in the places that an issuer names, in each spelling that a server may take
/// for one of them.
fn each_token<'a>(
    issuer: &'a TokenIssuer,
    head: &Head<'_>,
    mut visit: impl FnMut(TokenLocation<'a>, At, &str),
) {
    for (name, prefix) in &issuer.headers {
        for field in &head.fields {
            if !is_read_as(field.name, name) {
                continue;
            }
            let value = String::from_utf8_lossy(field.value);
            let token = strip_word(&value, prefix).map(str::trim);
            if let Some(token) = token.filter(|token| !token.is_empty()) {
                visit(
                    TokenLocation::Header(name),
                    (field.value.as_ptr().addr(), 0),
                    token,
                );
            }
        }
    }
    let query = head.query.unwrap_or_default();
    for name in &issuer.params {
        for (number, (known, token)) in params(query).enumerate() {
            if is_param(known, name) && !token.is_empty() {
                visit(
                    TokenLocation::Param(name),
                    (query.as_ptr().addr(), number),
                    token,
                );
            }
        }
    }
    for name in &issuer.cookies {
        let fields = head.fields.iter();
        for field in fields.filter(|field| field.known == KnownField::Cookie) {
            let value = String::from_utf8_lossy(field.value);
            let pairs = value
                .split(';')
                .filter_map(|pair| pair.trim().split_once('='));
            for (number, (known, token)) in pairs.enumerate() {
                let token = token.trim_matches('"');
                // Servers take blanks before the equals sign for none of the name's.
                if known.trim_end() == &**name && !token.is_empty() {
                    visit(
                        TokenLocation::Cookie,
                        (field.value.as_ptr().addr(), number),
                        token,
                    );
                }
            }
        }
    }
}

/// The rest behind a prefix. Schemes of authentication have no case (RFC 9110, section 11.1), and
/// some servers take a tab behind them.
fn strip_word<'a>(value: &'a str, prefix: &str) -> Option<&'a str> {
    let start = value.get(..prefix.len())?;
    let is_same = |(found, wanted): (u8, u8)| {
        found.eq_ignore_ascii_case(&wanted) || (found == b'\t' && wanted == b' ')
    };
    match start.bytes().zip(prefix.bytes()).all(is_same) {
        true => value.get(prefix.len()..),
        false => None,
    }
}

/// The parameters of a query. Some servers end one at a semicolon too, so what stands behind one
/// is a parameter beside the one that it stands in.
fn params(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let all = query
        .split('&')
        .flat_map(|pair| std::iter::once(pair).chain(pair.split(';').skip(1)));
    all.filter_map(|pair| pair.split_once('='))
}

/// Whether the name of a parameter is another with escapes undone.
fn is_param(sent: &str, name: &str) -> bool {
    let (mut sent, mut name) = (sent.as_bytes(), name.as_bytes());
    while let [byte, behind @ ..] = sent {
        let (byte, behind) = match byte {
            b'%' => unescape(behind).unwrap_or((b'%', behind)),
            byte => (*byte, behind),
        };
        sent = behind;
        name = match name {
            [first, after @ ..] if *first == byte => after,
            _ => return false,
        };
    }
    name.is_empty()
}

fn without_param(query: &str, name: &str) -> Box<str> {
    let is_other = |pair: &&str| !is_param(pair.split('=').next().unwrap_or_default(), name);
    let without_parts = |pair: &str| {
        let parts: SmallVec<[&str; 4]> = pair.split(';').filter(is_other).collect();
        parts.join(";")
    };
    let kept: Vec<String> = query
        .split('&')
        .filter(is_other)
        .map(without_parts)
        .collect();
    kept.join("&").into()
}

#[cfg(test)]
mod tests;
