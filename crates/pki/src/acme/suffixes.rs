//! The list of suffixes below which people register names, as the operator gives it: that by which
//! large authorities count certificates (<https://publicsuffix.org/list/>).

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use super::registered::{registered_by, registered_domain};

/// The most bytes of a list: the usual one has a tenth of it.
pub const SUFFIXES_BYTES_MAX: u64 = 4 << 20;

/// The most rules of a list: the usual one has some ten thousand.
const RULES_MAX: usize = 65_536;

/// The most bytes of a label, and of a rule.
const LABEL_BYTES_MAX: usize = 63;
const RULE_BYTES_MAX: usize = 253;

/// The suffixes below which names are registered. Without a list it is told by the shape of a name:
/// two labels, or three below registries such as `co.uk`. Cheap to clone; clones are one list.
#[derive(Clone, Default)]
pub struct Suffixes(Option<Arc<Rules>>);

/// The rules of a list.
#[derive(Default)]
struct Rules {
    /// Suffixes as they are.
    plain: HashSet<Box<str>>,
    /// Domains below which each name is a suffix.
    wild: HashSet<Box<str>>,
    /// Names below those that are none.
    exceptions: HashSet<Box<str>>,
}

/// Why a text is no list of suffixes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuffixesError {
    /// A line is no rule.
    #[error("line {0} is no rule: a suffix, `*.` and one, or `!` and a name below that")]
    Rule(usize),
    /// There are too many.
    #[error("it has more than {RULES_MAX} rules")]
    Many,
    /// There is none.
    #[error("it has no rule")]
    Empty,
}

impl Suffixes {
    /// The suffixes of a list in its usual form: a rule in a line, up to the first space; lines
    /// that begin with `//` say nothing.
    ///
    /// # Errors
    /// It is none, or has too many rules.
    pub fn parse(text: &str) -> Result<Suffixes, SuffixesError> {
        let mut rules = Rules::default();
        for (number, line) in (1..).zip(text.lines()) {
            let rule = line.split_whitespace().next().unwrap_or_default();
            if rule.is_empty() || rule.starts_with("//") {
                continue;
            }
            if rules.len() >= RULES_MAX {
                return Err(SuffixesError::Many);
            }
            rules.add(rule).ok_or(SuffixesError::Rule(number))?;
        }
        match rules.len() {
            0 => Err(SuffixesError::Empty),
            _ => Ok(Suffixes(Some(Arc::new(rules)))),
        }
    }

    /// The domain that a name was registered as: a label more than its suffix has, or the name
    /// where it is a suffix itself. An address counts as it does without a list.
    pub fn registered_domain<'a>(&self, name: &'a str) -> Cow<'a, str> {
        match &self.0 {
            Some(rules) => registered_by(name, |name| rules.registered(name)),
            None => registered_domain(name),
        }
    }
}

impl fmt::Debug for Suffixes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.as_ref().map(|rules| rules.len());
        f.debug_tuple("Suffixes").field(&count).finish()
    }
}

impl Rules {
    fn len(&self) -> usize {
        self.plain.len() + self.wild.len() + self.exceptions.len()
    }

    /// Adds a rule; none where it is no rule.
    fn add(&mut self, rule: &str) -> Option<()> {
        let (rules, domain) = match (rule.strip_prefix('!'), rule.strip_prefix("*.")) {
            (Some(name), _) => (&mut self.exceptions, name),
            (None, Some(domain)) => (&mut self.wild, domain),
            (None, None) => (&mut self.plain, rule),
        };
        rules.insert(ascii(domain)?);
        Some(())
    }

    /// The domain that a name of DNS was registered as. The longest suffix decides, and of names
    /// that no rule is for the last label is one.
    fn registered<'a>(&self, name: &'a str) -> &'a str {
        // The name below the one that is looked at.
        let (mut longer, mut rest) = (name, name);
        loop {
            if self.exceptions.contains(rest) {
                return rest;
            }
            let Some((_, parent)) = rest.split_once('.') else {
                return longer;
            };
            if self.plain.contains(rest) || self.wild.contains(parent) {
                return longer;
            }
            (longer, rest) = (rest, parent);
        }
    }
}

/// A domain as certificates have it, in lower case and ASCII; none where it is no domain.
fn ascii(domain: &str) -> Option<Box<str>> {
    if domain.len() > RULE_BYTES_MAX {
        return None;
    }
    let domain = idna::domain_to_ascii(domain).ok()?;
    let is_label = |label: &str| {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (1..=LABEL_BYTES_MAX).contains(&label.len()) && label.bytes().all(is_known)
    };
    let is_domain = domain.len() <= RULE_BYTES_MAX && domain.split('.').all(is_label);
    is_domain.then(|| domain.into())
}

#[cfg(test)]
mod tests {
    use super::{RULES_MAX, Suffixes, SuffixesError};

    const LIST: &str = "\
// ===BEGIN ICANN DOMAINS===

com
uk
co.uk
// Cook Islands and the like: everything below, but for one.
ck
*.ck
!www.ck
公司.cn   and what stands behind a space says nothing
cn

// ===BEGIN PRIVATE DOMAINS===
app.example
";

    #[test]
    fn a_name_is_counted_by_the_longest_suffix_of_the_list() {
        let suffixes = Suffixes::parse(LIST).unwrap();
        for (name, registered) in [
            ("www.shop.com", "shop.com"),
            ("*.shop.com", "shop.com"),
            ("shop.com", "shop.com"),
            ("a.b.shop.co.uk", "shop.co.uk"),
            ("a.shop.uk", "shop.uk"),
            // A list says what shapes only guess: this is no registry here.
            ("a.shop.org.uk", "org.uk"),
            ("a.b.shop.ck", "b.shop.ck"),
            ("b.shop.ck", "b.shop.ck"),
            ("a.www.ck", "www.ck"),
            ("www.ck", "www.ck"),
            ("a.shop.xn--55qx5d.cn", "shop.xn--55qx5d.cn"),
            // Customers of a platform are strangers to each other.
            ("x.one.app.example", "one.app.example"),
            ("x.two.app.example", "two.app.example"),
            ("www.app.other", "app.other"),
            // Suffixes are themselves.
            ("com", "com"),
            ("co.uk", "co.uk"),
            ("shop.ck", "shop.ck"),
            ("app.example", "app.example"),
            ("localhost", "localhost"),
            ("", ""),
            ("192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ] {
            assert_eq!(suffixes.registered_domain(name), registered, "{name}");
        }
        // Without a list shapes are all there is.
        let shapes = Suffixes::default();
        assert_eq!(shapes.registered_domain("x.one.app.example"), "app.example");
        assert_eq!(shapes.registered_domain("a.shop.org.uk"), "shop.org.uk");
    }

    #[test]
    fn what_is_no_list_is_refused_by_its_line() {
        let rule = |line| Err(SuffixesError::Rule(line));
        let long = "x".repeat(64);
        for (text, expected) in [
            ("com\nco..uk\n", rule(2)),
            ("// one\n\n.com", rule(3)),
            ("<!DOCTYPE html>", rule(1)),
            ("a.*.com", rule(1)),
            ("*", rule(1)),
            ("!", rule(1)),
            (&*long, rule(1)),
            (&*"x.".repeat(200), rule(1)),
            ("\0", rule(1)),
            ("", Err(SuffixesError::Empty)),
            ("// nothing\n \n", Err(SuffixesError::Empty)),
        ] {
            let parsed = Suffixes::parse(text).map(|_| ());
            assert_eq!(parsed, expected, "{text:?}");
        }
        let words = SuffixesError::Rule(7).to_string();
        assert!(words.contains("line 7"), "{words}");
    }

    #[test]
    fn a_list_has_so_many_rules_and_none_of_them_is_printed() {
        let list = |count: usize| {
            let lines = (0..count).map(|number| format!("r{number}.example\n"));
            lines.collect::<String>()
        };
        let most = Suffixes::parse(&list(RULES_MAX)).unwrap();
        assert_eq!(format!("{most:?}"), format!("Suffixes(Some({RULES_MAX}))"));
        let more = Suffixes::parse(&list(RULES_MAX + 1)).map(|_| ());
        assert_eq!(more, Err(SuffixesError::Many));
    }
}
