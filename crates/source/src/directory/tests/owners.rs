//! Owners beside each other: what one has, and how it is read, keeps no other from being read.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use myriad_api::Change;
use myriad_base::clock;

use super::super::slice::SLICE_MAX;
use super::super::{Limits, rescan, watch};
use super::{World, service};

impl World {
    /// Loses the events until now, and what follows from them.
    fn lose_events(&mut self) {
        self.directory.watch.drain().expect("events");
        let now = clock::now();
        let queue = &mut self.directory.queue;
        queue.take(watch::Event::Overflow, now, &rescan::NoFacts);
    }
}

/// Room for so many directories, of which an owner has a quarter.
fn directories(directories_max: usize) -> Limits {
    Limits {
        directories_max,
        ..Limits::default()
    }
}

/// A document of 300 bytes whose aliases stand for half a million nodes.
fn bomb() -> String {
    let mut text = String::from("apiVersion: v1\nkind: Service\na0: &a0 [1,1,1,1,1,1,1,1,1]\n");
    for level in 1..=5 {
        let aliases = vec![format!("*a{}", level - 1); 9].join(",");
        text.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    text + "metadata: {name: a}\n"
}

#[tokio::test]
async fn many_costly_documents_let_others_in_after_each_slice_of_time() {
    let mut world = World::open("", |home| {
        for name in ["costly", "short"] {
            fs::create_dir(home.join(name)).expect("a directory");
        }
    })
    .await;
    // Each look at the clock is 10 ms later, so that a slice has three documents at most.
    let looks = AtomicU64::new(0);
    let clock = move || Duration::from_millis(10 * looks.fetch_add(1, Ordering::Relaxed));
    world.directory.processor_time = Arc::new(clock);
    let documents = vec![bomb(); 60].join("---\n");
    assert!(documents.len() < 64 << 10, "one slice by its bytes");
    world.write("costly/a.yaml", &documents);
    let mut times = 0_u16;
    while !world.findings.contains_key("a.yaml") {
        times += 1;
        world.write("short/b.yaml", &service("short", times));
        let before = world.directory.counters.documents_parsed.get();
        world.next().await;
        let read = world.directory.counters.documents_parsed.get() - before;
        assert!(read <= 2 * 3 + 1, "{read} documents in {SLICE_MAX:?}");
    }
    assert!(times >= 10, "{times} times");
}

#[tokio::test]
async fn a_tree_that_one_owner_fills_is_read_for_all_others_from_the_start() {
    let mut world = World::open_within("", directories(40), |home| {
        for number in 0..100 {
            fs::create_dir_all(home.join(format!("evil/{number}"))).expect("a directory");
        }
        for owner in ["aa", "good", "zz"] {
            fs::create_dir(home.join(owner)).expect("a directory");
            let text = service(owner, 1);
            fs::write(home.join(owner).join("a.yaml"), text).expect("a file");
        }
    })
    .await;
    assert_eq!(world.ports.len(), 3);
    assert!(world.findings["evil"][0].contains("10 directories"));
    // What it adds later is no more, and others go on.
    fs::create_dir(world.path("evil/more")).expect("a directory");
    fs::create_dir(world.path("good/sub")).expect("a directory");
    world.write("good/sub/b.yaml", &service("b", 1));
    while world.ports.len() < 4 {
        world.next().await;
    }
    world.lose_events();
    world.write("good/sub/b.yaml", &service("b", 2));
    while world.ports["b"] != 2 {
        world.next().await;
    }
    assert!(world.findings.contains_key("evil"));
    fs::remove_dir_all(world.path("evil")).expect("a removal");
    while !world.findings.is_empty() {
        world.next().await;
    }
}

#[tokio::test]
async fn directories_that_are_made_one_by_one_count_together() {
    let mut world = World::open_within("", directories(40), |home| {
        fs::create_dir(home.join("evil")).expect("a directory");
        fs::create_dir(home.join("good")).expect("a directory");
    })
    .await;
    for number in 0..30 {
        fs::create_dir(world.path(&format!("evil/{number}"))).expect("a directory");
        world.batches().await;
    }
    let watched = world.directory.watch.count_elsewhere(&world.directory.root);
    assert_eq!(watched.of_all, 0);
    let watched = world.directory.watch.count_elsewhere("nothing");
    assert_eq!(watched.of_all, 1 + 1 + 10);
    world.write("good/a.yaml", &service("a", 1));
    while !world.ports.contains_key("a") {
        world.next().await;
    }
}

#[tokio::test]
async fn files_beyond_the_part_of_an_owner_are_not_read() {
    let limits = Limits {
        files_max: 40,
        ..Limits::default()
    };
    let mut world = World::open_within("", limits, |home| {
        fs::create_dir(home.join("evil")).expect("a directory");
        fs::create_dir(home.join("good")).expect("a directory");
    })
    .await;
    for number in 0..20 {
        let name = format!("s{number}");
        world.write(&format!("evil/{name}.yaml"), &service(&name, 1));
        // The first one beyond is a finding, and further ones change nothing.
        if number <= 10 {
            world.next().await;
        }
    }
    assert_eq!(world.ports.len(), 10);
    assert!(world.findings["evil"][0].contains("10 files"));
    world.write("good/a.yaml", &service("a", 1));
    world.next().await;
    assert_eq!(world.ports["a"], 1);
}

#[tokio::test]
async fn a_directory_that_an_owner_links_again_is_read_and_watched_once() {
    let mut world = World::open("", |home| {
        fs::create_dir_all(home.join("shop/sub")).expect("a directory");
        fs::write(home.join("shop/sub/a.yaml"), service("a", 1)).expect("a file");
    })
    .await;
    for number in 0..6 {
        symlink("sub", world.path(&format!("shop/l{number}"))).expect("a link");
        world.next().await;
        assert!(world.findings[&format!("l{number}")][0].contains("read already"));
    }
    assert_eq!(world.ports.len(), 1);
    let read = world.files_read();
    world.write("shop/sub/a.yaml", &service("a", 2));
    world.next().await;
    assert_eq!((world.ports["a"], world.files_read() - read), (2, 1));
    for number in 0..6 {
        world.remove(&format!("shop/l{number}"));
    }
    while !world.findings.is_empty() {
        world.next().await;
    }
    world.check(&[("a", 2)]);
}

#[tokio::test]
async fn what_moves_to_another_owner_while_events_are_lost_stays_in_effect() {
    let mut world = World::open("", |home| {
        for owner in ["aa", "zz"] {
            fs::create_dir(home.join(owner)).expect("a directory");
        }
        fs::write(home.join("aa/a.yaml"), service("a", 1)).expect("a file");
    })
    .await;
    world.rename("aa/a.yaml", "zz/a.yaml");
    fs::remove_dir(world.path("aa")).expect("a removal");
    fs::create_dir_all(world.path("new/sub")).expect("a directory");
    world.write("new/sub/b.yaml", &service("b", 1));
    world.lose_events();
    while !world.ports.contains_key("b") {
        world.next().await;
        assert!(world.ports.contains_key("a"), "never out of effect");
    }
    for batch in world.batches().await {
        let mut changes = batch.changes.iter();
        assert!(changes.all(|change| matches!(change, Change::Put(_))));
    }
    world.check(&[("a", 1), ("b", 1)]);
    world.write("new/sub/b.yaml", &service("b", 2));
    world.only_batch().await;
    world.check(&[("a", 1), ("b", 2)]);
}

#[tokio::test]
async fn owners_whose_names_begin_alike_are_told_apart() {
    let mut world = World::open("", |home| {
        for owner in ["shop", "shop-a", "shop0"] {
            fs::create_dir(home.join(owner)).expect("a directory");
            let text = service(owner, 1);
            fs::write(home.join(owner).join("a.yaml"), text).expect("a file");
        }
        fs::write(home.join("shop.yaml"), service("file", 1)).expect("a file");
    })
    .await;
    assert_eq!(world.ports.len(), 4);
    for owner in ["shop", "shop-a", "shop0"] {
        fs::remove_dir_all(world.path(owner)).expect("a removal");
    }
    world.remove("shop.yaml");
    world.lose_events();
    while !world.ports.is_empty() {
        world.next().await;
    }
}
