//! `diff`: how what is served at one moment differs from what is at another, field by field.

mod fields;

use std::collections::BTreeSet;
use std::fmt;
use std::process::ExitCode;

use myriad_api::{ObjectKey, one_line};
use myriad_model::secrecy::without_secrets;
use myriad_model::{Change, SealedArc};
use serde::{Deserialize, Serialize};

use self::fields::Fields;
use crate::ask;
use crate::cli::history::RawDiff;
use crate::explain;
use crate::history::former::{StandIns, read};
use crate::history::report::ObjectLine;
use crate::history::{History, NOT_KEPT, Past, moment};

/// The path where it is served.
pub const PATH: &str = "/history/diff";

/// The most resources whose fields are compared; all are counted.
pub const RESOURCES_SHOWN_MAX: usize = 200;

/// The most objects that are listed; all are counted.
pub const OBJECTS_SHOWN_MAX: usize = 200;

/// The most bytes of fields that are compared for one answer; of resources that come behind it is
/// told that they differ.
const FIELDS_BYTES_MAX: usize = 32 << 20;

/// The most fields of a resource that are listed; all are counted.
pub const FIELDS_SHOWN_MAX: usize = 50;

/// The longest host in bytes.
const HOST_BYTES_MAX: usize = 253;

/// The moments and the host that are asked about, as somebody wrote them.
#[derive(Debug, Default)]
pub struct DiffQuestion {
    /// The view.
    pub view: String,
    /// One moment.
    pub from: String,
    /// The other one; the present where it is empty.
    pub to: String,
    /// The host; empty for all.
    pub host: String,
}

/// How two moments differ.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct DiffReport {
    /// The earlier moment.
    pub from: String,
    /// The later one.
    pub to: String,
    /// The view.
    pub view: String,
    /// The host; empty for all.
    pub host: String,
    /// The objects that changed between them, the last change of each, the newest first.
    pub objects: Vec<ObjectLine>,
    /// How many there are.
    pub objects_total: usize,
    /// The resources that differ, at most [`RESOURCES_SHOWN_MAX`].
    pub resources: Vec<ResourceDiff>,
    /// How many there are.
    pub resources_total: usize,
    /// The parts that changed after the earlier moment and are not kept, in words.
    #[serde(default)]
    pub not_kept: Vec<String>,
}

/// How a resource differs.
#[derive(Debug, Serialize, Deserialize)]
pub struct ResourceDiff {
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
    /// The object that it comes from.
    pub object: String,
    /// `added`, `removed` or `changed`.
    pub deed: String,
    /// The version at the earlier moment; none where it is not there.
    pub old: Option<String>,
    /// The version at the later one; none where it is not there.
    pub new: Option<String>,
    /// The fields that differ, at most [`FIELDS_SHOWN_MAX`]; none of one that is added or removed.
    pub fields: Vec<FieldDiff>,
    /// How many there are.
    pub fields_total: usize,
}

/// How a field differs.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldDiff {
    /// Its path.
    pub field: String,
    /// The value at the earlier moment; none where it has none.
    pub old: Option<String>,
    /// The value at the later one; none where it has none.
    pub new: Option<String>,
}

/// Runs the command: exit code 1 where something differs.
///
/// # Errors
/// Nobody answers, or moments that are none or not known any more.
pub fn run(raw: &RawDiff) -> anyhow::Result<ExitCode> {
    let parameters = [
        ("view", &*raw.view),
        ("from", &*raw.from),
        ("to", &*raw.to),
        ("host", &*raw.host),
    ];
    let report: DiffReport = ask::ask(&raw.question, PATH, &parameters)?;
    ask::print(&raw.question, &report)?;
    Ok(match report.resources_total {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// Compares two moments.
///
/// # Errors
/// A text for people: there is no history, or it does not know of one of the moments.
pub fn answer(history: Option<&History>, asked: &DiffQuestion) -> Result<DiffReport, String> {
    let history = history.ok_or(NOT_KEPT)?;
    let now = moment::now();
    let to = if asked.to.is_empty() {
        "now"
    } else {
        &asked.to
    };
    let moments = (moment::parse(&asked.from, now)?, moment::parse(to, now)?);
    let (from, to) = (moments.0.min(moments.1), moments.0.max(moments.1));
    let host = asked.host.trim_end_matches('.').to_ascii_lowercase();
    if host.len() > HOST_BYTES_MAX {
        return Err("the host is too long".to_owned());
    }
    let (before, after) = (
        history.past(&asked.view, from)?,
        history.past(&asked.view, to)?,
    );
    let mut report = DiffReport {
        from: moment::text(before.at()),
        to: moment::text(after.at()),
        view: asked.view.clone(),
        host: host.clone(),
        not_kept: before.not_kept(),
        ..DiffReport::default()
    };
    let concerned = (!host.is_empty()).then(|| {
        let names = [host.clone()];
        let mut concerned = explain::concerned(before.snapshot(), &names);
        concerned.join(explain::concerned(after.snapshot(), &names));
        concerned
    });
    let is_wanted = |change: &Change| {
        let concerned = concerned.as_ref();
        concerned.is_none_or(|concerned| concerned.has_resource(&change.key))
    };
    let mut room = FIELDS_BYTES_MAX;
    let changes = before.snapshot().diff(after.snapshot());
    for change in changes.filter(is_wanted) {
        report.resources_total += 1;
        if report.resources.len() < RESOURCES_SHOWN_MAX {
            let diff = ResourceDiff::of(&change, history.stand_ins(), &mut room);
            report.resources.push(diff);
        }
    }
    let order = |it: &ResourceDiff| (it.kind.clone(), it.name.clone());
    report.resources.sort_by_cached_key(order);
    report.list_objects(&after, from, concerned.as_ref());
    Ok(report)
}

impl DiffReport {
    /// Lists the objects that changed after a moment.
    fn list_objects(&mut self, after: &Past, from: i64, concerned: Option<&explain::Concerned>) {
        let mut known: BTreeSet<&ObjectKey> = BTreeSet::new();
        let between = after.earlier().take_while(|entry| entry.at > from);
        for entry in between {
            let is_of_host = concerned.is_none_or(|concerned| {
                let is_asked = |key: &myriad_model::Key| concerned.has_resource(key);
                entry.touches_resource(after.view(), &self.host, &is_asked)
            });
            for touch in &entry.touches {
                let is_wanted = concerned.is_none_or(|it| it.has_object(&touch.key));
                if (is_of_host || is_wanted) && known.insert(&touch.key) {
                    self.objects_total += 1;
                    if self.objects.len() < OBJECTS_SHOWN_MAX {
                        self.objects.push(ObjectLine::of(touch));
                    }
                }
            }
        }
    }
}

impl ResourceDiff {
    /// How a resource differs, with its fields where both are there.
    fn of(change: &Change, stand_ins: &StandIns, room: &mut usize) -> ResourceDiff {
        let version = |sealed: &SealedArc| sealed.version().to_string();
        let deed = match (&change.old, &change.new) {
            (None, _) => "added",
            (_, None) => "removed",
            _ => "changed",
        };
        let newest = change.new.as_ref().or(change.old.as_ref());
        let newest = newest.and_then(|sealed| read(sealed));
        let object = newest.map(|resource| {
            let origin = &resource.origin;
            let id = origin.id.trim_start_matches('/');
            one_line(&format!("{} {id}", origin.kind.as_str()))
        });
        let mut fields = |sealed: &SealedArc| {
            let resource = read(sealed)?;
            let resource = stand_ins.without_secrets(&resource);
            Some(fields::of(&resource, stand_ins, room))
        };
        let mut found = Vec::new();
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && let (Some(old), Some(new)) = (fields(old), fields(new))
        {
            found = differences(&old, &new);
        }
        let fields_total = found.len();
        found.truncate(FIELDS_SHOWN_MAX);
        ResourceDiff {
            kind: change.key.kind.as_str().to_owned(),
            name: one_line(&change.key.name),
            object: object.unwrap_or_default(),
            deed: deed.to_owned(),
            old: change.old.as_ref().map(version),
            new: change.new.as_ref().map(version),
            fields: found,
            fields_total,
        }
    }
}

/// The fields in which two resources differ, in the order of their paths.
fn differences(old: &Fields, new: &Fields) -> Vec<FieldDiff> {
    let paths: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let differ = paths
        .into_iter()
        .filter(|path| old.get(*path) != new.get(*path));
    let shown = |fields: &Fields, path: &String| {
        let value = fields.get(path);
        value.map(|value| one_line(&without_secrets(value)))
    };
    differ
        .map(|path| FieldDiff {
            field: one_line(path),
            old: shown(old, path),
            new: shown(new, path),
        })
        .collect()
}

impl fmt::Display for DiffReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "from {} to {}", self.from, self.to)?;
        for line in &self.not_kept {
            writeln!(f, "{line}")?;
        }
        if self.resources_total == 0 {
            return writeln!(f, "nothing differs in what is served");
        }
        writeln!(f, "{} objects changed", self.objects_total)?;
        for object in &self.objects {
            writeln!(f, "  {object}")?;
        }
        writeln!(f, "{} resources differ", self.resources_total)?;
        for resource in &self.resources {
            write!(f, "{resource}")?;
        }
        match self.resources_total - self.resources.len().min(self.resources_total) {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more: name a --host, or a shorter time"),
        }
    }
}

impl fmt::Display for ResourceDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name, object) = (&self.kind, &self.name, &self.object);
        writeln!(f, "  {} {kind} {name} of {object}", self.deed)?;
        for field in &self.fields {
            let value = |value: &Option<String>| value.as_deref().unwrap_or("nothing").to_owned();
            let (old, new) = (value(&field.old), value(&field.new));
            writeln!(f, "    {}: {old} -> {new}", field.field)?;
        }
        match self.fields_total - self.fields.len().min(self.fields_total) {
            0 => Ok(()),
            more => writeln!(f, "    and {more} more fields"),
        }
    }
}
