//! What it costs to find the route of a request on a host with many regexes.

use std::hint::black_box;
use std::io::Write as _;
use std::time::Instant;

use clap::Args;
use myriad_model::{
    Action, Form, Host, Name, Origin, PathMatch, Resource, Route, SealedArc, Sealer, Value,
};
use myriad_proxy::net::head;
use myriad_proxy::net::limits::Limits;
use myriad_proxy::net::pattern::Budget;
use myriad_proxy::route::host::{HostEntry, RouteArc, RouteEntry};
use serde::Serialize;

/// How long each row is measured for, in milliseconds.
const MEASURED_MS: u128 = 300;

/// What is measured.
#[derive(Debug, Args)]
pub struct RegexArgs {
    /// The numbers of regexes on the host.
    #[arg(long, value_delimiter = ',', default_value = "1,100,256,10000")]
    patterns: Vec<u32>,
}

/// One row.
#[derive(Debug, Serialize)]
struct Row {
    shape: &'static str,
    patterns: u32,
    path_bytes: usize,
    /// Time for a request that the last pattern takes, or none.
    ns: u128,
    /// Steps that it takes from its budget.
    steps: u32,
    is_spent: bool,
    /// What all patterns hold.
    pattern_bytes: usize,
    compile_ms: u128,
}

/// Prints one line of JSON for each shape and number.
///
/// # Errors
/// A pattern that cannot be compiled.
pub fn run(args: &RegexArgs) -> anyhow::Result<()> {
    for patterns in &args.patterns {
        let last = patterns.saturating_sub(1);
        let long = "a".repeat(4_000);
        type Shape<'a> = (&'static str, &'a dyn Fn(u32) -> String, String);
        let shapes: [Shape<'_>; 4] = [
            (
                "prefix",
                &|at| format!("(?i)/u{at}/(\\w+)/(\\w+)/edit"),
                format!("/u{last}/some_customer/a_quite_long_name_of_a_page/edit"),
            ),
            (
                "suffix",
                &|at| format!("(?i)/(\\w+)/(\\w+)/edit-{at:05}"),
                format!("/some_customer/a_quite_long_name_of_a_page/edit-{last:05}"),
            ),
            (
                "alike",
                &|at| format!("/[a-z_]+/(\\w+)/(edit|[0-9]{{{}}}|{at})/x$", at % 9 + 1),
                "/some_customer/a_quite_long_name_of_a_page/edited-twice/again".to_owned(),
            ),
            (
                "hostile",
                &|at| format!("/(a{{1,200}}){{1,3}}b{at}"),
                format!("/{long}"),
            ),
        ];
        for (shape, pattern, path) in shapes {
            let row = measure(shape, *patterns, pattern, &path)?;
            let mut out = std::io::stdout().lock();
            serde_json::to_writer(&mut out, &row)?;
            writeln!(out)?;
        }
    }
    Ok(())
}

fn measure(
    shape: &'static str,
    patterns: u32,
    pattern: &dyn Fn(u32) -> String,
    path: &str,
) -> anyhow::Result<Row> {
    let before = Instant::now();
    let routes: Result<Vec<RouteArc>, _> =
        (0..patterns).map(|at| route(at, &pattern(at))).collect();
    let routes = routes?;
    let bytes = routes.iter().filter_map(|route| route.path_regex());
    let pattern_bytes = bytes.map(|regex| regex.memory_usage()).sum();
    let host = HostEntry::new(Host::any(), routes);
    let compile_ms = before.elapsed().as_millis();
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
    let (start, mut rounds) = (Instant::now(), 0);
    while start.elapsed().as_millis() < MEASURED_MS {
        black_box(find());
        rounds += 1;
    }
    Ok(Row {
        shape,
        patterns,
        path_bytes: path.len(),
        ns: start.elapsed().as_nanos() / rounds,
        steps,
        is_spent,
        pattern_bytes,
        compile_ms,
    })
}

fn route(number: u32, pattern: &str) -> anyhow::Result<RouteArc> {
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
    let entry = RouteEntry::new(SealedArc::new(sealed));
    let entry = entry.ok_or_else(|| anyhow::anyhow!("no route"))??;
    Ok(RouteArc::new(entry))
}
