//! Answers that an endpoint sends without a connection: Version Negotiation, Retry and stateless
//! resets.

use std::sync::Arc;
use std::time::Instant;

use quinn_proto::ConnectionId;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::answer_log::AnswerLog;
use super::server::Server;
use super::stateless_reset;
use crate::crypto::tokens::{ResetKey, Token};
use crate::ids::FourTuple;
use crate::packet::Transmit;
use crate::qlog::{Unnumbered, UnnumberedKind};
use crate::rate::TokenBucket;
use crate::version::Version;
use crate::wire::header::{self, Peek};

/// A client whose address is not proven.
pub(super) struct Unproven<'a> {
    pub(super) server: &'a Server,
    pub(super) version: Version,
    /// The connection IDs of its Initial.
    pub(super) dcid: ConnectionId,
    pub(super) scid: ConnectionId,
    pub(super) four_tuple: FourTuple,
}

/// Writes answers that need no connection. Each is written to an empty buffer.
pub(super) struct Answers {
    random: StdRng,
    reset_key: Arc<ResetKey>,
    reset_limit: TokenBucket,
    log: AnswerLog,
}

impl Answers {
    pub(super) fn new(seed: [u8; 32], reset_key: Arc<ResetKey>) -> Self {
        Self {
            random: StdRng::from_seed(seed),
            reset_key,
            reset_limit: stateless_reset::limit(),
            log: AnswerLog::default(),
        }
    }

    /// Answers a packet of another version (RFC 9000 section 6).
    pub(super) fn negotiate_version(
        &mut self,
        now: Instant,
        server: &Server,
        supported: &[Version],
        peek: &Peek<'_>,
        buf: &mut Vec<u8>,
    ) {
        let mut versions: Vec<_> = supported.iter().map(|version| version.to_u32()).collect();
        // RFC 9000 section 6.3: a reserved version, other than the client's
        let reserved = Version::reserved(self.random.random());
        versions.push(if reserved == peek.version {
            reserved ^ 0x1000_0000
        } else {
            reserved
        });
        header::encode_version_negotiation(buf, peek.scid, peek.dcid, &versions);
        let packet = Unnumbered {
            destination: peek.scid,
            source: peek.dcid,
            original_dcid: peek.dcid,
            size: buf.len(),
            kind: UnnumberedKind::VersionNegotiation {
                versions: &versions,
                spoken: supported,
                chosen: None,
            },
        };
        self.log.sent(now, server, &packet);
    }

    /// Asks a client to prove its address (RFC 9000 section 8.1.2).
    pub(super) fn retry(
        &mut self,
        now: Instant,
        client: &Unproven<'_>,
        retry_scid: ConnectionId,
        buf: &mut Vec<u8>,
    ) -> Transmit {
        let Unproven {
            server,
            version,
            dcid,
            scid,
            four_tuple,
        } = client;
        let Server { config, token_key } = server;
        let (address, now_of_day) = (four_tuple.remote, config.time_source.now());
        let shared = config.retry_tokens.as_deref();
        let number = self.random.random();
        let shared = shared.and_then(|it| it.seal(number, address, dcid, &retry_scid, now_of_day));
        let token = shared.unwrap_or_else(|| {
            let token = Token::Retry {
                version: *version,
                address,
                original_dcid: *dcid,
                retry_scid,
                issued: now_of_day,
            };
            token.seal(token_key, self.random.random())
        });
        header::encode_retry(buf, *version, scid, &retry_scid, &token);
        let tag = config.crypto.retry_tag(*version, dcid, buf);
        buf.extend_from_slice(&tag);
        let packet = Unnumbered {
            destination: scid,
            source: &retry_scid,
            original_dcid: dcid,
            size: buf.len(),
            kind: UnnumberedKind::Retry {
                version: *version,
                token: &token,
            },
        };
        self.log.sent(now, server, &packet);
        Transmit::without_connection(*four_tuple, buf)
    }

    /// Answers a packet of `size` bytes to an unknown connection (RFC 9000 section 10.3), unless
    /// the packet is too small or too many resets were sent.
    pub(super) fn stateless_reset(
        &mut self,
        now: Instant,
        dcid: ConnectionId,
        size: usize,
        four_tuple: FourTuple,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let size = stateless_reset::reset_size(size, &mut self.random)?;
        if !self.reset_limit.take(now) {
            return None;
        }
        let token = self.reset_key.token(&dcid);
        stateless_reset::write_reset(buf, size, token, &mut self.random);
        Some(Transmit::without_connection(four_tuple, buf))
    }
}
