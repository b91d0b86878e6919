//! [`EndpointStats`]: the counters of an endpoint.

/// What an endpoint has done since it was made. Counters only rise; `memory` is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointStats {
    /// Connections started as a client.
    pub outgoing_handshakes: u64,
    /// Connection attempts of clients that were accepted.
    pub accepted_handshakes: u64,
    /// Connection attempts that were answered with CONNECTION_REFUSED: by the application, without a
    /// server configuration, or because too many waited or were open.
    pub refused_handshakes: u64,
    /// Those of them that were refused because
    /// [`max_connections`](crate::config::ServerOptions::max_connections) were open.
    pub refused_at_max_connections: u64,
    /// Those of them that were refused because the endpoint kept more memory than
    /// [`memory_limit`](crate::config::EndpointOptions::memory_limit).
    pub refused_at_memory_limit: u64,
    /// Connection attempts that got no answer because there were
    /// [`max_half_open`](crate::config::ServerOptions::max_half_open) half-open connections.
    pub dropped_at_max_half_open: u64,
    /// Connection attempts that got no answer because the driver lagged behind by
    /// [`max_lag`](crate::config::ServerOptions::max_lag).
    pub dropped_at_max_lag: u64,
    /// Connection attempts that got no answer: ignored or dropped by the application, or not decided
    /// on in time.
    pub ignored_handshakes: u64,
    /// Connection attempts that were closed because their token was not valid.
    pub invalid_tokens: u64,
    /// Retry packets sent.
    pub retries: u64,
    /// Those of them that the endpoint sent by itself, because there were more half-open connections
    /// than [`retry_floor`](crate::config::ServerOptions::retry_floor) and
    /// [`retry_threshold`](crate::config::ServerOptions::retry_threshold) allow, the driver lagged
    /// behind or little memory was left.
    pub retries_on_demand: u64,
    /// Version Negotiation packets sent.
    pub version_negotiations: u64,
    /// Stateless resets sent.
    pub stateless_resets: u64,
    /// Datagrams that belonged to no connection, started none and got no answer.
    pub datagrams_dropped: u64,
    /// Bytes of memory that connections, attempts to connect and the driver's buffers keep now. Each
    /// connection is counted anew every 128 datagrams, and once it is idle.
    pub memory: u64,
}
