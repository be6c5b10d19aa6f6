//! Handshakes: from a connection to a stream of plain bytes, and what was settled on the way.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, LazyLock};
use std::task::Poll;
use std::time::Duration;

use myriad_model::{ClientAuth, ClientAuthMode, Host, Name, TlsSettings};
use rustls::{HandshakeKind, ProtocolVersion};
use tokio::net::TcpStream;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::by_name::of_name;
use super::challenge;
use super::config::{Configs, Offer, Speaks, Want, chosen, with_chosen};
use super::demand::Demand;
use super::gate::Gate;
use super::hello::{self, Hello};
use super::key::ParsedKeys;
use super::park::Unparked;
use super::tickets::TicketKeys;
use super::{client, shown};
use crate::admission::holdings::HeldBytes;
use crate::admission::share::Owner;
use crate::admission::silent::source_of;
use crate::admission::spaces::HANDSHAKES;
use crate::admission::turns::HandshakeTurn;
use crate::codec::buffer::Buffer;
use crate::limits::{Limits, Reached};
use crate::net::allowance::Allowance;
use crate::net::deadline::Deadline;
use crate::net::record::Tls;
use crate::net::stream::{PARTS_MAX, poll_hear};
use crate::route::certificate::Parsed;
use crate::route::challenge::ChallengeEntry;
use crate::route::downstream_connection::Secured;
use crate::route::identity::{IdentityEntry, MESH_CLIENTS};
use crate::route::shown_certificate::CertificateVerdict;
use crate::route::stream_route::{Arrival, StreamRouteEntry};
use crate::route::tables::{Answerer, Tables};
use crate::route::trust::TrustEntry;
use crate::telemetry::count::{Count, Counts};
use crate::telemetry::refusal::PeerRefusal;

/// The memory of a handshake that waits for its client, in bytes, beside what has arrived: about
/// what rustls keeps of its keys, transcript and messages.
const HANDSHAKE_BYTES: usize = 8 << 10;

/// The longest that a handshake which waits for its client keeps its slot. What is left to do for
/// it then is cheap, and its memory is counted as held.
const SLOT_TIME: Duration = Duration::from_secs(1);

/// Settings of handshakes that no domain answers for.
static DEFAULT_SETTINGS: LazyLock<Arc<TlsSettings>> = LazyLock::new(Arc::default);

/// The state that handshakes of all workers share.
pub struct Handshakes {
    configs: Configs,
    keys: ParsedKeys,
    demand: Demand,
}

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// Its domain has more than its share of what the worker can bear, or its turn did not come.
    #[error("its domain has more than its share, or its turn did not come")]
    Shed,
    /// Nobody here has the name, or not with a certificate that can be used.
    #[error("no domain has the name")]
    UnknownName,
    /// The ClientHello is longer than the limit.
    #[error("the ClientHello is too long")]
    TooLong,
    /// It took too long.
    #[error("it took too long")]
    Timeout(#[from] Elapsed),
    /// The client broke the protocol, or shares no version or cipher with us.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl HandshakeError {
    /// Why the client was not believed, where that is why.
    pub fn refusal(&self) -> Option<PeerRefusal> {
        match self {
            HandshakeError::Tls(error) => PeerRefusal::of_tls(error),
            HandshakeError::Io(error) => PeerRefusal::of(error),
            HandshakeError::UnknownName
            | HandshakeError::TooLong
            | HandshakeError::Timeout(_)
            | HandshakeError::Shed => None,
        }
    }
}

/// The outcome of a handshake.
pub enum Accepted {
    /// It was answered here, and a stream route may take what comes out of it.
    Secured(Box<Tls>, Secured, Option<Arc<StreamRouteEntry>>),
    /// A stream route takes it as it came.
    Passed(Box<Passed>),
    /// It was the question of a certificate authority, and is answered.
    Answered,
}

/// A handshake that is not answered here.
pub struct Passed {
    /// The connection.
    pub tcp: TcpStream,
    /// The handshake's first bytes.
    pub received: Buffer,
    /// The name it is for, in lower case.
    pub sni: Option<Box<str>>,
    /// The stream route that takes it.
    pub entry: Arc<StreamRouteEntry>,
}

/// Which handshakes are with the proxy's own certificate in its mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meshed {
    /// No handshake.
    No,
    /// Handshakes that offer a protocol of the mesh.
    WhereOffered,
    /// All handshakes.
    Always,
}

/// The certificate and settings that answer a handshake.
struct Choice {
    certificate: Arc<Parsed>,
    /// Further certificates, whose keys are of other algorithms.
    alternatives: Box<[Arc<Parsed>]>,
    settings: Arc<TlsSettings>,
    /// The request for clients' certificates, and the authorities that verify them.
    clients: Option<(Arc<ClientAuth>, Arc<TrustEntry>)>,
    by_domain: bool,
    /// The domain that the handshake counts for.
    owner: Owner,
    /// Its host, where the certificate is that of a domain.
    host: Option<Host>,
    /// The trust domains of peers, where certificate and authorities are those of the mesh.
    mesh: Option<Arc<[Box<str>]>>,
}

impl Handshakes {
    /// An empty state: nothing is parsed and nothing is configured yet.
    pub fn new(limits: &Limits, tickets: Arc<TicketKeys>, demand: Demand) -> Self {
        Handshakes {
            configs: Configs::new(tickets),
            keys: ParsedKeys::new(limits.parsed_keys_max),
            demand,
        }
    }

    /// Does the handshake of a connection, unless a stream route takes it. `load` gives the tables,
    /// once the name is known.
    ///
    /// # Errors
    /// Why it failed; the client has been told, or its connection is closed.
    pub async fn accept<G: std::ops::Deref<Target = Arc<Tables>>>(
        &self,
        (mut tcp, received): (TcpStream, Buffer),
        arrival: Arrival<'_>,
        meshed: Meshed,
        load: impl Fn() -> G,
        gate: &Gate<'_>,
    ) -> Result<Accepted, HandshakeError> {
        let (limits, counts) = (&gate.local.limits, &gate.local.counts);
        let hello = hello::read(&mut tcp, received, limits.client_hello_bytes_max);
        let hello = timeout(limits.handshake_timeout, hello).await?;
        if matches!(hello, Err(HandshakeError::TooLong)) {
            counts.add_reached(Reached::ClientHelloBytes);
        }
        let hello = hello?;
        let tables = load();
        let is_mesh = match meshed {
            Meshed::No => false,
            Meshed::WhereOffered => hello.is_mesh,
            Meshed::Always => true,
        };
        if is_mesh {
            let choice = self.choose_own(&tables, counts);
            drop(tables);
            return Box::pin(self.answer(tcp, hello, choice, Speaks::Mesh, None, gate)).await;
        }
        let sni = hello.sni.as_deref();
        if let Some(name) = sni.filter(|_| hello.is_challenge)
            && let Some(entry) = tables.challenge_by_tls(name)
        {
            let entry = entry.clone();
            drop(tables);
            return Box::pin(answer_challenge(tcp, hello, &entry, gate)).await;
        }
        if let Some(entry) = tables.stream_route(arrival, sni) {
            let entry = entry.clone();
            drop(tables);
            return pass(tcp, hello, entry);
        }
        let ended = Arrival {
            is_terminated: true,
            ..arrival
        };
        let stream_route = tables.stream_route(ended, sni).cloned();
        let mut choice = self.choose(&tables, arrival.listener, sni, counts);
        let missing = sni.filter(|name| {
            let found = (choice.as_ref(), stream_route.is_some());
            !hello.is_challenge && self.is_missing(&tables, arrival.listener, name, found)
        });
        let is_handed_on = tables.hands_handshakes_on(arrival.listener);
        drop(tables);
        if let Some(name) = missing
            && Box::pin(self.await_certificate(&tcp, name, &hello.received, gate)).await?
        {
            choice = self.choose(&load(), arrival.listener, sni, counts);
        }
        if choice.is_none() && is_handed_on {
            return Err(HandshakeError::UnknownName);
        }
        if let (Some(choice), Some(stream_route)) = (&mut choice, &stream_route) {
            // A stream belongs to who routes it, whoever has the certificate.
            choice.owner = stream_route.owner(arrival.listener);
            choice.require_certificate();
        }
        let streamed = stream_route.as_ref().map(|_| Speaks::Anything);
        let speaks = streamed.unwrap_or(Speaks::Http);
        self.answer(tcp, hello, choice, speaks, stream_route, gate)
            .await
    }

    /// Whether a certificate may be obtained on demand for a name: it is served, and what was
    /// chosen for its handshake is for another.
    fn is_missing(
        &self,
        tables: &Tables,
        listener: &Name,
        name: &str,
        (choice, is_streamed): (Option<&Choice>, bool),
    ) -> bool {
        self.demand.is_open()
            && !choice.is_some_and(|choice| choice.certificate.covers(name))
            && tables.lacks_certificate(listener, name, is_streamed)
    }

    /// Waits for a certificate that may be obtained on demand. Whether there may be one now.
    async fn await_certificate(
        &self,
        tcp: &TcpStream,
        name: &str,
        received: &Buffer,
        gate: &Gate<'_>,
    ) -> Result<bool, HandshakeError> {
        let mut held = gate.local.fairness.holdings.connection();
        held.set(received.capacity());
        if !held.may_grow() {
            return Ok(false);
        }
        let (source, counts) = (source_of(gate.visit.client.ip()), &gate.local.counts);
        let waiting = gate.parked.wait(&self.demand, (name, source), tcp, counts);
        match waiting.await {
            Unparked::Answered => Ok(true),
            Unparked::Over => Ok(false),
            Unparked::Gone => Err(HandshakeError::Io(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Does the handshake with what was chosen to answer it.
    async fn answer(
        &self,
        mut tcp: TcpStream,
        hello: Hello,
        choice: Option<Choice>,
        speaks: Speaks,
        stream_route: Option<Arc<StreamRouteEntry>>,
        gate: &Gate<'_>,
    ) -> Result<Accepted, HandshakeError> {
        let Some(choice) = choice else {
            hello::refuse_name(&mut tcp).await;
            return Err(HandshakeError::UnknownName);
        };
        let turn = gate.enter(choice.owner).await?;
        if hello::is_gone(&tcp).await {
            return Err(HandshakeError::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        let clients = choice.clients.as_ref();
        let want = Want {
            settings: choice.settings.clone(),
            speaks,
            mesh: choice.mesh.clone(),
            clients: clients.map(|(auth, trust)| (auth.clone(), trust.sealed.version())),
        };
        let trust = choice.clients.as_ref().map(|(_, trust)| &**trust);
        let config = self.configs.get(want, trust)?;
        let tls = Tls::server(tcp, config, hello.received.filled())?;
        drop(hello.received);
        let mut tls = Box::new(tls);
        let (offer, is_parted) = (choice.offer(), choice.clients.is_some());
        let way = (&offer, choice.owner, is_parted);
        let turn = Box::pin(shake(&mut tls, way, turn, gate)).await?;
        gate.settle(choice.owner)?;
        let judged = turn.filter(|_| choice.judges());
        let secure = || choice.secured(&tls, hello.sni, &gate.local.counts);
        let secured = match &judged {
            Some(turn) => turn.step(secure),
            None => secure(),
        };
        Ok(Accepted::Secured(tls, secured, stream_route))
    }

    fn choose(
        &self,
        tables: &Tables,
        listener: &Name,
        sni: Option<&str>,
        counts: &Counts,
    ) -> Option<Choice> {
        let (entry, settings, domain) = match tables.answerer(listener, sni) {
            Answerer::Domain(domain, entry, origin) => (entry, &domain.tls, Some((domain, origin))),
            Answerer::Listener(entry) => (entry, &*DEFAULT_SETTINGS, None),
            Answerer::Nobody => return None,
        };
        let owner = domain.map(|(domain, origin)| Owner::of(origin, &domain.host));
        let domain = domain.map(|(domain, _)| domain);
        if let Some(found) = sni.and_then(|name| tables.on_demand(name))
            && Arc::ptr_eq(&found.certificate, entry)
        {
            self.demand.note_use(found);
        }
        let more = domain.map_or(&[][..], |domain| &domain.alternatives);
        let more = more.iter().filter_map(|name| tables.certificate(name));
        // The answerer is one of them where the first certificate is not there.
        let more = more.filter(|other| !Arc::ptr_eq(other, entry));
        let all = std::iter::once(entry).chain(more);
        let mut all = all.map(|entry| self.keys.get(entry, counts).ok());
        let (certificate, alternatives) = match domain.is_some_and(|domain| domain.by_name) {
            true => of_name(all.flatten().collect(), sni)?,
            false => (all.next()??, all.flatten().collect()),
        };
        let is_mesh = domain.is_some_and(|domain| domain.mesh);
        let clients = match domain.and_then(|domain| domain.client_auth.as_ref()) {
            _ if is_mesh => Some(mesh_clients(tables.identity()?)),
            Some(auth) => Some((auth.clone(), tables.trust(&auth.trust)?.clone())),
            None => None,
        };
        let mesh = match is_mesh {
            true => Some(tables.identity()?.trust_domains.clone()),
            false => None,
        };
        Some(Choice {
            certificate,
            alternatives,
            settings: settings.clone(),
            clients,
            by_domain: domain.is_some(),
            host: domain.map(|domain| domain.host.clone()),
            owner: owner.unwrap_or_default(),
            mesh,
        })
    }

    /// The proxy's own certificate in its mesh; none where it has none.
    fn choose_own(&self, tables: &Tables, counts: &Counts) -> Option<Choice> {
        let identity = tables.identity()?;
        Some(Choice {
            certificate: self.keys.get(&identity.certificate, counts).ok()?,
            alternatives: Box::default(),
            settings: DEFAULT_SETTINGS.clone(),
            clients: Some(mesh_clients(identity)),
            by_domain: false,
            owner: Owner::default(),
            host: None,
            mesh: Some(identity.trust_domains.clone()),
        })
    }
}

/// Hands a handshake on as it came. Where nobody is to have it, its connection is closed: TLS is
/// not spoken for an endpoint.
fn pass(
    tcp: TcpStream,
    hello: Hello,
    entry: Arc<StreamRouteEntry>,
) -> Result<Accepted, HandshakeError> {
    if !entry.leads_somewhere() {
        return Err(HandshakeError::UnknownName);
    }
    Ok(Accepted::Passed(Box::new(Passed {
        tcp,
        received: hello.received,
        sni: hello.sni,
        entry,
    })))
}

/// Does a handshake, in one turn, or in several: where the client has to be asked for another key
/// share, the signature comes after its second hello, by TLS 1.2 keys are agreed on once the client
/// has said its part, and where it `is_parted`, the client's certificates are verified then, which
/// may cost more than all else. No turn is held in between, and none is taken for less than a whole
/// record; the time that the client has does not run while one is waited for. Returns the last
/// turn, unless that was given back.
async fn shake<'a>(
    tls: &mut Tls,
    (offer, owner, is_parted): (&Offer, Owner, bool),
    turn: HandshakeTurn<'a>,
    gate: &'a Gate<'_>,
) -> Result<Option<HandshakeTurn<'a>>, HandshakeError> {
    let mut held = gate.local.fairness.holdings.connection();
    held.belong(HANDSHAKES);
    let (slow, mut turn) = (Deadline::new(), Some(turn));
    let mut until = i64::MAX;
    let mut allowance = Allowance::new(gate.local.limits.handshake_timeout);
    let mut further = Allowance::new(gate.local.limits.turn_timeout);
    for _ in 0..PARTS_MAX {
        let mut is_begun = false;
        let is_done = poll_fn(|context| {
            let mut go_on = || {
                tls.poll_handshake(context, &mut |step| {
                    with_chosen(offer, &mut until, step);
                })
            };
            let step = match &turn {
                Some(turn) if !is_begun => {
                    slow.set(SLOT_TIME);
                    turn.step(go_on)
                }
                _ => go_on(),
            };
            is_begun = true;
            if step.is_pending() {
                // The client may take its time from here on.
                gate.hold(&mut held, HANDSHAKE_BYTES + tls.buffered())?;
                if is_parted || has_more_to_do(tls) {
                    return Poll::Ready(Ok(false));
                }
                if slow.poll_passed(context).is_ready() {
                    slow.unset();
                    turn = None;
                }
            }
            step.map_ok(|()| true).map_err(HandshakeError::Io)
        });
        if allowance.wait(is_done).await?? {
            return Ok(turn);
        }
        drop(turn.take());
        allowance.wait(heard(tls, &mut held, gate)).await??;
        turn = Some(gate.turn(owner, &mut further).await?);
    }
    let many = "the handshake comes in too many parts";
    let error = io::Error::new(io::ErrorKind::InvalidData, many);
    Err(HandshakeError::Io(error))
}

/// Waits until the client has said more, and counts what has come of it as held.
async fn heard(tls: &mut Tls, held: &mut HeldBytes, gate: &Gate<'_>) -> Result<(), HandshakeError> {
    poll_fn(|context| {
        let polled = poll_hear(tls, context);
        gate.hold(held, HANDSHAKE_BYTES + tls.buffered())?;
        polled.map_err(HandshakeError::Io)
    })
    .await
}

/// Whether what is left to do once the client has said more takes as long as a signature: that
/// itself, where it is asked again, or by TLS 1.2 the agreement on keys. Behind that, and where a
/// session is resumed, the client's last word is left.
fn has_more_to_do(tls: &Tls) -> bool {
    tls.handshake_kind() != Some(HandshakeKind::Resumed) && !tls.has_agreed_on_keys()
}

/// Shows an authority the answer that it asks for.
async fn answer_challenge(
    tcp: TcpStream,
    hello: Hello,
    entry: &ChallengeEntry,
    gate: &Gate<'_>,
) -> Result<Accepted, HandshakeError> {
    let owner = entry.sealed.resource().zip(entry.answer());
    let owner = owner.map(|(resource, answer)| Owner::of(&resource.origin, &answer.host));
    let owner = owner.unwrap_or_default();
    let turn = gate.enter(owner).await?;
    let shown = entry.shown(challenge::certificate);
    let offer = Offer::from_iter([shown.ok_or(HandshakeError::UnknownName)?]);
    let config = challenge::config(chosen())?;
    let mut tls = Box::new(Tls::server(tcp, config, hello.received.filled())?);
    drop(hello.received);
    Box::pin(shake(&mut tls, (&offer, owner, false), turn, gate)).await?;
    gate.local.counts.add(Count::HandshakeFull);
    Ok(Accepted::Answered)
}

/// The request for clients' certificates in the mesh, and the authorities that verify them.
fn mesh_clients(identity: &IdentityEntry) -> (Arc<ClientAuth>, Arc<TrustEntry>) {
    (MESH_CLIENTS.clone(), identity.trust.clone())
}

impl Choice {
    /// The result of the handshake that has ended.
    fn secured(self, tls: &Tls, sni: Option<Box<str>>, counts: &Counts) -> Secured {
        counts.add(match tls.handshake_kind() {
            Some(HandshakeKind::Resumed) => Count::HandshakeResumed,
            _ => Count::HandshakeFull,
        });
        if let Some(host) = &self.host {
            counts.top.note_handshake(host);
        }
        let version = match tls.version() {
            Some(ProtocolVersion::TLSv1_2) => "1.2",
            _ => "1.3",
        };
        let own = self.certificate.key.cert.first();
        let clients = self.clients.as_ref();
        let judged = clients.filter(|(auth, _)| auth.mode == ClientAuthMode::Shown);
        let shown = judged.and_then(|(auth, trust)| shown::shown(auth, trust, tls.client_chain()));
        // What was not verified is nobody's identity.
        let is_verified = judged.is_none()
            || shown
                .as_ref()
                .is_some_and(|it| it.verdict == CertificateVerdict::Verified);
        let leaf = tls.client_certificate();
        let leaf = leaf.filter(|_| clients.is_some() && is_verified);
        Secured {
            peer: leaf.and_then(|leaf| client::peer(leaf, own)).map(Box::new),
            shown: shown.map(Box::new),
            alternatives: self.alternatives,
            client_auth: self.clients.map(|(auth, _)| auth),
            sni,
            by_domain: self.by_domain,
            is_mesh: !self.by_domain && self.mesh.is_some(),
            settings: self.settings,
            certificate: self.certificate,
            version,
            checked: Cell::new(0),
        }
    }

    /// Whether the client's certificate is judged once the handshake is done.
    fn judges(&self) -> bool {
        let clients = self.clients.as_ref();
        clients.is_some_and(|(auth, _)| auth.mode == ClientAuthMode::Shown)
    }

    /// Lets the handshake judge the client's certificate, where nobody does behind it.
    fn require_certificate(&mut self) {
        if let Some((auth, _)) = &mut self.clients
            && auth.mode == ClientAuthMode::Shown
        {
            *auth = Arc::new(ClientAuth {
                mode: ClientAuthMode::Required,
                ..ClientAuth::clone(auth)
            });
        }
    }

    /// The keys that the handshake chooses from.
    fn offer(&self) -> Offer {
        let all = std::iter::once(&self.certificate).chain(&self.alternatives);
        all.map(|it| it.key.clone()).collect()
    }
}
