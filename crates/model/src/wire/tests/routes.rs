use bytes::Bytes;

use super::examples::first_route;
use super::{encoded, resource};
use crate::wire::codec::Message as _;
use crate::wire::raw::Encoder;
use crate::wire::{WireError, decode, decode_within};
use crate::{Draft, Label, Origin, OriginKind, PathMatch, Resource, Routes, Value, divide};

fn origin(id: &str) -> Origin {
    Origin {
        kind: OriginKind::VirtualService,
        id: id.into(),
    }
}

/// A block of three routes, of which a delegate's is the second.
fn block() -> Resource {
    let labels = [
        Label::Rule(Box::default()),
        Label::Rule(">shop/other/2".into()),
        Label::Whole("closed".into()),
    ];
    let drafts = labels.into_iter().zip(0..).map(|(label, number)| {
        let mut route = first_route();
        route.path = PathMatch::Exact(format!("/ü/{number}").into());
        route.rank = u64::from(number);
        Draft {
            origin: origin(if number == 1 {
                "shop/other"
            } else {
                "shop/web"
            }),
            label,
            rule: number * 3,
            matched: 7,
            route,
        }
    });
    let mut divided = divide("shop/web/a/", &origin("shop/web"), drafts.collect());
    let (name, block) = divided.pop().expect("a block");
    assert_eq!((name.as_str(), divided.len()), ("shop/web/a/+", 0));
    block
}

fn rows(resource: &Resource) -> &Routes {
    match &resource.value {
        Value::Routes(block) => block,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_block_comes_back_as_it_went() {
    let before = block();
    let after = decode(&encoded(&before)).unwrap();
    assert_eq!(after, before);
    let block = rows(&after);
    let labels = [(0, 0), (1, 3), (2, 6)].map(|(at, rule)| block.label(at, rule));
    assert_eq!(labels, ["0.7", "3>shop/other/2.7", "closed"]);
    let origins = [0, 1, 2].map(|at| after.origin_of(at).name().to_owned());
    assert_eq!(origins, ["web", "other", "web"]);
    assert_eq!(block.policies().len(), 1);
}

#[test]
fn a_block_is_refused_by_who_knows_routes_one_by_one() {
    let needed = WireError::NewerSchema {
        needed: 4,
        understood: 3,
    };
    assert_eq!(decode_within(&encoded(&block()), 3), Err(needed));
    let alone = resource(Value::Route(Box::new(first_route())));
    assert!(decode_within(&encoded(&alone), 3).is_ok());
}

/// A block behind whose rows something else is written.
fn with(more: impl Fn(&mut Encoder<'_>)) -> Result<Resource, WireError> {
    let resource = block();
    let (mut inner, mut whole) = (Vec::new(), Vec::new());
    let mut out = Encoder::new(&mut inner);
    Routes::write(rows(&resource), &mut out);
    more(&mut out);
    let mut out = Encoder::new(&mut whole);
    out.number(1, 4);
    out.delimited(2, |_| {});
    out.bytes(21, &inner);
    decode(&Bytes::from(whole))
}

#[test]
fn rows_that_point_at_nothing_are_refused() {
    assert!(with(|_| {}).is_ok());
    let row = |field: u32, number: u64| {
        with(move |out| {
            out.delimited(10, |out| out.number(field, number));
        })
    };
    let nothing = Err(WireError::Invalid("row of a route"));
    // Beyond the texts, the ranks, settings, actions, policies and conditions.
    for (field, number) in [(1, 1), (5, 3), (6, 3), (7, 1), (8, 1), (9, 9)] {
        assert_eq!(row(field, number), nothing, "{field}");
    }
    assert_eq!(row(2, 4), Err(WireError::Invalid("form of a path")));
    // Nothing is no path.
    assert_eq!(row(3, 1), Err(WireError::Invalid("path")));
    let many = with(|out| {
        for _ in 0..Routes::ROWS_MAX {
            out.delimited(10, |_| {});
        }
    });
    let too_many = WireError::Invalid("number of entries in a table of routes");
    assert_eq!(many, Err(too_many));
}

#[test]
fn a_path_ends_between_two_letters() {
    // The first one would end within a letter.
    let cut = with(|out| out.bytes(4, "/aaaü/1234/5678".as_bytes()));
    assert_eq!(cut, Err(WireError::Invalid("row of a route")));
}
