use std::time::Duration;

use myriad_base::clock::{self, Instant};
use proptest::prelude::*;

use super::{CallError, Core, Record, Step, Write};

const DURATION: Duration = Duration::from_secs(15);

/// The server: one Lease with optimistic concurrency.
#[derive(Default)]
struct Server {
    lease: Option<Record>,
    writes: u64,
}

impl Server {
    fn write(&mut self, write: &Write) -> Result<Record, CallError> {
        let current = self.lease.as_ref().map(|lease| lease.version.clone());
        if current != write.version {
            return Err(CallError::Conflict);
        }
        self.writes += 1;
        let record = Record {
            holder: write.holder.as_str().into(),
            duration: write.duration,
            transitions: write.transitions,
            version: self.writes.to_string().into(),
        };
        self.lease = Some(record.clone());
        Ok(record)
    }
}

/// A message on its way from or to a contender.
enum Flight {
    Nothing,
    ToServer {
        step: Step,
        sent_at: Instant,
    },
    ReadBack(Option<Record>),
    WrittenBack {
        sent_at: Instant,
        written: Result<Record, CallError>,
    },
}

struct Contender {
    core: Core,
    /// Its clock runs this much faster than the world's, in hundredths.
    rate: u32,
    clock: Instant,
    flight: Flight,
}

impl Contender {
    fn new(name: &str, rate: u32, start: Instant) -> Self {
        Contender {
            core: Core::new(name.to_owned(), DURATION),
            rate,
            clock: start,
            flight: Flight::Nothing,
        }
    }

    fn leads(&self) -> bool {
        self.core
            .leads_until()
            .is_some_and(|until| self.clock < until)
    }

    /// One step of what it does; a message that is lost is answered by an error.
    fn run(&mut self, server: &mut Server, is_lost: bool) {
        self.flight = match std::mem::replace(&mut self.flight, Flight::Nothing) {
            Flight::Nothing => match self.core.step(self.clock) {
                Step::Wait(_) => Flight::Nothing,
                step => Flight::ToServer {
                    step,
                    sent_at: self.clock,
                },
            },
            Flight::ToServer {
                step: Step::Write(write),
                sent_at,
            } => {
                let lost = Err(CallError::Lost("lost".to_owned()));
                // Half of the lost writes arrive, and only their answers are lost.
                let written = match is_lost && write.transitions % 2 == 0 {
                    true => lost,
                    false => server
                        .write(&write)
                        .and_then(|ok| if is_lost { lost } else { Ok(ok) }),
                };
                Flight::WrittenBack { sent_at, written }
            }
            Flight::ToServer { .. } if is_lost => {
                self.core.read(self.clock, Err(()));
                Flight::Nothing
            }
            Flight::ToServer { .. } => Flight::ReadBack(server.lease.clone()),
            Flight::ReadBack(record) => {
                self.core.read(self.clock, Ok(record));
                Flight::Nothing
            }
            Flight::WrittenBack { sent_at, written } => {
                self.core.wrote(sent_at, self.clock, written);
                Flight::Nothing
            }
        };
    }

    fn pass(&mut self, time: Duration) {
        self.clock += time * self.rate / 100;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever the order of steps, and however long one process is stopped with a message on its
    /// way: at no time do both claim to lead, though their clocks run at different rates.
    #[test]
    fn two_never_lead_at_once(
        steps in prop::collection::vec((0_u8..100, 0_u64..20_000), 0..400),
        rates in (85_u32..=115, 85_u32..=115),
    ) {
        let start = clock::now();
        let mut server = Server::default();
        let mut both = [
            Contender::new("a", rates.0, start),
            Contender::new("b", rates.1, start),
        ];
        for (op, millis) in steps {
            let who = &mut both[usize::from(op % 2)];
            match op {
                0..=59 => who.run(&mut server, false),
                60..=69 => who.run(&mut server, true),
                _ => {
                    // One runs often while time passes, the other one stands still.
                    for _ in 0..20 {
                        both.iter_mut().for_each(|c| c.pass(Duration::from_millis(millis / 20)));
                        if op >= 80 {
                            both[usize::from(op % 2)].run(&mut server, op % 3 == 0);
                        }
                        prop_assert!(!(both[0].leads() && both[1].leads()));
                    }
                }
            }
            prop_assert!(!(both[0].leads() && both[1].leads()));
        }
        // Without faults one of them leads before long, and keeps leading.
        for turn in 0..600 {
            for contender in &mut both {
                contender.pass(Duration::from_millis(100));
                contender.run(&mut server, false);
            }
            let leaders = both.iter().filter(|c| c.leads()).count();
            prop_assert!(leaders <= 1);
            prop_assert!(turn < 400 || leaders == 1, "nobody leads at {}", turn);
        }
    }
}

/// A contender that leads, with the server that knows it.
fn leader() -> (Contender, Server) {
    let mut server = Server::default();
    let mut contender = Contender::new("a", 100, clock::now());
    for _ in 0..6 {
        contender.run(&mut server, false);
    }
    assert!(contender.leads());
    (contender, server)
}

#[test]
fn a_holder_renews_at_a_third_and_stops_at_two_thirds() {
    let (mut contender, mut server) = leader();
    assert_eq!(
        contender.core.step(contender.clock),
        Step::Wait(DURATION / 3)
    );
    contender.pass(DURATION / 3);
    assert!(matches!(
        contender.core.step(contender.clock),
        Step::Write(_)
    ));
    for _ in 0..3 {
        contender.run(&mut server, false);
    }
    assert_eq!(server.writes, 2);
    contender.pass(DURATION * 2 / 3 - Duration::from_millis(1));
    assert!(contender.leads());
    contender.pass(Duration::from_millis(1));
    assert!(!contender.leads());
}

#[test]
fn what_is_given_back_is_taken_at_once() {
    let (mut contender, mut server) = leader();
    let write = contender.core.release(contender.clock).expect("it leads");
    server.write(&write).expect("nobody else wrote");
    assert!(!contender.leads());
    let mut other = Contender::new("b", 100, contender.clock);
    for _ in 0..6 {
        other.run(&mut server, false);
    }
    assert!(other.leads());
    assert_eq!(server.lease.expect("a Lease").transitions, 1);
}

#[test]
fn a_lease_of_somebody_else_ends_the_claim() {
    let (mut contender, mut server) = leader();
    let version = server.lease.clone().map(|lease| lease.version);
    let write = Write {
        holder: "b".to_owned(),
        duration: DURATION,
        transitions: 1,
        version,
        is_acquired: true,
    };
    server.write(&write).expect("the version is right");
    contender.pass(DURATION / 3);
    for _ in 0..6 {
        contender.run(&mut server, false);
    }
    assert!(!contender.leads());
}
