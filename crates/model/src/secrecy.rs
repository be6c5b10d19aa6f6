//! Names whose values are secret, and texts without what URLs in them tell of secrets.
//!
//! A secret is told by its name. It is better to leave out a value that is none than to show one.

use std::borrow::Cow;

/// The text in place of a secret.
pub const REDACTED: &str = "[redacted]";

/// Parts of names, in lower case, whose values are secret.
const SECRET_PARTS: [&str; 18] = [
    "assertion",
    "auth",
    "cookie",
    "token",
    "secret",
    "passw",
    "passphrase",
    "pwd",
    "key",
    "session",
    "signature",
    "credential",
    "jwt",
    "csrf",
    "xsrf",
    "otp",
    "saml",
    "ticket",
];

/// Whole names of query parameters whose values are secret.
const SECRET_PARAMETERS: [&str; 8] = ["code", "state", "sig", "pass", "pw", "nonce", "sid", "pin"];

/// The characters that parameters in a URL are between.
const PARAMETER_ENDS: [char; 4] = ['?', '&', ';', '#'];

/// Whether a name in lower case says that its value is secret.
pub fn is_secret_name(name: &str) -> bool {
    SECRET_PARTS.iter().any(|part| name.contains(part))
}

/// The same of a parameter, in whatever case. One that is written in an odd way is not read.
pub fn is_secret_parameter(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_odd = name.contains('%') || name.contains("\\u");
    is_odd || is_secret_name(&name) || SECRET_PARAMETERS.contains(&&*name)
}

/// A text without users and passwords of URLs in it, and without values of their parameters whose
/// names say that they are secret.
pub fn without_secrets(text: &str) -> Cow<'_, str> {
    if !text.contains(['?', '@']) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for word in text.split_inclusive(ends_word) {
        write_word(word, &mut shown);
    }
    Cow::Owned(shown)
}

fn write_word(word: &str, shown: &mut String) {
    let begin = word.find("://").map_or(0, |at| at + "://".len());
    let (scheme, mut rest) = word.split_at_checked(begin).unwrap_or(("", word));
    shown.push_str(scheme);
    // Passwords may have whatever ends a host.
    let user = rest.rsplit_once('@');
    if let Some((user, host)) = user
        && (!scheme.is_empty() || user.contains(':'))
    {
        shown.push_str(REDACTED);
        shown.push('@');
        rest = host;
    }
    let Some((path, parameters)) = rest.find('?').and_then(|at| rest.split_at_checked(at)) else {
        shown.push_str(rest);
        return;
    };
    shown.push_str(path);
    for part in parameters.split_inclusive(PARAMETER_ENDS) {
        let kept = part.trim_end_matches(|it: char| ends_word(it) || PARAMETER_ENDS.contains(&it));
        let end = part.get(kept.len()..).unwrap_or_default();
        match kept.split_once('=') {
            Some((name, _)) if is_secret_parameter(name) => {
                shown.push_str(name);
                shown.push('=');
                shown.push_str(REDACTED);
            }
            _ => shown.push_str(kept),
        }
        shown.push_str(end);
    }
}

fn ends_word(letter: char) -> bool {
    letter.is_whitespace() || matches!(letter, '"' | '\'' | '`' | '<' | '>')
}

#[cfg(test)]
mod tests {
    use super::without_secrets;

    #[test]
    fn urls_in_texts_tell_neither_users_nor_secret_parameters() {
        for (text, shown) in [
            (
                "is \"https://a.test/b?page=2\", so",
                "is \"https://a.test/b?page=2\", so",
            ),
            (
                "is \"https://eve:c4n4ry@a.test/b\", so",
                "is \"https://[redacted]@a.test/b\", so",
            ),
            ("https://eve@a.test", "https://[redacted]@a.test"),
            ("eve:c4/n?ry@a.test", "[redacted]@a.test"),
            ("a team@a.test writes", "a team@a.test writes"),
            (
                "\"/cb?a=1;token=c4n4ry&b=2#key=c4n4ry\"",
                "\"/cb?a=1;token=[redacted]&b=2#key=[redacted]\"",
            ),
            ("/a?%74oken=c4n4ry é", "/a?%74oken=[redacted] é"),
            ("is it?", "is it?"),
            ("token=plain", "token=plain"),
        ] {
            assert_eq!(without_secrets(text), shown, "{text}");
        }
    }
}
