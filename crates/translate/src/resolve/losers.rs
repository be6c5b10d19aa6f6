//! Objects that claim a host in vain: it belongs to another namespace, or theirs may not have it.
//!
//! The owner of a host pays for what is translated of it with each of its changes, and anybody may
//! claim it in vain, by as many and as large objects as fit in a namespace. So a host opens none of
//! them: it knows their ages and namespaces alone. The oldest have a unit each, which runs when the
//! object changes or loses the host to another one, and makes the finding that says why it has no
//! effect.

use myriad_api::{Finding, ObjectKey, ObjectKind, Severity};
use myriad_model::{Host, host::Pattern};

use super::claim::Claim;
use crate::engine::{Output, Unit, UnitKind};
use crate::settings::Settings;

/// The most objects that are told one by one that they have lost a host, of each dialect.
pub(crate) const LOSERS_MAX: usize = 16;

/// An object that claims a host in vain. Its key has all that is to be told, so that it runs once.
pub(crate) static LOSER: UnitKind = UnitKind::needed("loser", 25);

/// A claim without effect.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    /// The object that makes it.
    pub loser: ObjectKey,
    /// The host.
    pub host: Host,
    /// The object by which another namespace has the host; none where the loser's namespace may
    /// not answer for hosts that nobody names.
    pub owner: Option<ObjectKey>,
}

impl Loss {
    /// The loss that a unit is for.
    pub(crate) fn of(unit: &Unit) -> Option<Loss> {
        let mut parts = unit.name()?.split('\n');
        Some(Loss {
            loser: read_key(parts.next()?)?,
            host: Host::of_name(parts.next()?).ok()?,
            owner: parts.next().and_then(read_key),
        })
    }

    fn into_unit(self) -> Unit {
        let mut name = format!("{}\n{}", write_key(&self.loser), self.host);
        if let Some(owner) = &self.owner {
            name.push('\n');
            name.push_str(&write_key(owner));
        }
        Unit::named(&LOSER, name.into())
    }
}

fn write_key(key: &ObjectKey) -> String {
    format!("{} {}", key.kind as u8, key.id())
}

fn read_key(text: &str) -> Option<ObjectKey> {
    let (number, id) = text.split_once(' ')?;
    let number: u8 = number.parse().ok()?;
    let mut kinds = ObjectKind::ALL.into_iter().chain([ObjectKind::HostProof]);
    let kind = kinds.find(|kind| *kind as u8 == number)?;
    Some(ObjectKey::from_id(kind, id.into()))
}

/// Lets the oldest of the objects that claim a host in vain be told of it, and counts the rest.
pub(crate) fn tell(
    host: &Host,
    owner: Option<&ObjectKey>,
    mut losers: Vec<Claim>,
    output: &mut Output,
) {
    if losers.len() > LOSERS_MAX {
        let by_age = |a: &Claim, b: &Claim| a.age().cmp(&b.age());
        let (_, next, rest) = losers.select_nth_unstable_by(LOSERS_MAX, by_age);
        let finding = untold(&next.key, host, owner, rest.len() + 1);
        output.findings.push(finding);
        losers.truncate(LOSERS_MAX);
    }
    let losses = losers.into_iter().map(|claim| Loss {
        loser: claim.key,
        host: host.clone(),
        owner: owner.cloned(),
    });
    output.needs.extend(losses.map(Loss::into_unit));
}

/// The finding that stands for all objects that are not told one by one, at the oldest of them.
pub(crate) fn untold(
    key: &ObjectKey,
    host: &Host,
    owner: Option<&ObjectKey>,
    count: usize,
) -> Finding {
    let what = named(host);
    let whose = match owner {
        Some(owner) => format!(
            "{what} belongs to namespace {} by {owner}",
            owner.namespace()
        ),
        None => format!("their namespaces may not have {what}"),
    };
    Finding::new(
        Severity::Error,
        key,
        "",
        format!(
            "is the oldest of {count} more objects without effect: {whose}, and only {LOSERS_MAX} \
             are told of it one by one"
        ),
        "remove them, or use other hosts",
    )
}

/// The finding about a host that the namespace of an object may not claim.
pub(crate) fn unclaimable(
    key: &ObjectKey,
    field: String,
    host: &Host,
    settings: &Settings,
) -> Finding {
    unclaimable_by(key, field, (key.namespace(), host), settings)
}

/// The same about a host that an object names for the object of another namespace.
pub(crate) fn unclaimable_by(
    key: &ObjectKey,
    field: String,
    (namespace, host): (&str, &Host),
    settings: &Settings,
) -> Finding {
    let (why, remedy) = kept_by_lists(namespace, host, settings);
    Finding::new(
        Severity::Error,
        key,
        field,
        format!("is without effect: {why}"),
        remedy,
    )
}

/// The finding about a broader pattern of an object, on a host that its namespace may not claim.
pub(crate) fn kept_off(
    key: &ObjectKey,
    field: String,
    host: &Host,
    settings: &Settings,
) -> Finding {
    let (why, remedy) = kept_by_lists(key.namespace(), host, settings);
    Finding::new(
        Severity::Warning,
        key,
        field,
        format!("is without effect on {host}: {why}"),
        remedy,
    )
}

/// Why a namespace may not claim a host, and what to do.
fn kept_by_lists(namespace: &str, host: &Host, settings: &Settings) -> (String, &'static str) {
    let what = named(host);
    match settings.tenants.is_listed(namespace) {
        true => (
            format!("the hosts of namespace {namespace} in --tenants do not cover {what}"),
            "use a host that they cover, or let the operator add it there",
        ),
        false => (
            format!(
                "--tenants keeps {what} from namespaces without hosts of their own, such as \
                 {namespace}"
            ),
            "use another host, or let the operator list it there for the namespace",
        ),
    }
}

/// A host as findings about who has it name it.
pub(crate) fn named(host: &Host) -> String {
    match host.pattern() {
        Pattern::Any => "the answer for hosts that nobody names".to_owned(),
        _ => format!("host {host}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use myriad_api::{Meta, ObjectKey, ObjectKind};
    use myriad_model::Host;

    use super::{LOSERS_MAX, Loss, tell};
    use crate::engine::Output;
    use crate::resolve::Claim;

    fn claim(number: usize) -> Claim {
        let id: Arc<str> = format!("thief/{number:03}").into();
        let key = ObjectKey::from_id(ObjectKind::Ingress, id);
        let mut meta = Meta::new(key);
        meta.created = number as i64;
        Claim::new(&meta, None)
    }

    #[test]
    fn a_unit_of_a_loser_says_whose_the_host_is() {
        let owner = ObjectKey::new(ObjectKind::IstioGateway, "shop", "web");
        let host = Host::parse("a.example").unwrap();
        let proof = Claim::reserved(&host, "shop").key;
        assert_eq!(proof.namespace(), "shop");
        for host in ["a.example", "*.example", "**.example", "*"] {
            for owner in [Some(owner.clone()), Some(proof.clone()), None] {
                let loss = || Loss {
                    loser: ObjectKey::new(ObjectKind::VirtualService, "thief", "a"),
                    host: Host::parse(host).unwrap(),
                    owner: owner.clone(),
                };
                assert_eq!(Loss::of(&loss().into_unit()), Some(loss()));
            }
        }
    }

    #[test]
    fn the_oldest_losers_are_told_one_by_one_and_the_rest_is_counted() {
        let host = Host::parse("a.example").unwrap();
        let told = |count: usize| {
            let mut output = Output::default();
            let losers = (0..count).rev().map(claim).collect();
            tell(&host, None, losers, &mut output);
            output
        };
        let output = told(LOSERS_MAX);
        assert_eq!((output.needs.len(), output.findings.len()), (LOSERS_MAX, 0));
        let output = told(1_000);
        assert_eq!((output.needs.len(), output.findings.len()), (LOSERS_MAX, 1));
        let mut losers = output.needs.iter().filter_map(Loss::of);
        assert!(losers.all(|it| it.loser.name() < "016"));
        let finding = &output.findings[0];
        assert_eq!(finding.object.as_ref().unwrap().name(), "016");
        assert!(finding.message.contains("984 more"), "{}", finding.message);
    }
}
