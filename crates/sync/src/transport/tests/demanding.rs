//! Hosts that proxies tell, between a real server and real clients: of a gateway, and of a sidecar.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use myriad_base::drain::Drain;
use myriad_base::hold::{HoldLimits, Holds};
use myriad_base::task;
use myriad_model::{Form, Snapshot};
use tokio::sync::{mpsc, watch};

use super::super::client::{Apply, Client, ClientSettings, TcpConnect};
use super::super::server::Obtain;
use super::{Serving, within};
use crate::demand::DEMANDS_OPEN_MAX;
use crate::tests::pair::World;
use crate::{ClientCounters, Delivery, DemandedHost, Refusal};

/// Refuses hosts that begin with `no`, has all others, and never answers those with `slow`.
struct Obtaining {
    is_open: watch::Sender<bool>,
    told: Mutex<Vec<DemandedHost>>,
}

impl Obtain for Obtaining {
    fn is_open(&self) -> watch::Receiver<bool> {
        self.is_open.subscribe()
    }

    fn demand(&self, _: u64, demanded: DemandedHost) -> BoxFuture<'static, Duration> {
        let host = demanded.host.clone();
        self.told.lock().unwrap().push(demanded);
        Box::pin(async move {
            if host.starts_with("slow") {
                return std::future::pending().await;
            }
            Duration::from_secs(match host.starts_with("no") {
                true => 30,
                false => 0,
            })
        })
    }
}

/// Tells hosts whenever it is told to.
struct Telling {
    hosts: mpsc::Receiver<DemandedHost>,
    is_open: watch::Sender<Option<bool>>,
    answers: mpsc::Sender<(Arc<str>, Duration)>,
}

impl Apply for Telling {
    async fn apply(&mut self, _: Delivery) -> Vec<Refusal> {
        Vec::new()
    }

    fn rekey(&mut self, _: [u8; 32]) {}

    fn demands(&self) -> bool {
        true
    }

    fn set_demanding(&mut self, is_open: bool) {
        self.is_open.send_replace(Some(is_open));
    }

    async fn demanded(&mut self) -> DemandedHost {
        match self.hosts.recv().await {
            Some(host) => host,
            None => std::future::pending().await,
        }
    }

    fn answered(&mut self, host: Arc<str>, refused_for: Duration) {
        self.answers.try_send((host, refused_for)).unwrap();
    }
}

/// A proxy that runs until its drain is asked for.
struct Proxy {
    hosts: mpsc::Sender<DemandedHost>,
    is_open: watch::Receiver<Option<bool>>,
    answers: mpsc::Receiver<(Arc<str>, Duration)>,
    drain: Drain,
}

impl Proxy {
    fn start(address: &str, token: &'static str) -> Proxy {
        let (hosts, told) = mpsc::channel(256);
        let (open, is_open) = watch::channel(None);
        let (answer, answers) = mpsc::channel(256);
        let mut apply = Telling {
            hosts: told,
            is_open: open,
            answers: answer,
        };
        let settings = ClientSettings {
            instance: "proxy".to_owned(),
            schema_max: myriad_model::wire::SCHEMA,
            connect: Arc::new(TcpConnect {
                address: address.to_owned(),
                tls: None,
            }),
            token: Arc::new(move || Ok(token.to_owned())),
            holds: Holds::new(HoldLimits::default()),
        };
        let client = Client::new(settings, Snapshot::new(), None, ClientCounters::default());
        let drain = Drain::new();
        let drained = drain.holder();
        drop(task::spawn("test client", async move {
            client.run(&mut apply, drained).await;
        }));
        Proxy {
            hosts,
            is_open,
            answers,
            drain,
        }
    }

    async fn tell(&self, host: &str, is_used: bool) {
        let host = DemandedHost {
            host: host.into(),
            is_used,
        };
        self.hosts.send(host).await.unwrap();
    }
}

#[tokio::test]
async fn gateways_tell_hosts_while_somebody_obtains_certificates_and_sidecars_never() {
    let mut world = World::new(Form::Encoded);
    world.put("a", 1);
    let (newest, _) = watch::channel(world.snapshot().clone());
    let obtaining = Arc::new(Obtaining {
        is_open: watch::Sender::new(false),
        told: Mutex::default(),
    });
    let (serving, server) = Serving::server(&newest, None);
    let obtain: Arc<dyn Obtain> = obtaining.clone();
    let (mut listening, address) = serving.listen(server.obtaining(Some(obtain))).await;
    let mut gateway = Proxy::start(&address, "good");
    let sidecar = Proxy::start(&address, "pod-a");
    for _ in 0..2 {
        // Each connects, and has put everything into service.
        listening.next().await;
        listening.next().await;
    }
    assert_eq!(*gateway.is_open.borrow(), Some(false));
    obtaining.is_open.send_replace(true);
    within(gateway.is_open.wait_for(|it| *it == Some(true)))
        .await
        .unwrap();
    gateway.tell("no.example", false).await;
    sidecar.tell("of.sidecar.example", false).await;
    let answer = within(gateway.answers.recv()).await.unwrap();
    assert_eq!(answer, ("no.example".into(), Duration::from_secs(30)));
    gateway.tell("yes.example", true).await;
    let answer = within(gateway.answers.recv()).await.unwrap();
    assert_eq!(answer, ("yes.example".into(), Duration::ZERO));
    let told = obtaining.told.lock().unwrap().clone();
    let told: Vec<(&str, bool)> = told.iter().map(|it| (&*it.host, it.is_used)).collect();
    assert_eq!(told, [("no.example", false), ("yes.example", true)]);
    assert_eq!(*sidecar.is_open.borrow(), Some(false));

    // So many are without an answer, and no more; the stream goes on all the same.
    for number in 0..DEMANDS_OPEN_MAX + 10 {
        gateway.tell(&format!("slow{number}.example"), false).await;
    }
    let count = || obtaining.told.lock().unwrap().len();
    within(async {
        while count() < DEMANDS_OPEN_MAX + 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    obtaining.is_open.send_replace(false);
    within(gateway.is_open.wait_for(|it| *it == Some(false)))
        .await
        .unwrap();
    assert_eq!(count(), DEMANDS_OPEN_MAX + 2);
    assert_eq!(listening.counters.refused.get(), 0);
    for proxy in [gateway, sidecar] {
        proxy.drain.start();
    }
    listening.stop().await;
}
