//! The ports that connections to endpoints come from.
//!
//! Left alone, the kernel tries one port after the other as part of connecting, on this thread.
//! Where an endpoint is connected to from most of them, or was within the last minute, that takes
//! milliseconds for each connection, in which nobody is served. So ports are drawn here, a few for
//! a connection, and where all of those are taken there is none. They are first of the parity that
//! the kernel gives last to others of this machine who let it choose.

use std::cell::Cell;
use std::ops::RangeInclusive;
use std::sync::LazyLock;
use std::thread::LocalKey;

use myriad_base::kernel;

use crate::net::deadline::now_ticks;
use crate::random::rng::Rng;

/// The most ports that are tried for one connection.
pub(super) const TRIES_MAX: u32 = 32;

/// How many of them are of one parity, before any are.
const OF_PARITY: u32 = 8;

/// The most tries beyond the first of each connection, for all that a thread opens in a tick: so
/// many take a few milliseconds. Beyond, each connection has one.
const FURTHER_MAX: u32 = 256;

/// The same of connections to endpoints that no port was free for, which take none from others.
const FURTHER_OF_CROWDS_MAX: u32 = 128;

/// The ports that may be drawn where the kernel does not tell.
const DEFAULT: RangeInclusive<u16> = 32_768..=60_999;

/// The ports below are for those who may do more.
const FIRST_FREE: u16 = 1_024;

/// The most bytes that are read of what the kernel tells.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// The most draws for one port that is not reserved.
const DRAWS_MAX: usize = 64;

static PORTS: LazyLock<Ports> = LazyLock::new(Ports::read);

thread_local! {
    /// The present tick, and the further tries in it.
    static FURTHER: Cell<(u32, u32)> = const { Cell::new((0, 0)) };

    /// The same of those that wait until a port is free.
    static FURTHER_OF_CROWDS: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

/// The ports that may be drawn.
struct Ports {
    all: RangeInclusive<u16>,
    /// The ports among them that the machine keeps for others.
    reserved: Box<[RangeInclusive<u16>]>,
}

/// The ports to try for one connection, in turn.
pub(super) struct PortDraw<'a> {
    dice: &'a Rng,
    tries: u32,
    is_of_crowd: bool,
}

impl<'a> PortDraw<'a> {
    /// Ports for a connection.
    pub(super) fn new(dice: &'a Rng) -> Self {
        PortDraw {
            dice,
            tries: 0,
            is_of_crowd: false,
        }
    }

    /// Ports for a connection to an endpoint that no port was free for a moment ago.
    pub(super) fn of_crowd(dice: &'a Rng) -> Self {
        PortDraw {
            is_of_crowd: true,
            ..PortDraw::new(dice)
        }
    }
}

impl Iterator for PortDraw<'_> {
    type Item = u16;

    fn next(&mut self) -> Option<u16> {
        let may_try = match self.tries {
            0 => true,
            TRIES_MAX.. => false,
            _ if self.is_of_crowd => may_try_further(&FURTHER_OF_CROWDS, FURTHER_OF_CROWDS_MAX),
            _ => may_try_further(&FURTHER, FURTHER_MAX),
        };
        if !may_try {
            return None;
        }
        self.tries += 1;
        Some(PORTS.draw(self.dice, self.tries <= OF_PARITY))
    }
}

/// Whether this thread may try one more port for a connection that has tried one.
fn may_try_further(tries: &'static LocalKey<Cell<(u32, u32)>>, most: u32) -> bool {
    let now = now_ticks();
    let (tick, count) = tries.get();
    let count = if tick == now { count } else { 0 };
    tries.set((now, count.saturating_add(1)));
    count < most
}

impl Ports {
    fn read() -> Self {
        let of = |name: &str| {
            let path = format!("/proc/sys/net/ipv4/{name}");
            kernel::text(path, FILE_BYTES_MAX).unwrap_or_default()
        };
        Ports::parse(&of("ip_local_port_range"), &of("ip_local_reserved_ports"))
    }

    fn parse(range: &str, reserved: &str) -> Self {
        let bounds = kernel::number::<u16>(range, 0).zip(kernel::number(range, 1));
        let all = bounds.map(|(first, last): (u16, u16)| first.max(FIRST_FREE)..=last);
        let reserved = reserved.trim().split(',').filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse::<u16>().ok()?..=last.parse::<u16>().ok()?)
        });
        Ports {
            all: all.filter(|all| !all.is_empty()).unwrap_or(DEFAULT),
            reserved: reserved.collect(),
        }
    }

    /// A port; where one of a parity is wanted, of the other than the first one's.
    fn draw(&self, dice: &Rng, is_of_parity: bool) -> u16 {
        let mut port = self.draw_any(dice, is_of_parity);
        for _ in 1..DRAWS_MAX {
            if !self.reserved.iter().any(|range| range.contains(&port)) {
                break;
            }
            port = self.draw_any(dice, is_of_parity);
        }
        port
    }

    fn draw_any(&self, dice: &Rng, is_of_parity: bool) -> u16 {
        let (first, last) = (u64::from(*self.all.start()), u64::from(*self.all.end()));
        let count = last - first + 1;
        let offset = match is_of_parity && count > 1 {
            true => dice.roll_below(count / 2) * 2 + 1,
            false => dice.roll_below(count),
        };
        u16::try_from(first + offset).unwrap_or(*self.all.start())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        DEFAULT, FURTHER_MAX, FURTHER_OF_CROWDS_MAX, OF_PARITY, PortDraw, Ports, Rng, TRIES_MAX,
    };
    use crate::net::deadline::tick;

    #[test]
    fn ports_are_those_that_the_kernel_would_give_and_reserved_for_nobody() {
        let dice = Rng::new(1);
        let ports = Ports::parse("40000\t40007\n", "80,40001-40004,40006\n");
        for _ in 0..200 {
            assert!([40_005, 40_007].contains(&ports.draw(&dice, true)));
            assert!([40_000, 40_005, 40_007].contains(&ports.draw(&dice, false)));
        }
        for unreadable in ["", "1 x", "70000 80000", "9 8"] {
            assert_eq!(Ports::parse(unreadable, "").all, DEFAULT, "{unreadable}");
        }
        assert_eq!(Ports::parse("1 2000", "").all, 1_024..=2_000);
        assert_eq!(Ports::parse("5000 5000", "").draw(&dice, true), 5_000);
    }

    #[test]
    fn tries_are_few_and_fewer_where_many_have_failed() {
        let dice = Rng::new(1);
        let tries = || PortDraw::new(&dice).count();
        tick();
        let most = TRIES_MAX as usize;
        let further = most - 1;
        for _ in 0..FURTHER_MAX as usize / further {
            assert_eq!(tries(), most);
        }
        assert_eq!(tries(), 1 + FURTHER_MAX as usize % further);
        assert_eq!([tries(), tries()], [1, 1]);
        tick();
        assert_eq!(tries(), most);
    }

    #[test]
    fn endpoints_that_no_port_is_free_for_take_no_tries_from_others() {
        let dice = Rng::new(1);
        let (most, further) = (TRIES_MAX as usize, TRIES_MAX as usize - 1);
        let crowded = || PortDraw::of_crowd(&dice).count();
        tick();
        let tries: usize = (0..100).map(|_| crowded()).sum();
        assert_eq!(tries, 100 + FURTHER_OF_CROWDS_MAX as usize);
        for _ in 0..FURTHER_MAX as usize / further {
            assert_eq!(PortDraw::new(&dice).count(), most);
        }
        tick();
        assert_eq!(crowded(), most);
    }

    #[test]
    fn the_first_ports_are_of_the_parity_that_others_get_last() {
        let dice = Rng::new(1);
        let first = *super::PORTS.all.start();
        let all = PortDraw::new(&dice).take(OF_PARITY as usize);
        assert!(all.into_iter().all(|port| (port - first) % 2 == 1));
    }
}
