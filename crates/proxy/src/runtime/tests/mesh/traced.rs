//! Requests whose way somebody asks to see, at both ends of the mesh. Both ends are the same proxy
//! here.

use std::time::Duration;

use super::super::world::PATIENCE;
use super::counted::identified;
use super::{ask, is_inside};
use crate::telemetry::live_trace::{StageOutcome, TraceOrder, TraceReport};

#[tokio::test]
async fn a_request_is_traced_where_it_leaves_and_where_it_arrives() {
    if !is_inside("traced::a_request_is_traced_where_it_leaves_and_where_it_arrives") {
        return;
    }
    let world = identified().await;
    let traces = world.proxy.live_traces();
    let order = TraceOrder {
        host: "b".to_owned(),
        path: "/".to_owned(),
        headers: Vec::new(),
        count: 2,
        time: Duration::from_secs(60),
    };
    let id = traces.start(order).unwrap().id;
    assert_eq!(ask("10.9.0.10:80", "b").await.0, "200");
    let both = async {
        loop {
            let report: TraceReport = traces.report(id).unwrap();
            if report.requests.iter().filter(|it| it.is_over).count() == 2 {
                return report.requests;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let both = tokio::time::timeout(PATIENCE, both).await.unwrap();
    let listeners: Vec<&str> = both.iter().map(|it| &*it.listener).collect();
    assert_eq!(listeners, ["outbound/any:80", "inbound/any:80"]);
    for request in &both {
        let last = request.stages.last().unwrap();
        assert_eq!(last.outcome, StageOutcome::Forwarded, "{request:?}");
        assert_eq!((request.status, request.tries.len()), (200, 1));
    }
    // It is the sidecar of the other one that the first is sent to.
    assert_eq!(both[0].tries[0].endpoint, "10.9.1.20:80");
    world.proxy.drain().await;
}
