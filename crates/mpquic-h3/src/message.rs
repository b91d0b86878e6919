//! [`Message`]: the frames of a request or of its answer, in their order (RFC 9114 sections 4.1,
//! 4.1.2 and 4.4).

use h3::error::Code;

use crate::fields::{self, Of, Wrong};

/// The kind of our request, as far as its answer depends on the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Head,
    Connect,
    Otherwise,
}

/// The parts of a message that have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Interim responses at most.
    Begin,
    Fields,
    Trailers,
}

/// The kind of a field section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    /// The fields of a request or of a response; of a request, whether it may say `connect-ip`.
    Fields {
        is_special: bool,
    },
    Trailers,
}

/// A request of the peer's, or its answer to one of ours.
#[derive(Debug)]
pub(crate) struct Message {
    /// The request's kind, for an answer.
    asked: Option<Asked>,
    stage: Stage,
    /// Set for a tunnel: only DATA may follow, of any length.
    is_tunnel: bool,
    /// Announced bytes of content still to come.
    left: Option<u64>,
}

impl Message {
    pub(crate) fn request() -> Self {
        Self {
            asked: None,
            stage: Stage::Begin,
            is_tunnel: false,
            left: None,
        }
    }

    pub(crate) fn answer() -> Self {
        Self {
            asked: Some(Asked::Otherwise),
            ..Self::request()
        }
    }

    pub(crate) fn is_answer(&self) -> bool {
        self.asked.is_some()
    }

    /// The request was sent.
    pub(crate) fn on_asked(&mut self, asked: Asked) {
        self.asked = Some(asked);
    }

    /// True if content has to follow, by the fields.
    pub(crate) fn wants_content(&self) -> bool {
        self.left.is_some_and(|left| left > 0)
    }

    /// The payload of a HEADERS frame is there.
    pub(crate) fn on_headers(&mut self, section: &[u8]) -> Result<Section, Wrong> {
        match (self.stage, self.asked) {
            (Stage::Begin, None) => {
                let facts = fields::check(section, Of::Request)?;
                self.stage = Stage::Fields;
                self.is_tunnel = facts.is_connect;
                self.left = facts.content_length.filter(|_| !self.is_tunnel);
                Ok(Section::Fields {
                    is_special: facts.is_special,
                })
            }
            (Stage::Begin, Some(asked)) => {
                let facts = fields::check(section, Of::Response)?;
                if facts.status >= 200 {
                    self.stage = Stage::Fields;
                    self.is_tunnel = asked == Asked::Connect && facts.status < 300;
                    self.left = match (asked, facts.status) {
                        // Any announced length (RFC 9110 section 6.4.1).
                        (Asked::Head, _) | (_, 204 | 304) => Some(0),
                        _ => facts.content_length.filter(|_| !self.is_tunnel),
                    };
                }
                Ok(Section::Fields { is_special: false })
            }
            (Stage::Fields, _) if !self.is_tunnel => {
                fields::check(section, Of::Trailers)?;
                self.on_end()?;
                self.stage = Stage::Trailers;
                Ok(Section::Trailers)
            }
            (Stage::Fields | Stage::Trailers, _) => Err(UNEXPECTED),
        }
    }

    /// A DATA frame of this length begins.
    pub(crate) fn on_data(&mut self, length: u64) -> Result<(), Wrong> {
        if self.stage != Stage::Fields {
            return Err(UNEXPECTED);
        }
        if let Some(left) = &mut self.left {
            let after = left.checked_sub(length);
            *left = after.ok_or(Wrong::Message("there is more content than was announced"))?;
        }
        Ok(())
    }

    /// The stream ends.
    pub(crate) fn on_end(&self) -> Result<(), Wrong> {
        if self.is_answer() && self.stage == Stage::Begin {
            // h3 would close the connection, and every other request with it.
            Err(Wrong::Message("a stream ended before its response"))
        } else if self.wants_content() {
            Err(Wrong::Message("there is less content than was announced"))
        } else {
            Ok(())
        }
    }
}

/// RFC 9114 section 4.1: the order of frames is not that of a message.
const UNEXPECTED: Wrong = Wrong::Connection(Code::H3_FRAME_UNEXPECTED);
