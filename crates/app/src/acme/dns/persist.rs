//! Records that are there for good and say which account may have certificates of a name
//! (draft-ietf-acme-dns-persist). Whoever has the name sets them once; nobody changes them here.

/// The label in front of a name that has them.
pub(super) const LABEL: &str = "_validation-persist";

/// Whether a text lets an account of an authority have certificates of a name at a time, in seconds
/// since the epoch. It names an authority first, which only the authority itself can judge.
pub(super) fn admits(text: &[u8], account: &str, is_wildcard: bool, now: i64) -> bool {
    let Ok(text) = str::from_utf8(text) else {
        return false;
    };
    let mut parts = text.split(';').map(trim);
    let authority = parts.next().unwrap_or_default();
    let (mut is_of_account, mut is_for_all, mut is_over) = (false, false, false);
    for part in parts {
        let Some((tag, value)) = part.split_once('=') else {
            return false;
        };
        let value = trim(value);
        match &*trim(tag).to_ascii_lowercase() {
            "accounturi" => is_of_account = value == account,
            "policy" => is_for_all = value.eq_ignore_ascii_case("wildcard"),
            "persistuntil" => match value.parse::<i64>() {
                Ok(until) => is_over = until < now,
                Err(_) => return false,
            },
            _ => {}
        }
    }
    !authority.is_empty() && is_of_account && !is_over && (is_for_all || !is_wildcard)
}

/// The text that an account needs, for people: they put in what the authority calls itself.
pub(super) fn wanted(account: &str, is_wildcard: bool) -> String {
    let policy = match is_wildcard {
        true => "; policy=wildcard",
        false => "",
    };
    format!("AUTHORITY; accounturi={account}{policy}")
}

fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

#[cfg(test)]
mod tests {
    use super::{admits, wanted};

    const ACCOUNT: &str = "https://ca.example/acct/1";
    const NOW: i64 = 1_800_000_000;

    #[test]
    fn a_text_is_for_one_account_until_it_ends_and_for_wildcards_where_it_says_so() {
        let own = format!("ca.example;accounturi={ACCOUNT}");
        for (text, is_wildcard, is_it) in [
            (own.clone(), false, true),
            (own.clone(), true, false),
            (format!("{own}; policy=wildcard"), true, true),
            (format!("{own}; Policy = WildCard "), true, true),
            (format!("{own}; policy=wildcard"), false, true),
            (format!("{own}; policy=other"), true, false),
            (format!("{own}; persistUntil={}", NOW + 1), false, true),
            (format!("{own}; persistUntil={}", NOW - 1), false, false),
            (format!("{own}; persistUntil=soon"), false, false),
            (format!("{own};"), false, false),
            (format!("; accounturi={ACCOUNT}"), false, false),
            (format!("ca.example; accounturi={ACCOUNT}0"), false, false),
            ("ca.example".to_owned(), false, false),
            (String::new(), false, false),
        ] {
            let found = admits(text.as_bytes(), ACCOUNT, is_wildcard, NOW);
            assert_eq!(found, is_it, "{text} {is_wildcard}");
        }
        assert!(!admits(b"\xff", ACCOUNT, false, NOW));
    }

    #[test]
    fn whoever_sets_what_people_are_told_is_admitted() {
        for is_wildcard in [false, true] {
            let text = wanted(ACCOUNT, is_wildcard).replace("AUTHORITY", "ca.example");
            assert!(admits(text.as_bytes(), ACCOUNT, is_wildcard, NOW));
        }
    }
}
