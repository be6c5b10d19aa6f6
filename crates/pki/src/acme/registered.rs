//! The part of a name that somebody has registered.

/// Labels below which people register names in two-letter domains, as in `co.uk`.
const SECOND: [&str; 12] = [
    "ac", "co", "com", "edu", "gob", "gov", "gv", "ltd", "ne", "net", "or", "org",
];

/// The domain that a name was registered as, by its shape: two labels, or three where the one in
/// the middle is that of a registry. Authorities count certificates by it. They know a list of all
/// registries; whoever is counted more strictly here waits longer, and never asks for more.
pub fn registered_domain(name: &str) -> &str {
    let name = name.strip_prefix("*.").unwrap_or(name);
    let mut dots = name.rmatch_indices('.').map(|(at, _)| at);
    let (Some(last), Some(second)) = (dots.next(), dots.next()) else {
        return name;
    };
    let (top, middle) = (&name[last + 1..], &name[second + 1..last]);
    if top.len() == 2 && SECOND.contains(&middle) {
        return dots.next().map_or(name, |third| &name[third + 1..]);
    }
    &name[second + 1..]
}

#[cfg(test)]
mod tests {
    use super::registered_domain;

    #[test]
    fn a_name_is_counted_by_what_was_registered() {
        for (name, registered) in [
            ("a.example", "a.example"),
            ("www.shop.example", "shop.example"),
            ("*.shop.example", "shop.example"),
            ("x.y.shop.co.uk", "shop.co.uk"),
            ("shop.co.uk", "shop.co.uk"),
            ("co.uk", "co.uk"),
            ("www.t.co", "t.co"),
            ("localhost", "localhost"),
            ("", ""),
        ] {
            assert_eq!(registered_domain(name), registered, "{name}");
        }
    }
}
