//! Retry, and the tokens that make it unnecessary (RFC 9000 section 8.1).

use std::net::SocketAddr;

use bytes::Bytes;
use quinn_proto::{ConnectionId, Side};

use super::setup::{MAX_TOKEN, Role};
use super::state::{Handshake, Step};
use crate::error::{Fault, TransportError};
use crate::outbox::Outbox;
use crate::qlog::UnnumberedKind;
use crate::random::SeededRandom;
use crate::version::Version;
use crate::wire::frame::PacketType;
use crate::wire::header::{Header, ProtectedPacket};

impl Handshake {
    /// Handles a Retry packet: after a genuine one, starts over with its connection ID and token
    /// (RFC 9000 section 17.2.5). False for a packet to drop.
    pub(super) fn on_retry(&mut self, packet: &ProtectedPacket, outbox: &mut Outbox) -> bool {
        let Header::Retry {
            version,
            scid,
            token,
            tag,
            ..
        } = &packet.header
        else {
            return false;
        };
        let without_tag = packet.data.len().saturating_sub(tag.len());
        let retry = &packet.data[..without_tag];
        // RFC 9000 section 17.2.5.2: an empty token is no token; a token too long to send back is
        // useless.
        let is_usable = (1..=MAX_TOKEN).contains(&token.len());
        if !is_usable || !self.accepts_retry(*version, scid, retry, tag) {
            return false;
        }
        let kind = UnnumberedKind::Retry {
            version: *version,
            token,
        };
        self.log_unnumbered(scid, packet.data.len(), kind, outbox);
        self.follow_retry(*scid, token.clone());
        outbox.log.handshake_keys(PacketType::Initial);
        true
    }

    /// True for a genuine Retry that the client may follow.
    fn accepts_retry(
        &self,
        version: Version,
        scid: &ConnectionId,
        packet: &[u8],
        tag: &[u8; 16],
    ) -> bool {
        let Role::Client(client) = &self.role else {
            return false;
        };
        let original = &self.cids.original;
        let expected = || client.crypto.retry_tag(version, original, packet);
        // RFC 9000 section 17.2.5.2: only one, and none once a packet was processed; RFC 9369
        // section 4.1: in the original version.
        self.cids.retry.is_none()
            && self.cids.peer.is_none()
            && scid != original
            && version == self.versions.original()
            && expected() == *tag
    }

    fn follow_retry(&mut self, scid: ConnectionId, token: Bytes) {
        self.cids.retry = Some(scid);
        self.cids.initial = scid;
        self.token = token;
        if let (Role::Client(client), Some(level)) = (&self.role, &mut self.initial) {
            level.start_over(
                client
                    .crypto
                    .initial_keys(level.version(), Side::Client, &scid),
            );
        }
        self.steps.push_back(Step::PeerCid(scid));
        self.steps.push_back(Step::Retried);
    }

    /// NEW_TOKEN.
    pub(crate) fn on_new_token(&mut self, token: Bytes) -> Result<(), TransportError> {
        match &self.role {
            // RFC 9000 section 19.7
            Role::Server(_) => Err(Fault::NewTokenFromClient.into()),
            Role::Client(_) if token.is_empty() => Err(Fault::EmptyToken.into()),
            Role::Client(client) => {
                client.save_token(self.versions.current(), token);
                Ok(())
            }
        }
    }

    /// Server: makes a token for these validated addresses of the client (MP-087).
    pub(crate) fn offer_token(
        &mut self,
        addresses: impl Iterator<Item = SocketAddr>,
        random: &mut SeededRandom,
    ) {
        let version = self.versions.current();
        if let Role::Server(server) = &mut self.role
            && let Some(issuer) = &mut server.token_issuer
        {
            let token = issuer.token(version, addresses, random.bytes());
            self.server_frames.offer_token(token.into());
        }
    }
}
