//! The conditions on which a request is repeated.

use std::time::Duration;

use myriad_base::backoff::Waits;
use myriad_model::{Retry, RetryConditions as Conditions};

use super::hops;
use crate::codec::field::Field;
use crate::failure::FailureKind;
use crate::random::rng::Rng;

/// The longest wait, in waits before the first repetition.
const BACKOFF_FACTOR_MAX: u32 = 10;

/// The outcome of a try.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// There is no connection.
    Unconnected,
    /// The endpoint said that it has not looked at it.
    Refused,
    /// It broke off before a response; whether none of the request had been sent.
    Reset {
        /// Whether none of the request had been sent.
        is_unsent: bool,
    },
    /// A response began.
    Response {
        /// Its status.
        status: u16,
        /// Its fields.
        fields: &'a [Field<'a>],
    },
}

impl Event<'_> {
    /// The event of a failure, if it is the endpoint's, or no port leads to that one; nobody else's
    /// leads to a repetition.
    pub fn of(kind: FailureKind, is_unsent: bool) -> Option<Self> {
        match kind {
            FailureKind::NoPort
            | FailureKind::ConnectFailed
            | FailureKind::ConnectTimeout
            | FailureKind::UpstreamTls => Some(Event::Unconnected),
            FailureKind::UpstreamClosed
            | FailureKind::BadResponse
            | FailureKind::ReadTimeout
            | FailureKind::SendTimeout
            | FailureKind::TryTimeout => Some(Event::Reset { is_unsent }),
            _ => None,
        }
    }
}

/// Whether what became of a try leads to a repetition.
pub fn is_repeated(rule: &Retry, event: Event<'_>) -> bool {
    // What ends without a response would be answered with a status of these.
    let any_end = Conditions::RESET | Conditions::SERVER_ERROR | Conditions::GATEWAY_ERROR;
    let own = rule.conditions;
    match event {
        Event::Unconnected => {
            own.has(any_end | Conditions::CONNECT_FAILURE | Conditions::RESET_BEFORE_REQUEST)
        }
        Event::Refused => {
            own.has(any_end | Conditions::REFUSED_STREAM | Conditions::RESET_BEFORE_REQUEST)
        }
        Event::Reset { is_unsent } => {
            own.has(any_end) || (is_unsent && own.has(Conditions::RESET_BEFORE_REQUEST))
        }
        // One that was led in a circle would be led through it again, each time as often.
        Event::Response {
            status: hops::LOOP_STATUS,
            ..
        } => false,
        Event::Response { status, fields } => {
            rule.statuses.binary_search(&status).is_ok()
                || own.has(conditions_of_status(status))
                || own.has(conditions_of_grpc(fields))
        }
    }
}

/// How long to wait before a repetition, of which `made` were made before: between half of a
/// bound and all of it, where the bound doubles each time.
pub fn wait(rule: &Retry, made: u8, dice: &Rng) -> Duration {
    let upper_half = |bound: Duration| bound / 2..=bound;
    let waits = Waits {
        first: upper_half(rule.backoff),
        second: upper_half(rule.backoff.saturating_mul(2)),
        max: upper_half(rule.backoff.saturating_mul(BACKOFF_FACTOR_MAX)),
    };
    let random = (dice.roll() >> 32) as u32;
    waits.after(u32::from(made), Duration::ZERO, random)
}

fn conditions_of_status(status: u16) -> Conditions {
    match status {
        409 => Conditions::RETRIABLE_CLIENT_ERROR,
        502..=504 => Conditions::SERVER_ERROR | Conditions::GATEWAY_ERROR,
        500..=599 => Conditions::SERVER_ERROR,
        _ => Conditions::default(),
    }
}

/// The conditions that a gRPC status fulfils, of a response that is nothing but a head.
fn conditions_of_grpc(fields: &[Field<'_>]) -> Conditions {
    let mut fields = fields.iter();
    let field = fields.find(|field| field.name.eq_ignore_ascii_case("grpc-status"));
    match field.map(|field| field.value) {
        Some(b"1") => Conditions::GRPC_CANCELLED,
        Some(b"4") => Conditions::GRPC_DEADLINE_EXCEEDED,
        Some(b"8") => Conditions::GRPC_RESOURCE_EXHAUSTED,
        Some(b"13") => Conditions::GRPC_INTERNAL,
        Some(b"14") => Conditions::GRPC_UNAVAILABLE,
        _ => Conditions::default(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use myriad_model::{Retry, RetryConditions as Conditions};

    use super::{Event, is_repeated, wait};
    use crate::codec::response;
    use crate::failure::FailureKind;
    use crate::limits::Limits;
    use crate::random::rng::Rng;

    fn rule(conditions: Conditions, statuses: &[u16]) -> Retry {
        Retry {
            attempts: 1,
            try_timeout: Duration::ZERO,
            conditions,
            statuses: statuses.into(),
            backoff: Duration::from_millis(20),
        }
    }

    /// Which conditions lead to a repetition after an event, as a set of bits.
    fn leading(event: Event<'_>) -> u32 {
        (0..12)
            .map(|bit| 1 << bit)
            .filter(|bit| is_repeated(&rule(Conditions(*bit), &[]), event))
            .sum()
    }

    #[test]
    fn a_port_that_is_missing_leads_to_a_repetition_and_a_turn_that_did_not_come_to_none() {
        let rule = rule(Conditions::CONNECT_FAILURE, &[]);
        for (kind, expected) in [
            (FailureKind::NoPort, true),
            (FailureKind::ConnectFailed, true),
            (FailureKind::Overloaded, false),
            (FailureKind::ClientGone, false),
        ] {
            let event = Event::of(kind, true);
            let repeats = event.is_some_and(|event| is_repeated(&rule, event));
            assert_eq!(repeats, expected, "{kind:?}");
        }
    }

    #[test]
    fn what_was_led_in_a_circle_is_not_repeated() {
        let event = Event::Response {
            status: 508,
            fields: &[],
        };
        assert!(!is_repeated(&rule(Conditions::SERVER_ERROR, &[508]), event));
    }

    #[test]
    fn each_event_has_its_conditions() {
        let any_end = Conditions::RESET | Conditions::SERVER_ERROR | Conditions::GATEWAY_ERROR;
        let connect = any_end | Conditions::CONNECT_FAILURE | Conditions::RESET_BEFORE_REQUEST;
        assert_eq!(leading(Event::Unconnected), connect.0);
        let refused = any_end | Conditions::REFUSED_STREAM | Conditions::RESET_BEFORE_REQUEST;
        assert_eq!(leading(Event::Refused), refused.0);
        let reset = |is_unsent| leading(Event::Reset { is_unsent });
        assert_eq!(reset(false), any_end.0);
        assert_eq!(reset(true), (any_end | Conditions::RESET_BEFORE_REQUEST).0);
        for (head, conditions) in [
            ("200 OK", Conditions::default()),
            ("409 C", Conditions::RETRIABLE_CLIENT_ERROR),
            ("500 E", Conditions::SERVER_ERROR),
            (
                "503 U",
                Conditions::SERVER_ERROR | Conditions::GATEWAY_ERROR,
            ),
            ("200 OK\r\nGrpc-Status: 14", Conditions::GRPC_UNAVAILABLE),
            ("200 OK\r\ngrpc-status: 0", Conditions::default()),
        ] {
            let text = format!("HTTP/1.1 {head}\r\n\r\n");
            let head = response::parse(text.as_bytes(), &Limits::default()).unwrap();
            let event = Event::Response {
                status: head.status,
                fields: &head.fields,
            };
            assert_eq!(leading(event), conditions.0, "{text}");
            let listed = rule(Conditions::default(), &[200, 503]);
            let is_listed = matches!(head.status, 200 | 503);
            assert_eq!(is_repeated(&listed, event), is_listed);
        }
    }

    #[test]
    fn waits_double_up_to_a_bound() {
        let (rule, dice) = (rule(Conditions::default(), &[]), Rng::new(7));
        for (made, bound_ms) in [(0, 20), (1, 40), (2, 80), (3, 160), (4, 200), (200, 200)] {
            let wait = wait(&rule, made, &dice).as_millis();
            assert!(
                (bound_ms / 2..=bound_ms).contains(&wait),
                "{wait} of {bound_ms}"
            );
        }
    }
}
