//! The scene that the stories share: servers and clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use myriad_e2e::cluster::{Addresses, Cluster, Launch, Pod, Process, Relay, Retry, Traffic};
use myriad_e2e::{Answer, Backend, Site};
use myriad_model::wire::SCHEMA;
use tokio::sync::watch;

/// Longer than it takes to tell clients that a proxy is not ready any more.
const DRAIN_DELAY_SECONDS: u64 = 2;

/// Before objects are written again, so that the machine is left to the others.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// A story's part of the cluster, with the endpoint of all its domains.
pub(crate) struct Scene {
    pub cluster: Arc<Cluster>,
    _endpoint: Backend,
}

impl Scene {
    pub(crate) async fn set() -> Scene {
        let cluster = Cluster::join().await;
        let endpoint = Backend::start_at("endpoint", cluster.endpoint()).await;
        Scene {
            cluster: Arc::new(cluster),
            _endpoint: endpoint,
        }
    }

    /// A controller and one proxy that follows it, both ready.
    pub(crate) async fn serve(&self) -> (Process, Process) {
        let controller = self.cluster.controller(0).await;
        let proxy = self.cluster.proxy(0, "proxy", "myriad").await;
        self.cluster.ready(&proxy).await;
        (controller, proxy)
    }

    /// A client of the one proxy.
    pub(crate) fn traffic(&self) -> Traffic {
        let (_, addresses) = watch::channel(vec![self.cluster.https()]);
        self.traffic_to(addresses, Retry::Never)
    }

    /// A client of several proxies.
    pub(crate) fn traffic_to(&self, addresses: Addresses, retry: Retry) -> Traffic {
        Traffic::start(&self.cluster, addresses, retry)
    }

    /// A relay in front of the API, and the file by which a controller goes through it.
    pub(crate) async fn relay_of_api(&self, name: &str) -> (Relay, String) {
        let api = SocketAddr::from(([127, 0, 0, 1], 6443));
        let relay = Relay::start(api.ip(), api).await;
        let kubeconfig = std::env::var("KUBECONFIG").expect("the cluster has one");
        let text = std::fs::read_to_string(kubeconfig).expect("a file");
        let through = text.replace(&api.to_string(), &relay.address().to_string());
        assert_ne!(text, through, "the API has this address");
        let path = self.cluster.path(&format!("{name}.kubeconfig"));
        std::fs::write(&path, through).expect("a file");
        (relay, path.display().to_string())
    }

    /// The objects of a domain.
    pub(crate) fn site(&self, host: &str) -> String {
        site(&self.cluster, host).yaml()
    }

    /// Writes the objects of domains, all at once.
    pub(crate) async fn apply(&self, hosts: &[&str]) {
        let texts: Vec<String> = hosts.iter().map(|host| self.site(host)).collect();
        self.cluster.apply(&texts.join("---\n")).await;
    }
}

/// Two proxies, each in a pod of its own, and the address at which they find their controllers.
pub(crate) struct Fleet {
    scene: Arc<Cluster>,
    pub service: Relay,
    pub pods: Vec<Pod>,
    pub proxies: Vec<Option<Process>>,
}

impl Fleet {
    /// Pods without proxies, and a service that leads to controller 0.
    pub(crate) async fn new(cluster: &Arc<Cluster>) -> Fleet {
        let service = Relay::start(cluster.service(), cluster.sync_address(0)).await;
        let pods = vec![Pod::new(cluster, 0).await, Pod::new(cluster, 1).await];
        Fleet {
            scene: cluster.clone(),
            service,
            proxies: vec![None, None],
            pods,
        }
    }

    /// A controller whose proxies serve on every address of their pods.
    pub(crate) fn controller(&self, replica: u16) -> Launch {
        let names = format!("localhost,{}", self.scene.service());
        let launch = self.scene.controller_launch(replica);
        let launch = launch.set("--sync-hosts", names);
        launch.set("--http", 8080).set("--https", 8443)
    }

    /// Starts the proxy of a pod, with what the one before had kept.
    pub(crate) fn start(&mut self, number: usize) {
        self.start_within(number, SCHEMA);
    }

    /// Starts a proxy as a build that understands no newer schema than this.
    pub(crate) fn start_within(&mut self, number: usize, schema_max: u32) {
        let state = self.scene.path(&format!("state-{number}"));
        std::fs::create_dir_all(&state).expect("a directory");
        let replica = u16::try_from(number).expect("two pods");
        let launch = self.scene.proxy_launch(replica, "proxy");
        let launch = launch
            .set("--controller", self.service.address())
            .set("--state-dir", state.display())
            .set("--schema-max", schema_max)
            .set("--drain-delay", DRAIN_DELAY_SECONDS);
        let process = self.pods[number].place(launch).start();
        self.proxies[number] = Some(process);
    }

    /// Takes the proxy out of its pod, for whatever shall happen to it.
    pub(crate) fn take(&mut self, number: usize) -> Process {
        self.proxies[number].take().expect("it runs")
    }

    /// Waits until the proxy is ready.
    pub(crate) async fn ready(&self, number: usize) {
        let process = self.proxies[number].as_ref().expect("it runs");
        self.scene.ready(process).await;
    }

    /// A page of the proxy's admin address.
    pub(crate) async fn admin(&self, number: usize, path: &str) -> Answer {
        let process = self.proxies[number].as_ref().expect("it runs");
        self.scene.admin(process, path).await
    }

    /// All pods, whether they serve or not.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.pods.iter().map(Pod::https).collect()
    }
}

/// Someone who writes new domains all the time, and again where the API did not take them.
pub(crate) struct Changes {
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<Vec<String>>,
}

impl Changes {
    pub(crate) fn start(cluster: &Arc<Cluster>) -> Changes {
        let (stop, stopped) = watch::channel(false);
        Changes {
            stop,
            task: tokio::spawn(change(cluster.clone(), stopped)),
        }
    }

    /// Stops, and says which domains the API has taken.
    pub(crate) async fn stop(self) -> Vec<String> {
        self.stop.send_replace(true);
        self.task.await.expect("no panic")
    }
}

async fn change(cluster: Arc<Cluster>, stopped: watch::Receiver<bool>) -> Vec<String> {
    let mut taken = Vec::new();
    while !*stopped.borrow() {
        let host = format!("change-{}.test", taken.len());
        let objects = site(&cluster, &host).yaml();
        let line = ["apply", "--filename=-", "--request-timeout=5s"];
        while let Err(complaint) = cluster.try_kubectl(&line, &objects).await {
            assert!(!complaint.contains("invalid"), "{complaint}");
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        taken.push(host);
    }
    taken
}

/// The objects of a domain.
pub(crate) fn site(cluster: &Cluster, host: &str) -> Site {
    Site::new(host)
        .namespace(&cluster.tenant())
        .class(&cluster.class())
        .to(cluster.endpoint())
        .tls(&cluster.authority.issue(&[host]))
}

/// Whether the name was refused by an alert.
pub(crate) fn is_refused(answer: &Answer) -> bool {
    answer.error.contains("unrecognized name")
}

/// Whether the endpoint answered.
pub(crate) fn is_served(answer: &Answer) -> bool {
    answer.status == 200
}
