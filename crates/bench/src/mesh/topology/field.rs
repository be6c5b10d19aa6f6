//! Values with units: sizes, shares and times.

use std::time::Duration;

use anyhow::bail;
use serde_json::Value;

/// The longest body.
pub(super) const BODY_BYTES_MAX: usize = 4 << 20;

/// The longest sleep.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// Units of sizes, the longer ones first where one ends in another.
const SIZES: [(&str, f64); 9] = [
    ("KiB", 1_024.0),
    ("MiB", 1_048_576.0),
    ("KB", 1_000.0),
    ("MB", 1_000_000.0),
    ("k", 1_000.0),
    ("K", 1_024.0),
    ("M", 1_048_576.0),
    ("B", 1.0),
    ("", 1.0),
];

/// Units of times.
const TIMES: [(&str, f64); 6] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
];

/// A size such as `1KiB`, `128B` or a number of bytes.
pub(super) fn bytes(
    who: &str,
    field: &str,
    value: Option<Value>,
    default: usize,
) -> anyhow::Result<usize> {
    let Some(value) = value else {
        return Ok(default);
    };
    let read = match &value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => with_unit(text, &SIZES),
        _ => None,
    };
    match read.map(f64::round) {
        Some(size) if (0.0..=BODY_BYTES_MAX as f64).contains(&size) => Ok(size as usize),
        Some(_) => bail!("{who}: {field} is {value}; write 0 to {BODY_BYTES_MAX} bytes"),
        None => bail!("{who}: {field} is {value}, no size; write one such as 1KiB or 128B"),
    }
}

/// A share such as `10%` or 0.1.
pub(super) fn share(
    who: &str,
    field: &str,
    value: Option<Value>,
    default: f64,
) -> anyhow::Result<f64> {
    let Some(value) = value else {
        return Ok(default);
    };
    let read = match &value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => with_unit(text, &[("%", 0.01), ("", 1.0)]),
        _ => None,
    };
    match read {
        Some(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => bail!("{who}: {field} is {value}; write 0% to 100%, or 0 to 1"),
    }
}

/// A time such as `10ms`.
pub(super) fn duration(who: &str, field: &str, value: &Value) -> anyhow::Result<Duration> {
    let read = value.as_str().and_then(|text| with_unit(text, &TIMES));
    let read = read.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    match read {
        Some(time) if time <= SLEEP_MAX => Ok(time),
        Some(_) => bail!("{who}: {field} is {value}; write at most 60s"),
        None => bail!("{who}: {field} is {value}, no time; write one such as 10ms or 1.5s"),
    }
}

/// A number with one of these units.
fn with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    let end = text.find(|it: char| !it.is_ascii_digit() && it != '.');
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let unit = unit.trim();
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    Some(number.parse::<f64>().ok()? * factor)
}
