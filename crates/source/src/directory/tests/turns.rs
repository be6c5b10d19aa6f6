//! Long files, and what else changes while they are read.

use std::fs;
use std::path::Path;
use std::time::Duration;

use myriad_base::clock;

use super::super::JOBS_MAX;
use super::super::slice::SLICE_BYTES;
use super::{World, service};

/// Enough for several slices.
const LONG: usize = 4_000;

/// The most documents of a long file that are read in one slice.
const SLICE_DOCUMENTS: u64 = SLICE_BYTES as u64 / 70;

/// A file of Services with a port.
fn long(name: &str, port: u16) -> String {
    let services = (0..LONG).map(|number| service(&format!("{name}{number:04}"), port));
    services.collect::<Vec<_>>().join("---\n")
}

fn directories(home: &Path, names: &[&str]) {
    for name in names {
        fs::create_dir(home.join(name)).expect("a directory");
    }
}

impl World {
    fn documents(&self) -> u64 {
        self.directory.counters.documents_parsed.get()
    }

    /// Changes a short file of another owner again and again until something else has happened.
    /// Each time it is seen after one slice of the long one. Returns how often.
    async fn others_until(&mut self, is_over: impl Fn(&World) -> bool) -> usize {
        let mut times = 0;
        loop {
            times += 1;
            let port = u16::try_from(times).expect("few times");
            self.write("short/a.yaml", &service("short", port));
            let before = self.documents();
            self.next().await;
            let read = self.documents() - before;
            assert!(read <= SLICE_DOCUMENTS + 2, "{read} documents");
            if is_over(self) {
                return times;
            }
            assert_eq!(self.ports.get("short"), Some(&port));
        }
    }
}

#[tokio::test]
async fn a_long_file_lets_others_go_first_and_takes_effect_as_one() {
    let mut world = World::open("", |home| directories(home, &["long", "short"])).await;
    world.write("long/a.yaml", &long("s", 1));
    world.write("long/b.yaml", &service("later", 1));
    let times = world.others_until(|world| world.ports.len() > 1).await;
    let slices = long("s", 1).len() / SLICE_BYTES;
    assert!(slices >= 5 && times >= slices, "{times} times");
    // All of it at once, and what its owner has changed since not before.
    assert_eq!(world.ports.len(), 1 + LONG);
    while !world.ports.contains_key("later") {
        world.next().await;
    }
    assert!(world.directory.jobs.is_empty() && !world.directory.owes_slice);
}

#[tokio::test]
async fn a_file_that_holds_what_a_long_one_let_go_is_read_in_slices_too() {
    let mut world = World::open("", |home| {
        directories(home, &["long", "other", "short"]);
        for (path, port) in [("long/a.yaml", 1), ("other/a.yaml", 2)] {
            fs::write(home.join(path), long("s", port)).expect("a file");
        }
    })
    .await;
    assert_eq!(world.ports["s0000"], 1);
    world.remove("long/a.yaml");
    let is_over = |world: &World| {
        // Nothing goes out of effect meanwhile.
        world.ports["s0000"] == 2
    };
    let times = world.others_until(is_over).await;
    assert!(times >= long("s", 2).len() / SLICE_BYTES, "{times} times");
    let second = world.ports.values().filter(|port| **port == 2);
    assert!(second.count() >= LONG);
}

#[tokio::test]
async fn what_was_in_effect_when_a_long_file_was_begun_may_have_to_be_read_at_its_end() {
    let mut world = World::open("", |home| {
        directories(home, &["before", "long", "short"]);
        fs::write(home.join("long/a.yaml"), service("kept", 1)).expect("a file");
    })
    .await;
    let text = format!("{}---\n{}", service("kept", 1), long("s", 1));
    world.write("long/a.yaml", &text);
    world.write("before/a.yaml", &service("kept", 9));
    world.next().await;
    assert_eq!((world.ports["kept"], world.ports.len()), (9, 1));
    world.remove("before/a.yaml");
    world.directory.take_events();
    let later = clock::now() + Duration::from_secs(60);
    world.directory.queue.expire(later);
    while !world.ports.contains_key("s0000") {
        world.next().await;
        assert!(world.ports.contains_key("kept"));
    }
    assert_eq!(world.ports["kept"], 1);
    assert!(world.batches().await.is_empty());
}

#[tokio::test]
async fn so_many_long_files_are_held_at_a_time_and_no_more() {
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    let mut world = World::open("", |home| {
        directories(home, &names);
        directories(home, &["short"]);
    })
    .await;
    for name in names {
        world.write(&format!("{name}/long.yaml"), &long(name, 1));
    }
    world.write("short/a.yaml", &service("short", 1));
    world.next().await;
    assert_eq!(world.ports.len(), 1);
    let left = |world: &World| {
        let directory = &world.directory;
        (directory.jobs.len(), directory.waiting.len())
    };
    assert_eq!(left(&world), (JOBS_MAX, names.len() - JOBS_MAX));
    while world.ports.len() < 1 + names.len() * LONG {
        world.next().await;
        let (reading, waiting) = left(&world);
        assert!(reading == JOBS_MAX || reading < JOBS_MAX && waiting == 0);
    }
    assert_eq!(left(&world), (0, 0));
}
