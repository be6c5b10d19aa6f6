//! Certificates of the mesh, asked for and signed between a real server and a real client.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use myriad_base::drain::Drain;
use myriad_base::hold::{HoldLimits, Holds};
use myriad_base::task;
use myriad_model::{Form, Snapshot};
use tokio::sync::{mpsc, watch};

use super::super::Views;
use super::super::client::{Apply, Client, ClientSettings, TcpConnect};
use super::super::server::{Identity, ServerSettings, Sign};
use super::{Serving, settings, within};
use crate::tests::pair::World;
use crate::{Anchors, ClientCounters, Delivery, Issued, NotSigned, Refusal};

/// A signer whose chain is the subject's name and the request.
struct Signer(watch::Sender<Option<Arc<Anchors>>>);

impl Sign for Signer {
    fn anchors(&self) -> watch::Receiver<Option<Arc<Anchors>>> {
        self.0.subscribe()
    }

    fn sign<'a>(
        &'a self,
        identity: &'a Identity,
        request: &'a [u8],
    ) -> BoxFuture<'a, Result<Vec<Bytes>, NotSigned>> {
        let subject = Bytes::copy_from_slice(identity.subject.as_bytes());
        let chain = vec![subject, Bytes::copy_from_slice(request)];
        Box::pin(std::future::ready(Ok(chain)))
    }
}

/// Asks whenever it is told to.
struct Asking {
    requests: mpsc::Receiver<&'static str>,
    anchors: watch::Sender<Option<Anchors>>,
    outcomes: mpsc::Sender<Result<Issued, NotSigned>>,
}

impl Apply for Asking {
    async fn apply(&mut self, _: Delivery) -> Vec<Refusal> {
        Vec::new()
    }

    fn rekey(&mut self, _: [u8; 32]) {}

    fn wants_identity(&self) -> bool {
        true
    }

    fn anchored(&mut self, anchors: Anchors) {
        self.anchors.send_replace(Some(anchors));
    }

    fn request(&mut self) -> Option<Bytes> {
        self.requests.try_recv().ok().map(Bytes::from)
    }

    fn signed(&mut self, outcome: Result<Issued, NotSigned>) {
        self.outcomes.try_send(outcome).unwrap();
    }
}

fn anchors(root: &'static str) -> Anchors {
    Anchors {
        roots: vec![root.into()],
        trust_domains: vec!["cluster.local".to_owned()],
    }
}

#[tokio::test]
async fn a_certificate_is_signed_for_whom_the_token_of_now_proves() {
    let mut world = World::new(Form::Encoded);
    world.put("a", 1);
    let (newest, _) = watch::channel(world.snapshot().clone());
    let views = Views::one("gateway", newest.subscribe());
    let (authority, _) = watch::channel(None);
    let (lost, is_lost) = watch::channel(false);
    let settings = ServerSettings {
        lost: Some(is_lost),
        ..settings(None)
    };
    let (serving, server) = Serving::server_of(views, settings);
    let server = server.signing(Arc::new(Signer(authority.clone())));
    let (serving, address) = serving.listen(server).await;

    let (ask, requests) = mpsc::channel(4);
    let (told, mut trusted) = watch::channel(None);
    let (outcomes, mut signed) = mpsc::channel(4);
    let mut apply = Asking {
        requests,
        anchors: told,
        outcomes,
    };
    let token = Arc::new(Mutex::new("good"));
    let client = ClientSettings {
        instance: "proxy".to_owned(),
        schema_max: myriad_model::wire::SCHEMA,
        connect: Arc::new(TcpConnect { address, tls: None }),
        token: {
            let token = token.clone();
            Arc::new(move || Ok((*token.lock().unwrap()).to_owned()))
        },
        holds: Holds::new(HoldLimits::default()),
    };
    let client = Client::new(client, Snapshot::new(), None, ClientCounters::default());
    let drain = Drain::new();
    let drained = drain.holder();
    let ended = task::spawn("test client", async move {
        client.run(&mut apply, drained).await;
    });

    // There is no authority yet, so nobody asks.
    ask.send("request").await.unwrap();
    authority.send_replace(Some(Arc::new(anchors("first"))));
    let issued = within(signed.recv()).await.unwrap().unwrap();
    assert_eq!(issued.chain, ["gateway", "request"]);
    assert_eq!(issued.anchors, anchors("first"));
    authority.send_replace(Some(Arc::new(anchors("second"))));
    let is_second = |it: &Option<Anchors>| *it == Some(anchors("second"));
    within(trusted.wait_for(is_second)).await.unwrap();

    // What the token proves now is what counts, not what it proved once.
    *token.lock().unwrap() = "expired";
    ask.send("another").await.unwrap();
    let refused = within(signed.recv()).await.unwrap().unwrap_err();
    assert_eq!(refused.reason, "the token is not accepted");
    assert_eq!(refused.retry_after, Duration::ZERO);
    assert_eq!(serving.counters.signed.get(), 1);
    assert_eq!(serving.counters.not_signed.get(), 1);

    // While nobody can give out another token, what was proved once is enough.
    lost.send_replace(true);
    ask.send("renewal").await.unwrap();
    let issued = within(signed.recv()).await.unwrap().unwrap();
    assert_eq!(issued.chain, ["gateway", "renewal"]);
    drain.start();
    within(ended).await.unwrap();
    serving.stop().await;
}
