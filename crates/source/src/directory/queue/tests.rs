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
        path == "d/locked.yaml" || path == "d/cycle"
    }
}

struct World {
    queue: Queue,
    now: Instant,
}

impl World {
    fn new() -> World {
        World {
            queue: Queue::new(HOLD, &"d".into()),
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

    /// Something takes long for the owner of a path.
    fn block(&mut self, path: &str) -> Vec<Arc<str>> {
        let owners = self.queue.owners(&Work::Paths(vec![path.into()]));
        self.queue.block(&owners);
        owners
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
            Work::Rival(path) => format!("rival {path}"),
            Work::Everything => "everything".into(),
            Work::Survey(owner, number) => format!("survey {number} of {owner}"),
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
    world.tell("cycle", MovedFrom(1));
    world.tell("c.txt", Deleted);
    assert!(world.work().is_empty());
    assert_eq!(world.queue.deadline(), Some(world.now + HOLD));
    world.pass(HOLD / 2);
    world.tell("a.yaml", Deleted);
    world.pass(HOLD / 2);
    assert_eq!(world.work(), ["d/link", "d/cycle"]);
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

#[test]
fn the_owner_of_a_path_is_a_directory_in_the_root_or_the_root() {
    let queue = Queue::new(HOLD, &"a/d".into());
    let owners = |paths: &[&str]| {
        let paths = paths.iter().map(|path| Arc::from(*path)).collect();
        queue.owners(&Work::Paths(paths)).join(" ")
    };
    assert_eq!(owners(&["a/d/x.yaml"]), "a/d");
    assert_eq!(owners(&["a/d/shop"]), "a/d/shop");
    assert_eq!(owners(&["a/d/shop/x.yaml", "a/d/shop/deep"]), "a/d/shop");
    assert_eq!(owners(&["a/d/shop/y/x.yaml", "a/d/b.yaml"]), "a/d a/d/shop");
    let links = |directory: &str| queue.owners(&Work::Links(directory.into())).join(" ");
    assert_eq!(
        (links("a/d"), links("a/d/shop")),
        ("a/d".into(), "a/d/shop".into())
    );
    let root = Queue::new(HOLD, &"/".into());
    let path = Work::Paths(vec!["/shop/x.yaml".into()]);
    assert_eq!(root.owners(&path).join(" "), "/shop");
}

#[test]
fn work_of_others_goes_on_while_that_of_one_waits_in_its_order() {
    let mut world = World::new();
    let shop = world.block("d/shop/a.yaml");
    for path in [
        "shop/1.yaml",
        "blog/1.yaml",
        "shop/2.yaml",
        "1.yaml",
        "shop/1.yaml",
    ] {
        world.queue.push(format!("d/{path}").into());
    }
    assert_eq!(world.work(), ["d/blog/1.yaml", "d/1.yaml"]);
    // A move between two owners waits for both.
    world
        .queue
        .push_paths(vec!["d/blog/2.yaml".into(), "d/shop/3.yaml".into()]);
    assert!(world.work().is_empty());
    world.queue.release(&shop);
    let next = world.queue.pop();
    assert_eq!(next, Some(Work::Paths(vec!["d/shop/1.yaml".into()])));
    // What it still has to do and that of others take turns.
    for number in 3..6 {
        world.queue.push(format!("d/blog/{number}.yaml").into());
    }
    assert_eq!(
        world.work(),
        [
            "d/blog/3.yaml",
            "d/shop/2.yaml",
            "d/blog/4.yaml",
            "d/blog/2.yaml+d/shop/3.yaml",
            "d/blog/5.yaml"
        ]
    );
    assert!(world.queue.lanes.is_empty() && world.queue.waiting.is_empty());
}

#[test]
fn what_others_let_go_is_read_even_if_events_are_lost() {
    let mut world = World::new();
    let shop = world.block("d/shop/a.yaml");
    for path in ["d/shop/b.yaml", "d/c.yaml"] {
        world.queue.push_rival(path.into());
        world.queue.push(path.into());
    }
    assert_eq!(world.work(), ["rival d/c.yaml", "d/c.yaml"]);
    world.queue.push("d/c.yaml".into());
    world.queue.take(Event::Overflow, world.now, &Ground);
    assert_eq!(world.work(), ["everything"]);
    world.queue.release(&shop);
    assert_eq!(world.work(), ["rival d/shop/b.yaml"]);
}

#[test]
fn an_owner_with_very_much_work_lets_others_in() {
    let mut world = World::new();
    let many = 20 * RUN_MAX;
    for number in 0..many {
        world.queue.push(format!("d/evil/{number}.yaml").into());
    }
    world.queue.push("d/good/a.yaml".into());
    let work = world.work();
    assert_eq!(work.len(), many + 1);
    let at = work.iter().position(|work| *work == "d/good/a.yaml");
    assert!(at.is_some_and(|at| at <= 2 * RUN_MAX), "{at:?}");
    let evil: Vec<_> = (0..many)
        .map(|number| format!("d/evil/{number}.yaml"))
        .collect();
    let others = work.iter().filter(|work| *work != "d/good/a.yaml");
    assert!(others.eq(&evil), "the order of an owner is kept");
    assert!(world.queue.lanes.is_empty());
}
