//! Checks of passwords: how many run at a time, for whom, and which passwords are known already.
//!
//! Nothing is kept of a password but a keyed hash, whose key lives and dies with the process.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use myriad_base::clock::{self, Instant};
use myriad_model::Version;
use tokio::task::spawn_blocking;

use super::hash;
use super::turns::CheckTurns;
use crate::limits;

/// The parts of what is known. A namespace has one, so that others push out nothing of it unless
/// they share it.
const PARTS: usize = 64;

/// The most passwords that are known in one part, twice over.
const KNOWN_MAX: usize = 1_024;

/// The most that are verified at a time: half of the processors, and no more than this.
const TURNS_MAX: usize = 4;

/// The most that are verified or wait for it; one namespace has a quarter of them, of which one
/// source has half.
const PLACES_MAX: usize = 128;

/// The most wrong passwords of one source for one namespace in this time.
const VAIN_MAX: u32 = 20;
const VAIN_INTERVAL: Duration = Duration::from_secs(60);

/// The most sources whose wrong passwords are counted, a quarter of them for one namespace; what
/// others try is bounded by places.
const SOURCES_MAX: usize = 1 << 16;

/// The keyed hash of the users that a password is for, of its user and of itself.
pub(super) type Proof = [u8; 32];

/// The passwords of a process.
pub(super) struct PasswordChecks {
    /// None where the system has no random numbers.
    key: Option<hmac::Key>,
    /// The random numbers that keep anybody from foretelling the numbers of namespaces.
    namespaces: RandomState,
    turns: CheckTurns,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Passwords that were right, by the part of the namespace; at most so many parts.
    known: HashMap<usize, Known>,
    /// How many wrong ones came for which namespace from where, since when.
    vain: HashMap<u64, HashMap<u64, u32>>,
    vain_since: Option<Instant>,
    /// The sources of all namespaces.
    sources: usize,
    /// The places that are taken, all of them and by namespace.
    places: usize,
    places_of: HashMap<u64, usize>,
    /// The same by namespace and source.
    places_from: HashMap<(u64, u64), usize>,
}

/// The passwords of one part that were right. A full younger generation becomes the older one.
#[derive(Default)]
struct Known {
    younger: HashSet<Proof>,
    older: HashSet<Proof>,
}

/// A password that is to be verified.
pub(super) struct LoginAttempt {
    /// The number of the namespace of the users that it is for.
    pub(super) namespace: u64,
    /// The keyed hash that stands for it once it is known.
    pub(super) proof: Proof,
    /// Where it comes from.
    pub(super) source: u64,
    /// Whether there is such a user; otherwise the hash is that of another, and nothing is right.
    pub(super) is_user: bool,
    /// The hash.
    pub(super) hash: Box<str>,
    /// The password.
    pub(super) password: Box<[u8]>,
}

/// The verdict on a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is the user's.
    Right,
    /// It is not, or there is no such user.
    Wrong,
    /// Too many are being verified to find out.
    Full,
}

/// A place among those that are verified.
struct CheckPlace {
    checks: &'static PasswordChecks,
    namespace: u64,
    source: u64,
}

impl PasswordChecks {
    /// A table that knows nobody and verifies so many passwords at a time.
    fn new(turns: usize) -> Self {
        let random = SystemRandom::new();
        PasswordChecks {
            key: hmac::Key::generate(hmac::HMAC_SHA256, &random).ok(),
            namespaces: RandomState::new(),
            turns: CheckTurns::new(turns),
            state: Mutex::default(),
        }
    }

    /// The keyed hash of a password; none where there is no key.
    pub(super) fn proof(&self, version: Version, user: &str, password: &[u8]) -> Option<Proof> {
        let mut context = hmac::Context::with_key(self.key.as_ref()?);
        context.update(&version.0);
        context.update(&(user.len() as u64).to_le_bytes());
        context.update(user.as_bytes());
        context.update(password);
        context.sign().as_ref().try_into().ok()
    }

    /// A number that is always the same for a name, and that nobody can foretell.
    pub(super) fn number(&self, version: Version, user: &str) -> u64 {
        let proof = self.proof(version, user, b"").unwrap_or_default();
        let first = proof.first_chunk::<8>();
        first.map_or(0, |first| u64::from_le_bytes(*first))
    }

    /// The number of the namespace of users of this name.
    pub(super) fn namespace(&self, name: &str) -> u64 {
        let namespace = name
            .split_once('/')
            .map_or(name, |(namespace, _)| namespace);
        self.namespaces.hash_one(namespace)
    }

    /// Whether a password was found right before.
    pub(super) fn is_known(&self, namespace: u64, proof: &Proof) -> bool {
        let mut state = self.state();
        let known = state.known.get_mut(&part(namespace));
        known.is_some_and(|known| known.has(proof))
    }

    /// How long a source has to wait that has tried too often for a namespace.
    pub(super) fn wait(&self, namespace: u64, source: u64) -> Option<Duration> {
        let mut state = self.state();
        let left = state.begin(clock::now());
        let sources = state.vain.get(&namespace);
        let vain = sources.and_then(|sources| sources.get(&source)).copied();
        (vain.unwrap_or_default() >= VAIN_MAX).then_some(left)
    }

    /// Verifies a password on a thread beside, once it is its turn.
    pub(super) async fn verify(&'static self, attempt: LoginAttempt) -> Verdict {
        let Some(place) = self.enter(attempt.namespace, attempt.source) else {
            return Verdict::Full;
        };
        let most = limits::namespace_max(PLACES_MAX);
        let Ok(turn) = self.turns.join(attempt.namespace, most).await else {
            return Verdict::Full;
        };
        // What was begun counts, whether or not its client waits for it.
        let verifying = move || {
            let is_same = hash::is_right(&attempt.hash, &attempt.password);
            let is_right = is_same && attempt.is_user;
            self.note(&attempt, is_right);
            drop((turn, place));
            is_right
        };
        match spawn_blocking(verifying).await {
            Ok(true) => Verdict::Right,
            Ok(false) => Verdict::Wrong,
            Err(error) => {
                tracing::error!(%error, "a password cannot be verified");
                Verdict::Full
            }
        }
    }

    fn note(&self, attempt: &LoginAttempt, is_right: bool) {
        let mut state = self.state();
        if is_right {
            state.remember(attempt.namespace, attempt.proof);
            return;
        }
        state.begin(clock::now());
        state.count(attempt.namespace, attempt.source);
    }

    fn enter(&'static self, namespace: u64, source: u64) -> Option<CheckPlace> {
        const OWN_MAX: usize = limits::namespace_max(PLACES_MAX);
        let mut state = self.state();
        let own = state.places_of.get(&namespace).copied();
        let own = own.unwrap_or_default();
        let from = state.places_from.get(&(namespace, source)).copied();
        let from = from.unwrap_or_default();
        if state.places >= PLACES_MAX || own >= OWN_MAX || from >= OWN_MAX / 2 {
            return None;
        }
        state.places += 1;
        state.places_of.insert(namespace, own + 1);
        state.places_from.insert((namespace, source), from + 1);
        Some(CheckPlace {
            checks: self,
            namespace,
            source,
        })
    }

    /// Held for no longer than a look into a table takes.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for PasswordChecks {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        PasswordChecks::new((processors / 2).clamp(1, TURNS_MAX))
    }
}

impl State {
    fn remember(&mut self, namespace: u64, proof: Proof) {
        let known = self.known.entry(part(namespace)).or_default();
        known.remember(proof);
    }

    /// Counts a wrong password.
    fn count(&mut self, namespace: u64, source: u64) {
        let is_full = self.sources >= SOURCES_MAX;
        let own = self.vain.get_mut(&namespace);
        let own_count = own.as_ref().map_or(0, |own| own.len());
        if let Some(vain) = own.and_then(|own| own.get_mut(&source)) {
            *vain = vain.saturating_add(1);
        } else if !is_full && own_count < limits::namespace_max(SOURCES_MAX) {
            self.sources += 1;
            self.vain.entry(namespace).or_default().insert(source, 1);
        }
    }

    /// Begins to count anew once it is time; how long that is.
    fn begin(&mut self, now: Instant) -> Duration {
        let since = *self.vain_since.get_or_insert(now);
        let passed = now.saturating_duration_since(since);
        if passed >= VAIN_INTERVAL {
            self.vain.clear();
            self.sources = 0;
            self.vain_since = Some(now);
            return VAIN_INTERVAL;
        }
        VAIN_INTERVAL - passed
    }
}

impl Known {
    fn has(&mut self, proof: &Proof) -> bool {
        if self.younger.contains(proof) {
            return true;
        }
        let is_known = self.older.contains(proof);
        if is_known {
            self.remember(*proof);
        }
        is_known
    }

    fn remember(&mut self, proof: Proof) {
        if self.younger.len() >= KNOWN_MAX {
            self.older = std::mem::take(&mut self.younger);
        }
        self.younger.insert(proof);
    }
}

/// The part of what is known that a namespace has.
fn part(namespace: u64) -> usize {
    namespace as usize % PARTS
}

impl Drop for CheckPlace {
    fn drop(&mut self) {
        let mut state = self.checks.state();
        state.places = state.places.saturating_sub(1);
        give_back(&mut state.places_of, &self.namespace);
        give_back(&mut state.places_from, &(self.namespace, self.source));
    }
}

/// Takes one from a count, which is forgotten at zero.
fn give_back<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use myriad_model::Version;

    use super::{
        KNOWN_MAX, LoginAttempt, PLACES_MAX, PasswordChecks, SOURCES_MAX, VAIN_MAX, Verdict,
        limits, part,
    };

    fn checks() -> &'static PasswordChecks {
        Box::leak(Box::new(PasswordChecks::new(1)))
    }

    fn version(number: u8) -> Version {
        Version([number; 16])
    }

    fn attempt(checks: &PasswordChecks, password: &str, is_user: bool) -> LoginAttempt {
        let password = password.as_bytes();
        LoginAttempt {
            namespace: 1,
            proof: checks.proof(version(1), "ann", password).unwrap(),
            source: 7,
            is_user,
            hash: "{PLAIN}secret".into(),
            password: password.into(),
        }
    }

    #[tokio::test]
    async fn a_password_is_known_once_it_was_right_and_for_its_users_alone() {
        let checks = checks();
        let right = || attempt(checks, "secret", true);
        assert!(!checks.is_known(1, &right().proof));
        assert_eq!(checks.verify(right()).await, Verdict::Right);
        assert!(checks.is_known(1, &right().proof));
        let other = checks.proof(version(2), "ann", b"secret").unwrap();
        assert!(!checks.is_known(1, &other), "the users have changed");
        // Where a name ends is part of what is hashed.
        let shifted = checks.proof(version(1), "anns", b"ecret").unwrap();
        assert!(!checks.is_known(1, &shifted));

        let nobody = attempt(checks, "secret", false);
        let proof = checks.proof(version(1), "bob", b"secret").unwrap();
        let nobody = LoginAttempt { proof, ..nobody };
        assert_eq!(checks.verify(nobody).await, Verdict::Wrong);
        assert!(!checks.is_known(1, &proof));
        assert_eq!(
            checks.verify(attempt(checks, "", true)).await,
            Verdict::Wrong
        );
    }

    #[tokio::test]
    async fn a_source_that_tries_too_often_has_to_wait_and_others_have_not() {
        let checks = checks();
        for _ in 0..VAIN_MAX {
            assert_eq!(checks.wait(1, 7), None);
            let wrong = attempt(checks, "wrong", true);
            assert_eq!(checks.verify(wrong).await, Verdict::Wrong);
        }
        assert!(checks.wait(1, 7).is_some());
        assert_eq!(checks.wait(1, 8), None);
        assert_eq!(checks.wait(2, 7), None, "it has tried nothing there");
    }

    #[test]
    fn places_are_bounded_and_one_namespace_has_not_all_of_them() {
        let checks = checks();
        let enter = |number, count: usize| -> Vec<_> {
            let places = (0..count as u64).map(|source| checks.enter(number, source));
            places.flatten().collect()
        };
        let first = enter(1, PLACES_MAX);
        let own_max = limits::namespace_max(PLACES_MAX);
        assert_eq!(first.len(), own_max);
        let others: Vec<_> = (2..200).flat_map(|number| enter(number, 1)).collect();
        assert_eq!(others.len(), PLACES_MAX - own_max);
        drop((first, others));
        assert_eq!(enter(1, 1).len(), 1);
        assert!(checks.state().places_of.is_empty());
    }

    #[test]
    fn one_source_leaves_half_of_the_places_of_a_namespace_to_others() {
        let checks = checks();
        let enter = |namespace, source| -> Vec<_> {
            let places = (0..PLACES_MAX).map(|_| checks.enter(namespace, source));
            places.flatten().collect()
        };
        let half = limits::namespace_max(PLACES_MAX) / 2;
        let flood = enter(1, 7);
        assert_eq!(flood.len(), half);
        // It has as many for another namespace, and another source has the rest here.
        assert_eq!((enter(2, 7).len(), enter(1, 8).len()), (half, half));
        drop(flood);
        assert_eq!(enter(1, 7).len(), half);
        assert!(checks.state().places_from.is_empty());
    }

    #[test]
    fn what_is_known_is_bounded_and_what_is_used_stays() {
        let checks = checks();
        let proof = |number: usize| {
            let name = number.to_string();
            checks.proof(version(1), &name, b"").unwrap()
        };
        let used = proof(usize::MAX);
        for number in 0..3 * KNOWN_MAX {
            checks.state().remember(1, proof(number));
            if number == 0 {
                checks.state().remember(1, used);
            }
            assert!(checks.is_known(1, &used));
        }
        assert!(!checks.is_known(1, &proof(0)));
        let state = checks.state();
        let known = &state.known[&part(1)];
        assert!(known.younger.len() + known.older.len() <= 2 * KNOWN_MAX);
    }

    #[test]
    fn what_is_known_of_a_namespace_stays_whatever_another_knows() {
        let checks = checks();
        let of = |name: &str| checks.namespace(name);
        assert_eq!(of("shop/users"), of("shop/others"));
        let own = of("shop/users");
        let mut others = (0..).map(|number| of(&format!("evil-{number}/users")));
        let other = others.find(|other| part(*other) != part(own)).unwrap();
        let proof = |number: usize| {
            let name = number.to_string();
            checks.proof(version(1), &name, b"").unwrap()
        };
        checks.state().remember(own, proof(0));
        for number in 1..3 * KNOWN_MAX {
            checks.state().remember(other, proof(number));
        }
        assert!(checks.is_known(own, &proof(0)));
        assert!(!checks.is_known(other, &proof(0)));
    }

    #[test]
    fn sources_of_one_namespace_leave_room_for_those_of_another() {
        let checks = checks();
        let own_max = limits::namespace_max(SOURCES_MAX);
        for source in 0..own_max as u64 + 10 {
            checks.state().count(1, source);
        }
        assert_eq!(checks.state().sources, own_max);
        checks.state().count(2, 7);
        assert_eq!(checks.state().vain[&2][&7], 1);
    }
}
