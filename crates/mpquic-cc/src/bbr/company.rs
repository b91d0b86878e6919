//! [`Company`]: paths that share a bottleneck with others.

/// What other paths that share the bottleneck ask of this one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Company {
    /// Do not start a probe now.
    pub(crate) wait: bool,
    /// Start a probe now.
    pub(crate) hurry: bool,
    /// Flows of others share the bottleneck, as far as is known.
    pub(crate) others: bool,
    /// Bytes to have in flight beside a loss-based flow.
    pub(crate) bound: Option<f64>,
    /// Another path of the bottleneck began to probe: join it.
    pub(crate) join: bool,
    /// Another path is still refilling: wait for it before going up.
    pub(crate) hold_refill: bool,
    /// Another path still finds more bandwidth: stay up with it.
    pub(crate) hold_up: bool,
    /// Paths that probe together, this one included.
    pub(crate) count: f64,
    /// The part of its largest bandwidth that a path has when the sum over all of them is largest,
    /// 0 to 1.
    pub(crate) share: f64,
}

impl Company {
    /// There are no others.
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
