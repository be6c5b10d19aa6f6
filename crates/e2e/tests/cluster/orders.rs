//! The objects of a new domain come in every order, while its users already ask.

use std::time::Duration;

use myriad_e2e::cluster::{Api, Cluster, Outcome};

use crate::site;

/// Domains that are made at the same time: a client asks for each.
const SIDE_BY_SIDE: usize = 12;

#[tokio::test]
async fn the_objects_of_a_domain_come_in_any_order() {
    let cluster = Cluster::join().await;
    let _endpoint = cluster.backend("order");
    let _controller = cluster.controller(0).await;
    let proxy = cluster.proxy(0, "proxy", "myriad").await;
    cluster.ready(&proxy).await;
    let api = cluster.api().await;
    let gaps = [Duration::ZERO, Duration::from_millis(200)];
    let domains: Vec<Domain> = gaps
        .into_iter()
        .flat_map(|gap| orders().into_iter().map(move |order| Domain { order, gap }))
        .collect();
    for domains in domains.chunks(SIDE_BY_SIDE) {
        let stories = domains.iter().map(|domain| domain.comes(&cluster, &api));
        all(stories.collect()).await;
    }
}

/// How a domain is made.
struct Domain {
    order: [usize; 4],
    gap: Duration,
}

impl Domain {
    async fn comes(&self, cluster: &Cluster, api: &Api) {
        let [a, b, c, d] = self.order;
        let host = format!("order-{a}{b}{c}{d}-{}.test", self.gap.as_millis());
        let documents = site(cluster, &host).documents();
        let mut poll = cluster.watch(&format!("https://{host}:8443/"));
        // Nothing is there yet.
        let mut seen = poll.until(|_| true, 0).await;
        for at in self.order {
            api.apply(&documents[at]).await;
            tokio::time::sleep(self.gap).await;
        }
        seen.extend(poll.until(Outcome::is_well, 3).await);
        // A name nobody knows, a name without endpoints, and a site; never back, nothing else.
        let ranks: Vec<_> = seen.iter().map(rank).collect();
        let is_monotone = ranks.is_sorted() && ranks.iter().all(Option::is_some);
        let is_whole = ranks.first() == Some(&Some(0)) && ranks.last() == Some(&Some(2));
        assert!(is_monotone && is_whole, "{host}: {seen:?}");
    }
}

fn rank(outcome: &Outcome) -> Option<u8> {
    match outcome {
        outcome if outcome.is_refused() => Some(0),
        outcome if outcome.status == 503 => Some(1),
        outcome if outcome.is_well() => Some(2),
        _ => None,
    }
}

/// Runs stories side by side, on this thread.
async fn all(stories: Vec<impl Future<Output = ()>>) {
    let mut stories: Vec<_> = stories.into_iter().map(Box::pin).collect();
    std::future::poll_fn(|context| {
        stories.retain_mut(|story| story.as_mut().poll(context).is_pending());
        match stories.is_empty() {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
}

/// All 24 orders of four things.
fn orders() -> Vec<[usize; 4]> {
    let mut orders = Vec::new();
    for number in 0..256_usize {
        let order = [
            number & 3,
            number >> 2 & 3,
            number >> 4 & 3,
            number >> 6 & 3,
        ];
        if (0..4).all(|at| order.contains(&at)) {
            orders.push(order);
        }
    }
    orders
}
