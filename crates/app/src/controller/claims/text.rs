//! Claims as a ConfigMap has them: a line for each object, which people can read.
//!
//! `Ingress shop/web 1700000000 a.example.com=1800000000` says that the Ingress of this creation
//! claims the host since then, and `beyond shop` that all objects of a namespace claim last.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use myriad_api::{ObjectKey, ObjectKind};
use myriad_model::Host;
use myriad_translate::{ClaimsChange, LateClaims};

/// The first word of the line of a namespace that claims last.
const BEYOND: &str = "beyond";

/// The kinds that claim hosts.
const KINDS: [ObjectKind; 3] = [
    ObjectKind::Ingress,
    ObjectKind::IstioGateway,
    ObjectKind::VirtualService,
];

/// The text of claims.
pub(super) fn write<'a>(
    objects: impl Iterator<Item = &'a LateClaims>,
    beyond: &BTreeSet<Arc<str>>,
) -> String {
    let beyond = beyond.iter().map(|it| format!("{BEYOND} {it}\n"));
    beyond.chain(objects.map(line)).collect()
}

/// The line of an object.
pub(super) fn line(claims: &LateClaims) -> String {
    let LateClaims {
        key,
        created,
        hosts,
    } = claims;
    let mut line = format!("{} {} {created}", key.kind.as_str(), key.id());
    for (host, since) in hosts {
        // Writing to a string does not fail.
        let _ = write!(line, " {host}={since}");
    }
    line.push('\n');
    line
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
    let mut words = line.split_whitespace();
    let kind = words.next()?;
    let kind = KINDS.into_iter().find(|known| known.as_str() == kind)?;
    let (namespace, name) = words.next()?.split_once('/')?;
    let created = words.next()?.parse().ok()?;
    let hosts = words.map(|word| {
        let (host, since) = word.split_once('=')?;
        Some((Host::of_name(host).ok()?, since.parse().ok()?))
    });
    Some(LateClaims {
        key: ObjectKey::new(kind, namespace, name),
        created,
        hosts: hosts.collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{read, write};

    #[test]
    fn what_is_written_is_read_and_the_rest_is_counted() {
        let text = "beyond docs\n\
                    Ingress shop/web 1700000000 *.b.test=1800000001 a.test=1800000000\n\
                    Gateway shop/edge 5 **.c.test=6 [2001:db8::1]=9\n\
                    VirtualService blog/web 7 *=8\n";
        let (claims, unread) = read(text);
        assert_eq!((claims.objects.len(), unread), (3, 0));
        assert_eq!(&*claims.objects[0].hosts[0].0.to_string(), "*.b.test");
        let beyond: BTreeSet<_> = claims.beyond.iter().cloned().collect();
        assert_eq!(write(claims.objects.iter(), &beyond), text);

        let wrong = [
            "Secret shop/web 1 a.test=2",
            "Ingress web 1 a.test=2",
            "Ingress shop/web x a.test=2",
            "Ingress shop/web 1 a..test=2",
            "Ingress shop/web 1 a.test=x",
            "Ingress shop/web 1 a.test",
            "Ingress",
        ];
        let (claims, unread) = read(&wrong.join("\n"));
        assert!(claims.is_empty());
        assert_eq!(unread, wrong.len());
    }
}
