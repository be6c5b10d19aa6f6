//! Proxies that do not answer.

use std::time::Duration;

use myriad_model::{Form, Snapshot};

use super::pair::{Pair, World};
use crate::server::ANSWER_TIMEOUT;
use crate::wire::from_server;

const MOMENT: Duration = Duration::from_millis(1);

#[test]
fn a_commit_that_nobody_acknowledges_is_overdue_after_a_minute() {
    let mut world = World::new(Form::Encoded);
    world.put("a", 1);
    let mut pair = Pair::connect(&world, Snapshot::new());
    pair.settle();
    assert_eq!(pair.server.deadline(), None, "nothing is waited for");
    world.put("a", 2);
    pair.server.update(world.snapshot().clone());
    pair.speak();
    let due = pair.now + ANSWER_TIMEOUT;
    assert_eq!(pair.server.deadline(), Some(due));
    // Later changes are no answer.
    pair.now = due - MOMENT;
    world.put("a", 3);
    pair.server.update(world.snapshot().clone());
    pair.speak();
    assert!(!pair.server.is_overdue(due - MOMENT));
    assert!(pair.server.is_overdue(due));
    // An answer is one, however late, and the next commit has its own time.
    pair.settle();
    assert!(pair.server.is_in_step());
    assert_eq!(pair.server.deadline(), None);
    assert!(!pair.server.is_overdue(due + ANSWER_TIMEOUT));
}

#[test]
fn a_question_that_nobody_answers_is_overdue_as_well() {
    let mut world = World::new(Form::Encoded);
    for number in 0..100 {
        world.put(&format!("e{number}"), 1);
    }
    let mut first = Pair::connect(&world, Snapshot::new());
    first.settle();
    world.put("e7", 2);
    let mut again = Pair::connect(&world, first.client.held().clone());
    again.serve_one();
    again.speak();
    let asked = again.to_client.iter();
    let asks = |it: &crate::wire::FromServer| matches!(it.body, Some(from_server::Body::Ask(_)));
    assert_eq!(asked.filter(|it| asks(it)).count(), 1);
    assert!(again.server.is_overdue(again.now + ANSWER_TIMEOUT));
    again.settle();
    assert!(again.server.is_in_step());
    assert_eq!(again.server.deadline(), None);
}
