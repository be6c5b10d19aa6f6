//! Secrets with a label, against the fake server.

use std::sync::Arc;

use serde_json::json;

use super::server::Server;
use crate::kubernetes::{Access, CallError, Client, Shelf, ShelfNews, Texts};

const SECRETS: &str = "/api/v1/namespaces/m/secrets";

async fn client(server: &Server) -> Client {
    let access = Access::Plain(server.uri());
    let client = Client::new(&access, Arc::default()).await;
    client.expect("a client")
}

async fn shelf(server: &Server) -> Shelf {
    Shelf::new(client(server).await, "m", ("myriad.dev/acme", "order"))
}

fn texts(pairs: &[(&str, &str)]) -> Texts {
    let own = |(key, text): &(&str, &str)| ((*key).to_owned(), (*text).to_owned());
    pairs.iter().map(own).collect()
}

/// The names that news put, and those that they remove.
fn names(news: &[ShelfNews]) -> (Vec<&str>, Vec<&str>) {
    let (mut put, mut gone) = (Vec::new(), Vec::new());
    for news in news {
        match news {
            ShelfNews::Put(shelved) => put.push(&*shelved.name),
            ShelfNews::Gone(name) => gone.push(&**name),
        }
    }
    (put, gone)
}

#[tokio::test]
async fn only_those_with_the_label_are_found_however_many_there_are() {
    let server = Server::start().await;
    let shelf = shelf(&server).await;
    server.put(SECRETS, "other", json!({"data": {}}));
    for number in 0..120 {
        let number = number.to_string();
        let texts = texts(&[("order", number.as_str())]);
        let written = shelf.put(&format!("o-{number}"), None, &texts).await;
        written.expect("written");
    }
    let found = shelf.all().await.expect("a list");
    assert_eq!(found.len(), 120);
    let first = found.iter().find(|it| &*it.name == "o-7").expect("it is");
    assert_eq!(first.texts, texts(&[("order", "7")]));
    // Nothing of the values is ever printed.
    assert!(!format!("{first:?}").contains("order"));
    assert!(shelf.get("none").await.expect("an answer").is_none());
}

#[tokio::test]
async fn a_write_rests_on_what_was_read_and_of_two_writers_one_is_told() {
    let server = Server::start().await;
    let (one, other) = (shelf(&server).await, shelf(&server).await);
    let first = one
        .put("o", None, &texts(&[("order", "a"), ("proof", "p")]))
        .await;
    let first = first.expect("written");
    let taken = other.put("o", None, &texts(&[("order", "b")])).await;
    assert_eq!(taken, Err(CallError::Conflict));
    let second = one.put("o", Some(&first), &texts(&[("order", "c")])).await;
    let second = second.expect("written");
    let late = other
        .put("o", Some(&first), &texts(&[("order", "d")]))
        .await;
    assert_eq!(late, Err(CallError::Conflict));
    let there = one.get("o").await.expect("an answer").expect("it is there");
    assert_eq!(there.texts, texts(&[("order", "c"), ("proof", "p")]));
    assert_eq!(there.version, second);
    assert_eq!(other.remove("o", &first).await, Err(CallError::Conflict));
    assert_eq!(one.remove("o", &second).await, Ok(()));
    assert_eq!(one.remove("o", &second).await, Ok(()));
    let gone = one.put("o", Some(&second), &texts(&[("order", "e")])).await;
    assert_eq!(gone, Err(CallError::NotFound));
}

#[tokio::test]
async fn changes_are_followed_through_the_end_of_a_watch_and_of_the_history() {
    let server = Server::start().await;
    let shelf = shelf(&server).await;
    let mut follow = shelf.follow();
    assert!(follow.next().await.is_empty(), "the list is told of");
    let first = shelf.put("a", None, &texts(&[("order", "1")])).await;
    let first = first.expect("written");
    assert_eq!(names(&follow.next().await), (vec!["a"], vec![]));
    server.cut();
    let second = shelf
        .put("a", Some(&first), &texts(&[("order", "2")]))
        .await;
    let second = second.expect("written");
    let news = follow.next().await;
    let ShelfNews::Put(shelved) = &news[0] else {
        panic!("{news:?}")
    };
    assert_eq!((&shelved.version, &*shelved.texts["order"]), (&second, "2"));
    // Whatever happens while nobody can tell shows in the list that follows.
    server.cut();
    shelf.remove("a", &second).await.expect("removed");
    let put = shelf.put("b", None, &texts(&[("order", "3")])).await;
    put.expect("written");
    server.compact();
    let (mut put, mut gone) = (Vec::new(), Vec::new());
    while put.is_empty() || gone.is_empty() {
        let news = follow.next().await;
        let (more, less) = names(&news);
        put.extend(more.into_iter().map(str::to_owned));
        gone.extend(less.into_iter().map(str::to_owned));
    }
    assert_eq!((put, gone), (vec!["b".to_owned()], vec!["a".to_owned()]));
}

#[tokio::test]
async fn after_the_history_is_forgotten_what_has_changed_is_read_and_nothing_else() {
    let server = Server::start().await;
    let shelf = shelf(&server).await;
    let mut versions = Vec::new();
    for number in 0..120 {
        let texts = texts(&[("order", "a")]);
        let version = shelf.put(&format!("o-{number}"), None, &texts).await;
        versions.push(version.expect("written"));
    }
    let mut follow = shelf.follow();
    assert_eq!(follow.next().await.len(), 120);
    let changed = texts(&[("order", "b")]);
    let put = shelf.put("o-7", Some(&versions[7]), &changed).await;
    put.expect("written");
    shelf.remove("o-8", &versions[8]).await.expect("removed");
    shelf.put("new", None, &changed).await.expect("written");
    server.compact();
    let before = server.log().len();
    let news = follow.next().await;
    assert_eq!(names(&news), (vec!["new", "o-7"], vec!["o-8"]));
    let asked = server.log().split_off(before);
    let (mut lists, mut read) = (0, 0);
    for line in asked.iter().filter(|line| !line.contains("watch=true")) {
        // Never is a page of Secrets read as a whole.
        let is_of_one = line.contains("fieldSelector=");
        assert!(is_of_one || line.ends_with("(metadata)"), "{line}");
        lists += usize::from(line.contains("limit="));
        read += usize::from(is_of_one);
    }
    assert_eq!((lists, read), (1, 2), "{asked:?}");
    // It goes on from there.
    let late = shelf.put("late", None, &changed).await;
    late.expect("written");
    assert_eq!(names(&follow.next().await), (vec!["late"], vec![]));
}
