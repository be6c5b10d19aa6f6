//! The account of a flow: counts, and a line of the access log once it is over.

use std::sync::Arc;

use myriad_base::clock::{self, Instant};

use super::flow::{DatagramFlow, FlowEnding};
use crate::balance::Endpoint;
use crate::failure::FailureKind;
use crate::local::Local;
use crate::route::stream_route::StreamRouteEntry;
use crate::telemetry::access_log::{AccessLogLine, DATAGRAMS};
use crate::telemetry::count::Count;
use crate::telemetry::recording::Recording;
use crate::upstream::entry::UpstreamEntry;

/// A flow being served.
pub(super) struct FlowAccount {
    started: Instant,
    /// Only where there is an access log.
    line: Option<Box<AccessLogLine>>,
}

impl FlowAccount {
    /// A flow that a stream route takes.
    pub(super) fn begin(
        local: &Local,
        recording: Option<&Arc<Recording>>,
        flow: &DatagramFlow,
        entry: &StreamRouteEntry,
    ) -> Self {
        let recording = local.recording(recording);
        let mut line = flow.visit.stream_line(local, recording, entry);
        if let Some(line) = &mut line {
            line.protocol = DATAGRAMS;
        }
        FlowAccount {
            started: clock::now(),
            line,
        }
    }

    /// The upstream that the flow is led to.
    pub(super) fn set_upstream(&mut self, upstream: &UpstreamEntry) {
        if let Some(line) = &mut self.line {
            line.upstream = Some(upstream.name.clone());
        }
    }

    /// The endpoint that it is led to.
    pub(super) fn set_endpoint(&mut self, target: &Endpoint) {
        if let Some(line) = &mut self.line {
            line.endpoint = Some(target.address);
        }
    }

    /// Tells what became of the flow.
    pub(super) fn finish(self, local: &Local, ending: FlowEnding, flow: &DatagramFlow) {
        let (count, flag) = match ending {
            FlowEnding::Idle => (Count::FlowIdle, None),
            FlowEnding::Removed => (Count::FlowRemoved, Some("passage_removed")),
            FlowEnding::Evicted => {
                let flag = FailureKind::Overloaded.verdict().flag;
                (Count::FlowEvicted, Some(flag))
            }
            FlowEnding::Failed(FailureKind::LoopDetected) => {
                let flag = FailureKind::LoopDetected.verdict().flag;
                (Count::FlowLooped, Some(flag))
            }
            FlowEnding::Failed(kind) => (Count::FlowFailed, Some(kind.verdict().flag)),
        };
        local.counts.add(count);
        let Some(mut line) = self.line else {
            return;
        };
        line.duration = clock::now().duration_since(self.started);
        (line.bytes_received, line.bytes_sent) = flow.bytes();
        line.flag = flag;
        local.log(line);
    }
}
