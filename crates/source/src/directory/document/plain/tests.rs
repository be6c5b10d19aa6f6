use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::to_json;
use crate::directory::document::with_yaml;

fn plain(text: &str) -> Option<Value> {
    to_json(text).map(|json| serde_json::from_str(&json).expect("what is written is JSON"))
}

fn whole<T: DeserializeOwned>(text: &str) -> Result<T, serde_saphyr::Error> {
    with_yaml(text, |yaml| T::deserialize(yaml))
}

/// Asserts that the value is that of the parser of all of YAML, as values and as texts.
fn assert_same(text: &str) {
    let Some(json) = to_json(text) else { return };
    let value: Value = serde_json::from_str(&json).expect("what is written is JSON");
    assert_eq!(whole::<Value>(text).ok(), Some(value), "{text}");
    if let Ok(texts) = serde_json::from_str::<BTreeMap<String, Option<String>>>(&json) {
        assert_eq!(whole(text).ok(), Some(texts), "{text}");
    }
}

#[test]
fn the_plain_style_is_read() {
    let text = "# A Gateway.\napiVersion: networking.istio.io/v1\nkind: Gateway # this\nmetadata:\n\
                \x20 name: edge\n\nspec:\n  selector: {istio: ingressgateway, \"a\": b}\n";
    assert_eq!(plain(text), None, "quoted names go the long way");
    let text = text.replace(", \"a\": b", ", zone: 'a b'");
    let text = text
        + "  servers:\n  - port:\n      number: 443\n      name: https\n    # both\n\
                       \x20   hosts: [\"*.a.example\", b.example ]\n    tls: {}\n  -\n    hosts:\n\
                       \x20   - ./c.example\n    bind: 10.0.0.1\n    on: 5s # soon\n    none:\n\
                       \x20 - 'it # is'\n  - ~\n  path: /a\\.b\"c\n";
    let expected = json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "Gateway",
        "metadata": {"name": "edge"},
        "spec": {
            "selector": {"istio": "ingressgateway", "zone": "a b"},
            "servers": [
                {
                    "port": {"number": 443, "name": "https"},
                    "hosts": ["*.a.example", "b.example"],
                    "tls": {},
                },
                {"hosts": ["./c.example"], "bind": "10.0.0.1", "on": "5s", "none": null},
                "it # is",
                null,
            ],
            "path": "/a\\.b\"c",
        },
    });
    assert_eq!(plain(&text), Some(expected));
    assert_same(&text);
}

#[test]
fn what_is_not_certain_goes_the_long_way() {
    for text in [
        "",
        "a",
        "- a\n",
        "a: &b c\n",
        "a: *b\n",
        "a: !t b\n",
        "a: |\n  b\n",
        "a: b\n  c\n",
        "a: \"b\n  c\"\n",
        "a: \"\\n\"\n",
        "a: 'it''s'\n",
        "a: b: c\n",
        "a: b:\n",
        "a: yes\n",
        "a: 0x1\n",
        "a: 1.5\n",
        "a: 010\n",
        "a: -1\n",
        "a: .inf\n",
        "a: 1\na: 2\n",
        "null: a\n",
        "1: a\n",
        "\"a\": b\n",
        "? a\n: b\n",
        "<<: {}\n",
        "a:\tb\n",
        "a: \u{e9}\n",
        "a: b\r\n",
        "a: [b,\n  c]\n",
        "a: [b: c]\n",
        "a: [b c]\n",
        "a: [b,]\n",
        "a: {b}\n",
        "a: [b]c\n",
        "a: 'b'c\n",
        "a:\n- - b\n",
        "a:\n  b: c\n d: e\n",
        "  a: b\nc: d\n",
        "--- {a: b}\n",
        "a: b\n...\n",
    ] {
        assert_eq!(plain(text), None, "{text:?}");
    }
    let deep: String = (0..60).map(|at| " ".repeat(at) + "a:\n").collect();
    assert_eq!(plain(&deep), None, "what is too deep");
    let wide: String = (0..80).map(|at| format!("a{at}: b\n")).collect();
    assert_eq!(plain(&wide), None, "what has too many fields");
    assert_eq!(plain(&format!("{}: b\n", "a".repeat(300))), None);
    let many = format!("a: [{}b]\n", "b,".repeat(200_000));
    assert!(to_json(&many).is_none(), "what has too many nodes");
}

/// Values, two spaces apart: plain ones, and some that only look so.
const WORDS: &str = "a  b  name  null  ~  true  False  on  N  0  7  007  80  1.5  1e3  0x1f  \
                     1_000  5s  1h30m  10.0.0.1  1:30  2026-01-31  -1  .5  inf  *.a.example  \
                     \"*\"  'it # is'  \"a\\n\"  ''  \"\"  a.example  ./b  /path  a b  a#b  \
                     a #b  # c  []  {}  [a, b]  [ a,\"b\" ]  {a: 1, b: [c]}  [a  \
                     {a: 1, a: 2}  {a:1}  &x  *x  |  >  !t  @  `  %  ---  ...  ?  :  a:b  \
                     a: b  a:  <<  =  \\.  ^/a$  (b)  $  \"a\": b  'a'b  -  - a  \
                     99999999999999999999  123456789012345678  \u{e9}  a\tb";

/// A line of a document, in which much that is plain meets some that is not.
fn line() -> impl Strategy<Value = String> {
    let word = prop::sample::select(WORDS.split("  ").collect::<Vec<_>>());
    let names = vec!["a", "b", "c", "d", "e", "f-g", "h.i/j", "null", "y", "1"];
    let name = prop::sample::select(names);
    let indent = prop::sample::select(vec![0_usize, 0, 2, 2, 2, 4, 4, 1, 3, 6]);
    let end = prop::sample::select(vec!["", "", "", "", " ", " # c", "#c"]);
    let shape = 0..12_u8;
    (shape, indent, name, word, end).prop_map(|(shape, indent, name, word, end)| {
        let text = match shape {
            0..4 => format!("{name}: {word}"),
            4..6 => format!("{name}:"),
            6 | 7 => format!("- {word}"),
            8 => format!("- {name}: {word}"),
            9 => format!("-   {name}:"),
            10 => "-".to_owned(),
            _ => word.to_owned(),
        };
        " ".repeat(indent) + &text + end
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn what_is_read_is_what_a_parser_of_all_yaml_reads(
        lines in prop::collection::vec(line(), 1..9),
    ) {
        assert_same(&(lines.join("\n") + "\n"));
    }

    #[test]
    fn every_short_document_is_read_alike(text in "[ab:\\-# \n\\[\\]{},'\"~01]{1,16}") {
        assert_same(&text);
    }

    #[test]
    fn every_short_value_is_read_alike(word in "[ -~]{1,6}") {
        assert_same(&format!("a: {word}\n"));
        assert_same(&format!("a:\n- {word}\nb: [{word}]\n"));
    }
}
