use super::*;

const HOLD: Duration = Duration::from_millis(10);

/// Everything that is created grows; one directory is known.
struct Ground;

impl Facts for Ground {
    fn look(&self, path: &str) -> Look {
        if path.ends_with("link") {
            Look::DirectoryLink
        } else {
            Look::Growing
        }
    }

    fn knows_directory(&self, path: &str) -> bool {
        path == "d/link"
    }

    fn is_troubled(&self, path: &str) -> bool {
        path == "d/locked.yaml"
    }
}

struct World {
    queue: Queue,
    now: Instant,
}

impl World {
    fn new() -> World {
        World {
            queue: Queue::new(HOLD),
            now: myriad_base::clock::now(),
        }
    }

    fn tell(&mut self, name: &str, kind: EntryEvent) {
        let event = Event::Entry {
            directory: "d".into(),
            name: name.into(),
            kind,
            is_directory: false,
        };
        self.queue.take(event, self.now, &Ground);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.queue.expire(self.now);
    }

    /// The paths of each piece of work, in order.
    fn work(&mut self) -> Vec<String> {
        let next = std::iter::from_fn(|| self.queue.pop());
        next.map(|work| match work {
            Work::Paths(paths) => paths.join("+"),
            Work::Links(directory) => format!("links {directory}"),
            Work::Everything => "everything".into(),
        })
        .collect()
    }
}

use EntryEvent::{Attributes, Created, Deleted, MovedFrom, MovedTo, Written};

#[test]
fn a_path_waits_once_and_growing_files_do_not() {
    let mut world = World::new();
    for name in ["a.yaml", "b.yaml", "a.yaml", "c.txt", ".d.yaml"] {
        world.tell(name, Written);
    }
    world.tell("b.yaml", Created);
    world.tell("e.yaml", Created);
    world.tell("locked.yaml", Attributes);
    world.tell("a.yaml", Attributes);
    assert_eq!(world.work(), ["d/a.yaml", "d/locked.yaml"]);
    assert_eq!(world.queue.deadline(), None);
}

#[test]
fn what_disappears_is_held() {
    let mut world = World::new();
    world.tell("a.yaml", Written);
    world.tell("a.yaml", Deleted);
    world.tell("link", Deleted);
    world.tell("c.txt", Deleted);
    assert!(world.work().is_empty());
    assert_eq!(world.queue.deadline(), Some(world.now + HOLD));
    world.pass(HOLD / 2);
    world.tell("a.yaml", Deleted);
    world.pass(HOLD / 2);
    assert_eq!(world.work(), ["d/link"]);
    world.pass(HOLD / 2);
    assert_eq!(world.work(), ["d/a.yaml"]);
    world.tell("a.yaml", Deleted);
    world.tell("a.yaml", Created);
    world.pass(HOLD);
    assert!(world.work().is_empty(), "a successor is being written");
    assert!(world.queue.held.is_empty() && world.queue.origins.is_empty());
}

#[test]
fn both_ends_of_a_move_are_one_piece_of_work() {
    let mut world = World::new();
    world.tell("a.yaml", Written);
    world.tell("a.yaml", MovedFrom(7));
    world.tell("b.yaml", MovedTo(7));
    world.tell("c.yaml", MovedTo(8));
    world.tell("x.yaml", MovedFrom(9));
    world.tell("x.yaml~", MovedTo(9));
    assert_eq!(world.work(), ["d/a.yaml+d/b.yaml", "d/c.yaml"]);
    world.pass(HOLD);
    assert_eq!(
        world.work(),
        ["d/x.yaml"],
        "a backup, and no successor came"
    );
    world.tell("link", MovedFrom(10));
    world.tell("other-link", MovedTo(10));
    assert_eq!(world.work(), ["d/link+d/other-link"]);
    assert!(world.queue.origins.is_empty() && world.queue.waiting.is_empty());
}

#[test]
fn swaps_and_overflows_say_what_to_look_at() {
    let mut world = World::new();
    world.tell("..data", MovedTo(1));
    world.tell("..data", MovedTo(2));
    assert_eq!(world.work(), ["links d"]);
    world.tell("..data", Deleted);
    assert!(world.work().is_empty());
    world.pass(HOLD);
    assert_eq!(world.work(), ["links d"]);
    world.tell("a.yaml", Written);
    world.tell("b.yaml", Deleted);
    world.queue.take(Event::Overflow, world.now, &Ground);
    world.pass(HOLD);
    assert_eq!(world.work(), ["everything"]);
}
