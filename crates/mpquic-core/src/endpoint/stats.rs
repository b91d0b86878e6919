//! [`EndpointStats`]: the counters of an endpoint.

/// What an endpoint has done since it was made. Counters only rise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointStats {
    /// Connections started as a client.
    pub outgoing_handshakes: u64,
    /// Connection attempts of clients that were accepted.
    pub accepted_handshakes: u64,
    /// Connection attempts that were answered with CONNECTION_REFUSED: by the application, without a
    /// server configuration, or because too many waited.
    pub refused_handshakes: u64,
    /// Connection attempts that got no answer: ignored or dropped by the application, or not decided
    /// on in time.
    pub ignored_handshakes: u64,
    /// Connection attempts that were closed because their token was not valid.
    pub invalid_tokens: u64,
    /// Retry packets sent.
    pub retries: u64,
    /// Version Negotiation packets sent.
    pub version_negotiations: u64,
    /// Stateless resets sent.
    pub stateless_resets: u64,
    /// Datagrams that belonged to no connection, started none and got no answer.
    pub datagrams_dropped: u64,
}
