use std::collections::BTreeMap;
use std::time::Duration;

use myriad_base::clock::{self, Instant};
use myriad_model::Host;

use super::{
    BEAT, DecidedProofs, FLAP_FORGOTTEN, FLAP_PAUSE, FLAP_PAUSE_MAX, FLAPS_MAX, PROMPT_CHANGES,
};

const HOUR: Duration = Duration::from_secs(3_600);

fn host(text: &str) -> Host {
    Host::parse(text).unwrap()
}

/// Proofs as they are kept, and how often they were written.
struct Kept {
    decided: DecidedProofs,
    kept: BTreeMap<Host, Box<str>>,
    writes: usize,
}

impl Kept {
    fn new(start: Instant) -> Kept {
        Kept {
            decided: DecidedProofs::new(start),
            kept: BTreeMap::new(),
            writes: 0,
        }
    }

    /// A namespace proves a host, which is charged to a namespace.
    fn decide(&mut self, name: &str, namespace: &str, charged: &str, now: Instant) {
        let host = host(name);
        let kept = self.kept.get(&host).map(|it| &**it);
        if self.decided.proven(&host, kept) != Some(namespace) {
            let namespace = Some(namespace.into());
            self.decided.decide(&host, namespace, charged, now);
        }
    }

    /// Writes what may be.
    fn write(&mut self, now: Instant) {
        let ready = self.decided.ready(now);
        let ready = ready.filter_map(|(host, namespace)| Some((host.clone(), namespace?.into())));
        let ready: Vec<(Host, Box<str>)> = ready.collect();
        let mut changes = ready.iter();
        let is_other = changes.any(|(host, namespace)| self.kept.get(host) != Some(namespace));
        self.writes += usize::from(is_other);
        self.kept.extend(ready);
        self.decided.written(now);
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.kept.get(&host(name)).map(|it| &**it)
    }
}

#[test]
fn a_proof_that_flaps_is_written_ever_more_rarely_and_its_last_state_arrives() {
    let start = clock::now();
    let mut kept = Kept::new(start);
    // Ten times in each second, for an hour.
    for step in 0..36_000_u32 {
        let now = start + Duration::from_millis(100) * step;
        let namespace = if step % 7 < 3 { "one" } else { "two" };
        kept.decide("a.test", namespace, "flood", now);
        kept.write(now);
    }
    assert!((2..=8).contains(&kept.writes), "{}", kept.writes);
    kept.decide("a.test", "last", "flood", start + HOUR);
    let due = kept.decided.due().expect("it is to be written");
    assert!(due <= start + HOUR + FLAP_PAUSE_MAX + BEAT);
    kept.write(due);
    assert_eq!(kept.get("a.test"), Some("last"));
    assert_eq!(kept.decided.due(), None);
    // After long it is as one that never changed.
    let later = due + FLAP_FORGOTTEN + HOUR;
    kept.decide("a.test", "new", "shop", later);
    assert_eq!(kept.decided.due(), Some(later));
}

#[test]
fn writes_are_bounded_whatever_one_namespace_does_and_others_are_prompt() {
    let start = clock::now();
    let mut kept = Kept::new(start);
    // Ten others in each second, new ones and such that change again.
    for step in 0..36_000_u32 {
        let now = start + Duration::from_millis(100) * step;
        let namespace = if step % 2 == 0 { "one" } else { "two" };
        let name = match step % 3 {
            0 => format!("n{step}.test"),
            _ => format!("h{}.test", step % 1_000),
        };
        kept.decide(&name, namespace, "flood", now);
        kept.write(now);
    }
    // At once as many as it has for that in an hour, and a beat in each minute.
    assert!((60..=160).contains(&kept.writes), "{}", kept.writes);
    let now = start + HOUR;
    kept.decide("mine.test", "shop", "shop", now);
    kept.write(now);
    assert_eq!(kept.get("mine.test"), Some("shop"));
    kept.write(now + FLAP_PAUSE_MAX + BEAT);
    assert_eq!(kept.decided.due(), None, "all of it arrives");
    // Of what is as it is kept by then nothing is written.
    let (later, writes) = (now + 2 * HOUR, kept.writes);
    kept.decide("mine.test", "blog", "blog", later);
    kept.decide("mine.test", "shop", "blog", later);
    kept.write(later + BEAT);
    assert_eq!((kept.writes, kept.decided.due()), (writes, None));
}

#[test]
fn what_a_namespace_has_at_once_is_so_much_and_the_rest_comes_with_one_write() {
    let start = clock::now();
    let mut kept = Kept::new(start);
    for at in 0..1_000_u32 {
        let now = start + Duration::from_millis(1) * at;
        kept.decide(&format!("h{at}.test"), "shop", "shop", now);
        kept.write(now);
    }
    let prompt = usize::try_from(PROMPT_CHANGES).unwrap();
    assert_eq!((kept.writes, kept.kept.len()), (prompt, prompt));
    assert_eq!(kept.decided.due(), Some(start + BEAT));
    kept.write(start + BEAT);
    assert_eq!((kept.writes, kept.kept.len()), (prompt + 1, 1_000));
}

#[test]
fn what_is_remembered_of_hosts_and_namespaces_is_bounded() {
    let start = clock::now();
    let mut kept = Kept::new(start);
    for at in 0..u32::try_from(2 * FLAPS_MAX).unwrap() {
        let now = start + FLAP_PAUSE * at;
        let name = format!("n{at}");
        kept.decide(&format!("{name}.test"), &name, &name, now);
        kept.write(now);
    }
    let decided = &kept.decided;
    assert_eq!(
        (decided.flaps.len(), decided.flapped.len()),
        (FLAPS_MAX, FLAPS_MAX)
    );
    assert!(decided.prompt.len() < 1_024, "{}", decided.prompt.len());
    // Who decides no more has nothing to write, and remembers nevertheless.
    kept.decided.clear();
    assert_eq!(
        (kept.decided.due(), kept.decided.flaps.len()),
        (None, FLAPS_MAX)
    );
}
