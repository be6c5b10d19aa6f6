//! Checks of passwords: how many run at a time, for whom, and which passwords are known already.
//!
//! Nothing is kept of a password but a keyed hash, whose key lives and dies with the process.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use myriad_base::clock::{self, Instant};
use myriad_base::log::sparse::SparseLines;
use myriad_base::log::suppressed::Topic;
use myriad_model::Version;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::hash;
use super::turns::{CheckTurns, CheckWait};
use crate::limits;

/// The lines about passwords that cannot be verified.
static LINES: SparseLines = SparseLines::untold();

/// The parts of what is known. A namespace has one, so that others push out nothing of it unless
/// they share it.
const PARTS: usize = 64;

/// The most passwords that are known in one part, twice over.
const KNOWN_MAX: usize = 1_024;

/// The most that are verified at a time: half of the processors, and no more than this.
const TURNS_MAX: usize = 4;

/// The longest that one waits for its turn.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most wrong passwords of one source for one namespace in this time.
const VAIN_MAX: u32 = 20;
const VAIN_INTERVAL: Duration = Duration::from_secs(60);

/// The most sources whose wrong passwords are counted in that time, a quarter of them for one
/// namespace; what others try is bounded by places.
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
    /// The longest that one waits for its turn.
    patience: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Passwords that were right, by the part of the namespace; at most so many parts.
    known: HashMap<usize, Known>,
    /// How many wrong ones came for which namespace from where, since when.
    vain: HashMap<u64, HashMap<u64, u32>>,
    vain_since: Option<Instant>,
    /// The same of the time before, so that who guesses does not begin anew with each minute.
    vain_before: HashMap<u64, HashMap<u64, u32>>,
    /// The sources of all namespaces, but for the time before.
    sources: usize,
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

impl PasswordChecks {
    /// A table that knows nobody and verifies so many passwords at a time.
    fn new(turns: usize) -> Self {
        let random = SystemRandom::new();
        PasswordChecks {
            key: hmac::Key::generate(hmac::HMAC_SHA256, &random).ok(),
            namespaces: RandomState::new(),
            turns: CheckTurns::new(turns),
            patience: PATIENCE,
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

    /// Verifies a password on a thread beside, once it is its turn; it waits so long for it at
    /// most.
    pub(super) async fn verify(&'static self, attempt: LoginAttempt) -> Verdict {
        let Some(waiting) = self.join(attempt.namespace, attempt.source) else {
            return Verdict::Full;
        };
        let Ok(Some(turn)) = timeout(self.patience, waiting.turn()).await else {
            return Verdict::Full;
        };
        // What was begun counts, whether or not its client waits for it.
        let verifying = move || {
            let is_same = hash::is_right(&attempt.hash, &attempt.password);
            let is_right = is_same && attempt.is_user;
            self.note(&attempt, is_right);
            drop(turn);
            is_right
        };
        match spawn_blocking(verifying).await {
            Ok(true) => Verdict::Right,
            Ok(false) => Verdict::Wrong,
            Err(error) => {
                match LINES.admit() {
                    Some(left_out) => {
                        tracing::error!(%error, left_out, "a password cannot be verified");
                    }
                    None => Topic::Failure.suppress(),
                }
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
        let wrong = state.wrong(attempt.namespace, attempt.source);
        drop(state);
        // Before its turn is the next one's.
        let turns = &self.turns;
        turns.note_wrong(attempt.namespace, attempt.source, wrong);
    }

    /// Joins those that wait for a turn.
    fn join(&'static self, namespace: u64, source: u64) -> Option<CheckWait> {
        let wrong = self.state().wrong(namespace, source);
        self.turns.join(namespace, source, wrong)
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

    /// How many wrong passwords a source has shown of late.
    fn wrong(&self, namespace: u64, source: u64) -> u32 {
        let of = |vain: &HashMap<u64, HashMap<u64, u32>>| {
            let sources = vain.get(&namespace);
            let wrong = sources.and_then(|sources| sources.get(&source)).copied();
            wrong.unwrap_or_default()
        };
        of(&self.vain).saturating_add(of(&self.vain_before))
    }

    /// Begins to count anew once it is time; how long that is.
    fn begin(&mut self, now: Instant) -> Duration {
        let since = *self.vain_since.get_or_insert(now);
        let passed = now.saturating_duration_since(since);
        if passed >= VAIN_INTERVAL {
            let before = std::mem::take(&mut self.vain);
            self.vain_before = match passed < 2 * VAIN_INTERVAL {
                true => before,
                false => HashMap::new(),
            };
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use myriad_model::Version;

    use super::{
        KNOWN_MAX, LoginAttempt, PasswordChecks, SOURCES_MAX, State, VAIN_INTERVAL, VAIN_MAX,
        Verdict, clock, limits, part,
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

    #[tokio::test]
    async fn a_newcomer_goes_before_all_who_have_guessed() {
        let checks = checks();
        let of = |source, password| LoginAttempt {
            source,
            ..attempt(checks, password, true)
        };
        for source in 100..150 {
            let verdict = checks.verify(of(source, "wrong")).await;
            assert_eq!(verdict, Verdict::Wrong);
        }
        let running = checks.join(1, 99).unwrap().turn().await.unwrap();
        let guesses: Vec<_> = (100..150).filter_map(|it| checks.join(1, it)).collect();
        assert!(guesses.len() > 20 && checks.join(1, 149).is_none());
        // None of these ever gives its turn back, so that the first turn has to be the newcomer's.
        let (verdict, ()) = tokio::join!(checks.verify(of(8, "secret")), async { drop(running) });
        assert_eq!(verdict, Verdict::Right);
        drop(guesses);
    }

    #[tokio::test]
    async fn nobody_waits_for_longer_than_its_patience() {
        let mut checks = PasswordChecks::new(1);
        checks.patience = Duration::from_millis(1);
        let checks: &'static PasswordChecks = Box::leak(Box::new(checks));
        let running = checks.join(1, 9).unwrap().turn().await.unwrap();
        let late = attempt(checks, "secret", true);
        assert_eq!(checks.verify(late).await, Verdict::Full);
        drop(running);
        let next = attempt(checks, "secret", true);
        assert_eq!(checks.verify(next).await, Verdict::Right);
    }

    #[test]
    fn wrong_passwords_are_remembered_into_the_next_minute_and_no_longer() {
        let mut state = State::default();
        let now = clock::now();
        state.begin(now);
        state.count(1, 7);
        assert_eq!(
            (state.wrong(1, 7), state.wrong(1, 8), state.wrong(2, 7)),
            (1, 0, 0)
        );
        state.begin(now + VAIN_INTERVAL);
        state.count(1, 7);
        assert_eq!(state.wrong(1, 7), 2);
        state.begin(now + 2 * VAIN_INTERVAL);
        assert_eq!(state.wrong(1, 7), 1);
        state.begin(now + 4 * VAIN_INTERVAL);
        assert_eq!(state.wrong(1, 7), 0);
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
