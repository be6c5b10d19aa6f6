//! Proxies of several service accounts at one server that signs.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use myriad_api::Batch;
use myriad_base::drain::Drain;
use myriad_base::hold::{HoldLimits, Holds};
use myriad_base::metrics::Metrics;
use myriad_base::{clock, task};
use myriad_model::Snapshot;
use myriad_pki::{Authority, Credential, MeshAuthority, Request};
use myriad_sync::{
    Apply, Authenticate, Client, ClientCounters, ClientSettings, Delivery, Identity, Issued,
    NotSigned, Owner, Refusal, Refused, Server, ServerCounters, ServerSettings, Sign as _,
    TcpConnect, Views,
};
use rustls::pki_types::CertificateDer;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use super::super::pods::KnownPods;
use super::super::pods::tests::pod;
use super::{Signer, Terms};

fn terms() -> Terms {
    Terms {
        trust_domain: "cluster.local".to_owned(),
        aliases: vec!["old.example".to_owned()],
        lifetime: Duration::from_secs(3_600),
        overlap: Duration::from_secs(600),
    }
}

/// The Pods that the watch has seen: one.
fn knowing() -> KnownPods {
    let pods = KnownPods::default();
    pods.look(&Batch {
        changes: vec![pod("shop", "cart-0", "cart-v1")],
        ..Batch::default()
    });
    pods
}

fn authority() -> MeshAuthority {
    let root = Authority::new("mesh", clock::unix_seconds()).unwrap();
    MeshAuthority::of_root(&root).unwrap()
}

/// A token is the subject that it proves.
struct Believing;

impl Authenticate for Believing {
    fn authenticate<'a>(
        &'a self,
        token: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Identity, Refused>> + Send + 'a>> {
        let identity = Identity {
            subject: token.into(),
            view: "gateway".into(),
            owner: Owner::default(),
        };
        Box::pin(std::future::ready(Ok(identity)))
    }
}

/// Asks once, and hands over what comes of it.
struct Once {
    request: Option<Request>,
    outcomes: mpsc::Sender<Result<Credential, NotSigned>>,
}

impl Apply for Once {
    async fn apply(&mut self, _: Delivery) -> Vec<Refusal> {
        Vec::new()
    }

    fn rekey(&mut self, _: [u8; 32]) {}

    fn wants_identity(&self) -> bool {
        true
    }

    fn request(&mut self) -> Option<Bytes> {
        let is_first = self.request.is_none();
        let request = self.request.get_or_insert_with(|| Request::new().unwrap());
        is_first.then(|| Bytes::copy_from_slice(&request.der))
    }

    fn signed(&mut self, outcome: Result<Issued, NotSigned>) {
        let request = self.request.take().unwrap();
        let outcome = outcome.map(|issued| {
            let chain = issued
                .chain
                .iter()
                .map(|it| CertificateDer::from(it.to_vec()));
            request.complete(chain.collect()).unwrap()
        });
        // One answer is enough.
        let _ = self.outcomes.try_send(outcome);
    }
}

/// The certificate that a proxy with this token is given.
async fn obtain(address: &str, token: &'static str) -> Result<Credential, NotSigned> {
    let (outcomes, mut came) = mpsc::channel(1);
    let settings = ClientSettings {
        instance: token.to_owned(),
        schema_max: 1,
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
    let mut apply = Once {
        request: None,
        outcomes,
    };
    let follow = task::spawn("test client", async move {
        client.run(&mut apply, drained).await;
    });
    let deadline = Duration::from_secs(30);
    let outcome = tokio::time::timeout(deadline, came.recv()).await;
    drain.start();
    follow.await.unwrap();
    outcome.expect("in time").expect("an outcome")
}

#[tokio::test]
async fn each_proxy_is_given_the_identity_of_its_service_account_and_no_other() {
    let signer = Signer::new(terms(), knowing(), &Metrics::new());
    let (newest, _) = watch::channel(Snapshot::new());
    let (events, _happened) = mpsc::channel(64);
    let drain = Drain::new();
    let server = Server::new(
        ServerSettings {
            key: [1; 32],
            tls: None,
            streams_max: 8,
            unauthenticated_max: 4,
            greeting_timeout: Duration::from_secs(10),
            answer_timeout: myriad_sync::server::ANSWER_TIMEOUT,
            holds: Holds::new(HoldLimits::default()),
            lost: None,
        },
        Arc::new(Believing),
        Views::one("gateway", newest.subscribe()),
        events,
        ServerCounters::default(),
        drain.holder(),
    );
    let server = server.signing(Arc::new(signer.clone()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serving = task::spawn("test server", async move {
        server.serve(listener).await.unwrap();
    });
    // The authority comes late, as it does while an API server is away.
    let late = signer.clone();
    let late = task::spawn("late", async move {
        late.learn(None, Some(authority()));
        late.begin();
    });
    for (token, uri) in [
        ("shop/cart/cart-0", "spiffe://cluster.local/ns/shop/sa/cart"),
        ("shop/pay/pay-0", "spiffe://cluster.local/ns/shop/sa/pay"),
    ] {
        let credential = obtain(&address, token).await.unwrap();
        assert_eq!(credential.identity.uri(), uri);
        let left = credential.signed.until - clock::unix_seconds();
        assert!((3_590..=3_600).contains(&left), "{left}");
        let leaf = credential.signed.chain.first().unwrap();
        let is_named = leaf.windows(7).any(|part| part == b"cart-v1");
        assert_eq!(
            is_named,
            token.ends_with("cart-0"),
            "what its Pod is called"
        );
    }
    let refused = obtain(&address, "nobody").await.unwrap_err();
    assert_eq!(refused.reason, "the token is not of a service account");
    let refused = obtain(&address, "shop/a b/pod").await.unwrap_err();
    assert!(refused.reason.contains("service account"), "{refused}");
    late.await.unwrap();
    drain.start();
    drain.finished().await;
    serving.await.unwrap();
}

#[test]
fn another_root_is_told_before_anything_is_signed_with_it() {
    let signer = Signer::new(terms(), KnownPods::default(), &Metrics::new());
    let told = signer.anchors();
    let identity = Identity {
        subject: "shop/cart/cart-0".into(),
        view: "gateway".into(),
        owner: Owner::default(),
    };
    let request = Request::new().unwrap();
    let refused = signer.sign_now(&identity, None, &request.der).unwrap_err();
    assert_eq!(refused.reason, "there is no authority of the mesh yet");
    assert!(told.borrow().is_none());
    let (first, second) = (authority(), authority());
    let roots = [&first, &second].map(|it| Bytes::copy_from_slice(&it.roots()[0]));
    let kept = signer.learn(None, Some(first));
    assert!(told.borrow().is_none(), "it is not kept yet");
    let refused = signer.sign_now(&identity, None, &request.der).unwrap_err();
    assert_eq!(refused.reason, "there is no authority of the mesh yet");
    signer.begin();
    let anchors = told.borrow().clone().unwrap();
    assert_eq!(anchors.roots, roots[..1]);
    assert_eq!(anchors.trust_domains, ["cluster.local", "old.example"]);
    assert!(signer.sign_now(&identity, None, &request.der).is_ok());
    let kept = [kept, signer.learn(None, Some(second))];
    assert_eq!(kept.each_ref().map(Vec::len), [1, 2]);
    assert_eq!(told.borrow().clone().unwrap().roots, roots);
    let state = signer.lock();
    // Each replica has looked by then.
    let left = state.succession.waits(clock::unix_seconds());
    assert!(left.is_some_and(|it| (625..=630).contains(&it)), "{left:?}");
    let signer = state.succession.signer().unwrap();
    assert_eq!(signer.roots()[0][..], roots[0][..]);
}
