//! The order in which requests are read and planned: those of one source of clients take turns with
//! all else that the worker has to do, and so do those for hosts that one namespace serves.
//!
//! The turn of a connection ends with a request that has cost much. But a client may have thousands
//! of connections, each of which always has such a request ready, and a round of all of them is
//! what anybody else would wait for several times. So what a request has cost is charged to the
//! source of its client and to the namespace, and beyond some three milliseconds in a round of the
//! worker's loop further ones wait until others have had their turn. Bodies that come in very small
//! chunks or frames are charged to the source alone, and what follows of them waits as costly
//! requests do.
//!
//! A request that costs no more than any does is charged no steps, but very many of them are a long
//! round as well. So all requests of a source are counted, whatever they cost, and beyond some five
//! milliseconds of them in a round further ones wait. That is another account than the one of
//! steps, so that costly requests of a source wait for no cheap ones of it. By IPv6 it is that of a
//! network of 48 bits, whose sources take turns: whoever has one has 65,536 of them. Whoever has
//! fewer requests ready at a time, over however many connections, waits for nobody.
//!
//! Hundreds of sources, each below that, are a long round together. Once all of them have had some
//! ten milliseconds, each has a few further requests in the round, and those are counted by the
//! namespaces that they are for as well: whoever has very many sources asks for a few hosts.
//! Requests for hosts that nobody serves are those of one namespace.
//!
//! Nobody knows before a request is read what it will cost. By a connection whose last one was
//! costly the next one waits as soon as its source, or its namespace, has had its turn, or all
//! together have had a few; by any other only where it has had two. So clients that share an
//! address with such a one, and the honest ones of a namespace, wait for nobody.

use std::net::IpAddr;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use super::networks::networks_of;
use super::rounds::{RoundRule, RoundWait, Rounds, Spender};
use super::silent::source_of;
use super::spaces::PLACES;
use crate::pattern::STEPS_MAX;
use crate::random::hash::hash_numbers;

/// Tells hashes of sources from those of other tables.
const PLAN_CLASS: u8 = 0x5f;

/// The cost of a source or a namespace in a round, in steps of matching, beyond which its further
/// requests wait. It is some three milliseconds.
const TURN_STEPS: u32 = 2 * STEPS_MAX;

/// The cost of all sources together beyond which costly connections wait.
const ALL_STEPS: u32 = 4 * TURN_STEPS;

/// The requests of a source in a round, of any cost, that are some three milliseconds; beyond twice
/// as many its further ones wait.
const TURN_REQUESTS: u32 = 128;

/// The requests of all sources together beyond which each has [`FEW_REQUESTS`], and namespaces are
/// looked for.
const ALL_REQUESTS: u32 = 4 * TURN_REQUESTS;

/// The requests of a source that wait for nobody else's: the turn of a connection of HTTP/2.
const FEW_REQUESTS: u32 = 8;

/// The namespace of hosts that nobody serves, in place of a hash.
pub(crate) const NO_NAMESPACE: u64 = 0;

/// The bits of a hash that say which place it has; see [`super::spaces::spots`].
const SPOT_BITS: u64 = ((PLACES as u64 - 1) << 32) | (PLACES as u64 - 1);

/// How far behind the bits of each place others are that say one of a network.
const NETWORK_SHIFT: u32 = 16;

/// The steps below which a request is charged none: any takes as long.
pub(crate) const CHARGED_STEPS: u32 = 1 << 10;

/// The steps from which on a request is costly: some 30 us.
pub(crate) const COSTLY_STEPS: u32 = 4 << 10;

/// The steps of a stream that its client has reset: some of them had begun an exchange.
pub(crate) const RESET_STEPS: u32 = 4 << 10;

/// So many bytes of a head, unpacked, take as long as a step: they are unpacked, checked and looked
/// at more than once.
const BYTES_PER_STEP: usize = 4;

/// The steps of each byte of a path that servers may read in more than one way.
const STEPS_PER_ODD_BYTE: usize = 3;

/// The rounds of sources.
const OF_SOURCES: RoundRule = RoundRule {
    task: "requests of sources",
    turn: TURN_STEPS,
    all: ALL_STEPS,
    few: None,
    called_max: 16,
    called_min: 16,
    lines_max: 8,
};

/// The rounds of sources in which each request counts for one. A connection that is called has a
/// whole turn, which is more than one request by HTTP/2.
const OF_REQUESTS: RoundRule = RoundRule {
    task: "requests of any cost",
    turn: TURN_REQUESTS,
    all: ALL_REQUESTS,
    few: Some(FEW_REQUESTS),
    called_max: 32,
    called_min: 8,
    lines_max: 8,
};

/// The rounds of namespaces.
const OF_NAMESPACES: RoundRule = RoundRule {
    task: "requests of namespaces",
    turn: TURN_STEPS,
    all: u32::MAX,
    few: None,
    called_max: 16,
    called_min: 16,
    lines_max: 8,
};

/// The rounds of namespaces in which each request counts for one, while all sources together have
/// very many.
const OF_NAMESPACE_REQUESTS: RoundRule = RoundRule {
    task: "requests of any cost for namespaces",
    turn: TURN_REQUESTS,
    called_max: 32,
    called_min: 32,
    ..OF_NAMESPACES
};

/// The requests of one worker that wait for their turn to be read, or planned. Those that wait to
/// be read are at most as many as there are connections.
pub struct PlanTurns {
    sources: Rc<Rounds>,
    requests: Rc<Rounds>,
    namespaces: Rc<Rounds>,
    namespace_requests: Rc<Rounds>,
}

/// The place in line of a request, where it waits.
#[derive(Default)]
pub struct PlanWait {
    place: RoundWait,
    /// Whether it is its turn by what requests of its source, or for its namespace, have cost, so
    /// that it waits for that by their number.
    is_counted: bool,
}

/// The connection of a client, as its requests take turns.
#[derive(Clone, Copy)]
pub struct Asker {
    /// The hash of its source, and of its network; see [`PlanTurns::source`].
    pub source: u64,
    /// Whether its last request was costly.
    pub is_costly: bool,
}

impl Default for PlanTurns {
    fn default() -> Self {
        PlanTurns {
            sources: Rounds::new(OF_SOURCES),
            requests: Rounds::new(OF_REQUESTS),
            namespaces: Rounds::new(OF_NAMESPACES),
            namespace_requests: Rounds::new(OF_NAMESPACE_REQUESTS),
        }
    }
}

impl PlanTurns {
    /// The source of a client, by its hash: its address, or its network of 64 bits. Its places are
    /// its own, and the other bits are the same in its network of 48 bits.
    pub fn source(client: IpAddr) -> u64 {
        let source = source_of(client);
        let network = match u32::try_from(source) {
            Ok(_) => source,
            Err(_) => {
                let [_, _, (_, network), ..] = networks_of(source);
                network
            }
        };
        let hash = |number| hash_numbers(PLAN_CLASS, "", &[number]);
        (hash(source) & SPOT_BITS) | (hash(network) & !SPOT_BITS)
    }

    /// Whether a request of any source may be read at once.
    pub fn admits_any_request(&self) -> bool {
        self.sources.is_calm() && self.requests.is_calm()
    }

    /// Ready once a request of a client may be read.
    pub fn poll_request(
        &self,
        asker: Asker,
        wait: &mut PlanWait,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        if !wait.is_counted {
            ready!(self.poll_source(asker, wait, context));
            wait.is_counted = true;
        }
        let spender = Spender {
            id: network_of(asker.source),
            part: asker.source,
            // What it costs makes no difference here.
            is_costly: false,
        };
        ready!(self.requests.poll_turn(spender, &mut wait.place, context));
        wait.is_counted = false;
        Poll::Ready(())
    }

    /// Ready once more may be done for a client, as far as that depends on what its source has
    /// cost: more of a body, or one more request in the turn of its connection.
    pub fn poll_source(
        &self,
        asker: Asker,
        wait: &mut PlanWait,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let Asker { source, is_costly } = asker;
        let spender = Spender {
            id: source,
            part: u64::from(is_costly),
            is_costly,
        };
        self.sources.poll_turn(spender, &mut wait.place, context)
    }

    /// Whether a request may be planned for any namespace at once.
    pub fn admits_any_namespace(&self) -> bool {
        self.namespaces.is_calm() && self.namespace_requests.is_calm()
    }

    /// Whether a request of a client may be planned for a namespace at once.
    pub fn admits(&self, namespace: u64, asker: Asker) -> bool {
        self.namespaces
            .admits(of_namespace(namespace, asker), false)
            && self
                .namespace_requests
                .admits(counted_for(namespace, asker), false)
    }

    /// Ready once a request of a client may be planned for a namespace. Its sources take turns.
    pub fn poll_namespace(
        &self,
        namespace: u64,
        asker: Asker,
        wait: &mut PlanWait,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        if !wait.is_counted {
            let spender = of_namespace(namespace, asker);
            ready!(self.namespaces.poll_turn(spender, &mut wait.place, context));
            wait.is_counted = true;
        }
        let (turns, spender) = (&self.namespace_requests, counted_for(namespace, asker));
        ready!(turns.poll_turn(spender, &mut wait.place, context));
        wait.is_counted = false;
        Poll::Ready(())
    }

    /// Counts a request of a source.
    pub fn note_request(&self, source: u64) {
        self.requests.spend(network_of(source), 1);
    }

    /// Whether requests are counted by the namespaces that they are for: nobody has to look for
    /// these while there are few.
    pub fn counts_namespaces(&self) -> bool {
        self.requests.is_full() || !self.namespace_requests.is_calm()
    }

    /// Counts a request for a namespace.
    pub fn note_request_for(&self, namespace: u64) {
        self.namespace_requests.spend(namespace, 1);
    }

    /// Charges steps to the source of a client.
    pub fn spend(&self, source: u64, steps: u32) {
        self.sources.spend(source, steps);
    }

    /// Charges steps to a namespace.
    pub fn spend_for(&self, namespace: u64, steps: u32) {
        self.namespaces.spend(namespace, steps);
    }
}

fn of_namespace(namespace: u64, Asker { source, is_costly }: Asker) -> Spender {
    Spender {
        id: namespace,
        part: source,
        is_costly,
    }
}

/// The same by the number of requests, where what they cost makes no difference.
fn counted_for(namespace: u64, asker: Asker) -> Spender {
    Spender {
        is_costly: false,
        ..of_namespace(namespace, asker)
    }
}

/// The hash of a source's network: of an address of IPv4 its own.
fn network_of(source: u64) -> u64 {
    (source & !SPOT_BITS).rotate_right(NETWORK_SHIFT)
}

/// The steps of reading a head of so many bytes, once it is unpacked, or so much framing of a body.
pub(crate) fn read_steps(bytes: usize) -> u32 {
    u32::try_from(bytes / BYTES_PER_STEP).unwrap_or(u32::MAX)
}

/// The steps of a path of so many bytes that servers may read in more than one way.
pub(crate) fn odd_path_steps(bytes: usize) -> u32 {
    u32::try_from(bytes.saturating_mul(STEPS_PER_ODD_BYTE)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
