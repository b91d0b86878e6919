//! [`Company`]: requests to a path from other paths of its bottleneck.

/// Requests to a path from the other paths that share its bottleneck.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Company {
    /// Do not start a probe now.
    pub(crate) wait: bool,
    /// Start a probe now.
    pub(crate) hurry: bool,
    /// Flows of other connections share the bottleneck, as far as is known.
    pub(crate) others: bool,
    /// Bytes that the path should have in flight beside a loss-based flow.
    pub(crate) bound: Option<f64>,
    /// Another path of the bottleneck began to probe: join the probe.
    pub(crate) join: bool,
    /// Another path is still refilling: wait for it before going up.
    pub(crate) hold_refill: bool,
    /// Another path still finds more bandwidth: stay up together with it.
    pub(crate) hold_up: bool,
    /// Number of paths that probe together, this path included.
    pub(crate) count: f64,
    /// The part of its largest bandwidth that each path had when the total of all paths was
    /// largest, 0 to 1.
    pub(crate) share: f64,
}

impl Company {
    /// No other path shares the bottleneck.
    pub(crate) const NONE: Self = Self {
        wait: false,
        hurry: false,
        others: false,
        bound: None,
        join: false,
        hold_refill: false,
        hold_up: false,
        count: 1.0,
        share: 1.0,
    };
}
