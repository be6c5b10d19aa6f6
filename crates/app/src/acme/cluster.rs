//! Certificates that the controllers of a cluster obtain: the one that leads orders, and all of
//! them let their proxies answer for what is ordered.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use myriad_api::{Change, ObjectKey};
use myriad_base::clock;
use myriad_base::metrics::Metrics;
use myriad_proxy::NameSettings;
use myriad_source::kubernetes::lease::Claim;
use myriad_source::kubernetes::{Access, Client, Shelf, ShelfNews, Shelved};
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use super::following::follow_shelf;
use super::loading::ReadCertificates;
use super::on_demand::{Demands, Gathering, OnDemand, carry};
use super::store::{AcmeStore, ClusterSite, ClusterStore, KeptOrder, ORDER_LABEL};
use super::{Acme, Hands, Issued, IssuerReports, Means, client_config, work};
use crate::control::Event;
use crate::live::Live;
use crate::obtained::Obtained;
use crate::settings::AcmeSettings;
use crate::wishes::Wishes;

/// How long is waited before everything is read anew, or the API server is looked for again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The parts of a controller that certificates are obtained with.
pub struct ClusterParts {
    /// The control loop.
    pub inbox: mpsc::Sender<Event>,
    /// The certificates that are wanted.
    pub wishes: Wishes,
    /// The certificates that the watch sees.
    pub issued: Issued,
    /// The hosts that proxies tell.
    pub demands: Demands,
    /// The resources that proxies serve.
    pub live: Live,
    /// Whether this process leads.
    pub leads: Claim,
    /// Where people are shown how it is with issuers.
    pub reports: IssuerReports,
    /// Where people are shown how many certificates there are.
    pub obtained: Obtained,
    /// The servers of DNS.
    pub names: NameSettings,
    /// The controllers' own namespace.
    pub namespace: String,
}

impl Acme {
    /// Starts on a thread of its own to obtain what is wanted in a cluster, whenever this process
    /// leads.
    ///
    /// # Errors
    /// The roots cannot be read, or the thread cannot be started.
    pub fn start_in_cluster(
        settings: &AcmeSettings,
        parts: ClusterParts,
        metrics: &Metrics,
    ) -> anyhow::Result<Acme> {
        let config = client_config(settings)?;
        let shown = (
            metrics,
            parts.obtained.clone(),
            parts.demands.wished().clone(),
        );
        let means = Means {
            reports: Some(parts.reports.clone()),
            ..Means::new(settings, config, parts.inbox.clone(), shown)
        };
        Acme::spawn(move || obtain(means, parts))
    }
}

/// Obtains what is wanted, and asks about the hosts that proxies tell.
async fn obtain(means: Means, parts: ClusterParts) -> io::Result<()> {
    // Names are asked themselves, or nobody is: this process serves none.
    let own = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let hands = Hands::new(&means, parts.names.clone(), own);
    // It has connections of its own, which end with this thread.
    let client = connect().await;
    let (settings, demands) = (&means.settings, &parts.demands);
    let with = (hands.client.clone(), means.demand.1.beside());
    let on_demand = &settings.on_demand;
    let on_demand = OnDemand::new(demands.told(), on_demand, settings.counted(), with);
    let place = (&client, &*parts.namespace);
    let gathering = Gathering::new(Rc::new(on_demand), demands.clone(), place);
    let here = LocalSet::new();
    let working = async {
        tokio::select! {
            () = gathering.run(parts.wishes.asked()) => Ok(()),
            ended = obtain_in_terms(&means, &hands, &parts, &client) => ended,
        }
    };
    Box::pin(here.run_until(working)).await
}

/// Obtains what is wanted, one term of leadership after the other.
async fn obtain_in_terms(
    means: &Means,
    hands: &Hands,
    parts: &ClusterParts,
    client: &Client,
) -> io::Result<()> {
    let mut is_complete = false;
    loop {
        lead(parts, &mut is_complete).await;
        tracing::info!("obtains the certificates that are wanted");
        let store = AcmeStore::Cluster(store(parts, client.clone()));
        // The watch has seen all certificates.
        let store = (store, ReadCertificates::default());
        parts.wishes.restate();
        let wishes = parts.wishes.clone();
        // Wishes of hosts are carried for as long as the term lasts.
        let term = LocalSet::new();
        let ended = term.run_until(async {
            let leads = parts.leads.clone();
            let leads = move || leads.holds(clock::now());
            let idle = means.settings.on_demand.idle.as_secs() / 86_400;
            let place = (client, &*parts.namespace);
            let idle = i64::try_from(idle).unwrap_or(i64::MAX);
            let counted = (idle, means.settings.suffixes.clone());
            tokio::select! {
                ended = work(means, hands, store, wishes, parts.leads.lost()) => ended,
                () = carry(parts.demands.clone(), place, leads, counted) => Ok(()),
            }
        });
        let ended = Box::pin(ended).await;
        parts.issued.end();
        if let Err(error) = ended {
            tracing::warn!(%error, "certificates are not obtained; trying again");
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

async fn connect() -> Client {
    loop {
        match Client::new(&Access::default(), Arc::default()).await {
            Ok(client) => return client,
            Err(error) => tracing::warn!(%error, "certificates are not obtained; trying again"),
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

fn store(parts: &ClusterParts, client: Client) -> ClusterStore {
    let leads = parts.leads.clone();
    ClusterStore::new(ClusterSite {
        client,
        namespace: parts.namespace.clone(),
        leads: Box::new(move || leads.holds(clock::now())),
        issued: parts.issued.clone(),
        live: parts.live.clone(),
    })
}

/// Waits until this process leads and knows all that is wanted. News are let go until then.
async fn lead(parts: &ClusterParts, is_complete: &mut bool) {
    loop {
        tokio::select! {
            news = parts.wishes.next() => *is_complete |= news.is_complete,
            () = parts.leads.acquired(), if *is_complete => return,
        }
    }
}

/// Follows the orders in the controllers' own namespace: what proxies have to answer for them
/// enters the inbox. Returns once those are in it that were there before, or after a while.
pub async fn follow_orders(client: Client, namespace: &str, inbox: mpsc::Sender<Event>) {
    let watch = Shelf::new(client, namespace, ORDER_LABEL).follow();
    let mut answered = Answered::default();
    let take = move |news| answered.take(news);
    if !follow_shelf("orders", watch, inbox, take).await {
        tracing::warn!(namespace, "orders of certificates cannot be read yet");
    }
}

/// The orders that proxies answer for, by the name of their Secret.
#[derive(Default)]
struct Answered(HashMap<Arc<str>, ObjectKey>);

impl Answered {
    /// The changes that news of Secrets mean.
    fn take(&mut self, news: Vec<ShelfNews>) -> Vec<Change> {
        let mut changes = Vec::new();
        for news in news {
            match news {
                ShelfNews::Put(shelved) => self.put(shelved, &mut changes),
                ShelfNews::Gone(name) => changes.extend(self.remove(&name)),
            }
        }
        changes
    }

    fn put(&mut self, shelved: Shelved, changes: &mut Vec<Change>) {
        let kept = KeptOrder::read(&shelved.texts).inspect_err(|error| {
            tracing::error!(secret = %shelved.name, %error, "is not read");
        });
        let kept = kept.ok();
        let key = kept.as_ref().map(KeptOrder::key);
        // One whose text is about another certificate than before.
        if self.0.get(&shelved.name) != key.as_ref() {
            changes.extend(self.remove(&shelved.name));
        }
        match kept.as_ref().and_then(KeptOrder::object).zip(key) {
            Some((object, key)) => {
                self.0.insert(shelved.name, key);
                changes.push(Change::Put(object));
            }
            None => changes.extend(self.remove(&shelved.name)),
        }
    }

    fn remove(&mut self, name: &str) -> Option<Change> {
        self.0.remove(name).map(Change::Remove)
    }
}

#[cfg(test)]
mod tests {
    use myriad_api::{Change, Object};
    use myriad_pki::acme::{Challenge, OrderKey, OrderStage, PlacedOrder};
    use myriad_source::kubernetes::{ShelfNews, Shelved, Texts};

    use super::Answered;
    use crate::acme::testing;
    use crate::acme::token::placed_nonce;

    fn put(name: &str, id: &str, stage: OrderStage) -> ShelfNews {
        let text = testing::order(id, stage).expose_text();
        let texts = [("order", text), ("proof", "n".to_owned())];
        let texts = texts.map(|(key, text)| (key.to_owned(), text));
        ShelfNews::Put(Shelved {
            name: name.into(),
            texts: Texts::from(texts),
            version: "1".into(),
        })
    }

    fn answering() -> OrderStage {
        let challenge = |kind: &str, token: &str| Challenge {
            name: "a.example".into(),
            kind: kind.into(),
            token: token.into(),
            answer: format!("{token}.key").into(),
        };
        OrderStage::Answering(PlacedOrder {
            url: "https://ca.example/order/1".into(),
            challenges: vec![challenge("http-01", "t"), challenge("dns-01", "d")],
        })
    }

    /// The tokens that proxies are to answer, or the order for which they are not to any more.
    fn shown(changes: &[Change]) -> Vec<String> {
        let shown = changes.iter().map(|change| match change {
            Change::Put(Object::Order(order)) => {
                let tokens: Vec<&str> = order.answers.iter().map(|it| &*it.token).collect();
                format!("{} {}", order.meta.key.id(), tokens.join(" "))
            }
            Change::Put(other) => panic!("{other:?}"),
            Change::Remove(key) => format!("{} gone", key.id()),
        });
        shown.collect()
    }

    #[test]
    fn proxies_answer_for_an_order_until_the_authority_has_seen_the_answers() {
        let mut answered = Answered::default();
        let mut take = |news: ShelfNews| shown(&answered.take(vec![news]));
        let proving = take(put("o", "shop/web", OrderStage::Proving));
        assert_eq!(proving, ["shop/web n"]);
        let OrderStage::Answering(placed) = answering() else {
            panic!("it is placed");
        };
        let of_order = placed_nonce("n", &placed);
        let placed = take(put("o", "shop/web", answering()));
        assert_eq!(placed, [format!("shop/web t n {of_order}")]);
        let stage = OrderStage::Finalising("u".into(), OrderKey::new(vec![1]));
        assert_eq!(take(put("o", "shop/web", stage)), ["shop/web gone"]);
        assert!(take(ShelfNews::Gone("o".into())).is_empty());
    }

    #[test]
    fn an_order_that_is_gone_or_broken_is_answered_for_no_more_and_the_others_are() {
        let mut answered = Answered::default();
        let mut take = |news: Vec<ShelfNews>| shown(&answered.take(news));
        let both = take(vec![
            put("o", "shop/web", OrderStage::Proving),
            put("p", "blog/web", OrderStage::Proving),
        ]);
        assert_eq!(both, ["shop/web n", "blog/web n"]);
        let broken = ShelfNews::Put(Shelved {
            name: "o".into(),
            texts: Texts::default(),
            version: "2".into(),
        });
        assert_eq!(take(vec![broken]), ["shop/web gone"]);
        let other = take(vec![put("p", "news/web", OrderStage::Proving)]);
        assert_eq!(other, ["blog/web gone", "news/web n"]);
        assert_eq!(take(vec![ShelfNews::Gone("p".into())]), ["news/web gone"]);
    }
}
