//! Lists, as `kubectl get -o yaml` prints them: a document with many objects in it.

use std::cell::LazyCell;

use myriad_api::{Object, ObjectKind};
use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::value::RawValue;

use super::written::Written;
use super::{
    Class, Hash, Outcome, PROBLEMS_MAX, Passed, Problems, classify, hash, read_json_object,
};
use crate::directory::problem::Problem;

/// The most items of a list. A document of 2 MiB has room for twice as many of the shortest
/// objects, and for a hundred times as many that are none.
pub(super) const ITEMS_MAX: usize = 16_384;

/// A list whose items are read later, one by one.
#[derive(Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
pub(super) struct List<T> {
    #[serde(default = "Vec::new", deserialize_with = "null_is_empty")]
    pub(super) items: Vec<T>,
}

/// An item of a list: raw JSON, or the value of a YAML list.
pub(super) trait Item {
    fn written(&self) -> Result<Written, serde_json::Error>;
    /// The object in it; what is wrong with it in full if that is told.
    fn object(&self, kind: ObjectKind, is_told: bool) -> Result<Object, Problem>;
    fn hash(&self) -> Hash;
}

impl Item for &RawValue {
    fn written(&self) -> Result<Written, serde_json::Error> {
        serde_json::from_str(self.get())
    }

    fn object(&self, kind: ObjectKind, is_told: bool) -> Result<Object, Problem> {
        read_json_object(kind, self.get(), is_told)
    }

    fn hash(&self) -> Hash {
        hash(self.get().as_bytes())
    }
}

impl Item for serde_json::Value {
    fn written(&self) -> Result<Written, serde_json::Error> {
        Written::deserialize(self)
    }

    fn object(&self, kind: ObjectKind, is_told: bool) -> Result<Object, Problem> {
        read_json_object(kind, &self.to_string(), is_told).map_err(|problem| problem.at(0))
    }

    fn hash(&self) -> Hash {
        // The canonical text: compact, with the keys of each mapping in order.
        hash(self.to_string().as_bytes())
    }
}

/// Reads the items one by one, so that a broken one takes no other with it. Whether they may hold
/// a secret is a question about all of the text, so it is asked once, and only if one is broken.
pub(super) fn read_items<T: Item>(
    items: &[T],
    kind: Option<ObjectKind>,
    may_hold_secret: impl FnOnce() -> bool,
) -> Outcome {
    let may_hold_secret = LazyCell::new(may_hold_secret);
    let mut objects = Vec::new();
    let mut problems = Problems::default();
    let mut passed = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let is_told = problems.kept.len() < PROBLEMS_MAX;
        match read_item(item, kind, is_told) {
            Ok(Taken::Object(object)) => objects.push((object, item.hash())),
            Ok(Taken::Passed(kind)) => passed.push(kind),
            Ok(Taken::Nothing) => {}
            Err(_) if !is_told => problems.dropped += 1,
            Err(problem) => {
                let problem = match *may_hold_secret {
                    true => problem.redacted(),
                    false => problem,
                };
                let joint = if problem.field.is_empty() { "" } else { "." };
                let field = format!("items[{index}]{joint}{}", problem.field);
                problems.kept.push(problem.with_field(field).at(0));
            }
        }
    }
    Outcome::Mixed(objects, problems, passed)
}

/// The outcome of an item that is not broken.
enum Taken {
    Object(Object),
    Passed(Passed),
    Nothing,
}

fn read_item<T: Item>(
    item: &T,
    listed: Option<ObjectKind>,
    is_told: bool,
) -> Result<Taken, Problem> {
    let written = item
        .written()
        .map_err(|error| Problem::from_json(&error, ""))?;
    let (class, key) = match listed {
        // The API's own lists leave apiVersion and kind out of their items.
        Some(kind) if !written.has("kind") => (Class::Known(kind), None),
        _ => {
            let Some(head) = written.head()? else {
                return Ok(Taken::Nothing);
            };
            let class = classify(&head);
            if matches!(class, Class::Other) {
                return Ok(Taken::Passed(Passed::of(&head)));
            }
            let key = match &class {
                Class::Known(kind) => head.key(*kind),
                _ => None,
            };
            (class, key)
        }
    };
    match class {
        Class::Known(kind) => {
            let object = item.object(kind, is_told);
            let object = object.map(Taken::Object);
            object.map_err(|problem| problem.with_object(key))
        }
        Class::Near(problem) => Err(*problem),
        Class::List(_) => {
            let remedy = "list its items instead";
            Err(Problem::new("is a list inside a list", remedy))
        }
        Class::Other => Ok(Taken::Nothing),
    }
}

fn null_is_empty<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::<Vec<T>>::deserialize(deserializer)?.unwrap_or_default())
}
