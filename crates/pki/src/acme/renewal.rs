//! When a certificate is renewed.

use super::{DAY, HOUR, MINUTE, Millis};

/// The shortest and the longest time between two looks at a renewal window.
const LOOK_MIN: Millis = MINUTE;
const LOOK_MAX: Millis = DAY;

/// A certificate that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldCertificate {
    /// The DNS names that it covers, sorted.
    pub names: Vec<Box<str>>,
    /// When its time begins.
    pub from: Millis,
    /// When it ends.
    pub until: Millis,
    /// The name that it has in renewal information (RFC 9773, section 4.1).
    pub ari: Option<Box<str>>,
    /// The directory that it was ordered at, where that is known.
    pub directory: Option<Box<str>>,
    /// When it was ordered, where that is known.
    pub placed_at: Option<Millis>,
}

/// The time in which an authority wants a certificate to be renewed (RFC 9773).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenewalWindow {
    /// Its start.
    pub start: Millis,
    /// Its end.
    pub end: Millis,
    /// How long until it may be looked at again.
    pub look_again: Millis,
}

impl RenewalWindow {
    /// When it is looked at again, after so long at most.
    pub(super) fn next_look(&self, now: Millis, most: Millis) -> Millis {
        let (least, most) = (LOOK_MIN.min(most), LOOK_MAX.min(most));
        now.saturating_add(self.look_again.clamp(least, most))
    }
}

/// When a certificate is renewed: at a moment of the window that is its own, or else when two
/// thirds of its life are over, and before that where others would crowd.
pub(super) fn moment(held: &HeldCertificate, window: Option<&RenewalWindow>, share: u16) -> Millis {
    let life = held.until.saturating_sub(held.from).max(0);
    let (start, end) = match window {
        Some(window) => (window.start, window.end.max(window.start)),
        // The last tenth before two thirds.
        None => {
            let latest = held.from.saturating_add(life / 3 * 2);
            (latest.saturating_sub(life / 10), latest)
        }
    };
    let span = i128::from(end.saturating_sub(start));
    let drawn = span * i128::from(share) / i128::from(u16::MAX);
    let moment = start.saturating_add(i64::try_from(drawn).unwrap_or(0));
    // Whatever a window says, no certificate is left to end.
    moment.min(held.until.saturating_sub((life / 10).min(HOUR)))
}

#[cfg(test)]
mod tests {
    use super::{HeldCertificate, RenewalWindow, moment};
    use crate::acme::{DAY, HOUR, MINUTE, SECOND};

    fn held() -> HeldCertificate {
        HeldCertificate {
            names: vec!["a.example".into()],
            from: 0,
            until: 90 * DAY,
            ari: None,
            directory: None,
            placed_at: None,
        }
    }

    #[test]
    fn without_a_window_it_is_before_two_thirds_and_spread_over_a_tenth() {
        let held = held();
        assert_eq!(moment(&held, None, u16::MAX), 60 * DAY);
        assert_eq!(moment(&held, None, 0), 51 * DAY);
    }

    #[test]
    fn a_window_decides_but_never_past_the_end() {
        let held = held();
        let window = |start, end| RenewalWindow {
            start,
            end,
            look_again: HOUR,
        };
        assert_eq!(moment(&held, Some(&window(DAY, 3 * DAY)), 0), DAY);
        assert_eq!(
            moment(&held, Some(&window(DAY, 3 * DAY)), u16::MAX),
            3 * DAY
        );
        // One that ends before it starts is a moment.
        assert_eq!(
            moment(&held, Some(&window(5 * DAY, DAY)), u16::MAX),
            5 * DAY
        );
        let late = moment(&held, Some(&window(200 * DAY, 300 * DAY)), 0);
        assert_eq!(late, 90 * DAY - HOUR);
    }

    #[test]
    fn looks_are_neither_rare_nor_frequent() {
        let window = |look_again| RenewalWindow {
            start: 0,
            end: 0,
            look_again,
        };
        assert_eq!(window(0).next_look(0, DAY), MINUTE);
        assert_eq!(window(i64::MAX).next_look(0, 2 * DAY), DAY);
        assert_eq!(window(6 * HOUR).next_look(5, DAY), 6 * HOUR + 5);
        assert_eq!(window(6 * HOUR).next_look(5, HOUR), HOUR + 5);
        assert_eq!(window(6 * HOUR).next_look(5, SECOND), SECOND + 5);
    }
}
