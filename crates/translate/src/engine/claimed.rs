//! The things that objects claim, and what of them may be new in a newer version.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use myriad_model::Host;

use super::ports::PortSpeech;

/// Something that an object claims.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Claimed {
    /// A host; of a ServiceEntry a name.
    Host(Host),
    /// A host that a route enters by what objects of a namespace let in.
    Entered(Host, Arc<str>),
    /// A number that gateways listen on, and what is spoken there.
    Port(u16, PortSpeech),
    /// Plain connections at a port of a Gateway, by its `namespace/name`; 0 for those at any.
    Stream(Arc<str>, u16),
}

impl Claimed {
    /// Plain connections at a port of a Gateway; none where no Gateway can have the name, which is
    /// written down with others.
    pub(crate) fn stream(gateway: &Arc<str>, port: u16) -> Option<Self> {
        let (namespace, name) = gateway.split_once('/')?;
        let is_there = is_name(namespace) && is_name(name);
        is_there.then(|| Claimed::Stream(gateway.clone(), port))
    }

    /// Whether it is among claims that an object makes, which does not say who lets it in.
    pub(super) fn is_among(&self, made: &BTreeSet<Claimed>) -> bool {
        match self {
            Claimed::Entered(host, _) => made.contains(&Claimed::Host(host.clone())),
            claimed => made.contains(claimed),
        }
    }

    /// Reads what was written of one.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some((host, by)) = text.split_once('@') {
            let host = Host::of_name(host).ok().filter(|_| is_name(by))?;
            return Some(Claimed::Entered(host, by.into()));
        }
        if text.contains('/') {
            let (gateway, port) = text.rsplit_once(':')?;
            return Claimed::stream(&gateway.into(), port.parse().ok()?);
        }
        let port = text.split_once(':');
        let port = port.and_then(|(word, number)| Some((PortSpeech::of_word(word)?, number)));
        match port {
            Some((speech, number)) => Some(Claimed::Port(number.parse().ok()?, speech)),
            None => Host::of_name(text).ok().map(Claimed::Host),
        }
    }
}

/// Whether an object can have a name.
fn is_name(text: &str) -> bool {
    let is_of_name = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.')
    };
    !text.is_empty() && text.bytes().all(is_of_name)
}

/// `shop.example`, `shop.example@infra`, `tcp:5432` or `shop/edge:5432`, without blanks and equals
/// signs.
impl fmt::Display for Claimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Claimed::Host(host) => write!(f, "{host}"),
            Claimed::Entered(host, by) => write!(f, "{host}@{by}"),
            Claimed::Port(number, speech) => write!(f, "{}:{number}", speech.word()),
            Claimed::Stream(gateway, port) => write!(f, "{gateway}:{port}"),
        }
    }
}

/// The claims of an object, and what of them may be new.
#[derive(Debug, Default)]
pub(crate) struct NewlyClaimed {
    /// The claims of its newer version.
    pub all: BTreeSet<Claimed>,
    /// The claims among them that the version before did not make, or not so that they could have
    /// an effect: whether they had one is for the engine to say.
    pub changed: BTreeSet<Claimed>,
    /// The claims of the version before.
    pub named: BTreeSet<Claimed>,
    /// Whether the version before could own no host.
    pub owned_none: bool,
}

impl NewlyClaimed {
    /// The new claims among the hosts of two versions, where some that both name are named alike.
    pub(crate) fn new(
        named: BTreeSet<Host>,
        hosts: BTreeSet<Host>,
        is_same: impl Fn(&Host) -> bool,
    ) -> Self {
        let is_changed = |host: &&Host| !named.contains(*host) || !is_same(host);
        let changed: BTreeSet<Claimed> = hosts
            .iter()
            .filter(is_changed)
            .cloned()
            .map(Claimed::Host)
            .collect();
        NewlyClaimed {
            changed,
            all: hosts.into_iter().map(Claimed::Host).collect(),
            named: named.into_iter().map(Claimed::Host).collect(),
            owned_none: false,
        }
    }

    /// The same with other claims of both versions, of which some are the same.
    #[must_use]
    pub(crate) fn and(
        mut self,
        named: BTreeSet<Claimed>,
        all: BTreeSet<Claimed>,
        is_same: impl Fn(&Claimed) -> bool,
    ) -> Self {
        let changed = all.iter().filter(|claimed| !is_same(claimed)).cloned();
        self.changed.extend(changed);
        self.all.extend(all);
        self.named.extend(named);
        self
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use myriad_model::Host;

    use super::{Claimed, NewlyClaimed};
    use crate::engine::PortSpeech;

    #[test]
    fn what_is_written_is_read() {
        let texts = [
            "a.example",
            "**.example",
            "*",
            "[2001:db8::1]",
            "10.0.0.1",
            "a.example@infra",
            "*.example@shop-2",
            "http:9000",
            "tls:9000",
            "tcp:5432",
            "udp:53",
            "shop/edge:0",
            "shop/edge.a:5432",
        ];
        for text in texts {
            let claimed = Claimed::parse(text).expect(text);
            assert_eq!(claimed.to_string(), text);
        }
        let wrong = [
            "",
            "tcp:x",
            "tcp:70000",
            "quic:9000",
            "shop/edge",
            "shop/edge:x",
            "/edge:1",
            "a b:1",
            "a.example@",
            "a.example@a/b",
            "@infra",
        ];
        for text in wrong {
            assert_eq!(Claimed::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_host_that_is_entered_is_made_with_the_host() {
        let of = |text| Claimed::parse(text).expect(text);
        let made = [of("a.example"), of("tcp:1")].into();
        for (text, is) in [
            ("a.example", true),
            ("a.example@infra", true),
            ("b.example@infra", false),
            ("tcp:1", true),
            ("tcp:2", false),
        ] {
            assert_eq!(of(text).is_among(&made), is, "{text}");
        }
    }

    #[test]
    fn a_gateway_that_cannot_be_there_is_not_written_down() {
        for name in [
            "edge",
            "shop/",
            "shop/e\nbeyond x",
            "shop/a=b",
            "a/b/c",
            "Shop/a",
        ] {
            assert_eq!(Claimed::stream(&name.into(), 1), None, "{name:?}");
        }
        assert!(Claimed::stream(&"shop/edge".into(), 1).is_some());
    }

    #[test]
    fn what_is_named_alike_is_not_new() {
        let hosts = |texts: &[&str]| -> BTreeSet<Host> {
            let hosts = texts.iter().map(|text| Host::parse(text).expect("a host"));
            hosts.collect()
        };
        let port = |number| Claimed::Port(number, PortSpeech::Tcp);
        let (named, all) = ([port(1), port(2)], [port(2), port(3)]);
        let claimed = NewlyClaimed::new(hosts(&["a", "b"]), hosts(&["b", "c"]), |_| true).and(
            named.into(),
            all.into(),
            |it| *it == port(2),
        );
        let texts = |claims: &BTreeSet<Claimed>| {
            let texts: Vec<String> = claims.iter().map(ToString::to_string).collect();
            texts.join(" ")
        };
        assert_eq!(texts(&claimed.changed), "c tcp:3");
        assert_eq!(texts(&claimed.all), "b c tcp:2 tcp:3");
        assert_eq!(texts(&claimed.named), "a b tcp:1 tcp:2");
    }
}
