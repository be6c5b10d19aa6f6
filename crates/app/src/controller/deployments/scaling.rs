//! The autoscaler of the proxies of a Gateway, where the parameters of its class ask for one: it
//! says how many there are, within bounds.

use myriad_api::ObjectKey;
use myriad_api::gateway::status::Scaling;
use myriad_source::kubernetes::{CallError, MadeKind};
use serde_json::Value;

use super::DeploymentKeeper;
use crate::dedicated::made_name;

impl DeploymentKeeper {
    /// An object that may have been made. Where there is no right to autoscalers, none was.
    pub(super) async fn found(
        &self,
        kind: MadeKind,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, CallError> {
        match self.client.made(kind, namespace, name).await {
            Err(CallError::Forbidden(_)) if kind == MadeKind::HorizontalPodAutoscaler => Ok(None),
            found => found,
        }
    }

    /// Removes the autoscaler of a Gateway that is not to have one.
    pub(super) async fn remove_autoscaler(
        &self,
        key: &ObjectKey,
        is_ours: impl Fn(&Value) -> bool,
    ) -> Result<(), CallError> {
        let name = made_name(key.name());
        let autoscaler = (MadeKind::HorizontalPodAutoscaler, name.as_str());
        self.remove_ours(key, autoscaler, is_ours).await
    }
}

/// The Deployment of proxies that are scaled, with as many as the one has that was read: that is
/// not ours to say. Its write meets a conflict where the autoscaler has decided anew meanwhile.
pub(super) fn scaled(wanted: &Value, scaling: Scaling, read: Option<&Value>) -> Value {
    let mut wanted = wanted.clone();
    let known = read.and_then(|it| it["spec"]["replicas"].as_u64());
    wanted["spec"]["replicas"] = within(scaling, known).into();
    if let Some(read) = read {
        wanted["metadata"]["resourceVersion"] = read["metadata"]["resourceVersion"].clone();
    }
    wanted
}

/// So many replicas, or the next number within the bounds; the fewest where there are none yet.
fn within(scaling: Scaling, known: Option<u64>) -> u64 {
    let (min, max) = (scaling.replicas_min.into(), scaling.replicas_max.into());
    known.unwrap_or(min).max(min).min(max)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Scaling, scaled, within};

    #[test]
    fn what_is_written_rests_on_the_version_whose_replicas_it_keeps() {
        let scaling = Scaling {
            replicas_min: 2,
            replicas_max: 5,
            cpu_percent: 80,
        };
        let wanted = json!({"metadata": {"name": "web"}, "spec": {"replicas": 1}});
        let new = json!({"metadata": {"name": "web"}, "spec": {"replicas": 2}});
        assert_eq!(scaled(&wanted, scaling, None), new);
        let read = json!({"metadata": {"resourceVersion": "7"}, "spec": {"replicas": 4}});
        let kept = json!({
            "metadata": {"name": "web", "resourceVersion": "7"},
            "spec": {"replicas": 4},
        });
        assert_eq!(scaled(&wanted, scaling, Some(&read)), kept);
    }

    #[test]
    fn replicas_stay_as_they_are_within_the_bounds() {
        let scaling = Scaling {
            replicas_min: 2,
            replicas_max: 5,
            cpu_percent: 80,
        };
        for (known, expected) in [
            (None, 2),
            (Some(0), 2),
            (Some(3), 3),
            (Some(5), 5),
            (Some(9), 5),
        ] {
            assert_eq!(within(scaling, known), expected, "{known:?}");
        }
    }
}
