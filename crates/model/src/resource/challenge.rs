//! Answers to the challenges of certificate authorities.

use crate::{Host, Name};

/// The answer to a challenge by which an authority finds out whose a host is (RFC 8555). Any proxy
/// gives it, whatever else it has of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChallengeAnswer {
    /// The host, an exact name.
    pub host: Host,
    /// How it is asked for.
    pub form: ChallengeForm,
    /// The token that an authority asks with, of letters, digits, `-` and `_`.
    pub token: Box<str>,
    /// The key authorization: what is said over HTTP, and whose hash is in the certificate of a
    /// handshake.
    pub text: Box<str>,
}

/// The form in which a challenge is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChallengeForm {
    /// Over plain HTTP (RFC 8555, section 8.3).
    Http,
    /// By a certificate in a handshake for `acme-tls/1` (RFC 8737).
    TlsAlpn,
}

impl ChallengeAnswer {
    /// The most bytes of a token.
    pub const TOKEN_BYTES_MAX: usize = 128;

    /// The most bytes of a text.
    pub const TEXT_BYTES_MAX: usize = 256;

    /// Whether a text may be a token, which stands in paths as it is.
    pub fn is_token(text: &str) -> bool {
        let is_ours = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=Self::TOKEN_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_ours)
    }

    /// Whether a text may be a key authorization, which is an answer as it is.
    pub fn is_text(text: &str) -> bool {
        let is_ours = |byte: u8| byte.is_ascii_graphic();
        (1..=Self::TEXT_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_ours)
    }

    /// The question that it answers.
    pub fn question(&self) -> Box<str> {
        match self.form {
            ChallengeForm::Http => Self::http_question(self.host.as_str(), &self.token),
            ChallengeForm::TlsAlpn => Self::tls_question(self.host.as_str()),
        }
    }

    /// The name of the resource, by the order that it is of.
    pub fn name(&self, order: &str) -> Name {
        Name::new(format!("{order}/{}", self.question()))
    }

    /// The question for a token of a host over HTTP.
    pub fn http_question(host: &str, token: &str) -> Box<str> {
        format!("http/{host}/{token}").into()
    }

    /// The question of a handshake for a host.
    pub fn tls_question(host: &str) -> Box<str> {
        format!("tls/{host}").into()
    }
}

#[cfg(test)]
mod tests {
    use super::ChallengeAnswer;

    #[test]
    fn tokens_and_texts_are_bounded_and_cannot_be_anything_else() {
        let longest = "a".repeat(ChallengeAnswer::TOKEN_BYTES_MAX);
        for token in ["a", "Az09-_", &longest] {
            assert!(ChallengeAnswer::is_token(token), "{token}");
        }
        let longer = format!("{longest}a");
        for token in ["", "a/b", "a.b", "..", "a b", "é", "a\n", &longer] {
            assert!(!ChallengeAnswer::is_token(token), "{token}");
        }
        let longest = "a".repeat(ChallengeAnswer::TEXT_BYTES_MAX);
        for text in ["token.thumbprint", &longest] {
            assert!(ChallengeAnswer::is_text(text), "{text}");
        }
        let longer = format!("{longest}a");
        for text in ["", "a b", "a\r\nb", "é", &longer] {
            assert!(!ChallengeAnswer::is_text(text), "{text}");
        }
    }
}
