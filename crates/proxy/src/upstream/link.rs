//! Connections to endpoints, and those of them that wait for their next request.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use foldhash::fast::RandomState;
use myriad_base::clock::{self, Instant};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;

use super::secure::ClientConfigs;
use crate::balance::Target;
use crate::net::count::Count;
use crate::net::failure::{Failure, FailureKind, Retry};
use crate::net::local::Shared;
use crate::net::record::Tls;
use crate::net::stream::Stream;

/// A connection to an endpoint.
pub struct Link {
    /// The bytes.
    pub stream: Stream,
    /// Whether it has served a request before.
    pub is_reused: bool,
    key: LinkKey,
}

/// Which connections are alike.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LinkKey {
    target: u64,
    /// The name sent in the TLS handshake; none for plain text.
    server_name: Option<Box<str>>,
}

impl LinkKey {
    /// The key of connections to a target; `host` is what a TLS handshake names where the
    /// upstream names nothing.
    pub fn new(target: &Target, host: &str) -> Self {
        let tls = target.tls();
        LinkKey {
            target: target.id,
            server_name: tls.map(|_| server_name(target, host).into_boxed_str()),
        }
    }
}

struct Waiting {
    link: Link,
    since: Instant,
}

struct Shelf {
    /// Gone when no table and no request knows the endpoint any more.
    target: Weak<Target>,
    /// The one used last is at the back, and is used first.
    waiting: VecDeque<Waiting>,
}

/// The connections of one worker that wait for their next request.
pub struct Links {
    local: Shared,
    shelves: RefCell<HashMap<LinkKey, Shelf, RandomState>>,
    count: Cell<usize>,
    configs: OnceCell<ClientConfigs>,
}

impl Links {
    /// No connections.
    pub fn new(local: Shared) -> Self {
        Links {
            local,
            shelves: RefCell::default(),
            count: Cell::new(0),
            configs: OnceCell::new(),
        }
    }

    /// A connection that waits, if there is one that still lives.
    pub fn take(&self, target: &Target, host: &str) -> Option<Link> {
        let key = LinkKey::new(target, host);
        let mut shelves = self.shelves.borrow_mut();
        let shelf = shelves.get_mut(&key)?;
        while let Some(mut waiting) = shelf.waiting.pop_back() {
            self.count.set(self.count.get() - 1);
            if is_alive(&mut waiting.link.stream) {
                waiting.link.is_reused = true;
                self.local.counts.add(Count::UpstreamReused);
                return Some(waiting.link);
            }
        }
        None
    }

    /// Opens a connection. `host` is what a TLS handshake names where the upstream names nothing.
    ///
    /// # Errors
    /// A failure that may be tried again elsewhere: nothing was sent.
    pub async fn open(&self, target: &Target, host: &str) -> Result<Link, Failure> {
        match self.connect(target, host).await {
            Ok(stream) => {
                self.local.counts.add(Count::UpstreamOpened);
                Ok(Link {
                    stream,
                    is_reused: false,
                    key: LinkKey::new(target, host),
                })
            }
            Err(kind) => {
                self.local.counts.add(Count::UpstreamFailed);
                Err(Failure::of(kind).retry(Retry::Yes))
            }
        }
    }

    /// The same within a time.
    ///
    /// # Errors
    /// Those of [`Links::open`], and that it took too long.
    pub async fn open_within(
        &self,
        timeout: Duration,
        target: &Target,
        host: &str,
    ) -> Result<Link, Failure> {
        let opened = tokio::time::timeout(timeout, self.open(target, host)).await;
        opened.unwrap_or_else(|_| {
            self.local.counts.add(Count::UpstreamFailed);
            Err(Failure::of(FailureKind::ConnectTimeout).retry(Retry::Yes))
        })
    }

    /// Keeps a connection whose last response was read to its end. One that went beyond the
    /// limits takes the place of the one that has waited longest.
    pub fn keep(&self, link: Link, target: &Arc<Target>) {
        let limits = &self.local.limits;
        let mut shelves = self.shelves.borrow_mut();
        if self.count.get() >= limits.idle_endpoints_max {
            self.local.counts.add(Count::UpstreamEvicted);
            return;
        }
        let shelf = shelves.entry(link.key.clone()).or_insert_with(|| Shelf {
            target: Arc::downgrade(target),
            waiting: VecDeque::new(),
        });
        if shelf.waiting.len() >= limits.idle_per_endpoint_max {
            self.local.counts.add(Count::UpstreamEvicted);
            shelf.waiting.pop_front();
            self.count.set(self.count.get() - 1);
        }
        let since = clock::now();
        shelf.waiting.push_back(Waiting { link, since });
        self.count.set(self.count.get() + 1);
    }

    /// Drops connections that waited too long, that the endpoint closed, and those to endpoints
    /// that are gone.
    pub fn sweep(&self) {
        let now = clock::now();
        let timeout = self.local.limits.upstream_idle_timeout;
        let mut count = 0;
        self.shelves.borrow_mut().retain(|_, shelf| {
            if shelf.target.strong_count() == 0 {
                return false;
            }
            shelf.waiting.retain_mut(|waiting| {
                now.duration_since(waiting.since) < timeout && is_alive(&mut waiting.link.stream)
            });
            count += shelf.waiting.len();
            !shelf.waiting.is_empty()
        });
        self.count.set(count);
    }

    /// How many connections wait.
    pub fn len(&self) -> usize {
        self.count.get()
    }

    /// Whether no connection waits.
    pub fn is_empty(&self) -> bool {
        self.count.get() == 0
    }

    /// Drops all connections.
    pub fn clear(&self) {
        self.shelves.borrow_mut().clear();
        self.count.set(0);
    }

    async fn connect(&self, target: &Target, host: &str) -> Result<Stream, FailureKind> {
        let tcp = TcpStream::connect(target.address)
            .await
            .map_err(|_| FailureKind::ConnectFailed)?;
        // Without it small requests would wait for acknowledgements; with an error they do.
        let _ = tcp.set_nodelay(true);
        let Some(tls) = target.tls() else {
            return Ok(Stream::Plain(tcp));
        };
        let config = self.configs()?.pick(tls.verify);
        let name = server_name(target, host);
        let name = ServerName::try_from(name)
            .unwrap_or_else(|_| ServerName::IpAddress(target.address.ip().into()));
        let session = Tls::client(tcp, config, name).map_err(|_| FailureKind::UpstreamTls)?;
        let mut session = Box::new(session);
        poll_fn(|context| session.poll_handshake(context, &mut |step| step()))
            .await
            .map_err(|_| FailureKind::UpstreamTls)?;
        Ok(Stream::Tls(session))
    }

    fn configs(&self) -> Result<&ClientConfigs, FailureKind> {
        if let Some(configs) = self.configs.get() {
            return Ok(configs);
        }
        let configs = ClientConfigs::new().map_err(|_| FailureKind::Internal)?;
        Ok(self.configs.get_or_init(|| configs))
    }
}

fn server_name(target: &Target, host: &str) -> String {
    match target.tls() {
        Some(tls) if !tls.server_name.is_empty() => tls.server_name.to_string(),
        _ => host.trim_matches(['[', ']']).to_owned(),
    }
}

/// Whether the endpoint has neither closed the connection nor sent what nobody asked for.
fn is_alive(stream: &mut Stream) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    if !stream.may_have_input(&mut context) {
        return true;
    }
    let polled: Poll<io::Result<usize>> = stream.poll_read(&mut context, &mut [0; 1]);
    polled.is_pending()
}
