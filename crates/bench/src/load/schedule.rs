//! When requests are meant to be sent: at a constant rate, over connections in turn.

use std::time::Duration;

/// Requests at a constant rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// Requests per second, of all connections together.
    pub rps: f64,
    /// Connections, which take turns.
    pub connections: usize,
    /// The number of requests.
    pub requests: u64,
    /// Whether a request comes at a random moment of its turn, so that requests bunch as those of
    /// clients do that know nothing of each other. Otherwise all are equally far apart.
    pub has_jitter: bool,
}

impl Schedule {
    /// Requests for so long.
    pub fn lasting(self, time: Duration) -> Schedule {
        let requests = (self.rps * time.as_secs_f64()).round() as u64;
        Schedule { requests, ..self }
    }

    /// When each request is due since the start, and on which connection, in order.
    pub fn due(self) -> impl Iterator<Item = (Duration, usize)> {
        let connections = self.connections.max(1);
        let period = connections as f64 / self.rps;
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let rounds = (0_u64..).flat_map(move |round| {
            let begin = round as f64 * period;
            let mut turn: Vec<_> = (0..connections)
                .map(|connection| {
                    let part = match self.has_jitter {
                        true => random(&mut state),
                        false => connection as f64 / connections as f64,
                    };
                    (Duration::from_secs_f64(begin + part * period), connection)
                })
                .collect();
            turn.sort_unstable();
            turn
        });
        rounds.take(usize::try_from(self.requests).unwrap_or(usize::MAX))
    }
}

/// The next of a sequence between 0 and 1 that is the same in every run: xorshift.
fn random(state: &mut u64) -> f64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVEN: Schedule = Schedule {
        rps: 1_000.0,
        connections: 8,
        requests: 4_000,
        has_jitter: false,
    };

    #[test]
    fn requests_are_due_at_their_rate_whatever_the_connections() {
        for connections in [1, 2, 8, 64] {
            let due: Vec<_> = Schedule {
                connections,
                ..EVEN
            }
            .due()
            .collect();
            for (number, (at, connection)) in due.iter().enumerate() {
                let expected = number as f64 / 1_000.0;
                assert!(
                    (at.as_secs_f64() - expected).abs() < 1e-6,
                    "{number}: {at:?}"
                );
                assert_eq!(*connection, number % connections);
            }
            assert_eq!(due.len(), 4_000);
        }
    }

    #[test]
    fn jitter_moves_requests_within_their_turns_and_keeps_the_rate() {
        let schedule = Schedule {
            has_jitter: true,
            ..EVEN
        };
        let due: Vec<_> = schedule.due().collect();
        assert!(due.is_sorted(), "they are sent in order");
        assert_eq!(
            due,
            schedule.due().collect::<Vec<_>>(),
            "the same in every run"
        );
        let mut gaps = Vec::new();
        for (turn, requests) in due.chunks(8).enumerate() {
            let begin = turn as f64 * 0.008;
            let mut connections: Vec<_> = requests.iter().map(|it| it.1).collect();
            connections.sort_unstable();
            assert_eq!(connections, (0..8).collect::<Vec<_>>());
            for (at, _) in requests {
                let at = at.as_secs_f64();
                assert!((begin..begin + 0.008).contains(&at), "{at} of {begin}");
            }
            gaps.extend(requests.windows(2).map(|pair| pair[1].0 - pair[0].0));
        }
        let close = gaps.iter().filter(|gap| gap.as_secs_f64() < 0.000_5);
        assert!(close.count() > gaps.len() / 4, "they bunch");
    }

    #[test]
    fn a_time_makes_as_many_requests_as_the_rate_says() {
        let schedule = EVEN.lasting(Duration::from_millis(2_500));
        assert_eq!(schedule.requests, 2_500);
        assert_eq!(schedule.due().count(), 2_500);
    }
}
