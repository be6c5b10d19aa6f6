//! Keeps the Secret from which the proxies of each gateway have the keys of session tickets, by way
//! of their volumes. The controllers make it, and replace its keys in time.
//!
//! For each gateway, by its name, it has a text of ticket keys: the one that makes tickets now, the
//! one that does next, and the one that did before. So every replica knows a key long before any of
//! them makes tickets with it, however late its volume follows.

use std::sync::Arc;
use std::time::Duration;

use myriad_base::clock;
use myriad_base::metrics::{Counter, Gauge, Metrics};
use myriad_source::kubernetes::{CallError, Client, Texts};

use crate::process::random_key;
use crate::tickets::text::{self, TicketKey};

/// The Secret.
pub(super) const SECRET_NAME: &str = "myriad-tickets";

/// When the keys were last replaced, in seconds since the epoch; no gateway has such a name.
const SINCE: &str = "_since";

/// How long a key makes tickets, in seconds, after it was known for as long.
const PERIOD_SECONDS: i64 = 6 * 60 * 60;

/// How often the Secret is looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);

/// How often it is read again that somebody else has just created or written.
const ATTEMPTS_MAX: u32 = 5;

/// Looks after the Secret.
pub(super) struct TicketKeeper {
    client: Client,
    namespace: String,
    /// The names of the gateways.
    gateways: Vec<Arc<str>>,
    replaced: Counter,
    since: Gauge,
}

/// The next step.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Every key makes way for the next one.
    Replace,
    /// A gateway has no keys yet, or something else in their place.
    Add,
}

impl TicketKeeper {
    /// For these gateways.
    pub(super) fn new(
        client: Client,
        namespace: String,
        gateways: Vec<Arc<str>>,
        metrics: &Metrics,
    ) -> TicketKeeper {
        let (replaced, since) = (Counter::default(), Gauge::default());
        let help = "Times that this controller replaced the keys of session tickets";
        metrics.register("ticket_keys_replaced", help, replaced.clone());
        let help = "When the key that makes session tickets came into use, since 1970";
        metrics.register("ticket_key_timestamp_seconds", help, since.clone());
        TicketKeeper {
            client,
            namespace,
            gateways,
            replaced,
            since,
        }
    }

    /// Looks after it for ever.
    pub(super) async fn keep(self) {
        let mut told = None;
        loop {
            let problem = self.look().await.err().map(|error| format!("{error:#}"));
            if let Some(problem) = problem.as_ref().filter(|_| told != problem) {
                let (namespace, name) = (&self.namespace, SECRET_NAME);
                tracing::warn!(
                    namespace,
                    name,
                    "the keys of session tickets are not looked after: {problem}"
                );
            }
            told = problem;
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// Does what is due. The first replica to look does it, and the others find it done.
    async fn look(&self) -> anyhow::Result<()> {
        let (client, namespace) = (&self.client, &self.namespace);
        for _ in 0..ATTEMPTS_MAX {
            let known = match client.secret(namespace, SECRET_NAME).await {
                Ok(secret) => Some(secret),
                Err(CallError::NotFound) => None,
                Err(error) => return Err(error.into()),
            };
            let none = Texts::new();
            let texts = known.as_ref().map_or(&none, |secret| &secret.texts);
            let due = advance(texts, &self.gateways, clock::unix_seconds(), || {
                Ok(TicketKey(random_key()?))
            });
            let Some((step, next)) = due? else {
                self.since.set(since(texts).unwrap_or(0));
                return Ok(());
            };
            let written = match &known {
                Some(read) => {
                    client
                        .update_secret(namespace, SECRET_NAME, read, &next)
                        .await
                }
                None => client.create_secret(namespace, SECRET_NAME, &next).await,
            };
            match written {
                Ok(()) => {
                    self.replaced.inc_by(u64::from(step == Step::Replace));
                    self.since.set(since(&next).unwrap_or(0));
                    tracing::info!(
                        ?step,
                        namespace,
                        name = SECRET_NAME,
                        "keys of session tickets"
                    );
                    return Ok(());
                }
                // Another replica was first; what it wrote holds.
                Err(CallError::Conflict) => {}
                Err(error) => return Err(error.into()),
            }
        }
        anyhow::bail!("it is written by others all the time")
    }
}

fn since(texts: &Texts) -> Option<i64> {
    texts.get(SINCE)?.trim().parse().ok()
}

/// The new content of the Secret; `None` where nothing is due.
fn advance(
    texts: &Texts,
    gateways: &[Arc<str>],
    now: i64,
    mut make: impl FnMut() -> anyhow::Result<TicketKey>,
) -> anyhow::Result<Option<(Step, Texts)>> {
    // The clocks of two replicas differ, but not by that much.
    let is_young = |since: i64| (now - since).abs() < PERIOD_SECONDS;
    let is_due = !since(texts).is_some_and(is_young);
    // What is of no gateway here may be of one that only a newer replica knows.
    let mut next = match is_due {
        true => Texts::from([(SINCE.to_owned(), now.to_string())]),
        false => texts.clone(),
    };
    for gateway in gateways {
        let known = texts.get(&**gateway).and_then(|it| text::parse(it).ok());
        let keys = match known.as_deref() {
            None => vec![make()?, make()?],
            Some(_) if !is_due => continue,
            Some([former]) => vec![make()?, make()?, former.clone()],
            Some([former, current, ..]) => vec![current.clone(), make()?, former.clone()],
            Some([]) => continue,
        };
        next.insert(gateway.to_string(), text::expose(&keys));
    }
    let step = match is_due {
        true => Step::Replace,
        false => Step::Add,
    };
    Ok((next != *texts).then_some((step, next)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use myriad_source::kubernetes::Texts;

    use super::{PERIOD_SECONDS, SINCE, Step, advance};
    use crate::tickets::text::{TicketKey, parse};

    const NOW: i64 = 1_800_000_000;

    /// Makes keys that are numbered from 1, and one step at a time.
    #[derive(Default)]
    struct Scene {
        texts: Texts,
        made: u8,
    }

    impl Scene {
        fn step(&mut self, gateways: &[&str], now: i64) -> Option<Step> {
            let gateways: Vec<Arc<str>> = gateways.iter().map(|&it| it.into()).collect();
            let made = &mut self.made;
            let make = || {
                *made += 1;
                let mut key = [200; 32];
                key[0] = *made;
                Ok(TicketKey(key))
            };
            let (step, texts) = advance(&self.texts, &gateways, now, make).unwrap()?;
            self.texts = texts;
            Some(step)
        }

        fn keys(&self, gateway: &str) -> Vec<u8> {
            let keys = self
                .texts
                .get(gateway)
                .map(|text| parse(text).ok().unwrap());
            keys.unwrap_or_default()
                .iter()
                .map(|key| key.0[0])
                .collect()
        }
    }

    #[test]
    fn a_key_is_known_for_a_period_before_it_makes_tickets_and_for_one_after() {
        let mut scene = Scene::default();
        let both = ["gateway", "egress"];
        assert_eq!(scene.step(&both, NOW), Some(Step::Replace));
        assert_eq!(
            (scene.keys("gateway"), scene.keys("egress")),
            (vec![1, 2], vec![3, 4])
        );
        assert_eq!(scene.step(&both, NOW + PERIOD_SECONDS - 1), None);
        assert_eq!(scene.step(&both, NOW + PERIOD_SECONDS), Some(Step::Replace));
        assert_eq!(scene.keys("gateway"), [2, 5, 1]);
        // However long nobody looked: one step.
        let late = NOW + 9 * PERIOD_SECONDS;
        assert_eq!(scene.step(&both, late), Some(Step::Replace));
        assert_eq!(
            (scene.keys("gateway"), scene.keys("egress")),
            (vec![5, 7, 2], vec![6, 8, 4])
        );
        // A replica whose clock is behind does nothing.
        assert_eq!(scene.step(&both, late - 60), None);
        // But a time that nobody has seen yet would keep keys for ever.
        assert_eq!(scene.step(&both, NOW), Some(Step::Replace));
    }

    #[test]
    fn a_gateway_that_comes_is_given_keys_and_the_others_keep_theirs() {
        let mut scene = Scene::default();
        scene.step(&["gateway"], NOW);
        assert_eq!(scene.step(&["gateway", "egress"], NOW + 9), Some(Step::Add));
        assert_eq!(
            (scene.keys("gateway"), scene.keys("egress")),
            (vec![1, 2], vec![3, 4])
        );
        // One that does not know of it leaves it alone until the keys are replaced.
        assert_eq!(scene.step(&["gateway"], NOW + 10), None);
        scene.step(&["gateway"], NOW + PERIOD_SECONDS);
        assert_eq!(
            (scene.keys("gateway"), scene.keys("egress")),
            (vec![2, 5, 1], vec![])
        );
    }

    #[test]
    fn what_people_broke_is_made_anew_and_what_they_wrote_well_goes_on() {
        let mut scene = Scene::default();
        scene.step(&["gateway", "egress"], NOW);
        scene
            .texts
            .insert("gateway".to_owned(), "broken".to_owned());
        assert_eq!(scene.step(&["gateway", "egress"], NOW), Some(Step::Add));
        assert_eq!(
            (scene.keys("gateway"), scene.keys("egress")),
            (vec![5, 6], vec![3, 4])
        );
        let first = scene.texts["egress"][..65].to_owned();
        scene.texts.insert("egress".to_owned(), first);
        scene.texts.insert(SINCE.to_owned(), "yesterday".to_owned());
        assert_eq!(scene.step(&["egress"], NOW), Some(Step::Replace));
        assert_eq!(scene.keys("egress"), [7, 8, 3]);
    }
}
