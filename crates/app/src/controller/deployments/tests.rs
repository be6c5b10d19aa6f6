use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use myriad_api::gateway::status::{
    DeployedPort, Deployment, GatewayStatus, ObjectCondition, Scaling, State, Status, WantedAddress,
};
use myriad_api::{ObjectKey, ObjectKind};
use myriad_base::task;
use myriad_source::kubernetes::lease::{Claim, Elector, LeaseSettings};
use myriad_source::kubernetes::status::described::{
    Describe, DescribedSettings, DescribedWriter, Description,
};
use myriad_source::kubernetes::status::ours::StatusOwner;
use myriad_source::kubernetes::status::{Address, StatusCounters};
use myriad_source::kubernetes::{CallError, Client};
use myriad_translate::Difference;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{DeploymentKeeper, Installation, Installations, Remembered};
use crate::dedicated::{DedicatedGateways, service_name};
use crate::fake_api;
use crate::settings::{GatewayTemplate, MetadataTemplate, NetworkPolicyTemplate, ServiceTemplate};
use crate::stated::StatedStatuses;

const OURS: &str = "myriad.dev/gateway-controller";
const GATEWAYS: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/shop/gateways";
const CLASSES: &str = "/apis/gateway.networking.k8s.io/v1/gatewayclasses";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";
const POLICIES: &str = "/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies";
const SERVICES: &str = "/api/v1/namespaces/shop/services";
const ACCOUNTS: &str = "/api/v1/namespaces/shop/serviceaccounts";
const ROOTS: &str = "/api/v1/namespaces/shop/configmaps/gateway-ca";

/// Objects by their paths, and the writes that were made.
#[derive(Clone, Default)]
struct Api(Arc<Mutex<Objects>>);

#[derive(Default)]
struct Objects {
    all: BTreeMap<String, Value>,
    writes: Vec<String>,
    uids: u64,
    /// A part of paths of which nothing may be written.
    forbidden: Option<&'static str>,
    /// The replicas of the Deployment once it was read for the next time.
    decided: Option<u64>,
}

impl Api {
    fn put(&self, path: &str, object: Value) {
        self.0.lock().unwrap().all.insert(path.to_owned(), object);
    }

    fn get(&self, path: &str) -> Option<Value> {
        self.0.lock().unwrap().all.get(path).cloned()
    }

    fn remove(&self, path: &str) {
        self.0.lock().unwrap().all.remove(path);
    }

    /// The writes since this was last asked.
    fn writes(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().writes)
    }

    fn forbid(&self, part: Option<&'static str>) {
        self.0.lock().unwrap().forbidden = part;
    }

    fn answer(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let mut objects = self.0.lock().unwrap();
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        if method == "GET" {
            let answer = objects.read(path, query);
            objects.decide(path);
            return answer;
        }
        if objects.forbidden.is_some_and(|part| path.contains(part)) {
            return (403, json!({"message": "as the test wants"}));
        }
        if path.ends_with("/leases") || path.ends_with("/leases/test") {
            let mut lease = body.clone();
            lease["metadata"]["resourceVersion"] = "1".into();
            return (200, lease);
        }
        objects.writes.push(format!("{method} {path}"));
        let known = objects.all.get(path).cloned();
        let uid = known.as_ref().map(|it| it["metadata"]["uid"].clone());
        let expected = match method {
            "DELETE" => &body["preconditions"]["uid"],
            _ => &body["metadata"]["uid"],
        };
        if !expected.is_null() && uid.as_ref() != Some(expected) {
            return (409, json!({}));
        }
        let expected = &body["metadata"]["resourceVersion"];
        let version = known.map(|it| it["metadata"]["resourceVersion"].clone());
        if !expected.is_null() && version.as_ref() != Some(expected) {
            return (409, json!({}));
        }
        if method == "DELETE" {
            objects.all.remove(path);
            return (200, json!({}));
        }
        let mut object = body.clone();
        objects.uids += 1;
        let new = json!(format!("u{}", objects.uids));
        object["metadata"]["resourceVersion"] = objects.uids.to_string().into();
        object["metadata"]["uid"] = uid.unwrap_or(new);
        if let Some(ip) = object["spec"]["loadBalancerIP"].as_str() {
            object["status"]["loadBalancer"]["ingress"] = json!([{"ip": ip}]);
        } else if object["kind"] == "Service" {
            object["status"]["loadBalancer"]["ingress"] = json!([{"ip": "192.0.2.1"}]);
        }
        objects.all.insert(path.to_owned(), object.clone());
        (200, object)
    }
}

impl Objects {
    /// Lets the autoscaler decide after a Deployment was read.
    fn decide(&mut self, path: &str) {
        let Some(deployment) = self.all.get_mut(path) else {
            return;
        };
        if let Some(replicas) = self.decided.take_if(|_| path.starts_with(DEPLOYMENTS)) {
            self.uids += 1;
            deployment["metadata"]["resourceVersion"] = self.uids.to_string().into();
            deployment["spec"]["replicas"] = replicas.into();
        }
    }

    fn read(&self, path: &str, query: &str) -> (u16, Value) {
        if let Some(object) = self.all.get(path) {
            return (200, object.clone());
        }
        if !query.contains("labelSelector=") {
            return (404, json!({}));
        }
        let plural = path.rsplit('/').next().unwrap();
        let is_of = |path: &str| path.contains(&format!("/{plural}/"));
        let items = self.all.iter().filter(|(path, object)| {
            is_of(path) && object["metadata"]["labels"]["myriad.dev/made-by"] == "edge"
        });
        let items: Vec<&Value> = items.map(|(_, object)| object).collect();
        (200, json!({"metadata": {}, "items": items}))
    }
}

/// Nothing is to be said of anything.
struct Silent;

impl Describe for Silent {
    fn describe(&self, _: &ObjectKey) -> Description {
        Description::Later
    }

    fn peek(&self, _: &ObjectKey) -> Description {
        Description::Later
    }
}

struct World {
    api: Api,
    keeper: DeploymentKeeper,
    memory: Remembered,
}

fn template() -> GatewayTemplate {
    GatewayTemplate {
        roots: "gateway-ca".to_owned(),
        labels: BTreeMap::new(),
        replicas: Some(1),
        service: ServiceTemplate {
            kind: "LoadBalancer".to_owned(),
            annotations: BTreeMap::new(),
            external_traffic_policy: None,
        },
        metadata: MetadataTemplate::default(),
        addresses: vec!["192.0.2.0/24".to_owned()],
        network_policy: Some(NetworkPolicyTemplate::default()),
        pod: json!({"containers": [{
            "name": "proxy",
            "ports": [{"name": "admin", "containerPort": 9901}],
        }]}),
    }
}

fn key() -> ObjectKey {
    ObjectKey::new(ObjectKind::Gateway, "shop", "web")
}

fn status(is_dedicated: bool, addresses: &[&str]) -> Status {
    let port = DeployedPort {
        number: 80,
        is_udp: false,
    };
    let deployment = Deployment {
        ports: [port].into(),
        labels: Box::default(),
        annotations: Box::default(),
        scaling: None,
    };
    let addresses = addresses.iter().map(|value| WantedAddress {
        kind: "IPAddress".into(),
        value: (*value).into(),
    });
    let kind = ObjectCondition::ACCEPTED;
    Status {
        object: key(),
        generation: 1,
        state: State::Gateway(GatewayStatus {
            conditions: [ObjectCondition::holds(kind, "Accepted")].into(),
            listeners: Box::default(),
            attached_listener_sets: 0,
            addresses: addresses.collect(),
            deployment: is_dedicated.then(|| Box::new(deployment)),
        }),
    }
}

/// A Gateway of a class of ours.
fn gateway(uid: &str) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"namespace": "shop", "name": "web", "uid": uid},
        "spec": {"gatewayClassName": "myriad"},
    })
}

fn class(controller: &str) -> Value {
    json!({"metadata": {"name": "myriad"}, "spec": {"controllerName": controller}})
}

impl World {
    /// A Gateway that wants proxies of its own.
    async fn new() -> World {
        let api = Api::default();
        api.put(&format!("{GATEWAYS}/web"), gateway("g1"));
        api.put(&format!("{CLASSES}/myriad"), class(OURS));
        let world = World {
            keeper: keeper(&api).await,
            api,
            memory: Remembered::default(),
        };
        world.state(&status(true, &[]));
        world
    }

    fn state(&self, status: &Status) {
        self.keeper.stated.change(&Difference {
            added: vec![Arc::new(status.clone())],
            removed: Vec::new(),
        });
    }

    async fn look_after(&mut self) -> bool {
        let id = key().id().clone();
        let done = self.keeper.look_after(&id, &mut self.memory).await;
        done.is_ok()
    }

    fn installation(&self) -> Option<Installation> {
        self.keeper.installations.get(key().id())
    }

    /// The paths of what was made that is there.
    fn made(&self) -> Vec<String> {
        let objects = self.api.0.lock().unwrap();
        let made = objects.all.keys();
        made.filter(|path| path.contains("web-myriad"))
            .cloned()
            .collect()
    }
}

/// A claim that holds.
async fn lead(client: &Client) -> Claim {
    let settings = LeaseSettings {
        namespace: "edge".to_owned(),
        name: "test".to_owned(),
        identity: "test".to_owned(),
        duration: Duration::from_secs(60),
    };
    let elector = Elector::new(client.clone(), settings);
    let claim = elector.claim();
    drop(task::spawn("elector", elector.run(std::future::pending())));
    claim.acquired().await;
    claim
}

async fn keeper(api: &Api) -> DeploymentKeeper {
    let answering = api.clone();
    let client =
        fake_api::serve(move |method, path, body| Some(answering.answer(method, path, body)));
    let client = client.await;
    let settings = DescribedSettings {
        owner: StatusOwner {
            controller: OURS.into(),
            manager: "myriad-edge".into(),
            conditions: &[],
        },
        kinds: Vec::new(),
        writes_per_second: 1.0,
        waiting_max: 9,
        mend_after: Duration::from_secs(5),
    };
    let (_, statuses) = DescribedWriter::new(
        client.clone(),
        Claim::new(),
        Arc::new(Silent),
        settings,
        StatusCounters::default(),
    );
    let leads = lead(&client).await;
    DeploymentKeeper {
        client,
        leads,
        template: template(),
        installation: "edge".to_owned(),
        controller: OURS.into(),
        stated: StatedStatuses::new(Some(DedicatedGateways::default())),
        installations: Installations::default(),
        statuses,
        bundle: watch::channel("roots".to_owned()).1,
    }
}

fn all() -> Vec<String> {
    let mut all = [DEPLOYMENTS, SERVICES, ACCOUNTS, POLICIES].map(|it| format!("{it}/web-myriad"));
    all.sort();
    all.into()
}

#[tokio::test]
async fn a_gateway_is_given_what_it_is_to_have_and_its_addresses_are_known() {
    let mut world = World::new().await;
    assert_eq!(world.installation(), None);
    assert!(world.look_after().await);
    assert_eq!(world.made(), all());
    let roots = world.api.get(ROOTS).unwrap();
    assert_eq!(roots["data"]["ca.crt"], "roots");
    let deployment = world.api.get(&format!("{DEPLOYMENTS}/web-myriad")).unwrap();
    assert_eq!(deployment["metadata"]["ownerReferences"][0]["uid"], "g1");
    let installation = Installation {
        addresses: vec![Address::Ip("192.0.2.1".parse().unwrap())],
        ..Installation::default()
    };
    assert_eq!(world.installation(), Some(installation));
    assert_eq!(
        world.keeper.statuses.waiting().0,
        1,
        "its status is looked at"
    );
    // Another leader, or the same one again, finds all as it shall be and keeps the objects.
    world.memory = Remembered::default();
    assert!(world.look_after().await);
    let again = world.api.get(&format!("{DEPLOYMENTS}/web-myriad")).unwrap();
    assert_eq!(again["metadata"]["uid"], deployment["metadata"]["uid"]);
}

#[tokio::test]
async fn a_leader_that_died_in_the_middle_is_followed_by_one_who_makes_the_rest() {
    let mut world = World::new().await;
    world.api.forbid(Some("/services/"));
    assert!(world.look_after().await);
    let obstacle = world.installation().unwrap().obstacle.unwrap();
    assert_eq!(obstacle.reason, "NoResources");
    assert!(
        obstacle
            .message
            .contains("Service shop/web-myriad may not be made"),
        "{obstacle:?}"
    );
    assert_eq!(world.made().len(), 3);
    world.api.forbid(None);
    world.memory = Remembered::default();
    assert!(world.look_after().await);
    assert_eq!(world.made(), all());
    assert_eq!(world.installation().unwrap().obstacle, None);
}

#[tokio::test]
async fn what_somebody_else_has_made_is_left_alone_whatever_it_says_of_itself() {
    let foreign = |labels: Value, owners: Value| {
        json!({"metadata": {
            "namespace": "shop",
            "name": "web-myriad",
            "uid": "theirs",
            "labels": labels,
            "ownerReferences": owners,
        }})
    };
    let owner = |kind: &str, name: &str, uid: &str| {
        let version = "gateway.networking.k8s.io/v1";
        json!([{"apiVersion": version, "kind": kind, "name": name, "uid": uid}])
    };
    let made_by = |installation: &str| json!({"myriad.dev/made-by": installation});
    for object in [
        foreign(json!({}), json!([])),
        foreign(json!({}), owner("Gateway", "web", "g1")),
        foreign(made_by("edge"), json!([])),
        foreign(made_by("edge"), owner("Gateway", "other", "g1")),
        foreign(made_by("edge"), owner("ListenerSet", "web", "g1")),
        foreign(made_by("other"), owner("Gateway", "web", "g1")),
        foreign(json!("odd"), json!("odd")),
    ] {
        let mut world = World::new().await;
        let path = format!("{DEPLOYMENTS}/web-myriad");
        world.api.put(&path, object.clone());
        assert!(world.look_after().await);
        let obstacle = world.installation().unwrap().obstacle.unwrap();
        let said = "Deployment shop/web-myriad is there already";
        assert!(obstacle.message.contains(said), "{obstacle:?}");
        // Nor is it removed with the Gateway.
        world.api.remove(&format!("{GATEWAYS}/web"));
        assert!(world.look_after().await);
        assert_eq!(world.api.get(&path), Some(object.clone()));
        let writes = world.api.writes();
        assert!(
            !writes.iter().any(|it| it.contains("deployments")),
            "{object}: {writes:?}"
        );
        assert_eq!(world.made(), [path], "and what is ours is gone");
    }
}

#[tokio::test]
async fn what_was_made_goes_with_its_gateway_and_not_because_a_class_is_missing() {
    let mut world = World::new().await;
    assert!(world.look_after().await);
    let none = Difference {
        added: Vec::new(),
        removed: vec![Arc::new(status(true, &[]))],
    };
    world.keeper.stated.change(&none);
    // Its class is gone, so that translation says nothing of it any more.
    world.api.remove(&format!("{CLASSES}/myriad"));
    assert!(world.look_after().await);
    assert_eq!(world.made(), all());
    // It is there again, and the Gateway is not accepted for the moment.
    world.api.put(&format!("{CLASSES}/myriad"), class(OURS));
    assert!(world.look_after().await);
    assert_eq!(world.made(), all());
    world
        .api
        .put(&format!("{CLASSES}/myriad"), class("example.com/other"));
    assert!(world.look_after().await);
    assert_eq!(world.made(), [""; 0]);
    assert_eq!(world.installation(), None);
}

#[tokio::test]
async fn a_gateway_that_shares_the_proxies_of_all_has_no_use_for_its_own() {
    let mut world = World::new().await;
    assert!(world.look_after().await);
    world.state(&status(false, &[]));
    assert!(world.look_after().await);
    assert_eq!(world.made(), [""; 0]);
    world.state(&status(true, &[]));
    assert!(world.look_after().await);
    assert_eq!(world.made(), all());
    world.api.remove(&format!("{GATEWAYS}/web"));
    assert!(world.look_after().await);
    assert_eq!(world.made(), [""; 0]);
}

#[tokio::test]
async fn a_gateway_that_is_made_anew_is_given_its_own_in_place_of_those_before() {
    let mut world = World::new().await;
    assert!(world.look_after().await);
    world.api.put(&format!("{GATEWAYS}/web"), gateway("g2"));
    // One object makes way each time.
    let mut looks = 0;
    while !world.look_after().await {
        looks += 1;
    }
    assert_eq!(looks, 4);
    for path in all() {
        let object = world.api.get(&path).unwrap();
        assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "g2");
    }
}

#[tokio::test]
async fn each_address_has_a_service_that_goes_when_it_is_not_asked_for_any_more() {
    let mut world = World::new().await;
    world.state(&status(true, &["192.0.2.7", "192.0.2.8"]));
    assert!(world.look_after().await);
    let ip = |text: &str| Address::Ip(text.parse().unwrap());
    let installation = world.installation().unwrap();
    assert_eq!(installation.addresses, [ip("192.0.2.7"), ip("192.0.2.8")]);
    let service_of = |address: &str| {
        let name = service_name("web-myriad", address.parse().unwrap());
        format!("{SERVICES}/{name}")
    };
    let [first, second] = ["192.0.2.7", "192.0.2.8"].map(service_of);
    let uid = |world: &World| world.api.get(&second).unwrap()["metadata"]["uid"].clone();
    let known = uid(&world);
    // Another leader knows of it by the Services that there are.
    world.memory = Remembered::default();
    world.keeper.poll(&mut world.memory).await.unwrap();
    world.state(&status(true, &["192.0.2.8"]));
    assert!(world.look_after().await);
    assert_eq!(world.api.get(&first), None);
    assert_eq!(uid(&world), known, "what stays is not moved");
    assert_eq!(world.installation().unwrap().addresses, [ip("192.0.2.8")]);
    // Whoever has an address gives it up before another is asked for.
    drop(world.api.writes());
    world.state(&status(true, &["192.0.2.9"]));
    assert!(world.look_after().await);
    let writes = world.api.writes();
    let at = |start: &str| writes.iter().position(|it| it.starts_with(start));
    let removed = at(&format!("DELETE {second}"));
    let made = at(&format!("PATCH {}", service_of("192.0.2.9")));
    assert!(removed.is_some() && removed < made, "{writes:?}");
}

#[tokio::test]
async fn an_address_that_no_gateway_may_have_has_no_service() {
    let mut world = World::new().await;
    world.state(&status(true, &["198.51.100.7"]));
    assert!(world.look_after().await);
    assert_eq!(world.installation().unwrap().addresses, []);
    let made = world.made();
    assert!(made.iter().all(|it| !it.starts_with(SERVICES)), "{made:?}");
}

#[tokio::test]
async fn who_only_names_a_gateway_adds_no_address_to_it() {
    let mut world = World::new().await;
    assert!(world.look_after().await);
    let known = world.installation();
    for (name, uid) in [("web-myriad-2", "g1"), ("web-myriad", "g0")] {
        let own = world.api.get(&format!("{SERVICES}/web-myriad")).unwrap();
        let mut forged = own.clone();
        forged["metadata"]["name"] = name.into();
        forged["metadata"]["ownerReferences"][0]["uid"] = uid.into();
        forged["status"]["loadBalancer"]["ingress"] = json!([{"ip": "198.51.100.9"}]);
        // Beside its own, wherever the list has it.
        world.api.put(&format!("{SERVICES}/forged"), forged);
        world.keeper.poll(&mut world.memory).await.unwrap();
        assert_eq!(world.installation(), known, "{name} {uid}");
    }
}

#[tokio::test]
async fn a_network_policy_goes_when_the_operator_wants_none() {
    let mut world = World::new().await;
    assert!(world.look_after().await);
    let path = format!("{POLICIES}/web-myriad");
    let ingress = world.api.get(&path).unwrap()["spec"]["ingress"].clone();
    assert_eq!(ingress.as_array().unwrap().len(), 1, "{ingress}");
    world.keeper.template.network_policy = None;
    assert!(world.look_after().await);
    assert_eq!(world.api.get(&path), None);
}

#[tokio::test]
async fn an_autoscaler_says_how_many_proxies_there_are_while_the_class_asks_for_one() {
    let mut world = World::new().await;
    let scaled = |cpu_percent: u32| {
        let mut status = status(true, &[]);
        if let State::Gateway(gateway) = &mut status.state {
            let deployment = gateway.deployment.as_mut().unwrap();
            deployment.scaling = Some(Scaling {
                replicas_min: 2,
                replicas_max: 5,
                cpu_percent,
            });
        }
        status
    };
    world.state(&scaled(80));
    assert!(world.look_after().await);
    let path = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers/web-myriad";
    let spec = world.api.get(path).unwrap()["spec"].clone();
    assert_eq!(spec["scaleTargetRef"]["name"], "web-myriad");
    assert_eq!(
        (&spec["minReplicas"], &spec["maxReplicas"]),
        (&json!(2), &json!(5))
    );
    let target = &spec["metrics"][0]["resource"]["target"];
    assert_eq!(target["averageUtilization"], 80);
    let deployment = format!("{DEPLOYMENTS}/web-myriad");
    let replicas = |world: &World| world.api.get(&deployment).unwrap()["spec"]["replicas"].clone();
    assert_eq!(replicas(&world), 2);
    // What it has decided stays, whatever else changes.
    let mut busy = world.api.get(&deployment).unwrap();
    busy["spec"]["replicas"] = 4.into();
    world.api.put(&deployment, busy);
    world.state(&scaled(50));
    assert!(world.look_after().await);
    assert_eq!(replicas(&world), 4);
    // So does what it decides between the read and the write: that is tried again.
    world.api.0.lock().unwrap().decided = Some(5);
    assert!(!world.look_after().await);
    assert_eq!(replicas(&world), 5);
    assert!(world.look_after().await);
    assert_eq!(replicas(&world), 5);
    world.state(&status(true, &[]));
    assert!(world.look_after().await);
    assert_eq!((replicas(&world), world.made()), (json!(1), all()));
    // It goes with its Gateway.
    world.state(&scaled(80));
    assert!(world.look_after().await);
    world.api.remove(&format!("{GATEWAYS}/web"));
    assert!(world.look_after().await);
    assert_eq!(world.made(), [""; 0]);
    // Without the right to make one the Gateway says so.
    world.api.put(&format!("{GATEWAYS}/web"), gateway("g1"));
    world.api.forbid(Some("/horizontalpodautoscalers/"));
    assert!(world.look_after().await);
    let obstacle = world.installation().unwrap().obstacle.unwrap();
    let said = "HorizontalPodAutoscaler shop/web-myriad may not be made";
    assert!(obstacle.message.contains(said), "{obstacle:?}");
}

#[tokio::test]
async fn a_sweep_finds_what_is_to_be_made_and_what_was_left_behind() {
    let mut world = World::new().await;
    assert!(world.look_after().await);
    let other = keeper(&world.api).await;
    other.sweep().await.unwrap();
    let due = || other.installations.lock().due.pop();
    assert_eq!(due().as_deref(), Some("shop/web"), "by what was made");
    assert_eq!(due(), None);
    let empty = World::new().await;
    empty.keeper.sweep().await.unwrap();
    let due = empty.keeper.installations.lock().due.pop();
    assert_eq!(due.as_deref(), Some("shop/web"), "by what is wanted");
}

#[tokio::test]
async fn an_address_that_comes_later_is_shown_then() {
    let mut world = World::new().await;
    assert!(world.look_after().await);
    let path = format!("{SERVICES}/web-myriad");
    let mut service = world.api.get(&path).unwrap();
    service["status"]["loadBalancer"]["ingress"] = json!([{"hostname": "lb.example"}]);
    world.api.put(&path, service);
    world.keeper.poll(&mut world.memory).await.unwrap();
    let addresses = world.installation().unwrap().addresses;
    assert_eq!(addresses, [Address::Hostname("lb.example".into())]);
    let writes = world.api.writes();
    world.keeper.poll(&mut world.memory).await.unwrap();
    assert!(!writes.is_empty() && world.api.writes().is_empty());
}

#[tokio::test]
async fn who_does_not_lead_any_more_writes_nothing() {
    let mut world = World::new().await;
    world.keeper.leads = Claim::new();
    let id = key().id().clone();
    let done = world.keeper.look_after(&id, &mut world.memory).await;
    assert!(matches!(done, Err(CallError::Lost(_))), "{done:?}");
    assert_eq!(world.api.writes(), [""; 0]);
    assert_eq!(world.installation(), None);
}
