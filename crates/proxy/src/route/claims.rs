//! The claims of a verified token about the sender of a request.

use serde_json::{Map, Value};

/// Claims whose text is a list of words wherever they stand (RFC 8693, section 4.2).
const WORD_CLAIMS: [&str; 2] = ["scope", "permission"];

/// The claims of a token whose signature was verified.
#[derive(Debug)]
pub struct Claims {
    members: Map<String, Value>,
    /// `issuer/subject`, where it has both.
    principal: Option<Box<str>>,
    /// The payload in base64url, as it came.
    payload: Box<str>,
}

/// The claims of a valid token, with what is known of their form.
#[derive(Clone, Copy, Debug)]
pub struct VerifiedClaims<'a> {
    claims: &'a Claims,
    /// Claims whose text is a list of words, beside those that always are.
    word_claims: &'a [Box<str>],
}

impl Claims {
    /// The claims of a payload, which is in base64url.
    pub fn new(members: Map<String, Value>, payload: &str) -> Self {
        let text = |name: &str| members.get(name).and_then(Value::as_str);
        let principal = match (text("iss"), text("sub")) {
            (Some(issuer), Some(subject)) => Some(format!("{issuer}/{subject}").into()),
            _ => None,
        };
        Claims {
            members,
            principal,
            payload: payload.into(),
        }
    }

    /// The claims by their names.
    pub fn members(&self) -> &Map<String, Value> {
        &self.members
    }

    /// The payload in base64url, as it came.
    pub fn payload(&self) -> &str {
        &self.payload
    }

    /// The claim at a path.
    pub fn get<T: AsRef<str>>(&self, path: &[T]) -> Option<&Value> {
        let (first, rest) = path.split_first()?;
        let mut value = self.members.get(first.as_ref())?;
        for name in rest {
            value = value.get(name.as_ref())?;
        }
        Some(value)
    }
}

impl<'a> VerifiedClaims<'a> {
    /// Claims, and which of them are lists of words.
    pub fn new(claims: &'a Claims, word_claims: &'a [Box<str>]) -> Self {
        VerifiedClaims {
            claims,
            word_claims,
        }
    }

    /// `issuer/subject`, where the token has both.
    pub fn principal(&self) -> Option<&'a str> {
        self.claims.principal.as_deref()
    }

    /// Calls `visit` with each text of a claim: itself, its elements, or its words.
    pub fn each<T: AsRef<str>>(&self, path: &[T], visit: &mut dyn FnMut(&str)) {
        let is_words = |last: &str| {
            let mut own = self.word_claims.iter();
            WORD_CLAIMS.contains(&last) || own.any(|known| **known == *last)
        };
        match self.claims.get(path) {
            Some(Value::String(text))
                if path.last().is_some_and(|last| is_words(last.as_ref())) =>
            {
                text.split(' ').for_each(visit)
            }
            Some(value) => each_text(value, visit),
            None => {}
        }
    }
}

/// The texts of a claim: itself, or the elements of a list.
pub fn each_text(value: &Value, visit: &mut dyn FnMut(&str)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(elements) => {
            for text in elements.iter().filter_map(Value::as_str) {
                visit(text);
            }
        }
        Value::Bool(true) => visit("true"),
        Value::Bool(false) => visit("false"),
        Value::Number(number) => visit(&number.to_string()),
        Value::Object(_) | Value::Null => {}
    }
}
