//! Claims as a ConfigMap has them: a line for each object, which people can read.
//!
//! `Ingress shop/web 1700000000 a.example.com=1800000000` says that the Ingress of this creation
//! claims the host since then, `others Gateway shop/edge 1700000000 tcp:5432=1800000000` the same
//! of the port of a Gateway (and with `a.example.com@infra` of a host that a route enters by what
//! objects of a namespace let in), `left Ingress shop/web 1700000000 a.example.com=1800000000` that
//! it left the host then, and `beyond shop` that all objects of a namespace claim last. A version
//! that knows a line of some kind no more or not yet leaves it out, and reads the others.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use myriad_api::{ObjectKey, ObjectKind};
use myriad_translate::{Claimed, ClaimsChange, LateClaims};

/// The first word of the line of a namespace that claims last.
const BEYOND: &str = "beyond";

/// The beginning of the line of an object's claims to what is no host.
const OTHERS: &str = "others ";

/// The beginning of the line of what an object left.
const LEFT: &str = "left ";

/// The kinds that make claims.
const KINDS: [ObjectKind; 11] = [
    ObjectKind::Ingress,
    ObjectKind::IstioGateway,
    ObjectKind::VirtualService,
    ObjectKind::Gateway,
    ObjectKind::ListenerSet,
    ObjectKind::HttpRoute,
    ObjectKind::GrpcRoute,
    ObjectKind::TlsRoute,
    ObjectKind::TcpRoute,
    ObjectKind::UdpRoute,
    ObjectKind::ServiceEntry,
];

/// The word of a kind, which has no blanks and no other kind has.
fn word(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Gateway => "KubernetesGateway",
        other => other.as_str(),
    }
}

/// The text of claims.
pub(super) fn write<'a>(
    objects: impl Iterator<Item = &'a LateClaims>,
    beyond: &BTreeSet<Arc<str>>,
) -> String {
    let beyond = beyond.iter().map(|it| format!("{BEYOND} {it}\n"));
    beyond.chain(objects.map(line)).collect()
}

/// The lines of an object: its claims to hosts, those to ports, and what it left.
pub(super) fn line(claims: &LateClaims) -> String {
    let LateClaims {
        key,
        created,
        claims,
        left,
    } = claims;
    let is_host = |(claimed, _): &&(Claimed, i64)| matches!(claimed, Claimed::Host(_));
    let (hosts, others): (Vec<_>, Vec<_>) = claims.iter().partition(is_host);
    let mut text = String::new();
    for (first, listed) in [("", hosts), (OTHERS, others), (LEFT, left.iter().collect())] {
        if listed.is_empty() {
            continue;
        }
        // Writing to a string does not fail.
        let _ = write!(text, "{first}{} {} {created}", word(key.kind), key.id());
        for (claimed, at) in listed {
            let _ = write!(text, " {claimed}={at}");
        }
        text.push('\n');
    }
    text
}

/// Reads a text, and counts the lines in it that are none of these.
pub(super) fn read(text: &str) -> (ClaimsChange, usize) {
    let mut claims = ClaimsChange::default();
    let mut unread = 0;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if let Some(namespace) = line.strip_prefix(BEYOND) {
            claims.beyond.push(namespace.trim().into());
            continue;
        }
        match read_line(line) {
            Some(read) => claims.objects.push(read),
            None => unread += 1,
        }
    }
    (claims, unread)
}

fn read_line(line: &str) -> Option<LateClaims> {
    let left = line.strip_prefix(LEFT);
    let rest = left.or_else(|| line.strip_prefix(OTHERS)).unwrap_or(line);
    let mut words = rest.split_whitespace();
    let kind = words.next()?;
    let kind = KINDS.into_iter().find(|known| word(*known) == kind)?;
    let (namespace, name) = words.next()?.split_once('/')?;
    let created = words.next()?.parse().ok()?;
    let listed = words.map(|word| {
        let (claimed, at) = word.split_once('=')?;
        Some((Claimed::parse(claimed)?, at.parse().ok()?))
    });
    let listed = listed.collect::<Option<Vec<(Claimed, i64)>>>()?;
    let (claims, left) = match left {
        Some(_) => (Vec::new(), listed),
        None => (listed, Vec::new()),
    };
    Some(LateClaims {
        key: ObjectKey::new(kind, namespace, name),
        created,
        claims,
        left,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{read, write};

    #[test]
    fn an_object_has_a_line_for_each_kind_of_what_is_noted_of_it() {
        let lines = "Gateway shop/edge 5 a.test=6\n\
                     others Gateway shop/edge 5 tcp:5432=7\n\
                     left Gateway shop/edge 5 b.test=8\n";
        let (read, _) = read(lines);
        let mut all = read.objects.into_iter();
        let mut first = all.next().expect("a line");
        for other in all {
            first.claims.extend(other.claims);
            first.left.extend(other.left);
        }
        assert_eq!(super::line(&first), lines);
    }

    #[test]
    fn what_is_written_is_read_and_the_rest_is_counted() {
        let text = "beyond docs\n\
                    Ingress shop/web 1700000000 *.b.test=1800000001 a.test=1800000000\n\
                    Gateway shop/edge 5 **.c.test=6 [2001:db8::1]=9\n\
                    VirtualService blog/web 7 *=8\n\
                    KubernetesGateway shop/edge 5 **.c.test=6\n\
                    HTTPRoute shop/web 5 a.c.test=7\n\
                    others Gateway shop/edge 5 http:9000=6 tcp:5432=7\n\
                    others VirtualService blog/web 7 shop/edge:0=8 shop/edge:5432=9\n\
                    left Ingress shop/web 1700000000 b.test=1800000002\n\
                    left Gateway shop/edge 5 d.test=6 tls:8443=7\n\
                    ServiceEntry shop/api 5 **.api.test=6\n\
                    others HTTPRoute shop/web 5 a.c.test@infra=7\n";
        let (claims, unread) = read(text);
        assert_eq!((claims.objects.len(), unread), (11, 0));
        assert_eq!(&*claims.objects[0].claims[0].0.to_string(), "*.b.test");
        assert!(claims.objects[7].claims.is_empty() && claims.objects[7].left.len() == 1);
        let beyond: BTreeSet<_> = claims.beyond.iter().cloned().collect();
        assert_eq!(write(claims.objects.iter(), &beyond), text);

        let wrong = [
            "Secret shop/web 1 a.test=2",
            "Ingress web 1 a.test=2",
            "Ingress shop/web x a.test=2",
            "Ingress shop/web 1 a..test=2",
            "Ingress shop/web 1 a.test=x",
            "Ingress shop/web 1 a.test",
            "others VirtualService shop/web 1 Shop/edge:1=2",
            "left Ingress shop/web 1 a.test",
            "gone Ingress shop/web 1 a.test=2",
            "Ingress",
        ];
        let (claims, unread) = read(&wrong.join("\n"));
        assert!(claims.is_empty());
        assert_eq!(unread, wrong.len());
    }
}
