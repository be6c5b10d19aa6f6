//! The path that is sent upstream.

use regex_automata::meta::Regex;
use regex_automata::{Anchored, Input};

/// The longest rewritten path in bytes; what is longer is cut to the part that came before the
/// group that broke the limit, and never sent: see [`rewrite`].
const PATH_BYTES_MAX: usize = 64 << 10;

/// A template with `$1` to `$9` replaced by groups of the match. A group that took no part is
/// empty. None where the result is too long.
pub fn rewrite(template: &str, regex: Option<&Regex>, path: &str) -> Option<String> {
    let mut groups = regex.map(|regex| regex.create_captures());
    if let (Some(groups), Some(regex)) = (&mut groups, regex) {
        regex.search_captures(&Input::new(path).anchored(Anchored::Yes), groups);
    }
    let mut out = String::with_capacity(template.len() + path.len());
    if !template.starts_with(['/', '$']) {
        out.push('/');
    }
    let mut rest = template;
    while let Some(dollar) = rest.find('$') {
        let (before, after) = rest.split_at(dollar);
        out.push_str(before);
        let digit = after.chars().nth(1).and_then(|letter| letter.to_digit(10));
        match digit.filter(|digit| *digit > 0) {
            Some(digit) => {
                let group = groups
                    .as_ref()
                    .and_then(|found| found.get_group(digit as usize));
                out.push_str(group.and_then(|span| path.get(span.range())).unwrap_or(""));
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                out.push('$');
                rest = after.get(1..).unwrap_or_default();
            }
        }
        if out.len() > PATH_BYTES_MAX {
            return None;
        }
    }
    out.push_str(rest);
    if !out.starts_with('/') {
        out.insert(0, '/');
    }
    (out.len() <= PATH_BYTES_MAX).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::rewrite;
    use crate::route::condition::compile;

    #[test]
    fn groups_are_put_in_their_places() {
        for (template, regex, path, result) in [
            ("/$2", "/a(/|$)(.*)", "/a/b/c", "/b/c"),
            ("/$2", "/a(/|$)(.*)", "/a", "/"),
            ("$1", "/a(.*)", "/a/b", "/b"),
            ("$1", "/a(.*)", "/ab", "/b"),
            ("/x/$1/$3", "/(a)(b)?(c)", "/ac", "/x/a/c"),
            ("/x$", "/a", "/a", "/x$"),
            ("/$0$x", "/a", "/a", "/$0$x"),
        ] {
            let regex = compile(regex).unwrap();
            let found = rewrite(template, Some(&regex), path);
            assert_eq!(found.as_deref(), Some(result), "{template} of {path}");
        }
    }

    #[test]
    fn a_template_without_groups_is_the_path() {
        assert_eq!(rewrite("/", None, "/a/b").as_deref(), Some("/"));
        assert_eq!(rewrite("x", None, "/a/b").as_deref(), Some("/x"));
        assert_eq!(rewrite("/$1", None, "/a/b").as_deref(), Some("/"));
    }
}
