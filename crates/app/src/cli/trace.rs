//! Settings of `trace`, as written.

use std::time::Duration;

use clap::Args;
use myriad_proxy::telemetry::live_trace::REQUESTS_MAX;

use super::RawQuestion;

/// Settings of `trace` as written.
#[derive(Clone, Debug, Args)]
pub struct RawTrace {
    /// The requests: http://HOST[/PATH] or https://... HOST may begin with `*.`, for any names
    /// below; paths begin with PATH. Whether they came over TLS does not matter.
    pub url: String,
    /// A header that the requests have; may be given more than once.
    #[arg(long, value_name = "NAME=VALUE")]
    pub header: Vec<String>,
    /// How many requests are waited for, at most 50.
    #[arg(
        long,
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(REQUESTS_MAX)),
        value_name = "N"
    )]
    pub count: u32,
    /// How long they are waited for, and for their ends: seconds, or minutes as in 2m; at most 10
    /// minutes.
    #[arg(
        long = "for",
        default_value = "30s",
        value_parser = time,
        value_name = "TIME"
    )]
    pub time: Duration,
    /// The process to ask: one with a proxy.
    #[command(flatten)]
    pub question: RawQuestion,
}

/// Reads a time: `30`, `30s` or `2m`.
fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix('m') {
        Some(minutes) => (minutes, 60),
        None => (text.strip_suffix('s').unwrap_or(text), 1),
    };
    let number: u64 = number
        .parse()
        .map_err(|_| format!("{text:?} is not a time, as in 30s or 2m"))?;
    Ok(Duration::from_secs(number.saturating_mul(unit)))
}

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn times_are_read_in_seconds_and_minutes() {
        for (text, seconds) in [("30", 30), ("30s", 30), ("2m", 120)] {
            assert_eq!(time(text).unwrap().as_secs(), seconds);
        }
        for text in ["", "s", "1h", "-1s"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
