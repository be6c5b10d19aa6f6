use std::sync::Arc;

use proptest::prelude::*;
use regex_automata::meta::Regex;
use regex_automata::{Anchored, Input};

use super::compile::Program;
use super::table::{DfaTable, MAKING_STEPS_MAX};
use super::{Budget, Groups, Pattern, SCRATCH_BYTES_MAX, STEPS_MAX, scratch, store};

/// The match of the engine that everybody knows.
fn expected(pattern: &str, text: &str, from: usize, anchored: Anchored) -> Option<Groups> {
    let regex = Regex::new(pattern).unwrap();
    let mut found = regex.create_captures();
    let input = Input::new(text).range(from..).anchored(anchored);
    regex.search_captures(&input, &mut found);
    found.is_match().then(|| {
        let mut groups = Groups::default();
        for (place, group) in groups.0.iter_mut().enumerate() {
            let span = found.get_group(place);
            *group = span.map(|span| (span.start as u32, span.end as u32));
        }
        groups
    })
}

fn check(pattern: &str, text: &str) {
    let (own, budget) = (Pattern::new(pattern).unwrap(), Budget::default());
    let bytes = text.as_bytes();
    let wanted = expected(pattern, text, 0, Anchored::Yes);
    let end = wanted.and_then(|groups| Some(groups.get(0)?.end));
    assert_eq!(own.match_end(bytes, &budget), end, "{pattern:?} {text:?}");
    assert_eq!(own.is_match(bytes, &budget), end.is_some());
    assert_eq!(own.groups(bytes, &budget), wanted, "{pattern:?} {text:?}");
    for from in (0..=text.len()).filter(|from| text.is_char_boundary(*from)) {
        let wanted = expected(pattern, text, from, Anchored::No);
        assert_eq!(
            own.find(bytes, from, &budget),
            wanted,
            "{pattern:?} {text:?} {from}"
        );
    }
    assert!(!budget.is_spent());
    let mut folded = String::new();
    super::hint::fold(text, &mut folded);
    let is_hinted = folded.starts_with(own.hint().prefix()) && own.hint().admits(&folded);
    assert!(is_hinted || end.is_none(), "{pattern:?} {text:?}");
    let whole = Pattern::whole(pattern).unwrap();
    let wanted = expected(&format!("(?:{pattern})\\z"), text, 0, Anchored::Yes);
    assert_eq!(whole.is_match(bytes, &budget), wanted.is_some());
    let anywhere = Pattern::anywhere(pattern).unwrap();
    let wanted = expected(pattern, text, 0, Anchored::No);
    assert_eq!(
        anywhere.is_match(bytes, &budget),
        wanted.is_some(),
        "{pattern:?} {text:?}"
    );
}

fn pattern() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "a",
        "b",
        "k",
        "s",
        "ab",
        "",
        ".",
        "[ab]",
        "[^a]",
        "\\w",
        "\\b",
        "\\B",
        "^",
        "$",
        "\\z",
        "ä",
        "(?i:sk)",
        "(?i)a",
        "/",
        "\\d",
        "(?m:^)",
        "\\s",
        "\\W",
        "(?-u:\\w)",
        "(?-u:\\b)",
        "[a-ü]",
    ]);
    leaf.prop_map(str::to_owned)
        .prop_recursive(4, 24, 4, |inner| {
            let some = prop::collection::vec(inner.clone(), 1..4);
            let repeat = prop::sample::select(vec![
                "*", "+", "?", "*?", "+?", "??", "{2}", "{0,2}", "{1,3}?", "{2,}", "{0}",
            ]);
            prop_oneof![
                some.clone().prop_map(|parts| parts.concat()),
                some.prop_map(|parts| format!("(?:{})", parts.join("|"))),
                inner.clone().prop_map(|inner| format!("({inner})")),
                (inner, repeat).prop_map(|(inner, repeat)| format!("(?:{inner}){repeat}")),
            ]
        })
}

fn text() -> impl Strategy<Value = String> {
    let letter = prop::sample::select(vec![
        "a", "b", "A", "k", "K", "s", "S", "/", "1", "-", "\n", " ", "ä", "ſ", "\u{212a}", "Ω",
        "\r",
    ]);
    prop::collection::vec(letter, 0..10).prop_map(|letters| letters.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn it_finds_what_the_engine_that_everybody_knows_finds(
        pattern in pattern(),
        texts in prop::collection::vec(text(), 1..6),
    ) {
        for text in &texts {
            check(&pattern, text);
        }
    }
}

#[test]
fn paths_of_people_are_matched_as_ever() {
    for pattern in [
        "(?i)/u17/(\\w+)/(\\w+)/edit",
        "(?i)/service-1(/|$)(.*)",
        "(?:/(a{1,20}){1,3}b)\\z",
        "/v([0-9])/([^/]*)",
        "(?i)/(api|rest)/v\\d+/.*\\.json$",
        "^(.*?;)?(user=jason)(;.*)?$",
        "^/service/([^/]+)(/.*)$",
        "(a*)*b",
        "(a|b|)*c",
        "(?:a|)+?$",
    ] {
        for text in [
            "",
            "/u17/x/y/edit",
            "/U17/äx/y/EDIT?",
            "/ſervice-1",
            "/service-1/a/b",
            "/aaaab",
            "/v1/x/v2/y",
            "/api/v12/a.json",
            "/REST/v1/.jſon",
            "a=b;user=jason;c",
            "/service/foo/v1",
            "aaab",
            "abac",
        ] {
            check(pattern, text);
        }
    }
}

#[test]
fn what_is_no_utf8_matches_no_class() {
    let budget = Budget::default();
    let matches =
        |pattern: &str, text: &[u8]| Pattern::whole(pattern).unwrap().is_match(text, &budget);
    assert!(!matches(".*", b"a\xffb"));
    assert!(!matches("(?s:.)", b"\xff"));
    assert!(matches("a.b", "aäb".as_bytes()));
    assert!(Pattern::new("a").unwrap().is_match(b"a\xff", &budget));
}

#[test]
fn what_is_spent_says_no_to_everything() {
    let pattern = Pattern::new("(a{1,200}){1,3}b").unwrap();
    let text = "a".repeat(4_000);
    let budget = Budget::default();
    assert!(!pattern.is_match(text.as_bytes(), &budget));
    assert!(budget.is_spent());
    assert!(!Pattern::new("a").unwrap().is_match(b"a", &budget));
    assert_eq!(budget.taken(), STEPS_MAX);
}

#[test]
fn a_step_is_a_byte_of_a_table_or_a_visited_state() {
    let steps = |pattern: &str, text: &str| {
        let budget = Budget::default();
        Pattern::new(pattern)
            .unwrap()
            .is_match(text.as_bytes(), &budget);
        budget.taken()
    };
    // The match is known at the byte behind it.
    assert_eq!(steps("/u17/(\\w+)/edit", "/u17/abc/edit/more"), 14);
    assert_eq!(steps("/u17/(\\w+)/edit", "/u18/abc/edit"), 4);
    // Text that is not in ASCII: one state for each of three literals, and one behind.
    assert_eq!(steps("/äb", "/äb"), 4);
}

/// The attacks: no pattern may take more than the scratch memory that all share, however many
/// there are and whatever they look like.
#[test]
fn scratch_memory_is_bounded_whatever_is_matched() {
    let hostile = |number: usize| match number % 4 {
        0 => format!("/u{number}/(\\w+)/(\\w+)/edit"),
        1 => format!("/(a{{1,200}}){{1,3}}b{number}"),
        2 => format!("/(\\w+)/(\\w+)/edit{number}"),
        _ => format!("/(.{{0,{}}}x){{0,40}}y", 30 + number % 50),
    };
    let text = format!("/{}/ä", "a".repeat(60_000));
    for count in [1, 100, 10_000] {
        let patterns: Vec<_> = (0..count)
            .map(|at| Pattern::new(&hostile(at)).unwrap())
            .collect();
        for pattern in &patterns {
            pattern.is_match(text.as_bytes(), &Budget::default());
            pattern.find(text.as_bytes(), 0, &Budget::default());
        }
        super::with_candidates(&text, |candidates| {
            (0..u32::MAX)
                .take_while(|number| candidates.push(*number))
                .count()
        });
        let bytes = scratch::memory_usage();
        assert!(bytes <= SCRATCH_BYTES_MAX, "{count} {bytes}");
    }
}

#[test]
fn the_largest_program_leaves_room_in_the_scratch_memory() {
    // As many states as there may be, and one more.
    let largest = |count: usize| Pattern::new(&format!("(?:a?b){{{count}}}"));
    let count = super::INSTRUCTIONS_MAX / 3;
    let budget = Budget::default();
    let pattern = largest(count - 1).unwrap();
    pattern.is_match("ä".as_bytes(), &budget);
    pattern.is_match("abab".as_bytes(), &budget);
    assert!(scratch::memory_usage() <= SCRATCH_BYTES_MAX);
    assert!(!budget.is_spent());
    assert!(pattern.find(b"ab", 0, &budget).is_none() && budget.is_spent());
    assert!(largest(count + 1).is_err());
}

/// Translation counts the same, and closes what could not be rewritten.
#[test]
fn groups_are_followed_in_programs_of_bounded_size() {
    for (pattern, is_followed) in [("(a{1635})", true), ("(a{1636})", false)] {
        let budget = Budget::default();
        let found = Pattern::new(pattern).unwrap().groups(b"aa", &budget);
        assert_eq!(found, None);
        assert_eq!(budget.is_spent(), !is_followed, "{pattern}");
    }
}

#[test]
fn a_pattern_takes_a_few_kilobytes() {
    let honest = Pattern::new("(?i)/shop-1/(\\w+)/(\\w+)/edit").unwrap();
    // Its table is at most 8 KiB.
    assert!(
        honest.memory_usage() < 10 << 10,
        "{}",
        honest.memory_usage()
    );
    let large = Pattern::new("(a{1,200}){1,3}b").unwrap();
    assert!(large.memory_usage() < 16 << 10, "{}", large.memory_usage());
}

/// Translation refuses half as much.
#[test]
fn a_pattern_that_takes_long_to_read_is_not_compiled() {
    let classes = |count: usize| format!("(?i){}", "[!-\u{1E943}]".repeat(count));
    assert!(Pattern::new(&classes(3)).is_ok());
    assert!(Pattern::new(&classes(100)).is_err());
}

/// Whether a pattern has a table, and the steps of making it.
fn made(pattern: &str) -> (bool, usize) {
    let hir = regex_syntax::parse(pattern).unwrap();
    let program = Program::new(&hir).ok().unwrap();
    let mut steps = 0;
    let table = DfaTable::new(&program, &mut steps);
    assert!(
        table
            .as_ref()
            .is_none_or(|table| table.memory_usage() <= 8 << 10)
    );
    (table.is_some(), steps)
}

#[test]
fn patterns_of_people_have_tables_that_take_few_steps_to_make() {
    for pattern in [
        "(?i)/u17/(\\w+)/(\\w+)/edit",
        "(?i)/(\\w+)/(\\w+)/edit-00123",
        "/[a-z_]+/(\\w+)/(edit|[0-9]{9}|17)/x$",
        "(?i)/service-1(/|$)(.*)",
        "(?i)/(api|rest)/v\\d+/.*\\.json$",
        "(?i)/api/v[0-9]+/(users|groups|accounts|invoices)/[^/]+/(edit|view|delete)",
        "(?:/[a-z]{2}(-[A-Z]{2})?/products/([0-9]+|[a-z0-9-]+)/reviews(/page/[0-9]+)?/?$)\\z",
        "(?s:.)*?(?:shop[0-9]+\\.example\\.com)",
        "(?:https://([a-z0-9-]+\\.)*example\\.com(:[0-9]+)?)\\z",
        "(?:[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)\\z",
        "(?i)/(images|static|assets|css|js|fonts)/.*\\.(png|jpe?g|gif|svg|css|js|woff2?)$",
        "(?:^(.*?;)?(user=jason)(;.*)?$)\\z",
        "(?:.*(Mobile|Android|iPhone).*)\\z",
    ] {
        let (has_table, steps) = made(pattern);
        assert!(has_table, "{pattern}");
        assert!(steps < MAKING_STEPS_MAX / 2, "{pattern}: {steps}");
    }
}

/// Six chains of 18 letters that may all be left out: 257 bytes.
fn dear(number: usize) -> String {
    let letter = |chain: usize, at: usize| {
        let mixed = (chain * 31 + at * 17 + chain * at).wrapping_mul(2_654_435_761);
        ["a?", "b?"][mixed >> 13 & 1]
    };
    let chain = |chain: usize| {
        let letters: String = (0..18).map(|at| letter(number * 6 + chain, at)).collect();
        format!("(?:{letters})*")
    };
    let chains: Vec<String> = (0..6).map(chain).collect();
    format!("(?:{})\\z", chains.join("|"))
}

/// Tables of such patterns took 3 ms each to make, in which a proxy takes no other commit.
#[test]
fn a_table_that_is_dear_to_make_is_given_up() {
    for number in 0..16 {
        let (has_table, steps) = made(&dear(number));
        assert!(!has_table && steps <= MAKING_STEPS_MAX, "{steps}");
        assert!(steps > MAKING_STEPS_MAX - 512, "{steps}");
    }
    // There are very many states, or each has very many places.
    for pattern in [
        "(?:a|b)*a(?:a|b){9}x".to_owned(),
        format!("(?:{})*\\z", "(?:a|ab|b|ba)*".repeat(12)),
        "(?:[a-y]*z?){60}\\z".to_owned(),
    ] {
        assert!(made(&pattern).1 <= MAKING_STEPS_MAX);
    }
    // Words and lines are followed without a table, and what is large too, for no steps.
    for pattern in ["\\bfoo\\b", "(?m:^)a", "a{257}"] {
        assert_eq!(made(pattern), (false, 0), "{pattern}");
    }
    // It matches as ever.
    for text in ["", "a", "ab", "abba", "abab", "bbbbb", "abc", "ä"] {
        check(&dear(1), text);
    }
}

/// A pattern goes with the last of those who have it, and is compiled again for the next one: no
/// more often than it comes.
#[test]
fn a_pattern_that_comes_and_goes_is_compiled_once_each_time() {
    let text = "/only-in-this-test/(a|b)+";
    let compiled = |text: &str| {
        let pattern = Pattern::new(text).unwrap();
        let others: Vec<_> = (0..5).map(|_| Pattern::new(text).unwrap()).collect();
        let is_same = |other: &Arc<Pattern>| Arc::ptr_eq(other, &pattern);
        assert!(others.iter().all(is_same));
        Arc::downgrade(&pattern)
    };
    let before = store::held().compiled;
    let gone: Vec<_> = (0..3).map(|_| compiled(text)).collect();
    assert!(gone.iter().all(|gone| gone.upgrade().is_none()));
    assert!(store::held().compiled >= before + 3);
}
