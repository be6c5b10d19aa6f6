//! The chart, installed by helm on nodes that run its Pods.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::{Cluster, Traffic};
use crate::world::{eventually_within, repository};
use crate::{Answer, Site};

/// Pods start one after the other on a machine that is busy with something else.
const READY_DEADLINE: Duration = Duration::from_secs(120);

/// Requests of a client in a second.
pub const PACE: u32 = 50;

/// An installed release, which serves the class of its story.
pub struct Release {
    cluster: Arc<Cluster>,
    name: String,
}

impl Release {
    /// Installs the chart with these settings, as `--set` has them, and waits until all of it is
    /// ready.
    ///
    /// # Panics
    /// Where it does not become ready; with what its Pods are at.
    pub async fn install(cluster: &Arc<Cluster>, settings: &[&str]) -> Release {
        let release = Release {
            cluster: cluster.clone(),
            name: format!("story-{}", cluster.number),
        };
        let class = cluster.class();
        let mut set = vec![
            "image.repository=registry.example.com/myriad".to_owned(),
            format!("ingressClass.name={class}"),
            format!("ingressClass.controller=stories.test/{class}"),
            // What is ready early is asked early.
            "proxy.drainDelay=5".to_owned(),
        ];
        set.extend(settings.iter().map(|setting| (*setting).to_owned()));
        let home = cluster.home();
        // Whoever is strict about Pods is so with this one.
        let strict = "pod-security.kubernetes.io/enforce=restricted";
        let line = ["label", "namespace", &home, strict, "--overwrite"];
        cluster.kubectl(&line).await;
        let chart = repository("deploy/helm/myriad").display().to_string();
        let script = format!(
            "helm install {} {chart} --namespace {home} --set '{}' --wait --timeout {}s",
            release.name,
            set.join(","),
            READY_DEADLINE.as_secs()
        );
        let output = cluster.reader().run(&script).await;
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr);
            panic!(
                "{script}: {complaint}\n{}",
                cluster.told_of_pods(&home).await
            );
        }
        release
    }

    /// Ends it, with all of its objects and those of its tenants.
    ///
    /// # Panics
    /// Where helm fails.
    pub async fn uninstall(self) {
        let tenant = self.cluster.tenant();
        let line = ["delete", "namespace", &tenant, "--wait=false"];
        self.cluster.kubectl(&line).await;
        let home = self.cluster.home();
        let script = format!("helm uninstall {} --namespace {home} --wait", self.name);
        let output = self.cluster.reader().run(&script).await;
        assert!(output.status.success(), "{output:?}");
    }

    /// The name of the release.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of a part: `controller` or `proxy`.
    pub fn part(&self, part: &str) -> String {
        format!("{}-{part}", self.name)
    }

    /// The selector of the Pods of a part.
    pub fn selector(&self, part: &str) -> String {
        format!(
            "app.kubernetes.io/instance={},app.kubernetes.io/component={part}",
            self.name
        )
    }

    /// The address where a load balancer leads to the proxies.
    ///
    /// # Panics
    /// Where the Service gets none.
    pub async fn address(&self) -> SocketAddr {
        let (cluster, proxy) = (&self.cluster, self.part("proxy"));
        let home = cluster.home();
        let form = "--output=jsonpath={.status.loadBalancer.ingress[0].ip}";
        let line = ["get", "service", &proxy, "--namespace", &home, form];
        let address = cluster.until(READY_DEADLINE, &line, |ip| !ip.is_empty());
        let ip = address.await.parse().expect("an address");
        SocketAddr::new(ip, 443)
    }

    /// Clients of the proxies, through the load balancer, for a host that an application of two
    /// Pods answers. Each asks [`PACE`] times a second.
    ///
    /// # Panics
    /// Where the host does not become live.
    pub async fn traffic(&self, host: &str, clients: usize) -> Vec<Traffic> {
        self.traffic_with(host, clients, LEAVES_LATE).await
    }

    /// Clients as of [`Release::traffic`], with something of its own in the container of the
    /// application.
    ///
    /// # Panics
    /// Where the host does not become live.
    pub async fn traffic_with(&self, host: &str, clients: usize, more: &str) -> Vec<Traffic> {
        let (_, addresses) = watch::channel(vec![self.address().await]);
        self.serve(host, more).await;
        let mut all = Vec::new();
        for _ in 0..clients {
            let traffic = Traffic::steady(&self.cluster, addresses.clone(), PACE);
            traffic.add(host).await;
            all.push(traffic);
        }
        all
    }

    /// Asks the proxies for a host over HTTPS, once, through the load balancer.
    ///
    /// # Panics
    /// Where curl does not start.
    pub async fn ask(&self, host: &str) -> Answer {
        let address = self.address().await;
        let resolve = [format!("{host}:443:{}", address.ip())];
        let url = format!("https://{host}/");
        self.cluster.curl(&url, &resolve).ask().await
    }

    /// An application for a host, and its Ingress.
    async fn serve(&self, host: &str, more: &str) {
        let cluster = &self.cluster;
        let (tenant, name) = (cluster.tenant(), host.replace('.', "-"));
        cluster.apply(&application(&tenant, &name, more)).await;
        let pair = cluster.authority.issue(&[host]);
        let site = Site::new(host).namespace(&tenant).class(&cluster.class());
        let documents = site.tls(&pair).documents();
        let wanted = documents
            .iter()
            .filter(|it| !it.contains("kind: Service\n"));
        let wanted: Vec<&str> = wanted.map(String::as_str).collect();
        cluster.apply(&wanted.join("---\n")).await;
        let deployment = format!("deployment/{name}");
        cluster.rolled_out(&deployment, &tenant).await;
    }
}

/// The objects of an application.
const APPLICATION: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME, namespace: NAMESPACE}
spec:
  replicas: 2
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      terminationGracePeriodSeconds: 10
      containers:
      - name: app
        image: nginx:1.29
        ports: [{containerPort: 80}]
        readinessProbe: {httpGet: {port: 80}, periodSeconds: 1}
MORE---
apiVersion: v1
kind: Service
metadata: {name: NAME, namespace: NAMESPACE}
spec:
  selector: {app: NAME}
  ports: [{name: http, port: 80}]
";

/// A setting of a container that is to end only once nobody is led to it any more.
pub const LEAVES_LATE: &str = "        lifecycle: {preStop: {sleep: {seconds: 3}}}\n";

/// An application of two Pods that answers with what it was asked for, and its Service. `more` is
/// added to its container.
pub fn application(namespace: &str, name: &str, more: &str) -> String {
    let text = APPLICATION.replace("NAMESPACE", namespace);
    text.replace("NAME", name).replace("MORE", more)
}

impl Cluster {
    /// Asks kubectl until what it prints is as wanted, and returns that.
    ///
    /// # Panics
    /// At the deadline, with what it printed last.
    pub async fn until(
        &self,
        deadline: Duration,
        line: &[&str],
        wanted: impl Fn(&str) -> bool,
    ) -> String {
        let mut last = Err("it was not asked".to_owned());
        let asked = eventually_within(deadline, async || {
            last = self.try_kubectl(line, "").await;
            let printed = last.as_ref().ok()?;
            wanted(printed).then(|| printed.clone())
        });
        match asked.await {
            Some(printed) => printed,
            None => panic!("kubectl {line:?} never printed what was wanted: {last:?}"),
        }
    }

    /// Waits until a Deployment is as its object says.
    ///
    /// # Panics
    /// Where it does not become so; with what the Pods of the namespace are at.
    pub async fn rolled_out(&self, deployment: &str, namespace: &str) {
        let timeout = format!("--timeout={}s", READY_DEADLINE.as_secs());
        let line = [
            "rollout",
            "status",
            deployment,
            "--namespace",
            namespace,
            &timeout,
        ];
        if let Err(complaint) = self.try_kubectl(&line, "").await {
            panic!("{complaint}\n{}", self.told_of_pods(namespace).await);
        }
    }

    /// The Pods of a namespace and its Events, for who has to find out what is wrong.
    pub async fn told_of_pods(&self, namespace: &str) -> String {
        let lines = [
            &["get", "pods", "--output=wide", "--namespace", namespace][..],
            &["get", "events", "--namespace", namespace],
            &["describe", "pods", "--namespace", namespace],
        ];
        let mut told = String::new();
        for line in lines {
            told += &self.try_kubectl(line, "").await.unwrap_or_else(|it| it);
        }
        told
    }
}
