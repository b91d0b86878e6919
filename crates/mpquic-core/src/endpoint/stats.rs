//! [`EndpointStats`]: the counters of an endpoint.

/// Counters of an endpoint. They only rise, except `memory`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointStats {
    /// Connections started as a client.
    pub outgoing_handshakes: u64,
    /// Connection attempts of clients that were accepted.
    pub accepted_handshakes: u64,
    /// Connection attempts that were answered with CONNECTION_REFUSED: by the application, without
    /// a server configuration, or because too many waited or were open.
    pub refused_handshakes: u64,
    /// Attempts refused because [`max_connections`](crate::config::ServerOptions::max_connections)
    /// were open.
    pub refused_at_max_connections: u64,
    /// Attempts refused because the endpoint kept more memory than
    /// [`memory_limit`](crate::config::EndpointOptions::memory_limit).
    pub refused_at_memory_limit: u64,
    /// Connection attempts that got no answer because there were
    /// [`max_half_open_connections`](crate::config::ServerOptions::max_half_open_connections)
    /// half-open connections.
    pub dropped_at_max_half_open: u64,
    /// Connection attempts that got no answer because the driver lagged behind by
    /// [`max_attempt_lag`](crate::config::ServerOptions::max_attempt_lag).
    pub dropped_at_max_attempt_lag: u64,
    /// Connection attempts that got no answer: ignored or dropped by the application, or not
    /// decided on in time.
    pub ignored_handshakes: u64,
    /// Connection attempts closed for an invalid token.
    pub invalid_tokens: u64,
    /// Retry packets sent.
    pub retries: u64,
    /// Retries that the endpoint sent by itself: for more half-open connections than
    /// [`retry_min_half_open`](crate::config::ServerOptions::retry_min_half_open) and
    /// [`retry_threshold`](crate::config::ServerOptions::retry_threshold) allow, for a lagging
    /// driver, or for a lack of memory.
    pub retries_on_demand: u64,
    /// Version Negotiation packets sent.
    pub version_negotiations: u64,
    /// Stateless resets sent.
    pub stateless_resets: u64,
    /// Datagrams that belonged to no connection, started none and got no answer.
    pub datagrams_dropped: u64,
    /// Bytes of memory for connections, attempts to connect and the driver's buffers. Each
    /// connection is counted anew every 128 datagrams, and at the start of idleness.
    pub memory: u64,
}
