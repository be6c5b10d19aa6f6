//! Times as the API writes them.

use std::time::Duration;

use time::OffsetDateTime;
use time::macros::format_description;

/// A `MicroTime`: RFC 3339 in UTC with microseconds.
pub(super) fn micro_time(since_epoch: Duration) -> String {
    let form =
        format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z");
    let moment = OffsetDateTime::UNIX_EPOCH + since_epoch;
    // Formatting fails for years beyond 9999 alone.
    moment.format(&form).unwrap_or_default()
}

/// A `Time`: RFC 3339 in UTC with whole seconds.
pub fn second_time(since_epoch: Duration) -> String {
    let form = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]Z");
    let moment = OffsetDateTime::UNIX_EPOCH + since_epoch;
    // As above.
    moment.format(&form).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{micro_time, second_time};
    use std::time::Duration;

    #[test]
    fn times_have_microseconds_or_whole_seconds() {
        let moment = Duration::new(1_795_240_800, 1_234_999);
        assert_eq!(micro_time(moment), "2026-11-21T06:00:00.001234Z");
        assert_eq!(second_time(moment), "2026-11-21T06:00:00Z");
    }
}
