//! The dashboards that the console plots: those of `deploy/grafana`, as far as one process fills
//! them. Their lines are fixed, so that what is kept of them does not grow with domains.

mod control_plane;
mod served;

use super::panels::{Dashboard, PlotLine};

/// The dashboards in their order; the first is shown where none is asked for.
pub(super) const DASHBOARDS: &[Dashboard] = &[
    served::FLEET,
    served::ACTIVATION,
    served::TRAFFIC,
    control_plane::CERTIFICATES,
    control_plane::MESH,
    control_plane::CONTROL_PLANE,
];

/// All lines, in the order in which they are kept.
pub(super) fn lines() -> impl Iterator<Item = &'static PlotLine> {
    let panels = DASHBOARDS.iter().flat_map(|dashboard| dashboard.panels);
    panels.flat_map(|panel| panel.lines)
}

#[cfg(test)]
mod tests;
