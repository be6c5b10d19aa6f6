//! A connection of a client, before its first request.

use std::cell::{Cell, OnceCell};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use myriad_base::clock;
use myriad_model::{ClientAuth, Name, TlsSettings};

use super::certificate::Parsed;
use super::shown_certificate::ShownCertificate;
use super::stream_route::StreamRouteEntry;
use crate::admission::room::Seat;
use crate::admission::share::{HeldShare, Owner};
use crate::codec::client::ClientAddress;
use crate::codec::proxy_header::Ends;
use crate::local::Local;
use crate::net::deadline::Deadline;
use crate::telemetry::access_log::AccessLogLine;
use crate::telemetry::recording::Recording;
use crate::telemetry::standard::Reporter;
use crate::telemetry::workloads::WorkloadId;

/// A connection of a client.
pub struct DownstreamConnection {
    /// The listener that accepted it.
    pub listener: Name,
    /// The client: the other end, or the one that it introduced; of an unspecified address where
    /// that did not know it.
    pub client: SocketAddr,
    /// Its address as fields tell it, or `unknown`, written once for all requests.
    pub client_text: Box<str>,
    /// The introduction of the client by a balancer, where there was one.
    pub introduction: Option<Box<Introduction>>,
    /// The address that the client connected to, where that is known.
    pub address: Option<IpAddr>,
    /// Its port.
    pub port: u16,
    /// Whether network rules led it here, so that address and port are what it was meant for.
    pub is_captured: bool,
    /// Whether it is one that the workload beside the proxy is sent.
    pub is_inbound: bool,
    /// The workload of the mesh that has shown who it is.
    pub met: WorkloadId,
    /// The result of the TLS handshake; `None` for plain text.
    pub secured: Option<Secured>,
    /// Its place among the connections of its domain, once that is known.
    pub held: OnceCell<HeldShare>,
    /// Its place among the tunnels of its domain, where all of it is one.
    pub tunnel: OnceCell<Box<HeldShare>>,
    /// Its place among the worker's connections.
    pub seat: Option<Seat>,
    /// Whether the listener's socket was closed; its connections end with the request they are
    /// in.
    pub is_closing: Arc<AtomicBool>,
}

/// A client that a balancer in front has introduced, by a header of the PROXY protocol.
pub struct Introduction {
    /// The balancer's own address.
    pub sender: IpAddr,
    /// The address that the client connected to, as far as the balancer knew.
    pub server: SocketAddr,
}

/// The result of a TLS handshake.
pub struct Secured {
    /// The name that the client sent, in lower case.
    pub sni: Option<Box<str>>,
    /// Whether a domain answered; otherwise the listener did, by its default certificate.
    pub by_domain: bool,
    /// Whether it was mutual TLS between proxies of the mesh, which is no concern of requests.
    pub is_mesh: bool,
    /// The settings that the handshake was done by.
    pub settings: Arc<TlsSettings>,
    /// The certificate that was served.
    pub certificate: Arc<Parsed>,
    /// Certificates that may have been served in its place.
    pub alternatives: Box<[Arc<Parsed>]>,
    /// The request for a client's certificate.
    pub client_auth: Option<Arc<ClientAuth>>,
    /// The client's certificate, which was verified.
    pub peer: Option<Box<VerifiedPeer>>,
    /// The client's certificate where any may be shown, verified or not, for routes to judge.
    pub shown: Option<Box<ShownCertificate>>,
    /// `1.2` or `1.3`.
    pub version: &'static str,
    /// The generation of the tables in which the name that was sent was last seen to be served
    /// on such a connection.
    pub checked: Cell<u64>,
}

/// A client that has shown a certificate which was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedPeer {
    /// The subject of its certificate, the last part first (RFC 2253).
    pub subject: Box<str>,
    /// URIs among its subject alternative names; a SPIFFE identity is one.
    pub uris: Box<[Box<str>]>,
    /// DNS names among its subject alternative names.
    pub dns_names: Box<[Box<str>]>,
    /// SHA-256 of the certificate.
    pub hash: [u8; 32],
    /// The value of `X-Forwarded-Client-Cert`, written once for all requests.
    pub forwarded: Box<str>,
}

impl Secured {
    /// Whether whatever certificate was served is for a lower-case name.
    pub fn covers(&self, name: &str) -> bool {
        self.certificate.covers(name) && self.alternatives.iter().all(|it| it.covers(name))
    }
}

impl DownstreamConnection {
    /// The address at the other end of the connection itself, which is a balancer's where that
    /// has introduced the client.
    pub fn peer(&self) -> IpAddr {
        let introduction = self.introduction.as_deref();
        introduction.map_or(self.client.ip(), |it| it.sender)
    }

    /// Takes the client for the one that a balancer has introduced.
    pub fn introduce(&mut self, ends: Ends) {
        let sender = self.peer();
        let server = ends.server;
        self.introduction = Some(Box::new(Introduction { sender, server }));
        self.client = ends.client;
        self.client_text = text_of(ends.client);
    }

    /// Both ends of the client's connection, as endpoints are told of them.
    pub fn ends(&self) -> Ends {
        let ends = Ends::of(self.client, self.port);
        let introduced = self.introduction.as_deref().map(|it| it.server);
        let own = || self.address.map(|address| (address, self.port).into());
        Ends {
            server: introduced.or_else(own).unwrap_or(ends.server),
            ..ends
        }
    }

    /// The original destination, where it was captured.
    pub fn original(&self) -> Option<SocketAddr> {
        let address = self.address.filter(|_| self.is_captured)?;
        Some((address, self.port).into())
    }

    /// The reporter of what comes by the connection.
    pub fn reporter(&self) -> Reporter {
        match self.is_inbound {
            true => Reporter::Destination,
            false => Reporter::Source,
        }
    }

    /// A line of the access log about what comes by it.
    pub fn line(&self) -> AccessLogLine {
        let secured = self.secured.as_ref();
        let peer = secured.and_then(|secured| secured.peer.as_ref());
        AccessLogLine {
            port: self.port,
            sni: secured.and_then(|secured| secured.sni.clone()),
            scheme: match secured {
                Some(_) => "https",
                None => "http",
            },
            tls: secured.map(|secured| secured.version),
            principal: peer.map(|peer| peer.uris.first().cloned().unwrap_or_default()),
            ..AccessLogLine::new(self.listener.clone(), self.client)
        }
    }

    /// A line about what of it a stream route takes, where a recording, or else the proxy's own
    /// setting, wants one.
    pub fn stream_line(
        &self,
        local: &Local,
        recording: Option<&Arc<Recording>>,
        entry: &StreamRouteEntry,
    ) -> Option<Box<AccessLogLine>> {
        let has_logs = recording.and_then(|recording| recording.has_logs());
        has_logs.unwrap_or(local.logs_all).then(|| {
            let resource = entry.sealed().resource();
            let obeyed = recording.filter(|_| has_logs.is_some());
            Box::new(AccessLogLine {
                time: clock::since_epoch(),
                origin: resource.map(|resource| resource.origin.clone()),
                recording: obeyed.map(|recording| (recording.clone(), 0)),
                ..self.line()
            })
        })
    }

    /// The scheme of what comes by it.
    pub fn scheme(&self) -> &'static str {
        let secured = self.secured.as_ref();
        if secured.is_some_and(|secured| !secured.is_mesh) {
            "https"
        } else {
            "http"
        }
    }

    /// Whether the other end is known to be of this proxy's mesh: the workload beside it, or a
    /// proxy that has shown a certificate of the mesh.
    pub fn is_of_mesh(&self) -> bool {
        let secured = self.secured.as_ref();
        let has_shown = secured.is_some_and(|it| it.is_mesh && it.peer.is_some());
        has_shown || (self.is_captured && !self.is_inbound)
    }

    /// Whether the connection shall end with the request it is in, since its listener is gone.
    pub fn is_leaving(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    /// Counts it as one of its domain's. Where that has its share already, another of its
    /// connections goes for it that waits for a request; false where none does.
    pub fn belong_to(&self, owner: Owner, local: &Local) -> bool {
        let fairness = &local.fairness;
        let held = fairness.take_connection(owner, self.all(local));
        let held = held.or_else(|| {
            let is_exchanged = !fairness.sheds() && local.room.exchange(owner.domain);
            is_exchanged.then(|| fairness.connections.exchange(owner))
        });
        let Some(held) = held else {
            return false;
        };
        if let Some(seat) = &self.seat {
            seat.belong_to(owner.domain);
        }
        self.held.set(held).is_ok()
    }

    /// Counts it as one of another domain's from now on, and no longer as what it was.
    pub fn pass_to(&mut self, owner: Owner, local: &Local) -> bool {
        self.held = OnceCell::new();
        self.belong_to(owner, local)
    }

    /// Whether it could be counted so now.
    pub fn may_belong_to(&self, owner: Owner, local: &Local) -> bool {
        let fairness = &local.fairness;
        fairness.admits_connection(owner, self.all(local))
            || (!fairness.sheds() && local.room.may_exchange(owner.domain))
    }

    /// The connections of the worker with this one, but for those whose handshake is under way.
    fn all(&self, local: &Local) -> usize {
        let is_served = self.seat.as_ref().is_some_and(|seat| !seat.is_shaking());
        // Without a place it is one that is about to take it.
        local.room.served() + usize::from(!is_served)
    }

    /// The deadline that passes at once where the connection has to go for another.
    pub fn watch(&self, deadline: &Deadline) {
        if let Some(seat) = &self.seat {
            seat.watch(deadline);
        }
    }

    /// Its handshake is under way from now on, and it may have to go for another.
    pub fn shake(&self, deadline: &Deadline) {
        self.watch(deadline);
        if let Some(seat) = &self.seat {
            seat.shake();
        }
    }

    /// The connection waits for a request, and may have to go for another.
    pub fn rest(&self) {
        if let Some(seat) = &self.seat {
            seat.rest();
        }
    }

    /// So many bytes are held for the connection, also while it waits for a request.
    pub fn keep(&self, bytes: usize) {
        if let Some(seat) = &self.seat {
            seat.keep(bytes);
        }
    }

    /// The connection has a request to serve, or its handshake is over.
    pub fn work(&self) {
        if let Some(seat) = &self.seat {
            seat.work();
        }
    }

    /// Whether it has to go for another.
    pub fn is_evicted(&self) -> bool {
        self.seat.as_ref().is_some_and(Seat::is_evicted)
    }

    /// The identity in the client's verified certificate: its first SPIFFE URI, without scheme.
    pub fn principal(&self) -> Option<&str> {
        let peer = self.secured.as_ref()?.peer.as_ref()?;
        let mut uris = peer.uris.iter();
        uris.find_map(|uri| uri.strip_prefix("spiffe://"))
    }

    /// A connection in plain text.
    pub fn new(listener: Name, client: SocketAddr, port: u16) -> Self {
        DownstreamConnection {
            listener,
            client,
            client_text: text_of(client),
            introduction: None,
            address: None,
            port,
            is_captured: false,
            is_inbound: false,
            met: WorkloadId::UNKNOWN,
            secured: None,
            held: OnceCell::new(),
            tunnel: OnceCell::new(),
            seat: None,
            is_closing: Arc::default(),
        }
    }
}

fn text_of(client: SocketAddr) -> Box<str> {
    ClientAddress::from(client.ip()).to_string().into()
}
