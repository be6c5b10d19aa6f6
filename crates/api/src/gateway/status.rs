//! Statuses of objects of Gateway API, as they go back to people, but for what is only known where
//! proxies run: addresses, and what proxies serve.
//!
//! All of it is compared, so that a status is written where it differs and nowhere else.

use std::sync::Arc;

use super::ParentReference;
use crate::ObjectKey;

/// The status of one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Status {
    /// The object.
    pub object: ObjectKey,
    /// Its generation, which every condition names; 0 where there is none.
    pub generation: i64,
    /// The status.
    pub state: State,
}

/// The status of an object of some kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Of a GatewayClass.
    Class(ClassStatus),
    /// Of a Gateway.
    Gateway(GatewayStatus),
    /// Of a ListenerSet.
    ListenerSet(ListenerSetStatus),
    /// Of a route of any kind.
    Route(RouteStatus),
    /// Of a policy.
    Policy(PolicyStatus),
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionStatus {
    /// It does.
    True,
    /// It does not.
    False,
    /// Nobody knows.
    Unknown,
}

impl ConditionStatus {
    /// The word as conditions have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            ConditionStatus::True => "True",
            ConditionStatus::False => "False",
            ConditionStatus::Unknown => "Unknown",
        }
    }
}

/// A condition of an object, of one of its listeners, or of a route or policy at an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectCondition {
    /// The type, such as `Accepted`.
    pub kind: &'static str,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// The reason, one word.
    pub reason: &'static str,
    /// The reason for people; empty where there is no more to say.
    pub message: Box<str>,
}

impl ObjectCondition {
    /// The condition that an object, a listener, a route or a policy is valid.
    pub const ACCEPTED: &'static str = "Accepted";
    /// The condition that proxies are told of an object.
    pub const PROGRAMMED: &'static str = "Programmed";
    /// The condition that all that an object names is there and may be used.
    pub const RESOLVED_REFS: &'static str = "ResolvedRefs";
    /// The condition that a listener cannot be told apart from others.
    pub const CONFLICTED: &'static str = "Conflicted";
    /// The condition that some rules of a route are left out.
    pub const PARTIALLY_INVALID: &'static str = "PartiallyInvalid";

    /// A condition that holds, with nothing more to say.
    pub fn holds(kind: &'static str, reason: &'static str) -> Self {
        ObjectCondition {
            kind,
            status: ConditionStatus::True,
            reason,
            message: Box::default(),
        }
    }

    /// A condition that does not hold, and why.
    pub fn fails(kind: &'static str, reason: &'static str, message: impl Into<Box<str>>) -> Self {
        ObjectCondition {
            kind,
            status: ConditionStatus::False,
            reason,
            message: message.into(),
        }
    }

    /// Whether it holds.
    pub fn is_true(&self) -> bool {
        self.status == ConditionStatus::True
    }
}

/// The status of a GatewayClass.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClassStatus {
    /// Its conditions.
    pub conditions: Box<[ObjectCondition]>,
    /// The features that its Gateways have, sorted.
    pub supported_features: &'static [&'static str],
}

/// The status of a Gateway but for its addresses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GatewayStatus {
    /// Its conditions. That it is programmed says that there is something to tell proxies.
    pub conditions: Box<[ObjectCondition]>,
    /// Its own listeners, in their order.
    pub listeners: Box<[ListenerStatus]>,
    /// How many ListenerSets are attached to it.
    pub attached_listener_sets: u32,
    /// The addresses that it asks for, in their order; none leaves that to the process.
    pub addresses: Box<[WantedAddress]>,
    /// The proxies that are for it alone; none where it shares those of all.
    pub deployment: Option<Box<Deployment>>,
}

/// An address that a Gateway asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WantedAddress {
    /// The type, `IPAddress` where none is written.
    pub kind: Box<str>,
    /// The address; empty for any of that type.
    pub value: Box<str>,
}

/// The proxies of one Gateway.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deployment {
    /// The ports that they listen on, sorted, of the Gateway and its ListenerSets.
    pub ports: Box<[DeployedPort]>,
    /// Labels of all that is made for them, sorted.
    pub labels: Box<[(Box<str>, Box<str>)]>,
    /// Annotations of all that is made for them, sorted.
    pub annotations: Box<[(Box<str>, Box<str>)]>,
    /// How many there are; none where the parameters of the class do not say so.
    pub scaling: Option<Scaling>,
}

/// How many proxies a Gateway has, as they are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scaling {
    /// The fewest, at least 1.
    pub replicas_min: u32,
    /// The most, no fewer than those.
    pub replicas_max: u32,
    /// The processor time that they shall take on average, in percent of what they request.
    pub cpu_percent: u32,
}

/// A port of the proxies of one Gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeployedPort {
    /// The number.
    pub number: u16,
    /// Whether it is one of UDP.
    pub is_udp: bool,
}

/// The status of a listener.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListenerStatus {
    /// Its name.
    pub name: Box<str>,
    /// The kinds of routes that it takes, all of the group of Gateway API.
    pub supported_kinds: Box<[&'static str]>,
    /// How many routes are attached to it.
    pub attached_routes: u32,
    /// Its conditions.
    pub conditions: Box<[ObjectCondition]>,
}

/// The status of a ListenerSet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListenerSetStatus {
    /// Its conditions.
    pub conditions: Box<[ObjectCondition]>,
    /// Its listeners, in their order.
    pub listeners: Box<[ListenerStatus]>,
    /// The Gateway that it is for, by `namespace/name`.
    pub gateway: Arc<str>,
}

/// The status of a route: the parents that are ours, in their order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteStatus {
    /// The parents.
    pub parents: Box<[ParentStatus]>,
}

/// The status of a policy: the objects that it affects and that are ours.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyStatus {
    /// The objects.
    pub ancestors: Box<[ParentStatus]>,
}

/// The conditions of a route or policy at one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ParentStatus {
    /// The object as it is named.
    pub parent: ParentReference,
    /// The conditions.
    pub conditions: Box<[ObjectCondition]>,
}
