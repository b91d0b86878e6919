//! [`Fault`]: the rules whose breach ends a connection, with code and words.

use super::code::TransportErrorCode;

/// A table of faults: the code, then each rule with the words for it.
macro_rules! faults {
    ($($code:expr => { $($(#[$doc:meta])* $name:ident = $reason:literal;)* })*) => {
        /// The rule that was broken. Each belongs to one code of CONNECTION_CLOSE, and to words
        /// that no other rule shares.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Fault {
            $($($(#[$doc])* $name,)*)*
            /// The TLS implementation refused what the peer sent (RFC 9001 section 4.8).
            Tls {
                /// The alert that stands for it. Without one the code is PROTOCOL_VIOLATION.
                alert: Option<u8>,
                /// The reason for the user.
                failure: TlsFailure,
            },
        }

        impl Fault {
            /// The code that goes on the wire.
            pub const fn code(self) -> TransportErrorCode {
                match self {
                    $($(Self::$name)|* => $code,)*
                    Self::Tls { alert: Some(alert), .. } => TransportErrorCode::crypto(alert),
                    Self::Tls { alert: None, .. } => TransportErrorCode::PROTOCOL_VIOLATION,
                }
            }

            /// The words that go on the wire and that people read.
            pub const fn reason(self) -> &'static str {
                match self {
                    $($(Self::$name => $reason,)*)*
                    Self::Tls { failure, .. } => failure.reason(),
                }
            }

            #[cfg(test)]
            const WITHOUT_TLS: &[Self] = &[$($(Self::$name,)*)*];
        }
    };
}

faults! {
    TransportErrorCode::INTERNAL_ERROR => {
        /// Stream data has more gaps than we keep track of (RFC 9000 section 21.6 lets us refuse).
        TooManyGaps = "too many gaps in stream data";
        /// The peer made us keep more in memory than
        /// [`memory_limit`](crate::config::TransportOptions::memory_limit) allows (RFC 9000 section
        /// 21 lets us refuse).
        TooMuchMemory = "the connection takes more memory than it may";
        /// A handshake message was to be read before a version was chosen.
        NoVersionYet = "no version is chosen yet";
        /// The TLS implementation refused its configuration.
        TlsNotStarted = "TLS could not be started";
    }
    TransportErrorCode::FLOW_CONTROL_ERROR => {
        /// RFC 9000 section 4.1.
        StreamDataBeyondLimit = "more data than MAX_STREAM_DATA";
        /// RFC 9000 section 4.1.
        DataBeyondLimit = "more data than MAX_DATA";
    }
    TransportErrorCode::STREAM_LIMIT_ERROR => {
        /// RFC 9000 section 4.6.
        StreamsBeyondLimit = "more streams than MAX_STREAMS";
    }
    TransportErrorCode::STREAM_STATE_ERROR => {
        /// RFC 9000 sections 19.4, 19.8 and 19.13.
        SendOnlyStream = "frame for a stream that only we send on";
        /// RFC 9000 sections 19.5 and 19.10.
        ReceiveOnlyStream = "frame for a stream that only the peer sends on";
        /// RFC 9000 sections 19.5, 19.8 and 19.10.
        StreamNotOpened = "frame for a stream not opened yet";
        /// draft-ietf-quic-reliable-stream-reset-11 section 5.2.
        ResetCodeChanged = "another error code in a second reset";
    }
    TransportErrorCode::FINAL_SIZE_ERROR => {
        /// RFC 9000 section 4.5.
        FinalSizeChanged = "final size changed or exceeded";
    }
    TransportErrorCode::FRAME_ENCODING_ERROR => {
        /// RFC 9000 section 12.4, MP-002.
        UnknownFrameType = "unknown frame type";
        /// RFC 9000 section 12.4, MP-052.
        TruncatedFrame = "truncated frame";
        /// RFC 9000 sections 19.6 and 19.8.
        OffsetTooLarge = "offset beyond 2^62 - 1";
        /// RFC 9000 section 19.7.
        EmptyToken = "empty token";
        /// RFC 9000 section 19.3.1, MP-055.
        AckBelowZero = "acknowledged range below zero";
        /// RFC 9000 sections 19.11 and 19.14.
        StreamCountTooLarge = "more than 2^60 streams";
        /// RFC 9000 section 19.15, MP-104.
        RetirePriorToTooLarge = "Retire Prior To above the sequence number";
        /// RFC 9000 section 19.15, MP-104.
        ConnectionIdLength = "connection ID of a length not 1 to 20";
        /// draft-ietf-quic-reliable-stream-reset-11 section 4.
        ReliableSizeTooLarge = "reliable size above the final size";
        /// draft-ietf-quic-reliable-stream-reset-11 section 3, RFC 9000 section 12.4.
        ResetStreamAtNotNegotiated = "RESET_STREAM_AT was not negotiated";
        /// draft-ietf-quic-ack-frequency-14 section 3, RFC 9000 section 12.4.
        AckFrequencyNotAnnounced = "frame of an extension that was not announced";
        /// RFC 9000 section 12.4, draft-munizaga-quic-alternative-server-address-01 section 3.
        AlternativeAddressNotAnnounced = "ALTERNATIVE_ADDRESS, but it was not announced";
        /// draft-munizaga-quic-alternative-server-address-01 section 5.
        UnknownAddressType = "unknown type of address";
        /// draft-munizaga-quic-alternative-server-address-01 section 5.
        CurrentPathNotOnce = "addresses without, or with more than one, place for the current path";
        /// draft-munizaga-quic-alternative-server-address-01 section 5.
        AddressesNotInOrder = "addresses not in the order of their priority";
        /// draft-munizaga-quic-alternative-server-address-01 section 5.
        AddressTwice = "the same address twice";
    }
    TransportErrorCode::TRANSPORT_PARAMETER_ERROR => {
        /// RFC 9000 section 7.4, MP-007.
        DuplicateParameter = "duplicate parameter";
        /// RFC 9000 section 18.
        TruncatedParameter = "truncated parameter";
        /// An impossible value of a parameter (RFC 9000 section 18.2, MP-007).
        MalformedParameter = "malformed value";
        /// RFC 9000 section 18.2.
        ServerOnlyParameter = "parameter that only a server may send";
        /// draft-munizaga-quic-alternative-server-address-01 section 3.
        ClientOnlyParameter = "parameter that only a client may send";
        /// RFC 9000 section 18.2.
        UdpPayloadSizeTooSmall = "max_udp_payload_size below 1200";
        /// RFC 9000 section 18.2.
        ConnectionIdLimitTooSmall = "active_connection_id_limit below 2";
        /// RFC 9000 sections 4.6 and 18.2.
        InitialStreamsTooLarge = "initial limit of more than 2^60 streams";
        /// RFC 9000 section 18.2.
        AckDelayExponentTooLarge = "ack_delay_exponent above 20";
        /// RFC 9000 section 18.2.
        MaxAckDelayTooLarge = "max_ack_delay of 2^14 ms or more";
        /// RFC 9000 section 18.2.
        PreferredAddressWithoutId = "preferred_address with a zero-length connection ID";
        /// draft-ietf-quic-ack-frequency-14 section 3.
        MinAckDelayTooLarge = "min_ack_delay above max_ack_delay";
        /// MP-006.
        InitialPathIdTooLarge = "initial_max_path_id above 2^32 - 1";
        /// RFC 9368 section 4.
        VersionZero = "version 0 in version_information";
        /// RFC 9368 section 4.
        ChosenVersionNotAvailable = "the chosen version is not among the available ones";
        /// RFC 9000 section 7.3.
        InitialSourceMismatch = "initial_source_connection_id does not match";
        /// RFC 9000 section 7.3.
        OriginalDestinationMismatch = "original_destination_connection_id does not match";
        /// RFC 9000 section 7.3.
        RetrySourceMismatch = "retry_source_connection_id does not match";
    }
    TransportErrorCode::CONNECTION_ID_LIMIT_ERROR => {
        /// RFC 9000 section 5.1.1, MP-105.
        ConnectionIdsBeyondLimit = "more connection IDs than active_connection_id_limit";
        /// Sequence numbers leave out more than we keep track of (MP-105).
        SequenceGaps = "too many gaps in the sequence numbers of connection IDs";
        /// RFC 9000 section 5.1.2, MP-107.
        TooManyRetirements = "too many connection IDs in need of retirement";
    }
    TransportErrorCode::PROTOCOL_VIOLATION => {
        /// RFC 9000 sections 17.2 and 17.3.1.
        ReservedBits = "reserved bits of a packet header are set";
        /// RFC 9000 section 12.4.
        EmptyPacket = "packet without frames";
        /// RFC 9000 section 12.4, MP-052.
        FrameTypeNotShortest = "frame type longer than necessary";
        /// RFC 9000 section 12.4, MP-004.
        FrameNotAllowed = "frame not allowed in this packet";
        /// RFC 9000 section 13.1, MP-055.
        AckOfUnsent = "acknowledgement of a packet that was never sent";
        /// MP-055.
        AckOfUnusedPath = "PATH_ACK for an unused path";
        /// RFC 9000 section 19.7.
        NewTokenFromClient = "NEW_TOKEN from a client";
        /// RFC 9000 section 19.20.
        HandshakeDoneFromClient = "HANDSHAKE_DONE from a client";
        /// RFC 9000 section 19.15.
        ConnectionIdNotWanted = "NEW_CONNECTION_ID although the peer chose a zero-length connection ID";
        /// RFC 9000 section 19.15, MP-095.
        ConnectionIdConflict = "connection ID, sequence number and reset token do not match an earlier frame";
        /// MP-095.
        ConnectionIdOnTwoPaths = "connection ID issued for two paths";
        /// RFC 9000 section 19.16, MP-106.
        RetiredNeverIssued = "retirement of a connection ID that was never issued";
        /// RFC 9000 section 19.16, MP-106.
        RetiredItself = "retirement of the connection ID the packet was addressed to";
        /// MP-143.
        ConnectionIdsBlockedAhead = "PATH_CIDS_BLOCKED ahead of the connection IDs issued";
        /// MP-050, MP-142.
        PathIdBeyondLimit = "path ID above the limit";
        /// MP-140.
        PathIdTooLarge = "path ID above 2^32 - 1";
        /// MP-140.
        MaxPathIdBelowInitial = "MAX_PATH_ID below initial_max_path_id";
        /// MP-009.
        MultipathWithoutConnectionId = "initial_max_path_id in a packet with a zero-length connection ID";
        /// The number of frames that cost their sender nothing is bounded (RFC 9000 section 21.9,
        /// MP-175).
        TooMuchAdvice = "too many frames that only give advice";
        /// Streams that are opened only to be reset come in bounded numbers (RFC 9000 section
        /// 21.9).
        TooManyResets = "too many streams are reset";
        /// RFC 9221 section 3.
        DatagramTooLarge = "DATAGRAM above max_datagram_frame_size";
        /// draft-ietf-quic-ack-frequency-14 section 4.
        AckDelayNotValid = "request for an acknowledgement delay that is not valid";
        /// RFC 9000 section 7.4.1.
        ZeroRttLimitsReduced = "0-RTT was accepted with lower limits than before";
        /// RFC 9001 section 4.1.3.
        CryptoLeftOver = "CRYPTO data left over at the end of an encryption level";
        /// RFC 9001 section 4.1.3.
        CryptoAtPastLevel = "new CRYPTO data at an encryption level that is over";
        /// RFC 9001 section 4.4.
        LateCertificateRequest = "a request for a certificate after the handshake";
        /// RFC 9001 section 4.6.1.
        TicketLimitsEarlyData = "a ticket with a limit for early data";
    }
    TransportErrorCode::CRYPTO_BUFFER_EXCEEDED => {
        /// RFC 9000 section 7.5.
        CryptoBeyondBuffer = "more CRYPTO data than is buffered";
        /// CRYPTO data has more gaps than we keep track of (RFC 9000 section 7.5 lets us refuse).
        CryptoGaps = "too many gaps in CRYPTO data";
    }
    TransportErrorCode::KEY_UPDATE_ERROR => {
        /// RFC 9001 section 6.2.
        AckedInOldPhase = "a packet of the new key phase was acknowledged in the old one";
        /// RFC 9001 section 6.2.
        UpdatedTwice = "keys updated again before anything was sent with those of the last update";
        /// RFC 9001 section 6.4.
        OldKeysAfterNew = "keys from before the update after those that follow it";
    }
    TransportErrorCode::AEAD_LIMIT_REACHED => {
        /// RFC 9001 section 6.6: the integrity limit.
        IntegrityLimit = "too many packets could not be authenticated";
        /// RFC 9001 section 6.6: the confidentiality limit.
        ConfidentialityLimit = "the keys are used up and the peer does not let us update them";
    }
    TransportErrorCode::NO_VIABLE_PATH => {
        /// MP-128.
        NoPathLeft = "no path is left";
    }
    TransportErrorCode::VERSION_NEGOTIATION_ERROR => {
        /// RFC 9368 section 4.
        ChosenVersionNotUsed = "the chosen version is not the one in use";
        /// RFC 9368 section 4.
        VersionInformationMissing = "version_information is missing";
        /// RFC 9368 section 4.
        VersionNegotiationForged = "Version Negotiation was forged";
    }
    // The alert missing_extension.
    TransportErrorCode::crypto(109) => {
        /// RFC 9001 section 8.2.
        ParametersMissing = "transport parameters are missing";
    }
    // The alert unexpected_message.
    TransportErrorCode::crypto(10) => {
        /// RFC 9001 sections 4.4 and 6.
        TlsAfterHandshake = "a TLS message after the handshake";
    }
}

/// Why a TLS implementation refused, in words for users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TlsFailure {
    /// No trusted authority has signed the certificate.
    UnknownIssuer,
    /// The certificate is for other names.
    WrongName,
    /// The certificate is too old.
    Expired,
    /// The certificate does not have the expected fingerprint.
    NotPinned,
    /// The certificate has another defect.
    BadCertificate,
    /// The server wants the client to have a certificate.
    NoClientCertificate,
    /// The two sides speak no application protocol in common (RFC 9001 section 8.1).
    NoApplicationProtocol,
    /// The two sides have no parameters of TLS in common.
    Incompatible,
    /// The peer's messages are malformed, or not what has to come next.
    Misbehaved,
    /// A signature or a Finished message is wrong.
    NotVerified,
    /// None of the above.
    Other,
}

impl TlsFailure {
    #[cfg(test)]
    const ALL: &[Self] = &[
        Self::UnknownIssuer,
        Self::WrongName,
        Self::Expired,
        Self::NotPinned,
        Self::BadCertificate,
        Self::NoClientCertificate,
        Self::NoApplicationProtocol,
        Self::Incompatible,
        Self::Misbehaved,
        Self::NotVerified,
        Self::Other,
    ];

    /// The words that go on the wire and that people read.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::UnknownIssuer => "the certificate's issuer is not trusted",
            Self::WrongName => "the certificate is not valid for this server name",
            Self::Expired => "the certificate has expired",
            Self::NotPinned => "the certificate is not the pinned one",
            Self::BadCertificate => "the certificate is not valid",
            Self::NoClientCertificate => "the server asks for a client certificate",
            Self::NoApplicationProtocol => "no application protocol in common",
            Self::Incompatible => "the peer's TLS parameters are incompatible",
            Self::Misbehaved => "the peer broke the rules of TLS",
            Self::NotVerified => "a TLS message could not be verified",
            Self::Other => "TLS failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Tests tell faults apart by their words where only the peer's CONNECTION_CLOSE is at hand.
    #[test]
    fn no_two_faults_share_their_words() {
        let mut seen = HashSet::new();
        let tls = TlsFailure::ALL.iter().map(|&failure| Fault::Tls {
            alert: None,
            failure,
        });
        for fault in Fault::WITHOUT_TLS.iter().copied().chain(tls) {
            let reason = fault.reason();
            assert!(!reason.is_empty(), "{fault:?}");
            assert!(seen.insert(reason), "{fault:?}: {reason}");
        }
        assert!(size_of::<Fault>() <= 4);
    }
}
