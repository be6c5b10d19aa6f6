//! Answers to challenges.

use super::*;
use crate::host::Pattern;
use crate::{ChallengeAnswer, ChallengeForm};

message! {
    /// The answer to a challenge by which a certificate authority finds out whose a host is.
    ChallengeAnswer, answer {
        /// An exact name.
        1 host: host_pattern();
        /// 1 HTTP-01, 2 TLS-ALPN-01.
        2 form: choice::<ChallengeForm>("form of a challenge");
        3 token: required_text("token");
        /// The key authorization.
        4 text: required_text("text");
    } => {
        if !matches!(host.pattern(), Pattern::Exact(_)) {
            return Err(WireError::Invalid("host of a challenge"));
        }
        if !ChallengeAnswer::is_token(&token) {
            return Err(WireError::Invalid("token"));
        }
        if !ChallengeAnswer::is_text(&text) {
            return Err(WireError::Invalid("text"));
        }
        ChallengeAnswer { host, form, token, text }
    }
}

choices! {
    ChallengeForm { Http, TlsAlpn }
}
