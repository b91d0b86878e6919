//! ECN validation of one path (RFC 9000 section 13.4.2, MP-056).

use quinn_proto::EcnCodepoint;

/// Whether packets of a path are marked ECT(0).
#[derive(Debug, Clone)]
pub(crate) struct EcnState {
    enabled: bool,
}

impl EcnState {
    /// Starts testing the path, or never marks if not `enabled`.
    pub(crate) fn new(enabled: bool) -> Self {
        Self { enabled }
    }

    /// How to mark the next packet. Set [`SentPacket::ecn_marked`](crate::space::SentPacket) to
    /// match.
    pub(crate) fn codepoint(&self) -> Option<EcnCodepoint> {
        todo!()
    }
}
