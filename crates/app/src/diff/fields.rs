//! A resource as fields with names, so that two of them can be compared one by one.

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Write as _};

use bytes::Bytes;
use myriad_model::{Certificate, PathView, Resource, Trust, Value, wire};
use myriad_proxy::telemetry::live_trace::is_secret_name;

use crate::history::former::StandIns;

/// Fields by their paths.
pub(super) type Fields = BTreeMap<String, String>;

/// The most bytes of the text of one part of a resource that fields are made of.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// The most bytes of the fields of one resource: a block may have a hundred thousand routes.
const RESOURCE_BYTES_MAX: usize = 4 << 20;

/// The charge of a field beside the bytes of its texts.
const FIELD_BYTES: usize = 128;

/// The most letters of a value.
const VALUE_LETTERS_MAX: usize = 200;

/// Names of fields of heads whose values nobody is shown, in lower case, wherever they stand. Where
/// a word is a name for certain, its value is hidden for whatever tells of secrets.
const HIDDEN_HEADERS: [&str; 8] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "set-cookie",
    "x-api-key",
    "api-key",
    "x-auth-token",
    "x-amz-security-token",
];

/// The fields of a resource that has stand-ins for its secrets, as far as there is room, of which
/// they take theirs. What has none is told as a whole.
pub(super) fn of(resource: &Resource, stand_ins: &StandIns, room: &mut usize) -> Fields {
    let own = RESOURCE_BYTES_MAX.min(*room);
    let mut reader = FieldReader {
        fields: Fields::new(),
        stand_ins,
        room: own,
        is_full: false,
    };
    reader.resource(&resource.value);
    *room -= own - reader.room;
    if reader.is_full {
        let mut bytes = Vec::new();
        wire::encode(resource, &mut bytes);
        let print = stand_ins.fingerprint(&bytes);
        let told = format!("too long to compare; all of it is of fingerprint {print}");
        reader.fields.insert("the rest".to_owned(), told);
    }
    reader.fields
}

struct FieldReader<'s> {
    fields: Fields,
    stand_ins: &'s StandIns,
    /// The bytes that further fields may take.
    room: usize,
    /// Whether one had no room.
    is_full: bool,
}

/// The place within the text of a part.
struct Level {
    path: String,
    /// How many values without names it has had.
    count: usize,
    /// Whether its first value has its own path, as that of `Some(…)`.
    is_tuple: bool,
    /// Whether what follows belongs to a name whose values are hidden.
    hides: bool,
}

impl FieldReader<'_> {
    fn resource(&mut self, value: &Value) {
        match value {
            Value::Certificate(certificate) => self.certificate(certificate),
            Value::Trust(trust) => self.trust(trust),
            Value::Endpoints(endpoints) => {
                for endpoint in &*endpoints.endpoints {
                    if self.is_full {
                        return;
                    }
                    self.part(&format!("endpoint {}", endpoint.address), endpoint);
                }
                self.part("localities", &endpoints.localities);
            }
            value @ (Value::Route(_) | Value::Routes(_)) => {
                let mut met: BTreeMap<String, usize> = BTreeMap::new();
                for route in value.routes() {
                    if self.is_full {
                        return;
                    }
                    let name = route_name(route.path);
                    let count = met.entry(name.clone()).or_default();
                    *count += 1;
                    match *count {
                        1 => self.part(&name, &route),
                        more => self.part(&format!("{name} ({more})"), &route),
                    }
                }
            }
            value => self.part("", value),
        }
    }

    /// Reads a value as its debug form tells of it, a line for each field.
    fn part(&mut self, prefix: &str, value: &dyn Debug) {
        let mut text = Bounded(String::new());
        let is_cut = write!(text, "{value:#?}").is_err();
        let mut levels = vec![Level::new(prefix.to_owned(), true)];
        for line in text.0.lines() {
            if self.is_full {
                return;
            }
            self.line(line, &mut levels);
        }
        if is_cut {
            self.set(&join(prefix, "the rest"), "too long to compare");
        }
    }

    fn line(&mut self, line: &str, levels: &mut Vec<Level>) {
        let line = line.trim();
        let line = line.strip_suffix(',').unwrap_or(line);
        if matches!(line, "}" | "]" | ")") {
            levels.pop();
            return;
        }
        let Some(level) = levels.last_mut() else {
            return;
        };
        let named = line.split_once(": ").filter(|(name, _)| is_field(name));
        let (path, value) = match named {
            Some((name, value)) => (join(&level.path, name), value),
            None => {
                level.count += 1;
                match level.is_tuple && level.count == 1 {
                    true => (level.path.clone(), line),
                    false => (format!("{}[{}]", level.path, level.count - 1), line),
                }
            }
        };
        if let Some(word) = value.strip_suffix(['{', '[', '(']) {
            let word = word.trim_end();
            let hides = level.hides;
            if !word.is_empty() && word != "Some" {
                self.set(&path, word);
            }
            let mut below = Level::new(path, value.ends_with('('));
            below.hides = hides;
            levels.push(below);
            return;
        }
        if level.hides {
            let print = self.stand_ins.fingerprint(value.as_bytes());
            self.set(&path, &format!("hidden, of fingerprint {print}"));
            return;
        }
        let bare = value.trim_matches('"').to_ascii_lowercase();
        // The first of two, or what is called so.
        let is_first = level.is_tuple && level.count == 1;
        let is_name = named.map_or(is_first, |(name, _)| name == "name");
        level.hides = HIDDEN_HEADERS.contains(&&*bare)
            || (is_name && value.starts_with('"') && is_secret_name(&bare));
        self.set(&path, value);
    }

    fn certificate(&mut self, certificate: &Certificate) {
        for (at, der) in certificate.chain.iter().enumerate() {
            let name = match at {
                0 => "leaf".to_owned(),
                at => format!("issuer {at}"),
            };
            self.authority(&name, der);
        }
    }

    fn trust(&mut self, trust: &Trust) {
        for (at, der) in trust.roots.iter().enumerate() {
            self.authority(&format!("root {at}"), der);
        }
        for (at, list) in trust.crls.iter().enumerate() {
            let print = self.stand_ins.fingerprint(list);
            self.set(&format!("revocation list {at}"), &print);
        }
        self.set("users", &trust.users.len().to_string());
        // A fingerprint stands in the place of each name.
        for (print, _) in trust.users.expose() {
            self.set(&format!("user of fingerprint {print}"), "may come");
        }
    }

    /// A certificate, of which nothing is secret.
    fn authority(&mut self, name: &str, der: &Bytes) {
        self.set(&join(name, "fingerprint"), &self.stand_ins.fingerprint(der));
        let Ok((_, certificate)) = x509_parser::parse_x509_certificate(der) else {
            return;
        };
        let names = certificate.subject_alternative_name().ok().flatten();
        let names = names.map(|it| {
            let names = it.value.general_names.iter();
            names
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        });
        self.set(&join(name, "names"), &names.unwrap_or_default());
        self.set(&join(name, "subject"), &certificate.subject().to_string());
        self.set(&join(name, "issuer"), &certificate.issuer().to_string());
        let end = certificate.validity().not_after.to_string();
        self.set(&join(name, "ends"), &end);
    }

    /// Sets a field. The variant of an enum and its only value are one.
    fn set(&mut self, path: &str, value: &str) {
        let mut shown: String = value.chars().take(VALUE_LETTERS_MAX).collect();
        if shown.len() < value.len() {
            // What is cut off tells two of them apart all the same.
            let print = self.stand_ins.fingerprint(value.as_bytes());
            shown.push_str(&format!("… (of fingerprint {print})"));
        }
        if path.is_empty() {
            return;
        }
        let bytes = path.len() + shown.len() + FIELD_BYTES;
        let Some(room) = self.room.checked_sub(bytes) else {
            self.is_full = true;
            return;
        };
        self.room = room;
        let field = self.fields.entry(path.to_owned()).or_default();
        if !field.is_empty() {
            field.push(' ');
        }
        field.push_str(&shown);
    }
}

impl Level {
    fn new(path: String, is_tuple: bool) -> Level {
        Level {
            path,
            count: 0,
            is_tuple,
            hides: false,
        }
    }
}

/// A text that takes no more than its bound.
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > TEXT_BYTES_MAX {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

fn join(path: &str, name: &str) -> String {
    match path.is_empty() {
        true => name.to_owned(),
        false => format!("{path}.{name}"),
    }
}

/// Whether a word is the name of a field.
fn is_field(word: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    !word.is_empty() && word.bytes().all(is_letter)
}

fn route_name(path: PathView<'_>) -> String {
    match path {
        PathView::Exact(path) => format!("route exactly {path}"),
        PathView::Prefix(path) => format!("route {path}"),
        PathView::Regex(pattern) => format!("route regex {pattern}"),
        PathView::Start(start) => format!("route start {start}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use myriad_model::{Endpoint, Endpoints, Origin, Resource, Value};

    use super::{FIELD_BYTES, FieldReader, Fields, RESOURCE_BYTES_MAX, TEXT_BYTES_MAX};
    use crate::history::{History, HistorySettings};

    /// Of a resource like those of the model.
    #[derive(Debug)]
    #[allow(dead_code, reason = "its debug form is what is read")]
    struct Example {
        name: &'static str,
        count: Option<u32>,
        nobody: Option<u32>,
        way: Way,
        shares: Vec<(&'static str, u32)>,
        headers: Vec<(&'static str, String)>,
    }

    #[derive(Debug)]
    #[allow(dead_code, reason = "its debug form is what is read")]
    enum Way {
        Prefix(&'static str),
        Fixed { status: u16 },
    }

    fn example() -> Example {
        Example {
            name: "a: b {",
            count: Some(3),
            nobody: None,
            way: Way::Prefix("/x"),
            shares: vec![("web", 1), ("api", 2)],
            headers: vec![
                ("Authorization", "Basic c4n4ry".to_owned()),
                ("x-shown", "shown".to_owned()),
                ("X-Internal-Token", "c4n4ry".to_owned()),
            ],
        }
    }

    fn fields(value: &dyn std::fmt::Debug) -> Fields {
        let history = History::new(HistorySettings {
            bytes_max: 1,
            age_max: Duration::ZERO,
        });
        let mut reader = FieldReader {
            fields: Fields::new(),
            stand_ins: history.stand_ins(),
            room: RESOURCE_BYTES_MAX,
            is_full: false,
        };
        reader.part("", value);
        reader.fields
    }

    #[test]
    fn each_field_has_a_path_and_a_value() {
        let found = fields(&example());
        for (path, value) in [
            ("name", "\"a: b {\""),
            ("count", "3"),
            ("nobody", "None"),
            ("way", "Prefix \"/x\""),
            ("shares[0]", "\"web\""),
            ("shares[0][1]", "1"),
            ("shares[1]", "\"api\""),
            ("headers[1][1]", "\"shown\""),
        ] {
            assert_eq!(
                found.get(path).map(String::as_str),
                Some(value),
                "{found:#?}"
            );
        }
        let way = Way::Fixed { status: 404 };
        let other = fields(&Example { way, ..example() });
        assert_eq!(other["way"], "Fixed");
        assert_eq!(other["way.status"], "404");
    }

    #[test]
    fn what_a_head_must_not_show_is_a_fingerprint() {
        let found = fields(&example());
        assert!(!format!("{found:?}").contains("c4n4ry"), "{found:#?}");
        for hidden in ["headers[0][1]", "headers[2][1]"] {
            assert!(
                found[hidden].starts_with("hidden, of fingerprint "),
                "{found:#?}"
            );
        }
    }

    #[test]
    fn a_resource_takes_no_more_room_than_there_is_and_what_has_none_is_told_as_a_whole() {
        let history = History::new(HistorySettings {
            bytes_max: 1,
            age_max: Duration::ZERO,
        });
        let many = |port: u16| {
            let addresses = 0..=255_u8;
            let addresses = addresses.map(|last| Endpoint::even(([10, 0, 0, last], port).into()));
            Resource {
                origin: Origin::settings(),
                value: Value::Endpoints(Box::new(Endpoints::new(addresses.collect()))),
            }
        };
        let read = |resource: &Resource, room: &mut usize| {
            let found = super::of(resource, history.stand_ins(), room);
            let bytes = found.iter();
            let bytes = bytes.map(|(path, value)| path.len() + value.len() + FIELD_BYTES);
            (bytes.sum::<usize>(), found.get("the rest").cloned())
        };
        let (mut room, before) = (8 << 20, 8 << 20);
        let (bytes, rest) = read(&many(1), &mut room);
        assert!(rest.is_none() && room < before && bytes > 16 << 10);
        let mut room = 16 << 10;
        let (bytes, one) = read(&many(1), &mut room);
        assert!(bytes <= (16 << 10) + 2 * FIELD_BYTES, "{bytes}");
        assert!(room < FIELD_BYTES * 4);
        let (_, other) = read(&many(2), &mut 0);
        let (_, again) = read(&many(1), &mut 0);
        assert!(one.is_some() && one == again && one != other, "{one:?}");
    }

    #[test]
    fn a_value_that_is_too_long_is_cut_and_told() {
        let long = Arc::new("x".repeat(TEXT_BYTES_MAX + 1));
        let found = fields(&[long]);
        assert!(found["the rest"].contains("too long"), "{found:?}");
        let found = fields(&["é".repeat(1_000)]);
        assert!(
            found["[0]"].len() < 600 && found["[0]"].contains('…'),
            "{found:?}"
        );
    }
}
