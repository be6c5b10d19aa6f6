use myriad_api::{Finding, ObjectKey, ObjectKind, Severity};
use myriad_model::{Endpoint, Endpoints, Origin, Resource, Value};

use super::put_together;
use crate::engine::stamp::Stamp;
use crate::engine::{Output, Unit};

fn finding(message: &str) -> Finding {
    let key = ObjectKey::new(ObjectKind::IstioGateway, "a", "b");
    Finding::new(Severity::Info, &key, "", message, "mend it")
}

fn endpoints(port: u16) -> Resource {
    let endpoints = [Endpoint::even(([10, 0, 0, 1], port).into())];
    Resource {
        origin: Origin::settings(),
        value: Value::Endpoints(Box::new(Endpoints::new(endpoints.into()))),
    }
}

fn of(slots: &[u32]) -> Stamp {
    slots.iter().copied().collect()
}

#[test]
fn equal_resources_are_one_and_different_ones_of_a_name_each_have_their_views() {
    let output = |port, need: &str| Output {
        resources: vec![("x".into(), endpoints(port))],
        needs: vec![Unit::upstream(need.into()), Unit::upstream("all".into())],
        ..Output::default()
    };
    let drawn = put_together(vec![
        (of(&[0]), output(1, "one")),
        (of(&[1, 4]), output(2, "other")),
        (of(&[2]), output(1, "one")),
    ]);
    assert_eq!(drawn.resources, [of(&[0, 2]), of(&[1, 4])]);
    assert_eq!(drawn.output.resources.len(), 2);
    let needs: Vec<_> = drawn.output.needs.iter().zip(&drawn.needs).collect();
    let unit = |name: &str| Unit::upstream(name.into());
    assert_eq!(
        needs,
        [
            (&unit("one"), &of(&[0, 2])),
            (&unit("all"), &of(&[0, 1, 2, 4])),
            (&unit("other"), &of(&[1, 4])),
        ]
    );
    assert_eq!(drawn.views, of(&[0, 1, 2, 4]));
}

#[test]
fn a_doubt_is_told_where_every_view_has_it_that_the_object_concerns() {
    let output = |is_concerned, doubts: &[&str]| Output {
        is_concerned,
        doubts: doubts.iter().map(|text| finding(text)).collect(),
        findings: vec![finding("always")],
        ..Output::default()
    };
    let told = |outputs: Vec<Output>| {
        let outputs = outputs.into_iter().zip(0..);
        let outputs = outputs.map(|(output, slot)| (Stamp::one(slot), output));
        let mut findings = put_together(outputs.collect()).output.findings;
        findings.sort();
        findings.dedup();
        let messages = findings.iter().map(|it| it.message.to_string());
        messages.collect::<Vec<_>>()
    };
    let [a, ab, none] = [&["a"][..], &["a", "b"], &[]];
    assert_eq!(
        told(vec![output(false, ab), output(false, ab)]),
        ["a", "always", "b"]
    );
    assert_eq!(
        told(vec![output(false, ab), output(false, a)]),
        ["a", "always"]
    );
    assert_eq!(
        told(vec![output(false, ab), output(true, a)]),
        ["a", "always"]
    );
    assert_eq!(
        told(vec![output(true, none), output(false, ab)]),
        ["always"]
    );
    assert_eq!(told(vec![output(true, a), output(true, none)]), ["always"]);
}
