//! [`Control`]: the rules for a peer's unidirectional streams.
//!
//! `h3` checks most of them. This file checks the rest.

use h3::error::Code;

use crate::priorities::Priorities;
use crate::units::Frame;
use crate::varint::Varint;

/// Frame types (RFC 9114 section 7.2): those of the control stream, and PUSH_PROMISE.
const CANCEL_PUSH: u64 = 0x03;
const SETTINGS: u64 = 0x04;
const PUSH_PROMISE: u64 = 0x05;
const GOAWAY: u64 = 0x07;
const MAX_PUSH_ID: u64 = 0x0d;
/// PRIORITY_UPDATE (RFC 9218 section 7.2), for requests and for pushes.
const UPDATE_REQUEST: u64 = 0xf0700;
const UPDATE_PUSH: u64 = 0xf0701;

/// Stream type of a push (RFC 9114 section 6.2.2).
const PUSH: u64 = 0x01;

/// The rules of one unidirectional stream.
#[derive(Debug)]
pub(crate) struct Control {
    /// Of a server.
    priorities: Option<Priorities>,
    /// The type of the stream, once it has arrived.
    kind: Option<u64>,
    had_settings: bool,
    max_push_id: u64,
}

impl Control {
    /// For a stream of a client, with the server's priorities, or for one of a server.
    pub(crate) fn new(priorities: Option<Priorities>) -> Self {
        Self {
            priorities,
            kind: None,
            had_settings: false,
            max_push_id: 0,
        }
    }

    /// The stream has this type. An error closes the connection.
    pub(crate) fn on_stream_type(&mut self, kind: u64) -> Result<(), Code> {
        self.kind = Some(kind);
        match (kind, &self.priorities) {
            (PUSH, Some(_)) => Err(Code::H3_STREAM_CREATION_ERROR),
            // RFC 9114 section 4.6: clients here never say that they take pushes.
            (PUSH, None) => Err(Code::H3_ID_ERROR),
            _ => Ok(()),
        }
    }

    pub(crate) fn kind(&self) -> Option<u64> {
        self.kind
    }

    /// True if the frame is for h3. An error closes the connection.
    pub(crate) fn on_frame(&mut self, frame: &Frame) -> Result<bool, Code> {
        self.had_settings |= frame.kind == SETTINGS;
        if !self.had_settings {
            return Err(Code::H3_MISSING_SETTINGS);
        }
        match frame.kind {
            UPDATE_REQUEST | UPDATE_PUSH => {
                let priorities = self.priorities.as_ref();
                let priorities = priorities.ok_or(Code::H3_FRAME_UNEXPECTED)?;
                let is_of_push = frame.kind == UPDATE_PUSH;
                priorities.on_update(is_of_push, frame.payload())?;
                return Ok(false);
            }
            GOAWAY => drop(number(frame)?),
            // Nothing is ever pushed.
            CANCEL_PUSH => return Err(number(frame).err().unwrap_or(Code::H3_ID_ERROR)),
            MAX_PUSH_ID => {
                let max = number(frame)?;
                if max < self.max_push_id {
                    return Err(Code::H3_ID_ERROR);
                }
                self.max_push_id = max;
            }
            _ => {}
        }
        Ok(true)
    }
}

/// Checks a frame on a request stream, ours or the peer's. An error closes the connection.
pub(crate) fn check_request_frame(frame: &Frame, is_ours: bool) -> Result<(), Code> {
    match frame.kind {
        // Clients send them, on the control stream.
        UPDATE_REQUEST | UPDATE_PUSH => Err(Code::H3_FRAME_UNEXPECTED),
        // RFC 9114 section 7.2.5: we never allowed its ID.
        PUSH_PROMISE if is_ours => Err(Code::H3_ID_ERROR),
        _ => Ok(()),
    }
}

/// The number which makes up a whole payload (RFC 9114 section 7.1).
fn number(frame: &Frame) -> Result<u64, Code> {
    match Varint::default().read(frame.payload()) {
        (length, Some(number)) if length == frame.payload().len() => Ok(number),
        _ => Err(Code::H3_FRAME_ERROR),
    }
}
