//! The words of an authority, of which no more is kept than people are told.

use std::fmt::{self, Write as _};

use instant_acme::{AuthorizationHandle, ChallengeType, Order, Problem};

/// The most bytes of words that are handed on.
const WORDS_MAX: usize = 600;

/// The most bytes of a name that is told with them: as many as a name has.
const NAME_MAX: usize = 253;

/// A text of so many bytes at most: whatever is beyond is not taken, and writing it fails.
#[derive(Default)]
struct Words(String);

impl fmt::Write for Words {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = WORDS_MAX.saturating_sub(self.0.len());
        let taken = text.floor_char_boundary(room);
        self.0.push_str(text.get(..taken).unwrap_or_default());
        match taken == text.len() {
            true => Ok(()),
            false => Err(fmt::Error),
        }
    }
}

impl Words {
    /// The text between what is there and what follows.
    fn between(&self, text: &'static str) -> &'static str {
        match self.0.is_empty() {
            true => "",
            false => text,
        }
    }
}

/// Why an order of so many names is invalid, in the words of the authority: those about its names,
/// or its own. As many names are asked for as it has, and none once there are words enough.
pub(super) async fn reason(order: &mut Order, names: usize) -> String {
    let own = order.state().error.as_ref().map(words_of);
    let mut words = Words::default();
    let mut authorizations = order.authorizations();
    for _ in 0..names {
        let Some(Ok(authorization)) = authorizations.next().await else {
            break;
        };
        let mut name = authorization.identifier().to_string();
        name.truncate(name.floor_char_boundary(NAME_MAX));
        let errors = authorization.challenges.iter();
        for error in errors.filter_map(|challenge| challenge.error.as_ref()) {
            let between = words.between("; ");
            if write!(words, "{between}{name}: {}", words_of(error)).is_err() {
                return words.0;
            }
        }
    }
    match (words.0.is_empty(), own) {
        (false, _) => words.0,
        (true, Some(own)) => own,
        (true, None) => "it does not say why".to_owned(),
    }
}

/// The words of a problem.
pub(super) fn words_of(problem: &Problem) -> String {
    let detail = problem.detail.as_deref().unwrap_or("without a word");
    let kind = problem.r#type.as_deref().unwrap_or_default();
    let kind = kind.rsplit(':').next().unwrap_or_default();
    let mut words = Words::default();
    // Full ones take nothing of what follows, either.
    let _ = write!(words, "{detail} ({kind})");
    for more in &problem.subproblems {
        if write!(words, "; {more}").is_err() {
            break;
        }
    }
    words.0
}

/// The kinds of challenges that an authority offers for a name, for people.
pub(super) fn offered(authorization: &AuthorizationHandle<'_>) -> String {
    let mut words = Words::default();
    for challenge in &authorization.challenges {
        let kind = match &challenge.r#type {
            ChallengeType::Http01 => "http-01",
            ChallengeType::Dns01 => "dns-01",
            ChallengeType::TlsAlpn01 => "tls-alpn-01",
            ChallengeType::Unknown(kind) => kind.as_str(),
            _ => "others",
        };
        let between = words.between(", ");
        if write!(words, "{between}{kind}").is_err() {
            break;
        }
    }
    words.0
}

/// As much of some words as is handed on.
pub(super) fn cut(mut words: String) -> String {
    words.truncate(words.floor_char_boundary(WORDS_MAX));
    words
}

#[cfg(test)]
mod tests {
    use instant_acme::Problem;

    use super::{WORDS_MAX, words_of};

    fn problem(text: &str) -> Problem {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn words_are_whole_where_they_fit_and_end_between_two_characters_where_they_do_not() {
        let short = r#"{"type": "urn:ietf:params:acme:error:caa", "detail": "no",
            "subproblems": [{"detail": "one"}, {"detail": "two"}]}"#;
        assert_eq!(words_of(&problem(short)), "no (caa); : one; : two");
        let long = format!(r#"{{"detail": "x{}"}}"#, "ä".repeat(1_000));
        let words = words_of(&problem(&long));
        assert_eq!(words.len(), WORDS_MAX - 1);
        let many = format!(r#"{{"subproblems": [{}{{}}]}}"#, "{},".repeat(20_000));
        assert_eq!(words_of(&problem(&many)).len(), WORDS_MAX);
    }
}
