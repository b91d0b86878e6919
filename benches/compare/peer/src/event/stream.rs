//! The rest of a stream that is to be sent.

use bytes::Bytes;

use super::Link;
use crate::Result;
use crate::request::pieces;

/// The rest of a stream: a first piece, then `rest` bytes, then the end of the stream.
#[derive(Debug)]
pub(super) struct Outgoing {
    first: Bytes,
    rest: u64,
    ended: bool,
}

impl Outgoing {
    pub(super) fn new(first: Bytes, rest: u64) -> Self {
        Self {
            first,
            rest,
            ended: false,
        }
    }

    /// Writes as much as the stack takes. True once everything is written.
    pub(super) fn write(&mut self, link: &mut dyn Link, stream: u64) -> Result<bool> {
        while !self.ended {
            if self.first.is_empty() {
                self.first = pieces(self.rest).next().unwrap_or_default();
                self.rest -= self.first.len() as u64;
            }
            let end = self.rest == 0;
            let taken = link.write(stream, self.first.clone(), end)?;
            let all = taken == self.first.len();
            self.ended = all && end;
            let _ = self.first.split_to(taken);
            if !all {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
