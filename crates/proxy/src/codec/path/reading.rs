//! The readings of a path: what a route of each dialect compares, and what an endpoint may make of
//! it, so that what restricts a path is not evaded by another spelling.

use std::borrow::Cow;
use std::sync::OnceLock;

use myriad_model::{PathReading, unescape};

use crate::limits::PathRule;

use super::{Segments, is_plain, normal};

/// The most readings of a path beside the one that is sent.
const READINGS_MAX: usize = 14;

/// The readings of a path that is not plain. A plain one is all of them itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readings {
    /// Escapes of unreserved bytes undone, as Istio's BASE has it.
    base: Box<str>,
    /// The path as nginx compares it with its locations.
    decoded: Box<str>,
    /// Whether nginx refuses the path.
    is_undecodable: bool,
    /// The readings of endpoints, made where something restricts who may ask.
    wider: OnceLock<Wider>,
    /// Whether routes read the path that goes to the endpoint, whatever their dialect.
    is_overridden: bool,
}

/// The readings that endpoints may have beside those of routes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wider {
    /// All escapes undone, also those that undoing others has made, backslashes as slashes,
    /// parameters of segments left out, dot segments followed, and many slashes as one.
    widest: Box<str>,
    /// The readings between these: see [`between`].
    between: Box<[Box<str>]>,
}

impl Readings {
    /// The readings of a path that came like this and that goes to the endpoint like that; none
    /// for a plain one.
    pub fn of(came: &str, sent: &str, rule: PathRule) -> Option<Self> {
        if is_plain(came) {
            return None;
        }
        let decoded = Decoded::of(sent);
        // Merging slashes before dot segments are followed may lead elsewhere than merging them
        // afterwards. No URI has a backslash, and nginx takes it for a letter.
        let is_one = came == sent || decoded == Decoded::of(came) && !came.contains('\\');
        Some(Readings {
            base: normal(sent, false, false).into(),
            decoded: decoded.text.into(),
            is_undecodable: decoded.is_refused || !is_one,
            wider: OnceLock::new(),
            is_overridden: rule != PathRule::Dialect,
        })
    }

    /// The reading that a route compares; none where its dialect refuses the path. `sent` is the
    /// path that goes to the endpoint.
    pub fn get<'a>(&'a self, reading: PathReading, sent: &'a str) -> Option<&'a str> {
        match reading {
            _ if self.is_overridden => Some(sent),
            PathReading::AsSent => Some(sent),
            PathReading::Base => Some(&self.base),
            PathReading::Decoded => (!self.is_undecodable).then_some(&*self.decoded),
        }
    }

    /// The path with no more than escapes of unreserved bytes undone, which all servers take for
    /// the same path.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// The paths that endpoints may read instead of `sent`, which goes to them: the narrowest, the
    /// widest, and at most eleven between them. Asked for the first time, they are made.
    pub fn others(&self, sent: &str) -> impl Iterator<Item = &str> {
        let wider = self.wider.get_or_init(|| {
            let widest = followed(&widened(sent));
            Wider {
                between: between(sent, [&self.base, &self.decoded, &widest]),
                widest: widest.into(),
            }
        });
        let between = wider.between.iter().map(|path| &**path);
        [&*self.decoded, &*wider.widest].into_iter().chain(between)
    }

    /// How many bytes of memory the readings of a path of `length` bytes take at most, with those
    /// that may yet be made. None of them is longer than the path.
    pub const fn memory(length: usize) -> usize {
        READINGS_MAX * length
    }
}

/// A path as nginx compares it: escapes undone, dot segments followed and slashes merged. `%25` and
/// escapes of what is not UTF-8 stay, so that what is made of it can be sent again.
#[derive(PartialEq, Eq)]
struct Decoded {
    text: String,
    /// Whether nginx refuses it: for escapes that are none, which stay, and for what leads above
    /// the root, which is the root.
    is_refused: bool,
}

impl Decoded {
    fn of(path: &str) -> Decoded {
        let mut made = Segments::with_capacity(path.len());
        let mut is_refused = false;
        let mut rest = path.as_bytes().get(1..).unwrap_or_default();
        loop {
            let (byte, is_end) = match rest {
                [b'%', behind @ ..] => match unescape(behind) {
                    Some((b'%', after)) => {
                        rest = after;
                        made.extend(b"%25");
                        continue;
                    }
                    Some((byte, after)) => {
                        rest = after;
                        (byte, false)
                    }
                    None => {
                        is_refused = true;
                        rest = behind;
                        (b'%', false)
                    }
                },
                [byte, behind @ ..] => {
                    rest = behind;
                    (*byte, false)
                }
                [] => (b'/', true),
            };
            if byte != b'/' {
                made.push(byte);
                continue;
            }
            is_refused |= made.leads_above();
            made.end(is_end, true);
            if is_end {
                break;
            }
        }
        let mut text = String::with_capacity(made.bytes.len());
        push_utf8(&made.bytes, &mut text);
        Decoded { text, is_refused }
    }
}

/// Bytes as UTF-8, where all others are escaped.
fn push_utf8(bytes: &[u8], text: &mut String) {
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            escape(*byte, text);
        }
    }
}

/// A decoded path as it can be sent: escaped as nginx does, but for percent signs, each of which
/// begins an escape.
pub fn escaped(decoded: &str) -> String {
    let mut text = String::with_capacity(decoded.len());
    for byte in decoded.bytes() {
        match byte {
            0..=b' '
            | 0x7f..
            | b'"'
            | b'#'
            | b'<'
            | b'>'
            | b'?'
            | b'\\'
            | b'^'
            | b'`'
            | b'{'
            | b'|'
            | b'}' => escape(byte, &mut text),
            byte => text.push(char::from(byte)),
        }
    }
    text
}

fn escape(byte: u8, text: &mut String) {
    text.push('%');
    for digit in [byte >> 4, byte & 15] {
        let digit = char::from_digit(digit.into(), 16).unwrap_or_default();
        text.push(digit.to_ascii_uppercase());
    }
}

/// The readings that are none of those known, each once. Servers differ in two orders: parameters
/// are left out of the segments as they came (servlet containers), of those with escapes undone, or
/// nowhere; and escapes are undone once, or until none is left. All of this with backslashes as
/// they are and as slashes, and with dot segments followed and slashes merged last.
fn between(sent: &str, known: [&str; 3]) -> Box<[Box<str>]> {
    let mut found: Vec<Box<str>> = Vec::new();
    let mut add = |path: &str| {
        let path = followed(path);
        if !known.contains(&&*path) && !found.iter().any(|it| **it == *path) {
            found.push(path.into());
        }
    };
    let bare = without_parameters(sent);
    if let Some(bare) = &bare {
        add(&normal(bare, false, true));
    }
    let sources = [
        Some((sent, true)),
        bare.as_deref().map(|bare| (bare, false)),
    ];
    for (source, leaves_out) in sources.into_iter().flatten() {
        if !source.contains('%') {
            continue;
        }
        let wholly = String::from_utf8_lossy(&undone_wholly(source)).into_owned();
        for undone in [undone_once(source), wholly] {
            let slashed = undone.contains('\\').then(|| undone.replace('\\', "/"));
            for path in [Some(&undone), slashed.as_ref()].into_iter().flatten() {
                add(path);
                if let Some(bare) = without_parameters(path).filter(|_| leaves_out) {
                    add(&bare);
                }
            }
        }
    }
    found.into()
}

/// A path without the parameters of its segments; none where it has none.
fn without_parameters(path: &str) -> Option<String> {
    if !path.contains(';') {
        return None;
    }
    let segments = path.split('/');
    let bare = segments.map(|segment| segment.split(';').next().unwrap_or_default());
    Some(bare.collect::<Vec<&str>>().join("/"))
}

/// A path with its escapes undone, but not those that this makes: `%25` stays, and so do escapes of
/// what is not UTF-8.
fn undone_once(path: &str) -> String {
    let mut undone = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [byte, behind @ ..] = rest {
        rest = behind;
        let escaped = match byte {
            b'%' => unescape(behind),
            _ => None,
        };
        match escaped {
            Some((b'%', after)) => {
                rest = after;
                undone.extend(*b"%25");
            }
            Some((byte, after)) => {
                rest = after;
                undone.push(byte);
            }
            None => undone.push(*byte),
        }
    }
    let mut text = String::with_capacity(undone.len());
    push_utf8(&undone, &mut text);
    text
}

/// A path with its escapes undone until none is left.
fn undone_wholly(path: &str) -> Vec<u8> {
    let mut undone: Vec<u8> = Vec::with_capacity(path.len());
    for byte in path.bytes() {
        undone.push(byte);
        // A byte that was undone may be the last digit of another escape.
        while let [before @ .., b'%', high, low] = &*undone
            && let Some((byte, _)) = unescape(&[*high, *low])
        {
            let length = before.len();
            undone.truncate(length);
            undone.push(byte);
        }
    }
    undone
}

/// A path with its dot segments followed, and many slashes as one.
fn followed(path: &str) -> String {
    let mut made = Segments::with_capacity(path.len());
    let mut rest = path.strip_prefix('/').unwrap_or(path).split('/').peekable();
    while let Some(segment) = rest.next() {
        made.extend(segment.as_bytes());
        made.end(rest.peek().is_none(), true);
    }
    made.into_text().unwrap_or_default()
}

/// A part of a path in its widest reading, but for dot segments.
pub fn widened(part: &str) -> Cow<'_, str> {
    if !part.contains(['%', '\\', ';']) && !part.contains("//") {
        return Cow::Borrowed(part);
    }
    let undone = undone_wholly(part);
    let mut wide = Vec::with_capacity(undone.len());
    let mut is_parameter = false;
    for byte in undone {
        match byte {
            b'/' | b'\\' => {
                is_parameter = false;
                if wide.last() != Some(&b'/') {
                    wide.push(b'/');
                }
            }
            b';' => is_parameter = true,
            byte if !is_parameter => wide.push(byte),
            _ => {}
        }
    }
    Cow::Owned(String::from_utf8_lossy(&wide).into_owned())
}

#[cfg(test)]
mod tests {
    use myriad_model::PathReading;

    use super::{Readings, escaped};
    use crate::codec::head::check_path;
    use crate::limits::PathRule;

    #[test]
    fn each_reading_is_what_its_origin_documents() {
        // The path as it came, and its readings: what is sent, Istio's, nginx's (empty where it
        // refuses the path) and the widest.
        for (came, expected) in [
            ("/%61dmin", ["/%61dmin", "/admin", "/admin", "/admin"]),
            ("//admin", ["//admin", "//admin", "/admin", "/admin"]),
            (
                "/admin%2fx",
                ["/admin%2fx", "/admin%2fx", "/admin/x", "/admin/x"],
            ),
            (
                "/admin%5c",
                ["/admin%5c", "/admin%5c", "/admin\\", "/admin/"],
            ),
            ("/admin\\x", ["/admin/x", "/admin/x", "", "/admin/x"]),
            (
                "/admin;a=1/x",
                ["/admin;a=1/x", "/admin;a=1/x", "/admin;a=1/x", "/admin/x"],
            ),
            ("/a%3b/b", ["/a%3b/b", "/a%3b/b", "/a;/b", "/a/b"]),
            ("/%2561", ["/%2561", "/%2561", "/%2561", "/a"]),
            (
                "/%25252561",
                ["/%25252561", "/%25252561", "/%25252561", "/a"],
            ),
            ("/a/../b", ["/b", "/b", "/b", "/b"]),
            ("/../b", ["/b", "/b", "", "/b"]),
            ("/a//../b", ["/a/b", "/a/b", "", "/a/b"]),
            ("/a/.", ["/a/", "/a/", "/a/", "/a/"]),
            ("/%zz", ["/%zz", "/%zz", "", "/%zz"]),
            ("/a%", ["/a%", "/a%", "", "/a%"]),
            ("/a%20b%3f", ["/a%20b%3f", "/a%20b%3f", "/a b?", "/a b?"]),
            (
                "/%C3%a4%ff",
                ["/%C3%a4%ff", "/%C3%a4%ff", "/ä%FF", "/ä\u{fffd}"],
            ),
        ] {
            let sent = PathRule::Dialect.follow(came).unwrap();
            let readings = Readings::of(came, &sent, PathRule::Dialect).unwrap();
            let read = |reading| readings.get(reading, &sent).unwrap_or_default();
            let found = [
                read(PathReading::AsSent),
                read(PathReading::Base),
                read(PathReading::Decoded),
                readings.others(&sent).nth(1).unwrap_or_default(),
            ];
            assert_eq!(found, expected, "{came}");
        }
    }

    #[test]
    fn a_path_has_the_readings_between_that_servers_have_of_it() {
        // The path, and all that endpoints may read instead.
        let cases: [(&str, &[&str]); 8] = [
            // A reading is there once, however many ways lead to it.
            ("/a%20b", &["/a b"]),
            ("/a;x/b", &["/a;x/b", "/a/b"]),
            // Parameters are left out before escapes are undone, or behind that.
            ("/a;%2fx", &["/a;/x", "/a/x", "/a"]),
            ("/a;%252f%252e%252e", &["/a;%252f%252e%252e", "/", "/a"]),
            (
                "/a;x/%252e%252e/y",
                &["/a;x/%252e%252e/y", "/y", "/a/%252e%252e/y"],
            ),
            ("/a%3b%252f%252e%252e", &["/a;%252f%252e%252e", "/", "/a"]),
            ("/a;%5c", &["/a;\\", "/a/", "/a;/", "/a"]),
            // Escapes are undone without leaving anything out.
            ("/a%3b%2525", &["/a;%2525", "/a", "/a;%"]),
        ];
        for (path, expected) in cases {
            let readings = Readings::of(path, path, PathRule::Dialect).unwrap();
            let mut found: Vec<&str> = readings.others(path).collect();
            let mut expected = expected.to_vec();
            for list in [&mut found, &mut expected] {
                list.sort_unstable();
                list.dedup();
            }
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn the_readings_of_a_path_are_few() {
        let mut most = 0;
        let parts = [
            "/", "a", "%2e%252e", "%252f", ";", "%3b", "%5c", "%255c", "/b;", "%253b",
        ];
        let mut seed = 7_usize;
        for _ in 0..20_000 {
            let mut path = String::from("/");
            for _ in 0..12 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                path.push_str(parts[(seed >> 33) % parts.len()]);
            }
            let readings = Readings::of(&path, &path, PathRule::Dialect);
            most = most.max(readings.map_or(0, |it| it.others(&path).count()));
        }
        assert!((3..=13).contains(&most), "{most}");
    }

    #[test]
    fn readings_of_endpoints_are_made_where_they_are_asked_for_and_none_is_longer_than_the_path() {
        let parts = [
            "/", "a", "%2e%252e", "%252f", ";", "%3b", "%5c", "%255c", "%ff", "%25",
        ];
        let mut seed = 3_usize;
        for _ in 0..2_000 {
            let mut path = String::from("//");
            for _ in 0..12 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                path.push_str(parts[(seed >> 33) % parts.len()]);
            }
            let readings = Readings::of(&path, &path, PathRule::Dialect).unwrap();
            assert_eq!(readings.wider.get(), None, "{path}");
            let made = readings.others(&path).chain([readings.base()]);
            let lengths: Vec<usize> = made.map(str::len).collect();
            assert!(
                lengths.iter().sum::<usize>() <= Readings::memory(path.len()),
                "{path}"
            );
            assert!(lengths.iter().all(|length| *length <= path.len()), "{path}");
        }
    }

    #[test]
    fn a_plain_path_costs_nothing_and_has_one_reading() {
        for path in ["/", "/a/b.c", "/a/", "/.well-known/x", "/a..b/c.", "/a/.b"] {
            assert_eq!(Readings::of(path, path, PathRule::Dialect), None, "{path}");
        }
        for path in [
            "//", "/a/.", "/a/..", "/./a", "/..a", "/a;b", "/%41", "/a\\b",
        ] {
            assert!(
                Readings::of(path, path, PathRule::Dialect).is_some(),
                "{path}"
            );
        }
    }

    #[test]
    fn a_rule_of_the_operator_is_what_all_routes_read() {
        let readings = Readings::of("/%61//b", "/a/b", PathRule::MergeSlashes).unwrap();
        let all = [PathReading::AsSent, PathReading::Base, PathReading::Decoded];
        for reading in all {
            assert_eq!(readings.get(reading, "/a/b"), Some("/a/b"));
        }
    }

    #[test]
    fn what_was_decoded_is_sent_as_it_was() {
        for path in ["/a%20b", "/%25", "/%FF", "/%C3%A4", "/%3F%23", "/a%0A"] {
            let readings = Readings::of(path, path, PathRule::Dialect).unwrap();
            let decoded = readings.get(PathReading::Decoded, path).unwrap();
            assert_eq!(escaped(decoded), path);
        }
    }

    /// Each path is read as its origin reads it, or refused. The answers of both are kept in a file
    /// that `cargo xtask answers` records anew.
    #[test]
    fn paths_are_read_as_nginx_and_envoy_read_them_or_refused() {
        let rows = include_str!("answers.txt").lines();
        let rows: Vec<&str> = rows.filter(|row| !row.starts_with('#')).collect();
        assert!(rows.len() >= 290, "{} paths", rows.len());
        let (mut refused, mut wrong) = ([0, 0], Vec::new());
        for row in rows {
            let mut parts = row.split(' ');
            let mut next = || parts.next().unwrap();
            let (came, nginx, envoy) = (next(), next(), next());
            let sent = check_path(came, None, PathRule::Dialect);
            let (decoded, base) = match &sent {
                Err(_) => (None, None),
                Ok(sent) => match Readings::of(came, sent, PathRule::Dialect) {
                    None => (Some(shown(sent)), Some(shown(sent))),
                    Some(readings) => {
                        let read = |reading| readings.get(reading, sent);
                        let decoded = read(PathReading::Decoded).map(shown);
                        (decoded, read(PathReading::Base).map(shown))
                    }
                },
            };
            // Envoy escapes what no URI has, and refuses what is not ASCII, which we pass on.
            let base = base.filter(|_| came.is_ascii());
            let base = base.map(|text| escaped(&text));
            for (number, (ours, theirs)) in [(decoded, nginx), (base, envoy)].iter().enumerate() {
                match ours {
                    None if *theirs != "-" => refused[number] += 1,
                    Some(ours) if ours != theirs => {
                        wrong.push(format!("{number}: {came}: {ours}, not {theirs}"));
                    }
                    _ => {}
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        // Those that we refuse and they do not.
        assert_eq!(refused, [33, 23]);
    }

    /// A reading as the file has it. Ours of nginx keeps escapes of percent signs and of what is
    /// not UTF-8, just as the file does.
    fn shown(text: &str) -> String {
        let mut shown = String::new();
        for byte in text.bytes() {
            match byte {
                0x21..=0x7e => shown.push(char::from(byte)),
                byte => super::escape(byte, &mut shown),
            }
        }
        shown
    }
}
