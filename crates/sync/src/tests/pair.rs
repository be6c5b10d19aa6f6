//! A world of resources, and one server and one client session with the wires between them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use myriad_base::clock::{self, Instant};
use myriad_base::hold::HoldLimits;
use myriad_model::{
    Delta, Endpoint, Endpoints, Form, Key, Kind, Name, Origin, Position, Protocol, Resource,
    Sealer, Snapshot, Upstream, Value, Writer,
};
use prost::Message as _;

use crate::log::Logged;
use crate::server::{Shelf, Steps};
use crate::wire::{FromProxy, FromServer, KnownKinds, from_proxy};
use crate::{
    Anchors, ClientCounters, ClientSession, Issued, NotSigned, Receipt, Received, Refusal, Report,
    ServerCounters, ServerSession,
};

pub(crate) const KEY: [u8; 32] = [7; 32];
/// Endpoints whose first port is this one are refused by every proxy.
pub(crate) const REFUSED_PORT: u16 = 666;

/// The resources that one replica has translated.
pub(crate) struct World {
    writer: Writer,
    revision: u64,
    steps: Arc<Steps>,
}

impl World {
    /// Shows what is there in another view, whose steps are kept beside those of others.
    pub(crate) fn move_to_view(&mut self, shelf: &Arc<Shelf>) {
        self.steps = Arc::new(Steps::on(shelf.clone()));
    }

    pub(crate) fn new(form: Form) -> Self {
        World {
            writer: Writer::new(Sealer::new(KEY, form)),
            // Large, so that it takes as many bytes after many changes as after few.
            revision: 1 << 30,
            steps: Arc::default(),
        }
    }

    pub(crate) fn snapshot(&self) -> &Snapshot {
        self.writer.snapshot()
    }

    /// A session that serves this world to one proxy.
    pub(crate) fn session(&self, counters: ServerCounters) -> ServerSession {
        let newest = self.snapshot().clone();
        ServerSession::new(KEY, newest, self.steps.clone(), counters)
    }

    pub(crate) fn put(&mut self, name: &str, port: u16) {
        self.write(name, vec![(Name::from(name), endpoints(port, 1))]);
    }

    pub(crate) fn put_large(&mut self, name: &str, count: u32) {
        self.write(name, vec![(Name::from(name), endpoints(1, count))]);
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.write(name, Vec::new());
    }

    /// The resources that go next were missing.
    pub(crate) fn note_inference(&mut self) {
        self.writer.note_inference();
    }

    pub(crate) fn put_upstream(&mut self, name: &str) {
        let value = Value::Upstream(Box::new(Upstream {
            protocol: Protocol::Http1,
            dns: None,
            tls: None,
            options: None,
            original_destination: false,
            source_address: None,
        }));
        self.put_value(name, value);
    }

    /// The steps that its sessions share.
    pub(crate) fn steps(&self) -> &Arc<Steps> {
        &self.steps
    }

    /// Writes a resource of any kind.
    pub(crate) fn put_value(&mut self, name: &str, value: Value) {
        let former = [Key::new(value.kind(), name)];
        let origin = Origin::settings();
        let output = (Name::from(name), Resource { origin, value });
        let mut delta = Delta::default();
        self.writer.replace(&former, vec![output], &mut delta);
        self.count();
    }

    pub(crate) fn remove_key(&mut self, key: &Key) {
        let mut delta = Delta::default();
        let former = std::slice::from_ref(key);
        self.writer.replace(former, Vec::new(), &mut delta);
        self.count();
    }

    fn write(&mut self, name: &str, outputs: Vec<(Name, Resource)>) {
        let former = [Key::new(Kind::Endpoints, name)];
        let mut delta = Delta::default();
        self.writer.replace(&former, outputs, &mut delta);
        self.count();
    }

    /// Reads an object of which nothing follows here.
    pub(crate) fn skip(&mut self) {
        self.count();
    }

    fn count(&mut self) {
        self.revision += 1;
        self.writer
            .set_position(Position::counter(1, self.revision));
    }
}

fn endpoints(port: u16, count: u32) -> Resource {
    let endpoint =
        |number: u32| Endpoint::even((std::net::Ipv4Addr::from(number + 0x0a00_0001), port).into());
    Resource {
        origin: Origin::settings(),
        value: Value::Endpoints(Box::new(Endpoints::new((0..count).map(endpoint).collect()))),
    }
}

/// One stream. Time stands still until a test moves it.
pub(crate) struct Pair {
    pub(crate) server: ServerSession,
    pub(crate) client: ClientSession,
    pub(crate) to_server: VecDeque<FromProxy>,
    pub(crate) to_client: VecDeque<FromServer>,
    pub(crate) server_counters: ServerCounters,
    pub(crate) client_counters: ClientCounters,
    pub(crate) client_bytes: u64,
    pub(crate) largest_frame: usize,
    pub(crate) now: Instant,
    pub(crate) key: Option<[u8; 32]>,
    /// The keys that were applied, and whether each was a removal.
    pub(crate) applied: Vec<(Key, bool)>,
    pub(crate) logged: Vec<Logged>,
    pub(crate) receipts: Vec<Receipt>,
    /// The anchors of the mesh that the client was told.
    pub(crate) anchors: Option<Anchors>,
    pub(crate) signed: Vec<Result<Issued, NotSigned>>,
    /// Whether the client was told last that hosts are wanted, and the answers to those it told.
    pub(crate) is_demanding: Option<bool>,
    pub(crate) answered: Vec<(Arc<str>, Duration)>,
    /// Whether the proxy is of a build that does not say of what kind its resources are.
    pub(crate) is_old: bool,
}

impl Pair {
    pub(crate) fn connect(world: &World, held: Snapshot) -> Self {
        let key = (!held.is_empty()).then_some(KEY);
        Self::connect_with_key(world, held, key)
    }

    /// One of several whose server counts them together.
    pub(crate) fn connect_counted(
        world: &World,
        held: Snapshot,
        counters: &ServerCounters,
    ) -> Self {
        let key = (!held.is_empty()).then_some(KEY);
        Self::connect_as(world, held, key, counters.clone(), false)
    }

    pub(crate) fn connect_with_key(world: &World, held: Snapshot, key: Option<[u8; 32]>) -> Self {
        Self::connect_as(world, held, key, ServerCounters::default(), false)
    }

    /// Connects a proxy that wants an identity.
    pub(crate) fn connect_wanting(world: &World, held: Snapshot, key: Option<[u8; 32]>) -> Self {
        Self::connect_as(world, held, key, ServerCounters::default(), true)
    }

    /// Connects a proxy that tells hosts, if it may.
    pub(crate) fn connect_demanding(world: &World) -> Self {
        let mut pair = Self::connect(world, Snapshot::new());
        pair.client = pair.client.demanding();
        pair.to_server.clear();
        let hello = pair.client.hello();
        pair.send(hello);
        pair
    }

    fn connect_as(
        world: &World,
        held: Snapshot,
        key: Option<[u8; 32]>,
        server_counters: ServerCounters,
        wants_identity: bool,
    ) -> Self {
        let client_counters = ClientCounters::default();
        let server = world.session(server_counters.clone());
        let counters = ClientCounters::clone(&client_counters);
        let mut client = ClientSession::new("proxy", key, held, counters);
        if wants_identity {
            client = client.wanting_identity();
        }
        let mut pair = Pair {
            server,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            server_counters,
            client_counters,
            client_bytes: 0,
            largest_frame: 0,
            now: clock::now(),
            key,
            applied: Vec::new(),
            logged: Vec::new(),
            receipts: Vec::new(),
            anchors: None,
            signed: Vec::new(),
            is_demanding: None,
            answered: Vec::new(),
            is_old: false,
            client,
        };
        let hello = pair.client.hello();
        pair.send(hello);
        pair
    }

    /// This pair, whose proxy is of a build that knows these kinds.
    pub(crate) fn knowing(mut self, kinds: KnownKinds) -> Self {
        self.client = self.client.knowing(kinds);
        self
    }

    /// Connects two ends that hold what exceeds these limits.
    pub(crate) fn connect_holding(world: &World, held: Snapshot, limits: HoldLimits) -> Self {
        let mut pair = Self::connect(world, held.clone());
        let server = world.session(pair.server_counters.clone());
        pair.server = server.holding(limits);
        let key = (!held.is_empty()).then_some(KEY);
        let counters = pair.client_counters.clone();
        pair.client = ClientSession::new("proxy", key, held, counters).holding(limits);
        pair
    }

    /// Delivers everything until both ends wait.
    pub(crate) fn settle(&mut self) {
        while self.step() {}
    }

    /// Lets the server speak, then delivers one message each way.
    pub(crate) fn step(&mut self) -> bool {
        let spoke = self.speak();
        let served = self.serve_one();
        self.obey_one() || served || spoke
    }

    pub(crate) fn speak(&mut self) -> bool {
        let before = self.to_client.len();
        while let Some(frame) = self.server.poll(self.now) {
            self.largest_frame = self.largest_frame.max(frame.len());
            let message = FromServer::decode(frame).expect("a correct server");
            self.to_client.push_back(message);
        }
        self.to_client.len() > before
    }

    pub(crate) fn serve_one(&mut self) -> bool {
        let Some(message) = self.to_server.pop_front() else {
            return false;
        };
        let report = self.server.receive(message).expect("a correct client");
        if let Report::Acked { receipts, .. } = report {
            self.receipts.extend(receipts);
        }
        true
    }

    pub(crate) fn obey_one(&mut self) -> bool {
        let Some(message) = self.to_client.pop_front() else {
            return false;
        };
        match self.client.receive(message).expect("a correct server") {
            Received::Nothing => {}
            Received::Anchors(anchors) => self.anchors = Some(anchors),
            Received::Signed(outcome) => self.signed.push(outcome),
            Received::Demanding(is_open) => self.is_demanding = Some(is_open),
            Received::Answered(host, time) => self.answered.push((host, time)),
            Received::Answer(answer) => self.send(answer),
            Received::Key(key, hello) => {
                self.key = Some(key);
                let mut record = Logged::new(self.client.held().position().clone());
                record.key = Some(key);
                self.logged.push(record);
                self.send(hello);
            }
            Received::Apply(delivery) => {
                let mut refusals = Vec::new();
                for change in &delivery.commit.changes {
                    let is_refused = change.new.as_ref().is_some_and(|new| {
                        let endpoints = new.endpoints().map(|it| &it.endpoints[0].address);
                        endpoints.is_some_and(|address| address.port() == REFUSED_PORT)
                    });
                    if is_refused {
                        let (key, reason) = (change.key.clone(), "a test says so".to_owned());
                        refusals.push(Refusal { key, reason });
                    } else {
                        let is_removal = change.new.is_none();
                        self.applied.push((change.key.clone(), is_removal));
                    }
                }
                let mut logged = delivery.logged;
                logged.leave_out(&refusals);
                self.logged.push(logged);
                let ack = self.client.applied(&refusals).expect("a commit");
                self.send(ack);
            }
        }
        self.release();
        true
    }

    /// Lets the proxy put into service what need not wait any more.
    pub(crate) fn release(&mut self) {
        while let Some(delivery) = self.client.release(self.now) {
            let changes = delivery.commit.changes.iter();
            self.applied
                .extend(changes.map(|change| (change.key.clone(), true)));
            self.logged.push(delivery.logged);
        }
    }

    fn send(&mut self, mut message: FromProxy) {
        if let Some(from_proxy::Body::Nodes(nodes)) = &mut message.body
            && self.is_old
        {
            let leaves = nodes.nodes.iter_mut().flat_map(|node| &mut node.leaves);
            leaves.for_each(|leaf| leaf.kind = 0);
        }
        self.client_bytes += message.encoded_len() as u64;
        self.to_server.push_back(message);
    }
}

/// A small generator, so that a seed gives one run wherever it is tried again.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }
}
