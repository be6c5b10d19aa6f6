//! The verdicts of the API server on tokens, remembered for a while: one question at a time, in
//! turns of the addresses that show them, so that nobody makes a controller ask much.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use blake3::Hash;
use myriad_admin::turns::Turns;
use myriad_base::clock::{self, Instant};
use myriad_source::kubernetes::{Client, TokenVerdict};
use tokio::sync::{mpsc, oneshot};

/// The path that whoever is let in may get, as rules of the cluster name it.
const PATH: &str = "/myriad/console";

/// The most verdicts that are remembered.
const VERDICTS_MAX: usize = 256;

/// How long whoever is let in stays so after the API server has said it.
const ALLOWED_FOR: Duration = Duration::from_secs(60);

/// How long another verdict holds.
const REFUSED_FOR: Duration = Duration::from_secs(5);

/// How long is waited for a turn and the answer.
const ANSWER_MAX: Duration = Duration::from_secs(8);

/// How long the next one of an address waits behind one that was refused.
const PAUSE: Duration = Duration::from_millis(200);

/// The most questions on their way: there is one turn.
const QUESTIONS_MAX: usize = 1;

/// The verdict on a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is nobody's.
    Unknown,
    /// Its owner may not.
    Forbidden,
    /// Its owner may.
    Allowed,
    /// Nobody says.
    Unanswered,
}

/// A token whose owner is asked for.
pub struct ReviewQuestion {
    token: String,
    answer: oneshot::Sender<Verdict>,
}

/// The questions of a console. Cheap to clone.
#[derive(Clone)]
pub struct Reviews {
    ask: mpsc::Sender<ReviewQuestion>,
    turns: Turns,
    known: Arc<Mutex<Known>>,
}

/// The verdicts that are remembered, by the hash of the token, and until when.
#[derive(Default)]
struct Known(BTreeMap<[u8; 32], (Instant, Verdict)>);

/// The questions of a console, and where they come out, for [`answer`].
pub fn reviews() -> (Reviews, mpsc::Receiver<ReviewQuestion>) {
    let (ask, asked) = mpsc::channel(QUESTIONS_MAX);
    let reviews = Reviews {
        ask,
        turns: Turns::default(),
        known: Arc::default(),
    };
    (reviews, asked)
}

/// Answers questions by an API server, for ever.
pub async fn answer(client: Client, mut asked: mpsc::Receiver<ReviewQuestion>) {
    while let Some(question) = asked.recv().await {
        let verdict = match client.review(&question.token, PATH).await {
            Ok(TokenVerdict::Unknown) => Verdict::Unknown,
            Ok(TokenVerdict::Forbidden) => Verdict::Forbidden,
            Ok(TokenVerdict::Allowed) => Verdict::Allowed,
            Err(error) => {
                tracing::debug!("whose the token of a console is cannot be found out: {error}");
                Verdict::Unanswered
            }
        };
        // Whoever asked may have gone.
        let _ = question.answer.send(verdict);
    }
}

impl Reviews {
    /// The verdict on a token with its hash, which somebody at an address shows.
    pub(super) async fn review(&self, token: String, hash: Hash, address: IpAddr) -> Verdict {
        if let Some(verdict) = self.known(hash) {
            return verdict;
        }
        let asked = tokio::time::timeout(ANSWER_MAX, async {
            let turn = self.turns.take(address).await;
            // Another request with the token may have asked meanwhile.
            if let Some(verdict) = self.known(hash) {
                return verdict;
            }
            let (answer, answered) = oneshot::channel();
            let question = ReviewQuestion { token, answer };
            if turn.is_none() || self.ask.send(question).await.is_err() {
                return Verdict::Unanswered;
            }
            let verdict = answered.await.unwrap_or(Verdict::Unanswered);
            self.lock().put(hash, verdict, clock::now());
            if verdict != Verdict::Allowed {
                tokio::time::sleep(PAUSE).await;
            }
            drop(turn);
            verdict
        });
        asked.await.unwrap_or(Verdict::Unanswered)
    }

    fn known(&self, hash: Hash) -> Option<Verdict> {
        self.lock().get(hash, clock::now())
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn get(&self, hash: Hash, now: Instant) -> Option<Verdict> {
        let (until, verdict) = self.0.get(hash.as_bytes())?;
        (now < *until).then_some(*verdict)
    }

    fn put(&mut self, hash: Hash, verdict: Verdict, now: Instant) {
        let lasts = match verdict {
            Verdict::Allowed => ALLOWED_FOR,
            Verdict::Unknown | Verdict::Forbidden => REFUSED_FOR,
            Verdict::Unanswered => return,
        };
        if self.0.len() >= VERDICTS_MAX {
            self.0.retain(|_, (until, _)| now < *until);
        }
        if self.0.len() >= VERDICTS_MAX {
            // Those that were refused end first.
            let first = self.0.iter().min_by_key(|(_, (until, _))| *until);
            if let Some(first) = first.map(|(hash, _)| *hash) {
                self.0.remove(&first);
            }
        }
        self.0.insert(*hash.as_bytes(), (now + lasts, verdict));
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Duration;

    use myriad_base::{clock, task};

    use super::{Known, VERDICTS_MAX, Verdict, reviews};

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[tokio::test]
    async fn a_token_is_asked_about_once_in_a_while() {
        let (reviews, mut asked) = reviews();
        let (count, counted) = std::sync::mpsc::sync_channel(64);
        let answering = task::spawn("test answers", async move {
            while let Some(question) = asked.recv().await {
                count.send(question.token.clone()).unwrap();
                let _ = question.answer.send(match &*question.token {
                    "right" => Verdict::Allowed,
                    "neighbour" => Verdict::Forbidden,
                    "lost" => Verdict::Unanswered,
                    _ => Verdict::Unknown,
                });
            }
        });
        let review = async |token: &str| {
            let hash = blake3::hash(token.as_bytes());
            reviews.review(token.to_owned(), hash, HERE).await
        };
        for _ in 0..3 {
            assert_eq!(review("right").await, Verdict::Allowed);
            assert_eq!(review("neighbour").await, Verdict::Forbidden);
            assert_eq!(review("wrong").await, Verdict::Unknown);
        }
        assert_eq!(counted.try_iter().count(), 3);
        for _ in 0..2 {
            assert_eq!(review("lost").await, Verdict::Unanswered);
        }
        // That there is no answer is nothing to remember.
        assert_eq!(counted.try_iter().count(), 2);
        answering.abort();
    }

    #[test]
    fn verdicts_end_and_many_of_wrong_tokens_push_no_right_one_out() {
        let (mut known, now) = (Known::default(), clock::now());
        let right = blake3::hash(b"right");
        known.put(right, Verdict::Allowed, now);
        for number in 0..4 * VERDICTS_MAX {
            let wrong = blake3::hash(&number.to_be_bytes());
            known.put(wrong, Verdict::Unknown, now);
        }
        assert_eq!(known.0.len(), VERDICTS_MAX);
        let after = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(known.get(right, after(59)), Some(Verdict::Allowed));
        assert_eq!(known.get(right, after(60)), None);
        let last = blake3::hash(&(4 * VERDICTS_MAX - 1).to_be_bytes());
        assert_eq!(known.get(last, after(4)), Some(Verdict::Unknown));
        assert_eq!(known.get(last, after(5)), None);
    }

    #[tokio::test]
    async fn who_is_not_answered_is_not_let_in() {
        let (reviews, asked) = reviews();
        drop(asked);
        let hash = blake3::hash(b"right");
        let verdict = reviews.review("right".to_owned(), hash, HERE).await;
        assert_eq!(verdict, Verdict::Unanswered);
    }
}
