//! The parts of a request beside its framing: cookies, queries, and the sender that it names.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;
use std::time::Duration;

use myriad_model::{AccessMatcher, Affinity, Source, Test, ValueMatch, unescape};
use myriad_proxy::codec::head::Head;
use myriad_proxy::codec::kept::KeptHead;
use myriad_proxy::codec::path::reading::Readings;
use myriad_proxy::limits::PathRule;
use myriad_proxy::pattern::Budget;
use myriad_proxy::policy::authorize::path::fits;
use myriad_proxy::policy::{affinity, client};
use myriad_proxy::route::condition::{Given, cookie, hold, query_value};

use crate::heads::with_head;

/// The client's address, as the socket has it.
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

static AFFINITY: LazyLock<Affinity> = LazyLock::new(|| Affinity {
    cookie: "route".into(),
    path: "/".into(),
    age_max_s: 0,
    secure: false,
    ..Affinity::default()
});

/// Every value that is read of a head is a part of it: none goes on where the next one begins,
/// nobody is believed who is not trusted, and an endpoint is remembered by one cookie alone.
pub(crate) fn request_fields(bytes: &[u8]) -> bool {
    with_head(bytes, |head| {
        assert_eq!(client::address(head, PEER, 0), PEER.into());
        for hops in 1..3 {
            let told = client::address(head, PEER, hops).known();
            assert_eq!(told, told.map(|it| it.to_canonical()));
        }
        if let Some(value) = cookie(head, "route") {
            assert!(!value.contains(&b';'));
        }
        if let Some(mark) = affinity::mark(&AFFINITY, head, Duration::ZERO) {
            let value = cookie(head, "route").unwrap_or_default();
            let written = format!("{mark:016x}");
            assert!(value.eq_ignore_ascii_case(written.as_bytes()), "{written}");
        }
        let query = head.query.unwrap_or_default();
        if let Some(value) = query_value(query, "a") {
            assert!(!value.contains('&') && query.contains(value));
        }
        assert_conditions(head);
        assert_kept(head);
    })
}

/// A condition and its contrary are never both true.
fn assert_conditions(head: &Head<'_>) {
    for source in [Source::Header, Source::Query, Source::Cookie] {
        for test in [
            Test::Present,
            Test::Exact("b".into()),
            Test::Start("b".into()),
        ] {
            let condition = |invert| ValueMatch {
                source,
                name: "a".into(),
                test: test.clone(),
                invert,
            };
            let budget = Budget::default();
            let given = Given::new(head, None, &budget);
            let hold = |invert| hold(&[condition(invert)], &[], &given);
            assert_ne!(hold(false), hold(true));
        }
    }
}

/// A head that is kept is the one that was read.
fn assert_kept(head: &Head<'_>) {
    let kept = KeptHead::new(head);
    let kept = kept.head();
    assert_eq!(
        (kept.method, &kept.path, kept.query),
        (head.method, &head.path, head.query)
    );
    assert_eq!((&kept.host, kept.authority), (&head.host, head.authority));
    assert_eq!((kept.body, kept.upgrade), (head.body, head.upgrade));
    let pairs = |head: &Head<'_>| -> Vec<(String, Vec<u8>)> {
        let fields = head.fields.iter();
        let pair = fields.map(|field| (field.name.to_owned(), field.value.to_vec()));
        pair.collect()
    };
    assert_eq!(pairs(&kept), pairs(head));
}

/// The prefix of paths that are forbidden.
const FORBIDDEN: &str = "/admin/";

/// A rule that closes a path closes all that an endpoint may read as it, and one that opens a path
/// opens no more than that.
pub(crate) fn guarded_path(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    let path = format!("/{text}");
    let Ok(sent) = PathRule::Dialect.follow(&path) else {
        return false;
    };
    let others = Readings::of(&path, &sent, PathRule::Dialect);
    let fits = |form: &AccessMatcher, wide| fits(form, &sent, others.as_ref(), wide);
    let readings = readings(&sent);
    let is_one = readings
        .iter()
        .any(|it| it.starts_with(FORBIDDEN.as_bytes()));
    let prefix = AccessMatcher::Prefix(FORBIDDEN.into());
    assert!(fits(&prefix, true) || !is_one, "{path}");
    for form in [prefix, AccessMatcher::Template("/admin/{**}".into())] {
        let is_closed = fits(&form, true);
        assert!(is_closed || !is_one && !fits(&form, false), "{path}");
    }
    true
}

/// The path as those read it who undo escapes, and as those do who leave out empty segments too.
fn readings(path: &str) -> [Vec<u8>; 2] {
    let (mut undone, mut rest) = (Vec::new(), path.as_bytes());
    while let [byte, behind @ ..] = rest {
        let (byte, behind) = match byte {
            b'%' => unescape(behind).unwrap_or((b'%', behind)),
            byte => (*byte, behind),
        };
        undone.push(byte);
        rest = behind;
    }
    let mut merged = undone.clone();
    merged.dedup_by(|next, before| (*next, *before) == (b'/', b'/'));
    [undone, merged]
}
