//! The cost of each kind of change: `tests/goldens/fanout/<what changes>.yaml` holds objects,
//! then changes, each with its counted work and its delta.

use myriad_api::ObjectKey;
use myriad_translate::{Engine, Outcome};

use crate::goldens::{BASE, check};
use crate::{render, world};

#[test]
fn every_change_costs_what_its_golden_says() {
    check("fanout", |text| {
        let mut parts = text.split("=== change\n");
        let objects = parts.next().unwrap_or("");
        let mut engine = world::engine(world::settings(objects));
        engine.apply(world::changes(BASE), world::NOW);
        engine.apply(world::changes(objects), world::NOW);
        let mut renewed = objects.to_owned();
        for part in parts {
            let change = part.split("=== work\n").next().unwrap_or(part);
            renewed.push_str(&step(&mut engine, change));
        }
        renewed
    });
}

fn step(engine: &mut Engine, change: &str) -> String {
    let outcome = engine.apply(world::changes(change), world::NOW);
    format!("=== change\n{change}=== work\n{}", describe(&outcome))
}

/// The counts, then a line per changed resource in the order of the delta.
pub(crate) fn describe(outcome: &Outcome) -> String {
    let work = outcome.work;
    let mut text = format!(
        "units={} objects={} resources={}\n",
        work.units_translated, work.objects_visited, work.resources_changed
    );
    for (at, group) in outcome.delta.groups().enumerate() {
        for change in group {
            let sign = match (&change.old, &change.new) {
                (None, _) => '+',
                (Some(_), Some(_)) => '~',
                (Some(_), None) => '-',
            };
            text.push_str(&format!("{at}: {sign} {}\n", change.key));
        }
    }
    let told: Vec<&ObjectKey> = outcome.statuses.added.iter().map(|it| &it.object).collect();
    for status in &outcome.statuses.added {
        text.push_str(&render::status_text(status));
    }
    for status in &outcome.statuses.removed {
        if !told.contains(&&status.object) {
            text.push_str(&format!("no status of {}\n", status.object));
        }
    }
    for finding in &outcome.findings.added {
        text.push_str(&format!("+ {finding}\n"));
    }
    for finding in &outcome.findings.removed {
        text.push_str(&format!("- {finding}\n"));
    }
    text
}
