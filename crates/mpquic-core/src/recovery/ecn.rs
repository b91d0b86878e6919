//! ECN validation of one path (RFC 9000 section 13.4.2, MP-056).

use quinn_proto::EcnCodepoint;

use super::PacketNumberSpace;
use crate::wire::frame::EcnCounts;

/// How many packets are marked to find out whether the path supports ECN (RFC 9000 A.4).
const TESTING_PACKETS: u32 = 10;

/// While the path is tested, marking stops after this many probe timeouts in a row, because the
/// path may drop marked packets.
const TESTING_TIMEOUTS: u32 = 2;

/// Whether packets of a path are marked.
#[derive(Debug, Clone)]
pub(crate) struct EcnState {
    validation: Validation,
    /// ECT(0) or ECT(1).
    mark: EcnCodepoint,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Validation {
    /// The first packets are marked.
    Testing { sent: u32, lost: u32 },
    /// Enough packets were marked; no more are until the result is known.
    Unknown { lost: u32 },
    /// Marks arrive, and the peer reports them.
    Capable,
    /// The path or the peer corrupts marks, or ECN is turned off.
    Failed,
}

impl EcnState {
    /// Starts testing the path with this mark, or never marks.
    pub(crate) fn new(mark: Option<EcnCodepoint>) -> Self {
        let validation = match mark {
            Some(_) => Validation::Testing { sent: 0, lost: 0 },
            None => Validation::Failed,
        };
        let mark = mark.unwrap_or(EcnCodepoint::Ect0);
        Self { validation, mark }
    }

    /// How to mark the next packet. Set [`SentPacket::ecn_marked`](crate::space::SentPacket) to
    /// match.
    pub(crate) fn codepoint(&self) -> Option<EcnCodepoint> {
        match self.validation {
            Validation::Testing { .. } | Validation::Capable => Some(self.mark),
            Validation::Unknown { .. } | Validation::Failed => None,
        }
    }

    /// The state of validation, for the log.
    pub(crate) fn validation(&self) -> Validation {
        self.validation
    }

    /// True if the path was found to support ECN.
    #[cfg(test)]
    pub(crate) fn is_capable(&self) -> bool {
        self.validation == Validation::Capable
    }

    pub(super) fn on_marked_packet_sent(&mut self) {
        if let Validation::Testing { sent, lost } = &mut self.validation {
            *sent += 1;
            if *sent >= TESTING_PACKETS {
                self.validation = Validation::Unknown { lost: *lost };
            }
        }
    }

    pub(super) fn on_marked_packet_lost(&mut self) {
        match &mut self.validation {
            Validation::Testing { lost, .. } => *lost += 1,
            Validation::Unknown { lost } => {
                *lost += 1;
                // RFC 9000 A.4: all marked packets were lost
                if *lost >= TESTING_PACKETS {
                    self.validation = Validation::Failed;
                }
            }
            Validation::Capable | Validation::Failed => {}
        }
    }

    pub(super) fn on_probe_timeout(&mut self, pto_count: u32) {
        if let Validation::Testing { sent: 1.., lost } = self.validation
            && pto_count >= TESTING_TIMEOUTS
        {
            self.validation = Validation::Unknown { lost };
        }
    }

    /// Checks the counts of an acknowledgement that raised the largest acknowledged number of
    /// `space` and newly acknowledged `newly_marked` marked packets. Returns the number of packets
    /// newly reported with CE.
    pub(super) fn on_counts(
        &mut self,
        space: &mut PacketNumberSpace,
        counts: Option<EcnCounts>,
        newly_marked: u64,
    ) -> u64 {
        if self.validation == Validation::Failed {
            return 0;
        }
        let Some(counts) = counts else {
            if newly_marked > 0 {
                // RFC 9000 section 13.4.2.1: the peer reports no counts, or marks were erased
                self.validation = Validation::Failed;
            }
            return 0;
        };
        let ecn = &mut space.ecn;
        let previous = std::mem::replace(&mut ecn.reported, counts);
        if !self.is_plausible(previous, counts, newly_marked, ecn.marked) {
            self.validation = Validation::Failed;
            return 0;
        }
        if newly_marked > 0 {
            self.validation = Validation::Capable;
        }
        counts.ce.saturating_sub(previous.ce)
    }

    /// RFC 9000 section 13.4.2.1. We never send the other mark, so a report of it is a fault.
    fn is_plausible(
        &self,
        previous: EcnCounts,
        counts: EcnCounts,
        newly_marked: u64,
        marked: u64,
    ) -> bool {
        let of_ours = |counts: EcnCounts| match self.mark {
            EcnCodepoint::Ect1 => (counts.ect1, counts.ect0),
            EcnCodepoint::Ect0 | EcnCodepoint::Ce => (counts.ect0, counts.ect1),
        };
        let (ours, others) = of_ours(counts);
        let (Some(kept), Some(ce)) = (
            ours.checked_sub(of_ours(previous).0),
            counts.ce.checked_sub(previous.ce),
        ) else {
            return false;
        };
        others == 0
            && kept.saturating_add(ce) >= newly_marked
            && ours.saturating_add(counts.ce) <= marked
    }
}

#[cfg(test)]
mod tests;
