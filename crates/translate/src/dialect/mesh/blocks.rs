//! Blocks of addresses, and what is left of them where no Service stands.
//!
//! Nobody walks Services for that: each is found under the blocks of a few lengths that its
//! addresses lie in. A block is divided at these lengths, and whoever asked runs again when a part
//! gets its first Service or the one that was found there goes, and not for others in between.

use std::collections::VecDeque;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::engine::Reader;

/// The difference between the lengths of blocks that Services are found under.
const STEP: u8 = 4;

/// The longest of them, by the family.
const LAST_V4: u8 = 24;
const LAST_V6: u8 = 64;

/// The most parts that are looked at for one ServiceEntry, beside one for each block that it
/// writes. What would take more counts as if a Service stood in all of it.
pub(super) const LOOKS_MAX: usize = 96;

/// The rest of a block.
pub(super) struct Remainder {
    /// The parts where no Service stands, as few as there may be.
    pub(super) blocks: Vec<IpNet>,
    /// The first part where one does.
    pub(super) taken: Option<IpNet>,
}

/// The blocks that a Service with an address is found under, the largest first.
pub(super) fn around(address: IpAddr) -> impl Iterator<Item = IpNet> {
    let lengths = (STEP..=last(address)).step_by(usize::from(STEP));
    lengths.filter_map(move |length| Some(IpNet::new(address, length).ok()?.trunc()))
}

/// Divides a block, by at most so many looks.
pub(super) fn left_of(reader: &mut Reader<'_>, block: IpNet, looks: &mut usize) -> Remainder {
    let known = block.prefix_len().min(last(block.addr())) / STEP * STEP;
    let known = IpNet::new(block.addr(), known).map(|it| it.trunc());
    if let Some(known) = known.ok().filter(|it| it.prefix_len() > 0)
        && !reader.has_service_in(known)
    {
        return Remainder {
            blocks: vec![block],
            taken: None,
        };
    }
    let mut left: Vec<IpNet> = Vec::new();
    let mut taken: Vec<IpNet> = Vec::new();
    let mut open = VecDeque::from([block]);
    while let Some(whole) = open.pop_front() {
        let Some(parts) = parts(whole, *looks) else {
            taken.push(whole);
            continue;
        };
        *looks -= parts.len();
        for part in parts {
            match reader.has_service_in(part) {
                true => open.push_back(part),
                false => left.push(part),
            }
        }
    }
    let taken = taken.into_iter().min();
    Remainder {
        blocks: match taken {
            Some(_) => IpNet::aggregate(&left),
            None => vec![block],
        },
        taken,
    }
}

/// The addresses that both have.
pub(super) fn overlap(some: &[IpNet], others: &[IpNet]) -> Vec<IpNet> {
    // Sorted, and none within another.
    let [some, others] = [some, others].map(|blocks| IpNet::aggregate(&blocks.to_vec()));
    let (mut some, mut others) = (some.iter().peekable(), others.iter().peekable());
    let mut found = Vec::new();
    while let (Some(one), Some(other)) = (some.peek().copied(), others.peek().copied()) {
        if one.contains(other) {
            found.push(*other);
            others.next();
        } else if other.contains(one) {
            found.push(*one);
            some.next();
        } else if one.network() < other.network() {
            some.next();
        } else {
            others.next();
        }
    }
    found
}

/// The parts of a block at the next length that can be looked at; none where there is none, or
/// more parts than looks.
fn parts(block: IpNet, looks: usize) -> Option<Vec<IpNet>> {
    let (length, last) = (block.prefix_len(), last(block.addr()));
    let next = match length < last {
        true => length / STEP * STEP + STEP,
        // Of IPv4 single addresses are known.
        false => block.addr().is_ipv4().then_some(block.max_prefix_len())?,
    };
    let count = 1_usize.checked_shl(u32::from(next.checked_sub(length)?))?;
    if length == next || count > looks {
        return None;
    }
    Some(block.subnets(next).ok()?.collect())
}

fn last(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => LAST_V4,
        IpAddr::V6(_) => LAST_V6,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use ipnet::IpNet;

    use super::{around, overlap, parts};

    fn blocks(text: &str) -> Vec<IpNet> {
        let blocks = text.split_whitespace().map(|it| it.parse().unwrap());
        blocks.collect()
    }

    #[test]
    fn an_address_is_found_under_few_blocks() {
        let found = |address: &str| {
            let address: IpAddr = address.parse().unwrap();
            around(address).collect::<Vec<_>>()
        };
        let wanted = "0.0.0.0/4 10.0.0.0/8 10.96.0.0/12 10.99.0.0/16 10.99.16.0/20 10.99.17.0/24";
        assert_eq!(found("10.99.17.3"), blocks(wanted));
        let found = found("fd00:10:96::a");
        assert_eq!(found.len(), 16);
        assert_eq!(found.last().copied(), Some(blocks("fd00:10:96::/64")[0]));
    }

    #[test]
    fn a_block_is_divided_at_lengths_that_are_known() {
        let divided = |block: &str, looks: usize| parts(blocks(block)[0], looks);
        let wanted = "10.0.0.0/12 10.16.0.0/12";
        assert_eq!(divided("10.0.0.0/11", 9), Some(blocks(wanted)));
        for (block, count) in [
            ("0.0.0.0/0", 16),
            ("10.0.0.0/8", 16),
            ("10.0.0.0/22", 4),
            ("10.0.0.0/28", 16),
            ("10.0.0.0/31", 2),
            ("fd00::/62", 4),
        ] {
            assert_eq!(divided(block, count).map(|it| it.len()), Some(count));
            assert_eq!(divided(block, count - 1), None, "{block}");
        }
        for whole in ["10.0.0.1/32", "fd00::/64", "fd00::1/128"] {
            assert_eq!(divided(whole, 1_000), None, "{whole}");
        }
    }

    #[test]
    fn what_both_have_is_found_whichever_is_larger() {
        let both = |some: &str, others: &str| overlap(&blocks(some), &blocks(others));
        assert_eq!(
            both(
                "10.0.0.0/8 192.0.2.0/24 fd00::/8",
                "10.1.0.0/16 192.0.2.7/32 192.0.0.0/16 fd00::1/128 8.8.8.8/32"
            ),
            blocks("10.1.0.0/16 192.0.2.0/24 fd00::1/128")
        );
        assert_eq!(both("10.0.0.0/9", "10.128.0.0/9 ::/0"), []);
    }
}
