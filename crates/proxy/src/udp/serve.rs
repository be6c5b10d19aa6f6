//! Receiving the datagrams of a listener, and handing them on by flow.
//!
//! All that comes from one port of a client is one flow, which has a socket of its own to one
//! endpoint, so that the endpoint's answers find their way back. Nothing tells when a flow is over
//! but that nobody says anything any more; so they are bounded, and the oldest of whoever has most
//! has to go where there is no room. Answers come from the address that the socket is bound to;
//! where that is all addresses, from the one that the system sends from.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use myriad_base::task;
use myriad_model::Name;
use tokio::io::ReadBuf;
use tokio::net::UdpSocket;

use super::account::FlowAccount;
use super::flow::{DatagramFlow, FlowEnding, Led, Sent};
use super::flows::Flows;
use super::lead::Leading;
use super::pace;
use super::scratch;
use super::stop::{ReceiverOrder, Stop};
use crate::admission::share::{HeldShare, Owner};
use crate::balance::outlier::EndpointOutcome;
use crate::failure::FailureKind;
use crate::limits::Reached;
use crate::local::Shared;
use crate::policy::authorize::{self, JudgedStream};
use crate::route::downstream_connection::DownstreamConnection;
use crate::route::stream_route::{Arrival, StreamRouteEntry};
use crate::route::tables::Tables;
use crate::telemetry::count::Count;
use crate::upstream::attempt;
use crate::upstream::entry::hash_of;

/// The most datagrams that are taken before others of the worker have their turn.
const BURST: usize = 32;

/// The silence that ends a flow where its stream route says nothing.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The parts of their worker that datagrams need.
pub struct DatagramContext {
    /// Limits, counts, dice and log.
    pub local: Shared,
    /// The tables.
    pub tables: Arc<ArcSwap<Tables>>,
    /// The way to tell the receiver to end.
    pub stop: Rc<Stop>,
}

/// A receiver of the datagrams of one socket.
struct Receiver {
    context: DatagramContext,
    listener: Name,
    socket: UdpSocket,
    /// The address of the socket.
    own: SocketAddr,
    flows: RefCell<Flows>,
    /// The bytes that wait in all flows until these lead somewhere.
    waiting: Rc<Cell<usize>>,
}

/// Serves by a socket until its receiver is told to end, and then until its last flow has ended.
pub async fn serve(context: DatagramContext, listener: Name, socket: std::net::UdpSocket) {
    let socket = UdpSocket::from_std(socket);
    let opened = socket.and_then(|socket| Ok((socket.local_addr()?, socket)));
    let (own, socket) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            tracing::error!(listener = %listener, %error, "a socket cannot be used");
            return;
        }
    };
    // Before it is known to be writable nothing is sent.
    let _ = socket.writable().await;
    let receiver = Rc::new(Receiver {
        context,
        listener,
        socket,
        own,
        flows: RefCell::default(),
        waiting: Rc::default(),
    });
    let mut is_draining = false;
    poll_fn(|context| receiver.poll_serve(context, &mut is_draining)).await;
}

impl Receiver {
    /// Ready once nothing is left to do.
    fn poll_serve(self: &Rc<Self>, context: &mut Context<'_>, is_draining: &mut bool) -> Poll<()> {
        let order = self.context.stop.poll_order(context);
        match order {
            ReceiverOrder::Serve => {}
            ReceiverOrder::Drain { last_call, .. } => {
                if !std::mem::replace(is_draining, true) {
                    self.flows.borrow().shorten(last_call);
                }
            }
            ReceiverOrder::Close => {
                let all = self.flows.borrow().all();
                all.iter().for_each(|it| self.end(it, FlowEnding::Removed));
            }
        }
        let is_left = order != ReceiverOrder::Serve && self.flows.borrow().is_empty();
        let is_succeeded = matches!(
            order,
            ReceiverOrder::Drain {
                is_succeeded: true,
                ..
            }
        );
        match is_left {
            true => Poll::Ready(()),
            false if is_succeeded => Poll::Pending,
            false => self.poll_receive(context),
        }
    }

    /// Takes what clients have sent.
    fn poll_receive(self: &Rc<Self>, context: &mut Context<'_>) -> Poll<()> {
        let tables = self.context.tables.load();
        for _ in 0..BURST {
            let received = scratch::with(|bytes| {
                let mut read = ReadBuf::new(bytes);
                let received = self.socket.poll_recv_from(context, &mut read);
                // What the system says of a datagram that was sent is of no interest here.
                received.map(|client| {
                    if let Ok(client) = client {
                        self.take(&tables, client, read.filled());
                    }
                })
            });
            if received.is_pending() {
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Hands a datagram of a client on.
    fn take(self: &Rc<Self>, tables: &Tables, client: SocketAddr, datagram: &[u8]) {
        let counts = &self.context.local.counts;
        counts.add(Count::DatagramReceived);
        counts.add_many(Count::DatagramBytesReceived, datagram.len() as u64);
        let known = self.flows.borrow().get(client);
        let known = known.filter(|flow| self.keeps(tables, flow));
        let flow = known.or_else(|| self.begin(tables, client));
        let sent = flow.as_ref().map(|flow| flow.send(datagram));
        if let (Some(flow), Some(Sent::Refused)) = (&flow, sent) {
            let ending = self.refused(flow);
            self.end(flow, ending);
        }
        if sent != Some(Sent::Yes) {
            counts.add(Count::DatagramDropped);
        }
    }

    /// A new flow of a client; none where nothing takes it, or there is no room.
    fn begin(self: &Rc<Self>, tables: &Tables, client: SocketAddr) -> Option<Rc<DatagramFlow>> {
        // Nobody can be answered at port 0.
        if self.context.stop.order() != ReceiverOrder::Serve || client.port() == 0 {
            return None;
        }
        let entry = tables.stream_route(self.arrival(client), None)?;
        if !self.admits(tables, client) {
            return None;
        }
        let local = &self.context.local;
        let owner = entry.owner(&self.listener);
        if !pace::admits(&local.buckets, owner) {
            local.counts.add(Count::FlowPaced);
            return None;
        }
        let share = self.share(owner)?;
        let mut visit = DownstreamConnection::new(self.listener.clone(), client, self.own.port());
        visit.address = self.address();
        let timeout = entry.stream_route()?.connect_timeout;
        let flow = Rc::new(DatagramFlow::new(
            visit,
            share,
            self.waiting.clone(),
            timeout,
        ));
        self.flows.borrow_mut().enter(flow.clone());
        let account = FlowAccount::begin(local, tables.recording(), &flow, entry);
        let running = self.clone().run(flow.clone(), entry.clone(), account);
        task::spawn_local("flow", running);
        Some(flow)
    }

    /// A place for one more flow. Where its owner has as many as it may, another of this receiver's
    /// goes for it.
    fn share(&self, owner: Owner) -> Option<HeldShare> {
        let local = &self.context.local;
        let flows = local.fairness.flows();
        flows.take(owner, 0).or_else(|| {
            local.counts.add_reached(Reached::Flows);
            self.evict().then(|| flows.exchange(owner))
        })
    }

    /// Ends the flow that has to go for another; false without any.
    fn evict(&self) -> bool {
        let evicted = self.flows.borrow_mut().evict();
        if let Some(flow) = &evicted {
            flow.end(FlowEnding::Evicted);
        }
        evicted.is_some()
    }

    /// From the first datagram of a flow to its end.
    async fn run(
        self: Rc<Self>,
        flow: Rc<DatagramFlow>,
        entry: Arc<StreamRouteEntry>,
        mut account: FlowAccount,
    ) {
        let ending = match self.open(&flow, &entry, &mut account).await {
            Ok(()) => poll_fn(|context| self.poll_answers(context, &flow)).await,
            Err(ending) => ending,
        };
        self.end(&flow, ending);
        account.finish(&self.context.local, ending, &flow);
        // It may be the last that was waited for.
        if self.context.stop.order() != ReceiverOrder::Serve {
            self.context.stop.wake();
        }
    }

    /// Leads a flow to an endpoint, before its deadline.
    async fn open(
        &self,
        flow: &DatagramFlow,
        entry: &StreamRouteEntry,
        account: &mut FlowAccount,
    ) -> Result<(), FlowEnding> {
        let leading = Leading {
            local: &self.context.local,
            tables: &self.context.tables,
            visit: &flow.visit,
            entry,
        };
        let led = tokio::select! {
            biased;
            led = self.lead(&leading, account) => led.map_err(FlowEnding::Failed)?,
            ending = flow.over() => return Err(match ending {
                FlowEnding::Idle => FlowEnding::Failed(FailureKind::ConnectTimeout),
                ending => ending,
            }),
        };
        let own = entry.stream_route().map(|it| it.idle_timeout);
        let own = own.filter(|own| !own.is_zero());
        let lost = flow.open(led, own.unwrap_or(IDLE_TIMEOUT));
        let counts = &self.context.local.counts;
        counts.add(Count::FlowOpened);
        counts.add_many(Count::DatagramDropped, lost as u64);
        Ok(())
    }

    async fn lead(
        &self,
        leading: &Leading<'_>,
        account: &mut FlowAccount,
    ) -> Result<Led, FailureKind> {
        let led = leading.lead(account, || self.evict()).await?;
        // Before it is known to be writable nothing is sent.
        let writable = led.socket.writable().await;
        writable.map_err(|_| FailureKind::ConnectFailed)?;
        Ok(led)
    }

    /// Sends a flow's client what its endpoint answers; ready once the flow is over.
    fn poll_answers(&self, context: &mut Context<'_>, flow: &DatagramFlow) -> Poll<FlowEnding> {
        if !self.may_stay(&self.context.tables.load(), flow) {
            return Poll::Ready(FlowEnding::Removed);
        }
        for _ in 0..BURST {
            let received = scratch::with(|bytes| {
                let received = flow.poll_receive(context, bytes);
                received.map_ok(|length| {
                    self.answer(flow, bytes.get(..length).unwrap_or_default());
                })
            });
            match received {
                Poll::Pending => {
                    let refused = flow.poll_refused(context);
                    return match refused.is_ready() {
                        true => Poll::Ready(self.refused(flow)),
                        false => flow.poll_over(context),
                    };
                }
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(self.refused(flow)),
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn answer(&self, flow: &DatagramFlow, datagram: &[u8]) {
        let counts = &self.context.local.counts;
        match self.socket.try_send_to(datagram, flow.client()) {
            Ok(_) => {
                flow.note_answer(datagram.len());
                counts.add(Count::DatagramSent);
                counts.add_many(Count::DatagramBytesSent, datagram.len() as u64);
            }
            Err(_) => counts.add(Count::DatagramDropped),
        }
    }

    /// Whether a flow that there is may go on; it ends where not.
    fn keeps(&self, tables: &Tables, flow: &DatagramFlow) -> bool {
        let may_stay = self.may_stay(tables, flow);
        if !may_stay {
            self.end(flow, FlowEnding::Removed);
        }
        may_stay
    }

    /// Whether a flow is led to its endpoint by these tables too. One that is led nowhere yet finds
    /// its way by newer ones.
    fn may_stay(&self, tables: &Tables, flow: &DatagramFlow) -> bool {
        if flow.seen.get() == tables.generation {
            return true;
        }
        let client = flow.client();
        let stays = flow.with_led(|led| {
            let entry = tables.stream_route(self.arrival(client), None);
            let upstream = &led.upstream;
            entry.is_some_and(|entry| entry.leads_to(&upstream.name))
                && is_there(tables, led)
                && self.admits(tables, client)
        });
        if stays == Some(true) {
            flow.seen.set(tables.generation);
        }
        stays != Some(false)
    }

    /// Whether the policies of the listener admit a client.
    fn admits(&self, tables: &Tables, client: SocketAddr) -> bool {
        let access_policies = tables.access_policies();
        let stream = JudgedStream {
            listener: &self.listener,
            client: client.ip(),
            peer: client.ip(),
            address: self.address(),
            port: self.own.port(),
            server_name: None,
            principal: None,
        };
        access_policies.is_empty()
            || authorize::admits_stream(access_policies, &stream, &self.context.local.counts)
    }

    /// A client, as one that looks for its stream route.
    fn arrival(&self, client: SocketAddr) -> Arrival<'_> {
        Arrival {
            listener: &self.listener,
            client: client.ip(),
            own: self.address(),
            is_terminated: false,
        }
    }

    /// The address that clients send to; none where the system does not tell.
    fn address(&self) -> Option<IpAddr> {
        Some(self.own.ip()).filter(|address| !address.is_unspecified())
    }

    /// The end of a flow whose endpoint has said that nobody receives there.
    fn refused(&self, flow: &DatagramFlow) -> FlowEnding {
        flow.with_led(|led| {
            let (counts, target) = (&self.context.local.counts, led.flight.target());
            attempt::note(counts, led.pool(), target, EndpointOutcome::Failure);
        });
        FlowEnding::Failed(FailureKind::ConnectFailed)
    }

    fn end(&self, flow: &DatagramFlow, ending: FlowEnding) {
        self.flows.borrow_mut().leave(flow);
        flow.end(ending);
    }
}

/// Whether the endpoint of a flow is one of its upstream still, as far as resources say: what DNS
/// tells is asked for new flows.
fn is_there(tables: &Tables, led: &Led) -> bool {
    let name = &led.upstream.name;
    let Some(upstream) = tables.upstream(hash_of(name), name) else {
        return false;
    };
    Arc::ptr_eq(upstream, &led.upstream)
        || upstream.resolution.is_some()
        || upstream.lists(led.flight.target())
}
