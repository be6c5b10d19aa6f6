use std::cell::Cell;

use proptest::prelude::*;

use super::*;
use crate::directory::split::{split_json, split_yaml};

const BYTES_MAX: usize = 1 << 20;

fn yaml(text: &str) -> Outcome {
    read_yaml(&Piece { text, line: 1 }, BYTES_MAX)
}

fn json(text: &str) -> Outcome {
    read_json(&Piece { text, line: 1 }, BYTES_MAX)
}

fn object(outcome: Outcome) -> Object {
    match outcome {
        Outcome::One(object) => object,
        other => panic!("{other:?} should be one object"),
    }
}

fn problem(outcome: Outcome) -> Problem {
    match outcome {
        Outcome::Mixed(objects, mut problems, _)
            if objects.is_empty() && problems.kept.len() == 1 && problems.dropped == 0 =>
        {
            problems.kept.remove(0)
        }
        other => panic!("{other:?} should be one problem"),
    }
}

const SERVICE: &str = "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n  namespace: n\n\
                       spec:\n  ports:\n  - port: 80\n    targetPort: http\n";

#[test]
fn yaml_and_json_give_the_same_object() {
    let from_yaml = object(yaml(SERVICE));
    assert_eq!(from_yaml.key().to_string(), "Service n/a");
    let text = r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"a","namespace":"n"},
        "spec":{"ports":[{"port":80,"targetPort":"http"}]}}"#;
    assert_eq!(object(json(text)), from_yaml);
    assert_eq!(object(yaml(text)), from_yaml, "JSON in a YAML file");
    let flow = "{apiVersion: v1, kind: Service, metadata: {name: a, namespace: n}, \
                spec: {ports: [{port: 80, targetPort: http}]}}";
    assert_eq!(object(yaml(flow)), from_yaml, "YAML in flow style");
    assert_eq!(object(yaml(&SERVICE.replace('\n', "\r\n"))), from_yaml);
    assert_eq!(object(yaml(&format!("--- # here\n{SERVICE}"))), from_yaml);
}

#[test]
fn the_value_of_a_secret_is_read_from_block_scalars() {
    let text = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ntype: Opaque\ndata:\n  a: |\n\
                \x20   AAAA\n    BBBB\n";
    assert_eq!(object(yaml(text)).key().to_string(), "Secret default/s");
}

#[test]
fn other_kinds_are_nothing_and_need_not_even_parse() {
    for text in [
        "apiVersion: apps/v1\nkind: Deployment\nspec: [\n",
        "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: x}\n",
        "apiVersion: config.openshift.io/v1\nkind: Ingress\nmetadata: {name: x}\n",
        "apiVersion: v1\nkind: EndpointsList\nitems: []\n",
        "{apiVersion: v1, kind: Endpoints}",
    ] {
        assert!(matches!(yaml(text), Outcome::Passed(_)), "{text}");
    }
    let passed = json(r#"{"apiVersion":"apps/v1","kind":"Deployment"}"#);
    let Outcome::Passed(passed) = passed else {
        panic!("{passed:?}");
    };
    assert_eq!(
        (&*passed.api_version, &*passed.kind),
        ("apps/v1", "Deployment")
    );
    assert_eq!(yaml("~"), Outcome::Nothing);
    assert_eq!(yaml("null"), Outcome::Nothing);
    assert_eq!(json("null"), Outcome::Nothing);
}

#[test]
fn what_is_almost_our_kind_says_what_it_should_be() {
    for (api_version, kind, field) in [
        ("networking.k8s.io/v1beta1", "Ingress", "apiVersion"),
        ("extensions/v1beta1", "Ingress", "apiVersion"),
        ("v1", "Ingress", "apiVersion"),
        ("discovery.k8s.io/v1beta1", "EndpointSlice", "apiVersion"),
        ("v1beta1", "Service", "apiVersion"),
        ("v1", "service", "kind"),
    ] {
        let text = format!("apiVersion: {api_version}\nkind: {kind}\nmetadata:\n  name: x\n");
        let found = problem(yaml(&text));
        assert_eq!(&*found.field, field, "{text}");
        assert!(
            found.message.contains("v1") && found.object.is_some(),
            "{found:?}"
        );
    }
}

#[test]
fn an_object_needs_kind_version_and_name() {
    let cases = [
        ("kind: Service\nmetadata: {name: a}\n", "apiVersion"),
        ("apiVersion: v1\nmetadata: {name: a}\n", "kind"),
        ("apiVersion: v1\nkind: Service\nspec: {}\n", "metadata"),
        (
            "apiVersion: v1\nkind: Service\nmetadata: {namespace: n}\n",
            "metadata.name",
        ),
        (
            "apiVersion: v1\nkind: Service\nmetadata:\n  labels: {}\n",
            "metadata.name",
        ),
        ("replicas: 3\n", "apiVersion"),
        ("- a\n- b\n", ""),
        ("just words\n", ""),
    ];
    for (text, field) in cases {
        let found = problem(yaml(text));
        assert_eq!(&*found.field, field, "{text}: {found:?}");
        assert!(!found.remedy.is_empty());
    }
    assert_eq!(&*problem(json(r#"{"kind":"Service"}"#)).field, "apiVersion");
    assert_eq!(&*problem(json("[1]")).message, "is not an object");
}

#[test]
fn problems_name_object_line_and_field() {
    let text = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: shop\nspec:\n\
                \x20 rules:\n  - host: a\n    http:\n      paths:\n      - path: /\n\
                \x20       pathType: prefix\n        backend: {service: {name: x}}\n";
    let found = problem(yaml(text));
    assert_eq!(found.line, 10);
    assert_eq!(&*found.field, "spec.rules[0].http.paths[0].pathType");
    assert_eq!(
        &*found.message,
        "is none of Exact, Prefix, ImplementationSpecific"
    );
    assert_eq!(
        found.object.map(|key| key.to_string()).as_deref(),
        Some("Ingress default/shop")
    );

    let found = problem(yaml(&SERVICE.replace("port: 80", "port: 80000")));
    assert_eq!((found.line, &*found.field), (7, "spec.ports[0].port"));
    let found = problem(yaml(&SERVICE.replace("port: 80", "name: x")));
    assert_eq!(&*found.field, "spec.ports[0].port");
    assert_eq!(&*found.message, "is required");

    let text = "{\"apiVersion\":\"v1\",\n\"kind\":\"Service\",\n\"metadata\":{\"name\":\"a\"},\n\
                \"spec\":{\"ports\":\n[{\"port\":\"canary\"}]}}";
    let found = problem(json(text));
    assert_eq!((found.line, &*found.field), (4, "spec.ports[0].port"));
    assert!(!found.message.contains("canary"), "{found:?}");
}

#[test]
fn broken_yaml_has_a_line_and_names_its_object() {
    for (text, line) in [
        (
            "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n spec: x\n",
            4,
        ),
        (
            "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\nspec: [\n",
            4,
        ),
        (
            "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\nspec:\n\tports: []\n",
            5,
        ),
    ] {
        let found = problem(yaml(text));
        assert_eq!(found.line, line, "{text}: {found:?}");
        assert!(found.object.is_some(), "{text}: {found:?}");
    }
    let twice = format!("{SERVICE}{SERVICE}");
    assert!(problem(yaml(&twice)).message.contains("twice"));
}

#[test]
fn lists_are_read_item_by_item() {
    let text = "apiVersion: v1\nkind: List\nitems:\n\
                - {apiVersion: v1, kind: Service, metadata: {name: a}}\n\
                - {apiVersion: apps/v1, kind: Deployment}\n\
                - {apiVersion: v1, kind: Service, metadata: {}}\n\
                - {apiVersion: v1, kind: Service, metadata: {name: b}}\n";
    let Outcome::Mixed(objects, problems, _) = yaml(text) else {
        panic!("a list")
    };
    let keys: Vec<_> = objects
        .iter()
        .map(|(object, _)| object.key().to_string())
        .collect();
    assert_eq!(keys, ["Service default/a", "Service default/b"]);
    assert_eq!(problems.kept.len(), 1);
    assert_eq!(&*problems.kept[0].field, "items[2].metadata.name");

    let changed = yaml(&text.replace("name: b", "name: c"));
    let Outcome::Mixed(again, ..) = changed else {
        panic!("a list")
    };
    assert_eq!(again[0].1, objects[0].1, "an item has a hash of its own");
    assert_ne!(again[1].1, objects[1].1);

    let text = r#"{"kind":"ServiceList","apiVersion":"v1","items":[{"metadata":{"name":"a"}},
        {"metadata":{"name":5}}]}"#;
    let Outcome::Mixed(objects, problems, _) = json(text) else {
        panic!("a list")
    };
    assert_eq!((objects.len(), problems.kept.len()), (1, 1));
    assert_eq!(&*problems.kept[0].field, "items[1].metadata.name");
    assert_eq!(
        yaml("apiVersion: v1\nkind: List\nitems: null\n"),
        Outcome::Mixed(vec![], Problems::default(), vec![])
    );
    let outcome = yaml("apiVersion: v1\nkind: List\nitems: 5\n");
    assert!(outcome != Outcome::Nothing && !problem(outcome).message.is_empty());
}

#[test]
fn bombs_are_refused() {
    let mut bomb = String::from("apiVersion: v1\nkind: Service\na: &a [x,x,x,x,x,x,x,x,x]\n");
    for (from, to) in ["a", "b", "c", "d", "e", "f", "g", "h"]
        .iter()
        .zip("bcdefghi".chars())
    {
        bomb.push_str(&format!(
            "{to}: &{to} [{}]\n",
            vec![format!("*{from}"); 9].join(",")
        ));
    }
    bomb.push_str("metadata: *i\n");
    problem(yaml(&bomb));
    for open in ["[", "{a: ", "- "] {
        let deep = format!(
            "apiVersion: v1\nkind: Service\na:\n  {}",
            open.repeat(100_000)
        );
        problem(yaml(&deep));
        problem(yaml(&open.repeat(100_000)));
    }
    problem(json(&"[".repeat(100_000)));
    let deep = format!(
        r#"{{"apiVersion":"v1","kind":"Service","a":{}}}"#,
        "[".repeat(100_000)
    );
    problem(json(&deep));
    let many = format!(
        "apiVersion: v1\nkind: Service\na:\n{}",
        "- x\n".repeat(240_000)
    );
    problem(yaml(&format!("{many}{}", "- x\n".repeat(20_000))));
    let keys = (0..40_000).map(|key| format!("  k{key}: |\n    v\n"));
    let keys = keys.collect::<String>();
    let found = problem(yaml(&format!("apiVersion: v1\nkind: Service\na:\n{keys}")));
    assert!(found.message.contains("more than is read"), "{found:?}");
    let long = Piece {
        text: &" ".repeat(9),
        line: 1,
    };
    assert!(problem(read_yaml(&long, 8)).message.contains("8 bytes"));
}

/// Lists of nine aliases each of the list before, one below another.
fn lists_of_lists(levels: usize) -> String {
    let mut text = String::from("apiVersion: v1\nkind: Service\na0: &a0 [1,1,1,1,1,1,1,1,1]\n");
    for level in 1..=levels {
        let aliases = vec![format!("*a{}", level - 1); 9].join(",");
        text.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    text + "metadata: {name: a}\n"
}

#[test]
fn what_aliases_stand_for_is_bounded_by_the_bytes_of_the_document() {
    object(yaml(&lists_of_lists(1)));
    let found = problem(yaml(&lists_of_lists(5)));
    assert!(found.message.contains("more than is read"), "{found:?}");
    assert!(found.remedy.contains("aliases"));
    // What is refused is refused on the way: 10,000 events at most are kept.
    let padded = lists_of_lists(2) + &"# why\n".repeat(10_000);
    object(yaml(&padded));
    let padded = lists_of_lists(5) + &"# why\n".repeat(10_000);
    assert!(problem(yaml(&padded)).message.contains("more than is read"));
}

#[test]
fn files_with_common_parts_are_read() {
    let common = "x-common: &common\n  app: a\n  team: b\n  tier: c\nitems:\n";
    let text = format!("apiVersion: v1\nkind: List\n{common}");
    let item = |at: usize| {
        format!(
            "- apiVersion: v1\n  kind: Service\n  metadata:\n    name: s{at}\n    labels: \
             *common\n  spec: {{ports: [{{port: 80}}]}}\n"
        )
    };
    let items: String = (0..90).map(item).collect();
    let Outcome::Mixed(objects, problems, _) = yaml(&(text + &items)) else {
        panic!("a list")
    };
    assert_eq!((objects.len(), problems), (90, Problems::default()));
}

#[test]
fn long_texts_are_not_multiplied_by_aliases() {
    let long = "x".repeat(200_000);
    let aliases = ["*a"; 90].join(", ");
    let text = format!("apiVersion: v1\nkind: List\na: &a {long}\nitems: [{aliases}]\n");
    let found = problem(yaml(&text));
    assert!(found.message.contains("more than is read"), "{found:?}");
}

/// An item that counts how often it is read.
struct Counted<'a> {
    reads: &'a Cell<usize>,
    told: &'a Cell<usize>,
}

impl list::Item for Counted<'_> {
    fn written(&self) -> Result<Written, serde_json::Error> {
        self.reads.set(self.reads.get() + 1);
        serde_json::from_str("{}")
    }

    fn object(&self, kind: ObjectKind, is_told: bool) -> Result<Object, Problem> {
        self.told.set(self.told.get() + usize::from(is_told));
        read_json_object(kind, "{}", is_told)
    }

    fn hash(&self) -> Hash {
        Hash::default()
    }
}

#[test]
fn broken_items_cost_one_look_each_and_the_first_are_told() {
    let (reads, told, asked) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let count = 10_000;
    let items = (0..count).map(|_| Counted {
        reads: &reads,
        told: &told,
    });
    let items: Vec<_> = items.collect();
    let outcome = list::read_items(&items, Some(ObjectKind::Service), || {
        asked.set(asked.get() + 1);
        true
    });
    let Outcome::Mixed(_, problems, _) = outcome else {
        panic!("a list")
    };
    let (kept, dropped) = (problems.kept.len(), problems.dropped);
    assert_eq!((kept, dropped), (PROBLEMS_MAX, count - PROBLEMS_MAX));
    assert_eq!((reads.get(), told.get(), asked.get()), (count, kept, 1));
    // Nobody asks where nothing is broken.
    list::read_items::<Counted<'_>>(&[], None, || panic!("nothing is broken"));
}

#[test]
fn a_list_of_a_hundred_thousand_broken_items_is_one_problem() {
    let items = vec!["1"; 100_000].join(",");
    let text = format!(r#"{{"apiVersion":"v1","kind":"List","items":[{items}]}}"#);
    let found = problem(json(&text));
    assert_eq!(&*found.field, "items");
    assert!(found.message.contains("16384 items"), "{found:?}");
    let text = format!(
        "apiVersion: v1\nkind: List\nitems:\n{}",
        "- {}\n".repeat(30_000)
    );
    assert_eq!(&*problem(yaml(&text)).field, "items");
    // As many as are read: the first are told, and the others counted.
    let items = vec!["1"; list::ITEMS_MAX].join(",");
    let text = format!(r#"{{"apiVersion":"v1","kind":"List","items":[{items}]}}"#);
    let Outcome::Mixed(_, problems, _) = json(&text) else {
        panic!("a list")
    };
    assert_eq!(problems.dropped, list::ITEMS_MAX - PROBLEMS_MAX);
}

#[test]
fn a_secret_is_never_quoted() {
    const CANARY: &str = "c4n4ry";
    let well_formed = format!(
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\ntype: kubernetes.io/tls\ndata:\n\
         \x20 tls.key: {CANARY}\n  tls.crt: {CANARY}\n"
    );
    object(yaml(&well_formed));
    let breaks: [(&str, String); 10] = [
        ("data:\n", format!("data: {CANARY}\nfurther:\n")),
        ("data:\n", format!("data:\n  ? [{CANARY}]\n  : {CANARY}\n")),
        ("data:\n", format!("data:\n- {CANARY}\nfurther:\n")),
        ("data:\n", format!("data:\n  {CANARY}: [{CANARY}]\n")),
        ("data:\n", format!("data:\n  {CANARY}: *{CANARY}\n")),
        ("data:\n", format!("data:\n  a: !{CANARY} \"\\{CANARY}\n")),
        ("  tls.crt", format!(" {CANARY}: x\n   tls.crt")),
        (
            "  tls.key",
            format!("  {CANARY}: 1\n  {CANARY}: 2\n  tls.key"),
        ),
        (
            "kind: Secret",
            format!("kind: Ingress\nspec: {CANARY} # Secret"),
        ),
        ("type: kubernetes.io/tls", format!("type: [{CANARY}]")),
    ];
    let mut broken_ones = 0;
    for (from, to) in breaks {
        let text = well_formed.replacen(from, &to, 1);
        assert_ne!(text, well_formed);
        let outcome = yaml(&text);
        if let Outcome::Mixed(_, problems, _) = &outcome {
            broken_ones += 1;
            let place = std::sync::Arc::from("x.yaml");
            for problem in &problems.kept {
                let finding = problem.finding(&place, 1).to_string();
                assert!(!finding.contains(CANARY), "{finding}");
            }
        }
        assert!(
            !format!("{outcome:?}").contains(CANARY),
            "{text}: {outcome:?}"
        );
    }
    assert!(
        broken_ones >= 7,
        "only {broken_ones} of the cases are broken"
    );
    for text in [
        format!(
            r#"{{"apiVersion":"v1","kind":"Secret","metadata":{{"name":"s"}},"data":"{CANARY}"}}"#
        ),
        format!(r#"{{"apiVersion":"v1","kind":"Secret","data":{{"{CANARY}":["{CANARY}"]}}}}"#),
        format!(
            r#"{{"apiVersion":"v1","kind":"List","items":[{{"apiVersion":"v1",
            "kind":"Secret","metadata":{{"name":"s"}},"data":{{"{CANARY}":["{CANARY}"]}}}}]}}"#
        ),
        format!(r#"{{"apiVersion":"v1","kind":"Service","metadata":"{CANARY}"}}"#),
    ] {
        let outcome = json(&text);
        assert!(matches!(&outcome, Outcome::Mixed(_, problems, _) if !problems.kept.is_empty()));
        assert!(
            !format!("{outcome:?}").contains(CANARY),
            "{text}: {outcome:?}"
        );
        assert!(!format!("{:?}", yaml(&text)).contains(CANARY), "{text}");
    }
}

/// Pieces of documents, whole and torn.
fn any_text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n".to_owned()),
        Just("{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[".to_owned()),
        Just("kind: List\napiVersion: v1\nitems:\n".to_owned()),
        Just("spec:\n  ports:\n  - port: 80\n".to_owned()),
        "[-|>&*!{}\\[\\],:?#%'\"\\\\ \t\r\na-c\u{e9}\u{feff}0-9.~<]{0,12}",
        "\\PC{0,6}",
    ];
    proptest::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_096))]

    #[test]
    fn no_text_makes_the_readers_panic(text in any_text()) {
        for piece in split_yaml(&text) {
            read_yaml(&piece, BYTES_MAX);
        }
        for piece in split_json(&text).0 {
            read_json(&piece, BYTES_MAX);
        }
        read_yaml(&Piece { text: &text, line: 1 }, BYTES_MAX);
        read_json(&Piece { text: &text, line: 1 }, BYTES_MAX);
    }

    #[test]
    fn splitting_loses_nothing_but_markers_and_comments(
        texts in proptest::collection::vec("[a-z: \n#.-]{0,9}", 0..5),
    ) {
        let text = texts.join("\n---\n");
        let mut end = 0;
        let mut left_out = String::new();
        for piece in split_yaml(&text) {
            let start = piece.text.as_ptr() as usize - text.as_ptr() as usize;
            prop_assert_eq!(1 + text[..start].matches('\n').count(), piece.line as usize);
            left_out.push_str(&text[end..start]);
            end = start + piece.text.len();
        }
        left_out.push_str(&text[end..]);
        for line in left_out.lines() {
            let signs = ["#", "---", "..."];
            let line = line.trim();
            prop_assert!(line.is_empty() || signs.iter().any(|sign| line.starts_with(sign)));
        }
    }
}
