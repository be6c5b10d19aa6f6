//! The time to find the route of a request on a host with many regexes.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::Write as _;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use clap::Args;
use myriad_model::{
    Action, Form, Host, Name, Origin, PathMatch, Resource, Route, SealedArc, Sealer, Value,
};
use myriad_proxy::codec::head;
use myriad_proxy::limits::Limits;
use myriad_proxy::pattern::{Budget, SCRATCH_BYTES_MAX, scratch_bytes};
use myriad_proxy::route::entry::{BlockArc, BlockEntry};
use myriad_proxy::route::host::HostEntry;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// How long each row is measured for, in milliseconds.
const MEASURED_MS: u128 = 300;

/// The number of regexes that honest people may have, and what their request may cost.
const HONEST_PATTERNS: u32 = 256;
const HONEST_US_MAX: f64 = 50.0;

/// The most time of a request that is meant to be expensive.
const HOSTILE_MS_MAX: f64 = 1.0;

/// The patterns whose groups are followed as well, for the scratch memory that it takes.
const FOLLOWED_MAX: usize = 64;

/// The settings of the command.
#[derive(Debug, Args)]
pub struct RegexArgs {
    /// The numbers of regexes on the host.
    #[arg(long, value_delimiter = ',', default_value = "1,100,256,10000")]
    patterns: Vec<u32>,
    /// Fail where a request costs more processor time, or matching more memory, than it may.
    #[arg(long)]
    check: bool,
}

/// The measurements.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// Processor time in microseconds of the most expensive honest request on a host of 256
    /// regexes; none where that was not measured.
    honest_us: Option<f64>,
    /// Processor time in milliseconds of the most expensive hostile request.
    hostile_ms: f64,
    /// The scratch memory in bytes of a thread that has matched everything, by the number of
    /// regexes.
    scratch_bytes: BTreeMap<u32, usize>,
    rows: Vec<Row>,
}

/// One row.
#[derive(Debug, Serialize)]
struct Row {
    shape: &'static str,
    patterns: u32,
    path_bytes: usize,
    /// Processor time for a request that the last pattern takes, or none.
    ns: f64,
    /// Steps that it takes from its budget.
    steps: u32,
    is_spent: bool,
    /// The bytes of all patterns.
    pattern_bytes: usize,
    compile_ms: u128,
}

/// Regexes by their number, and the path that is asked for.
struct Shape {
    name: &'static str,
    is_hostile: bool,
    pattern: fn(u32) -> String,
    path: String,
}

/// Prints one object of JSON.
///
/// # Errors
/// A pattern that cannot be compiled; where asked, a cost beyond what it may be.
pub fn run(args: &RegexArgs) -> anyhow::Result<()> {
    let mut report = Report::default();
    for patterns in &args.patterns {
        // Scratch memory is that of a thread.
        let measured = std::thread::scope(|scope| {
            let measured = scope.spawn(|| measure_all(*patterns));
            measured.join()
        });
        let measured = measured.map_err(|_| anyhow::anyhow!("the measuring thread panicked"))?;
        let (rows, bytes) = measured?;
        report.scratch_bytes.insert(*patterns, bytes);
        rows.into_iter().for_each(|row| report.add(row));
    }
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, &report)?;
    writeln!(out)?;
    if args.check {
        report.check()?;
    }
    Ok(())
}

impl Report {
    fn add(&mut self, (row, is_hostile): (Row, bool)) {
        if is_hostile {
            self.hostile_ms = self.hostile_ms.max(row.ns / 1e6);
        } else if row.patterns == HONEST_PATTERNS {
            let us = self.honest_us.unwrap_or_default().max(row.ns / 1e3);
            self.honest_us = Some(us);
        }
        self.rows.push(row);
    }

    fn check(&self) -> anyhow::Result<()> {
        let honest = self.honest_us;
        let honest = honest.context("256 is not among --patterns")?;
        ensure!(
            honest <= HONEST_US_MAX,
            "an honest request costs {honest:.1} us, and may cost {HONEST_US_MAX}"
        );
        let hostile = self.hostile_ms;
        ensure!(
            hostile <= HOSTILE_MS_MAX,
            "a hostile request costs {hostile:.2} ms, and may cost {HOSTILE_MS_MAX}"
        );
        for (patterns, bytes) in &self.scratch_bytes {
            ensure!(
                *bytes <= SCRATCH_BYTES_MAX,
                "{patterns} regexes take {bytes} bytes of scratch memory, and may take \
                 {SCRATCH_BYTES_MAX}"
            );
        }
        Ok(())
    }
}

fn shapes(patterns: u32) -> [Shape; 4] {
    let last = patterns.saturating_sub(1);
    [
        Shape {
            name: "prefix",
            is_hostile: false,
            pattern: |at| format!("(?i)/u{at}/(\\w+)/(\\w+)/edit"),
            path: format!("/u{last}/some_customer/with_a_quite_long_name_of_one_page/edit"),
        },
        Shape {
            name: "suffix",
            is_hostile: false,
            pattern: |at| format!("(?i)/(\\w+)/(\\w+)/edit-{at:05}"),
            path: format!("/some_customer/with_a_quite_long_name_of_a_page/edit-{last:05}"),
        },
        Shape {
            name: "alike",
            is_hostile: false,
            pattern: |at| format!("/[a-z_]+/(\\w+)/(edit|[0-9]{{{}}}|{at})/x$", at % 9 + 1),
            path: "/some_customer/a_quite_long_name_of_a_page/edited-twice/again".to_owned(),
        },
        Shape {
            name: "hostile",
            is_hostile: true,
            pattern: |at| format!("/(a{{1,200}}){{1,3}}b{at}"),
            path: format!("/{}", "a".repeat(4_000)),
        },
    ]
}

/// A row for each shape, and whether it is hostile; and the scratch memory of the thread in bytes.
fn measure_all(patterns: u32) -> anyhow::Result<(Vec<(Row, bool)>, usize)> {
    let mut rows = Vec::new();
    for shape in shapes(patterns) {
        rows.push((measure(&shape, patterns)?, shape.is_hostile));
    }
    Ok((rows, scratch_bytes()))
}

fn measure(shape: &Shape, patterns: u32) -> anyhow::Result<Row> {
    let before = Instant::now();
    let blocks: Result<Vec<BlockArc>, _> = (0..patterns)
        .map(|at| route(at, &(shape.pattern)(at)))
        .collect();
    let blocks = blocks?;
    let compile_ms = before.elapsed().as_millis();
    let host = HostEntry::new(Host::any(), &blocks);
    let regexes = || host.routes().iter().filter_map(|route| route.path_regex());
    let pattern_bytes = regexes().map(|regex| regex.memory_usage()).sum();
    let path = &*shape.path;
    for regex in regexes().take(FOLLOWED_MAX) {
        black_box(regex.groups(path.as_bytes(), &Budget::default()).is_some());
    }
    let text = format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
    let head = head::parse(text.as_bytes(), &Limits::default());
    let head = head.map_err(|kind| anyhow::anyhow!("the head is refused: {kind:?}"))?;
    let listener = Name::from("http");
    let find = || {
        let budget = Budget::default();
        let found = host.find(&listener, &head, None, &budget);
        black_box(found.is_ok());
        (budget.taken(), budget.is_spent())
    };
    let (steps, is_spent) = find();
    let (start, worked, mut rounds) = (Instant::now(), worked_ns(), 0_u32);
    while start.elapsed().as_millis() < MEASURED_MS {
        black_box(find());
        rounds += 1;
    }
    Ok(Row {
        shape: shape.name,
        patterns,
        path_bytes: path.len(),
        ns: (worked_ns() - worked) / f64::from(rounds),
        steps,
        is_spent,
        pattern_bytes,
        compile_ms,
    })
}

/// The processor time of this thread in nanoseconds.
fn worked_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn route(number: u32, pattern: &str) -> anyhow::Result<BlockArc> {
    let route = Route {
        listeners: [Name::from("http")].into(),
        hosts: [Host::any()].into(),
        path: PathMatch::Regex(pattern.into()),
        conditions: Box::default(),
        rank: u64::from(number),
        action: Action::Forward(Default::default()),
        policy: Default::default(),
    };
    let resource = Resource {
        origin: Origin::settings(),
        value: Value::Route(Box::new(route)),
    };
    let name = Name::from(format!("r{number}").as_str());
    let sealed = Sealer::new([0; 32], Form::Value).seal(name, resource);
    let block = BlockEntry::new(SealedArc::new(sealed));
    let block = block.ok_or_else(|| anyhow::anyhow!("no route"))??;
    Ok(BlockArc::new(block))
}
