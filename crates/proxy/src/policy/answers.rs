//! Answers of services that routes have asked, as a worker remembers them.
//!
//! Of what makes requests equal nothing is kept but a hash, and the route is part of what is
//! hashed, so that no route is given the answers of another one.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::rc::Rc;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use myriad_base::clock::Instant;
use myriad_model::AnswerMemory;

use crate::policy::check::{Answered, OwnedHeader};

/// The parts of what a worker remembers. A namespace has one, so that others push out nothing of
/// it unless they share it.
const PARTS: usize = 64;

/// The most answers of one generation of a part, of which there are two.
const ANSWERS_MAX: usize = 1_024;

/// The most bytes of one generation of a part.
const BYTES_MAX: usize = 128 << 10;

/// The most bytes of one answer; a longer one is not remembered.
const ANSWER_BYTES_MAX: usize = 8 << 10;

/// The bytes that an answer takes beside its fields.
const ANSWER_BYTES: usize = 128;

/// A hash of the route, the question and what makes requests equal.
pub type AnswerKey = [u8; 32];

/// The answers that a worker remembers.
#[derive(Default)]
pub struct RememberedAnswers {
    /// The keys of numbers of namespaces, which nobody can foretell.
    namespaces: RandomState,
    parts: RefCell<HashMap<usize, Part>>,
}

/// The answers of one part. A full younger generation becomes the older one.
#[derive(Default)]
struct Part {
    younger: Generation,
    older: Generation,
}

#[derive(Default)]
struct Generation {
    answers: HashMap<AnswerKey, KeptAnswer>,
    bytes: usize,
}

#[derive(Clone)]
struct KeptAnswer {
    answered: Rc<Answered>,
    until: Instant,
    bytes: usize,
}

/// The hash of texts that cannot be told from others by where they end; none without SHA-256.
pub fn key(texts: &[&[u8]]) -> Option<AnswerKey> {
    let mut context = Context::new(&SHA256);
    for text in texts {
        context.update(&(text.len() as u64).to_le_bytes());
        context.update(text);
    }
    context.finish().as_ref().try_into().ok()
}

/// How long an answer is remembered: as long as the memory says, and no longer than the answer
/// itself does; none where not at all. Who sets a cookie sets it for one client.
pub fn age(memory: &AnswerMemory, answered: &Answered) -> Option<Duration> {
    let mut ages = memory.ages.iter();
    let (_, age) = ages.find(|(status, _)| *status == answered.status)?;
    let mut age = *age;
    for (name, value) in &answered.fields {
        match &**name {
            "set-cookie" | "expires" | "x-accel-expires" => return None,
            "vary" if value.contains(&b'*') => return None,
            "cache-control" => age = age.min(said(value)?),
            _ => {}
        }
    }
    (!age.is_zero()).then_some(age)
}

/// How long `Cache-Control` lets an answer be kept by everybody; none where not at all.
fn said(value: &[u8]) -> Option<Duration> {
    let mut least = Duration::MAX;
    for member in crate::codec::field::members(value) {
        let (name, argument) = member.split_once('=').unwrap_or((member, ""));
        match name.trim().to_ascii_lowercase().as_str() {
            "no-cache" | "no-store" | "private" => return None,
            "max-age" | "s-maxage" => {
                let seconds = argument.trim().trim_matches('"').parse().ok()?;
                least = least.min(Duration::from_secs(seconds));
            }
            _ => {}
        }
    }
    Some(least)
}

impl RememberedAnswers {
    /// The answer of a key, where one is remembered.
    pub fn get(&self, namespace: &str, key: &AnswerKey, now: Instant) -> Option<Rc<Answered>> {
        let mut parts = self.parts.borrow_mut();
        parts.get_mut(&self.part(namespace))?.get(key, now)
    }

    /// Remembers an answer until then.
    pub fn remember(
        &self,
        namespace: &str,
        key: AnswerKey,
        answered: Rc<Answered>,
        until: Instant,
    ) {
        let fields = answered.fields.iter();
        let bytes: usize = fields.map(bytes_of).sum();
        if bytes > ANSWER_BYTES_MAX {
            return;
        }
        let kept = KeptAnswer {
            answered,
            until,
            bytes: bytes + ANSWER_BYTES,
        };
        let mut parts = self.parts.borrow_mut();
        parts
            .entry(self.part(namespace))
            .or_default()
            .put(key, kept);
    }

    /// The part that a namespace has.
    fn part(&self, namespace: &str) -> usize {
        self.namespaces.hash_one(namespace) as usize % PARTS
    }
}

impl Part {
    fn get(&mut self, key: &AnswerKey, now: Instant) -> Option<Rc<Answered>> {
        if let Some(kept) = self.younger.answers.get(key) {
            return (kept.until > now).then(|| kept.answered.clone());
        }
        let kept = self.older.answers.get(key)?;
        if kept.until <= now {
            return None;
        }
        let kept = kept.clone();
        let answered = kept.answered.clone();
        self.put(*key, kept);
        Some(answered)
    }

    fn put(&mut self, key: AnswerKey, kept: KeptAnswer) {
        let younger = &self.younger;
        let is_full = younger.answers.len() >= ANSWERS_MAX || younger.bytes >= BYTES_MAX;
        if is_full {
            self.older = std::mem::take(&mut self.younger);
        }
        let bytes = kept.bytes;
        let former = self.younger.answers.insert(key, kept);
        let former = former.map_or(0, |former| former.bytes);
        self.younger.bytes = self.younger.bytes.saturating_add(bytes) - former;
    }
}

fn bytes_of((name, value): &OwnedHeader) -> usize {
    // Two allocations and what points to them.
    name.len() + value.len() + 64
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::time::Duration;

    use myriad_base::clock;
    use myriad_model::AnswerMemory;

    use super::{ANSWER_BYTES_MAX, ANSWERS_MAX, BYTES_MAX, RememberedAnswers, age, key};
    use crate::policy::check::Answered;

    fn answered(status: u16, fields: &[(&str, &str)]) -> Answered {
        let fields = fields.iter();
        let fields = fields.map(|(name, value)| ((*name).into(), value.as_bytes().into()));
        Answered {
            status,
            fields: fields.collect(),
            ..Answered::default()
        }
    }

    #[test]
    fn an_answer_is_kept_as_long_as_both_sides_want() {
        let memory = AnswerMemory {
            key: "$cookie_a".into(),
            ages: [
                (200, Duration::from_secs(300)),
                (401, Duration::from_secs(2)),
            ]
            .into(),
        };
        let seconds = |status, fields: &[(&str, &str)]| {
            let age = age(&memory, &answered(status, fields));
            age.map(|age| age.as_secs())
        };
        assert_eq!(seconds(200, &[("x-user", "ann")]), Some(300));
        assert_eq!(seconds(401, &[]), Some(2));
        assert_eq!(seconds(403, &[]), None);
        assert_eq!(
            seconds(200, &[("cache-control", "public, max-age=7")]),
            Some(7)
        );
        assert_eq!(seconds(200, &[("cache-control", "max-age=700")]), Some(300));
        for (name, value) in [
            ("set-cookie", "a=b"),
            ("cache-control", "no-store"),
            ("cache-control", "Private"),
            ("cache-control", "max-age=0"),
            ("cache-control", "max-age=x"),
            ("expires", "0"),
            ("vary", "*"),
        ] {
            assert_eq!(seconds(200, &[(name, value)]), None, "{name}: {value}");
        }
    }

    #[test]
    fn keys_tell_where_texts_end_and_answers_go_by_their_time() {
        assert_ne!(key(&[&b"ab"[..], b"c"]), key(&[&b"a"[..], b"bc"]));
        let answers = RememberedAnswers::default();
        let (now, key) = (clock::now(), key(&[&b"a"[..]]).unwrap());
        let until = now + Duration::from_secs(2);
        answers.remember("shop", key, Rc::new(answered(200, &[])), until);
        let is_known = |at| answers.get("shop", &key, at).is_some();
        assert!(is_known(now) && is_known(now + Duration::from_secs(1)));
        assert!(!is_known(until));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_what_is_used_stays() {
        let answers = RememberedAnswers::default();
        let now = clock::now();
        let until = now + Duration::from_secs(600);
        let number = |number: usize| key(&[&number.to_le_bytes()[..]]).unwrap();
        let used = number(usize::MAX);
        let long = "x".repeat(ANSWER_BYTES_MAX / 2);
        for at in 0..10 * ANSWERS_MAX {
            let fields: &[(&str, &str)] = match at % 3 {
                0 => &[("x-a", &long)],
                _ => &[],
            };
            answers.remember("shop", number(at), Rc::new(answered(200, fields)), until);
            if at == 0 {
                answers.remember("shop", used, Rc::new(answered(200, &[])), until);
            }
            assert!(answers.get("shop", &used, now).is_some());
        }
        assert!(answers.get("shop", &number(0), now).is_none());
        let parts = answers.parts.borrow();
        for part in parts.values() {
            for generation in [&part.younger, &part.older] {
                assert!(generation.answers.len() <= ANSWERS_MAX);
                assert!(generation.bytes <= BYTES_MAX + 2 * ANSWER_BYTES_MAX);
                let bytes = generation.answers.values().map(|kept| kept.bytes);
                assert_eq!(generation.bytes, bytes.sum::<usize>());
            }
        }
        drop(parts);
        let fields = [("x-a", long.as_str()), ("x-b", long.as_str())];
        let key = number(usize::MAX - 1);
        answers.remember("shop", key, Rc::new(answered(200, &fields)), until);
        assert!(answers.get("shop", &key, now).is_none(), "it is too long");
    }
}
