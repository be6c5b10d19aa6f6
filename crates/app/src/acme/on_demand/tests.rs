use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use myriad_base::metrics::Metrics;
use myriad_base::task;
use myriad_pki::acme::{StepTrouble, Suffixes};
use myriad_proxy::{Demand, NameSettings, Names};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::LocalSet;

use super::{DemandCounters, DemandNews, OnDemand};
use crate::acme::http::Client;
use crate::settings::OnDemandSettings;

/// An endpoint that allows names which begin with `yes`, breaks on those that begin with `broken`,
/// and never answers those that begin with `slow`.
pub(super) struct Endpoint {
    pub(super) url: String,
    pub(super) asked: Arc<AtomicUsize>,
}

pub(super) async fn endpoint() -> Endpoint {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/check", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    task::spawn("endpoint", async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            let count = count.clone();
            task::spawn("asked", async move {
                let mut head = vec![0; 4_096];
                while let Ok(length @ 1..) = tcp.read(&mut head).await {
                    count.fetch_add(1, Ordering::Relaxed);
                    let head = String::from_utf8_lossy(&head[..length]).into_owned();
                    let name = head.split("domain=").nth(1).unwrap_or_default();
                    let status = match name {
                        name if name.starts_with("yes") => "200 OK",
                        name if name.starts_with("broken") => "503 Broken",
                        name if name.starts_with("moved") => "302 Found",
                        name if name.starts_with("slow") => continue,
                        _ => "404 Not Found",
                    };
                    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
                    if tcp.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    Endpoint { url, asked }
}

pub(super) fn on_demand(demand: &Demand, url: &str) -> Rc<OnDemand> {
    let settings = OnDemandSettings {
        ask: Some(url.into()),
        ..OnDemandSettings::default()
    };
    let config = myriad_proxy::upstream::secure::trusting().unwrap();
    let names = Names::new(NameSettings::default(), &Metrics::new());
    let with = (Client::new(config, names), DemandCounters::default());
    let counted = (300, Suffixes::default());
    let on_demand = Rc::new(OnDemand::new(demand, &settings, counted, with));
    on_demand.ask_at(None);
    on_demand
}

#[tokio::test]
async fn an_order_is_placed_for_what_the_endpoint_allows_and_for_nothing_else() {
    let endpoint = endpoint().await;
    let demand = Demand::default();
    let on_demand = on_demand(&demand, &endpoint.url);
    assert!(demand.is_open());
    for name in ["yes.example", "yes2.example"] {
        assert_eq!(on_demand.admit(name).await, Ok(()));
        assert_eq!(
            on_demand.admit(name).await,
            Ok(()),
            "the answer is remembered"
        );
    }
    assert_eq!(endpoint.asked.load(Ordering::Relaxed), 2);
    for (name, words) in [
        ("no.example", "does not allow"),
        ("moved.example", "does not allow"),
        ("broken.example", "does not answer for"),
    ] {
        let Err(StepTrouble::Unproven(message, _)) = on_demand.admit(name).await else {
            panic!("{name} is allowed")
        };
        assert!(message.contains(words), "{message}");
    }
    drop(on_demand);
    assert!(!demand.is_open(), "nobody waits where nobody obtains");
}

#[tokio::test]
async fn an_endpoint_that_is_down_or_slow_allows_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let down = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let endpoint = endpoint().await;
    for (url, name) in [(&down, "yes.example"), (&endpoint.url, "slow.example")] {
        let on_demand = on_demand(&Demand::default(), url);
        let admitted = on_demand.admit(name).await;
        assert!(matches!(admitted, Err(StepTrouble::Unproven(..))), "{name}");
    }
}

#[tokio::test]
async fn names_whose_certificates_are_over_are_told_at_once() {
    let work = async {
        let on_demand = on_demand(&Demand::default(), "http://127.0.0.1:9/");
        on_demand.restore("over.example", 1);
        on_demand.restore("held.example", i64::MAX);
        let told = tokio::time::timeout(Duration::from_secs(5), on_demand.next()).await;
        assert_eq!(told.unwrap(), DemandNews::Over("over.example".into()));
        let quiet = tokio::time::timeout(Duration::from_millis(50), on_demand.next()).await;
        assert!(quiet.is_err(), "{quiet:?}");
    };
    LocalSet::new().run_until(work).await;
}

/// Lets names be asked about until the endpoint has heard so many questions.
async fn heard(on_demand: &Rc<OnDemand>, asked: &AtomicUsize, count: usize) {
    let hearing = async {
        while asked.load(Ordering::Relaxed) < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    tokio::select! {
        news = on_demand.next() => panic!("{news:?}"),
        () = hearing => {}
    }
}

#[tokio::test]
async fn networks_whose_names_were_refused_wait_for_late_answers_and_keep_nobody_back() {
    let endpoint = endpoint().await;
    let work = async {
        let demand = Demand::default();
        let on_demand = on_demand(&demand, &endpoint.url);
        let flood = |prefix: &str| {
            for network in 1..=32_u64 {
                let (demand, name) = (demand.clone(), format!("{prefix}{network}.example"));
                let asking = async move { demand.ask(&name, network << 8).await };
                drop(task::spawn_local("flood", asking));
            }
        };
        flood("no");
        heard(&on_demand, &endpoint.asked, 32).await;
        flood("slow");
        heard(&on_demand, &endpoint.asked, 36).await;
        let mine = demand.clone();
        let asking = async move { mine.ask("yes.example", 0xc000_0201).await };
        drop(task::spawn_local("mine", asking));
        // Sooner than one of the answers is given up.
        let told = tokio::time::timeout(Duration::from_secs(2), on_demand.next()).await;
        assert_eq!(told.unwrap(), DemandNews::Want("yes.example".into()));
        assert_eq!(endpoint.asked.load(Ordering::Relaxed), 32 + 4 + 1);
    };
    LocalSet::new().run_until(work).await;
}
