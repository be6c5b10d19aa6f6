//! The date of the proxy's own answers (RFC 9110, section 5.6.7), written once per second.

use std::cell::Cell;

use myriad_base::clock;

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// A date in text.
pub type Text = [u8; 29];

thread_local! {
    static LAST: Cell<(i64, Text)> = const { Cell::new((i64::MIN, [0; 29])) };
}

/// The present date.
pub fn now() -> Text {
    let seconds = clock::unix_seconds();
    let (known, text) = LAST.get();
    if known == seconds {
        return text;
    }
    let text = format(seconds);
    LAST.set((seconds, text));
    text
}

fn format(seconds: i64) -> Text {
    let days = seconds.div_euclid(86_400);
    let second = seconds.rem_euclid(86_400);
    let (year, month, day) = civil(days);
    let written = format!(
        "{}, {day:02} {} {year:04} {:02}:{:02}:{:02} GMT",
        DAYS[days.rem_euclid(7) as usize],
        MONTHS[month],
        second / 3_600,
        second / 60 % 60,
        second % 60,
    );
    let mut text = [b' '; 29];
    for (to, from) in text.iter_mut().zip(written.bytes()) {
        *to = from;
    }
    text
}

/// Year, month from 0 and day from 1 of a day since the Unix epoch. Years are counted from
/// March, so that the leap day is the last of its year.
fn civil(days: i64) -> (i64, usize, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12;
    let year = year_of_era + era * 400 + i64::from(month < 2);
    (year, month as usize, day)
}

#[cfg(test)]
mod tests {
    use super::format;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_709_251_199, "Thu, 29 Feb 2024 23:59:59 GMT"),
            (4_102_444_800, "Fri, 01 Jan 2100 00:00:00 GMT"),
        ] {
            assert_eq!(format(seconds), text.as_bytes());
        }
    }
}
