//! `/top` of the admin address: which domains, or objects of routes, have most of something.

use std::fmt::Write as _;

use myriad_proxy::{TOP_ROWS_MAX, TopCount, TopReader};
use serde::Serialize;

/// The path of the page for people.
pub const PATH: &str = "/top";

/// The path of the same as JSON.
pub const JSON_PATH: &str = "/top.json";

/// How many rows there are where nobody says.
const ROWS: usize = 20;

/// The words that a question may have, and what they mean.
const COUNTS: [(&str, &str, TopCount); 6] = [
    ("domains", "requests", TopCount::DomainRequests),
    ("domains", "errors", TopCount::DomainErrors),
    ("domains", "bytes", TopCount::DomainBytes),
    ("domains", "handshakes", TopCount::DomainHandshakes),
    ("routes", "requests", TopCount::RouteRequests),
    ("routes", "errors", TopCount::RouteErrors),
];

/// The answer: those that have most, first.
#[derive(Debug, Serialize)]
pub struct TopReport {
    /// Domains or routes, as was asked.
    pub of: &'static str,
    /// The thing that is counted.
    pub by: &'static str,
    /// The rows.
    pub rows: Vec<TopLine>,
}

/// One that has much.
#[derive(Debug, Serialize)]
pub struct TopLine {
    /// The domain, or `kind/namespace/name` of the object.
    pub name: String,
    /// How much it has had of late: numbers are halved every five minutes.
    pub count: u64,
    /// How much of that may be of others.
    pub error: u64,
}

/// Answers a question; what it does not say is requests, domains and 20 rows.
///
/// # Errors
/// A word or number that means nothing here.
pub fn report(
    reader: &TopReader,
    of: Option<&str>,
    by: Option<&str>,
    count: Option<&str>,
) -> Result<TopReport, String> {
    let (of, by) = (of.unwrap_or("domains"), by.unwrap_or("requests"));
    let mut known = COUNTS.iter();
    let Some((of, by, what)) =
        known.find(|(known_of, known_by, _)| (*known_of, *known_by) == (of, by))
    else {
        return Err(format!(
            "{of} by {by} are not counted: give by=requests, errors, bytes or handshakes, or \
             of=routes and by=requests or errors"
        ));
    };
    let count = match count {
        None => ROWS,
        Some(text) => match text.parse() {
            Ok(count) if (1..=TOP_ROWS_MAX).contains(&count) => count,
            _ => return Err(format!("n is {text:?}, not 1 to {TOP_ROWS_MAX}")),
        },
    };
    let rows = reader.top(*what, count).into_iter().map(|row| TopLine {
        name: row.name,
        count: row.count,
        error: row.error,
    });
    Ok(TopReport {
        of,
        by,
        rows: rows.collect(),
    })
}

impl TopReport {
    /// The answer as a table for people.
    pub fn to_text(&self) -> String {
        let TopReport { of, by, rows } = self;
        let mut text = format!("{of} by {by}, halved every five minutes\n");
        for row in rows {
            let TopLine { name, count, error } = row;
            // Writing into a String cannot fail.
            let _ = match error {
                0 => writeln!(text, "{count:>16}  {name}"),
                error => writeln!(text, "{count:>16}  {name} (at most {error} too many)"),
            };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use myriad_model::Host;
    use myriad_proxy::TopReader;
    use myriad_proxy::telemetry::top::TopDomains;

    use super::report;

    #[test]
    fn a_question_is_answered_in_both_forms() {
        let worker = Arc::new(TopDomains::default());
        let often = Host::parse("often.example").expect("a host");
        let once = Host::parse("once.example").expect("a host");
        for host in [&once, &often, &often, &often] {
            worker.note_handshake(host);
        }
        let reader = TopReader::new([worker].into_iter());
        let answer = report(&reader, None, Some("handshakes"), Some("1")).expect("an answer");
        assert_eq!(
            answer.to_text(),
            "domains by handshakes, halved every five minutes\n               3  often.example\n"
        );
        let json = serde_json::to_value(&answer).expect("JSON");
        assert_eq!(json["rows"][0]["count"], 3);
        let all = report(&reader, None, Some("handshakes"), None).expect("an answer");
        assert_eq!(all.rows.len(), 2);
    }

    #[test]
    fn what_is_not_counted_is_said() {
        let reader = TopReader::new(std::iter::empty());
        for (of, by, count) in [
            (Some("routes"), Some("bytes"), None),
            (None, Some("sorrows"), None),
            (None, None, Some("0")),
            (None, None, Some("257")),
            (None, None, Some("many")),
        ] {
            assert!(
                report(&reader, of, by, count).is_err(),
                "{of:?} {by:?} {count:?}"
            );
        }
    }
}
