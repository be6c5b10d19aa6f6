//! The scene that the stories share. They take turns: each has all of both nodes.

use std::sync::Arc;
use std::time::Duration;

use myriad_e2e::cluster::{Cluster, Release, Tally, Traffic};
use tokio::sync::{Mutex, MutexGuard};

/// How long Pods may take to be where they are wanted, on a machine that is busy.
pub(crate) const PODS_DEADLINE: Duration = Duration::from_secs(90);

/// Ends clients, and holds when none of them noticed anything.
#[allow(clippy::print_stdout, reason = "people want to see it")]
pub(crate) fn assert_flawless(traffic: Vec<Traffic>) {
    let tallies: Vec<Tally> = traffic.into_iter().map(Traffic::stop).collect();
    let asked: usize = tallies.iter().map(|tally| tally.asked).sum();
    println!("{asked} requests of {} clients", tallies.len());
    tallies.iter().for_each(Tally::assert_flawless);
}

static TURNS: Mutex<()> = Mutex::const_new(());

/// A story's part of the cluster, for as long as it is its turn.
pub(crate) struct Scene {
    pub cluster: Arc<Cluster>,
    _turn: MutexGuard<'static, ()>,
}

impl Scene {
    pub(crate) async fn set() -> Scene {
        let turn = TURNS.lock().await;
        Scene {
            cluster: Arc::new(Cluster::join().await),
            _turn: turn,
        }
    }

    /// Installs the definitions of Istio's kinds; they stay.
    pub(crate) async fn definitions(&self) {
        let definitions = std::env::var("MYRIAD_ISTIO_DEFINITIONS")
            .expect("MYRIAD_ISTIO_DEFINITIONS is a file; `cargo xtask test --stage node` sets it");
        let file = format!("--filename={definitions}");
        let line = ["apply", "--server-side", &file];
        self.cluster.kubectl(&line).await;
        let line = [
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            &file,
        ];
        self.cluster.kubectl(&line).await;
    }

    /// Waits until a part of the release has so many Pods: those that end go on for a while.
    pub(crate) async fn pods(&self, release: &Release, part: &str, count: usize) -> Vec<String> {
        let selector = format!("--selector={}", release.selector(part));
        let home = self.cluster.home();
        let form = "--output=jsonpath={.items[*].metadata.name}";
        let line = ["get", "pods", "--namespace", &home, &selector, form];
        let all = |printed: &str| printed.split_whitespace().count() == count;
        let printed = self.cluster.until(PODS_DEADLINE, &line, all).await;
        printed.split_whitespace().map(str::to_owned).collect()
    }
}
