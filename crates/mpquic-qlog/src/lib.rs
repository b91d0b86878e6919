//! mpquic-qlog: writes the events of connections to qlog files.
//!
//! ```
//! # fn run(transport: &mut mpquic_core::config::TransportOptions) -> std::io::Result<()> {
//! let logs = mpquic_qlog::Directory::create("logs")?;
//! transport.qlog = Some(std::sync::Arc::new(logs));
//! # Ok(())
//! # }
//! ```
//!
//! Files are JSON text sequences (`.sqlog`, RFC 7464) by draft-ietf-quic-qlog-main-schema-14, with
//! the events of draft-ietf-quic-qlog-quic-events-13.
//!
//! No draft covers multipath yet. These logs add:
//!
//! - `path_id` in packet headers and in `recovery_metrics_updated`,
//! - the frames of RFC 10069 and of draft-ietf-quic-ack-frequency-14, with their names in lower
//!   case,
//! - the parameters `initial_max_path_id` and `min_ack_delay` (microseconds),
//! - `tuple` in each event of a path: the path ID, and after address changes `ID.1`, `ID.2` and so
//!   on,
//! - the event `mpquic:path_updated` with the members `path_id` and `change`. A change is
//!   `established`, `suspect` (the path fell silent), `recovered`, `abandoned` (with `initiator`,
//!   `error` and `error_code`), `discarded`, `peer_available` or `peer_backup`,
//! - the event `mpquic:key_exchange_information` with the member `chosen_group`, the name of the
//!   group in the registry of TLS: `X25519MLKEM768`, `x25519`.
//!
//! [`schema::check`] reads a log and checks that it follows these rules.

mod directory;
mod event;
mod frame;
mod parameters;
pub mod schema;
#[cfg(test)]
mod tests;
mod words;
mod writer;

pub use directory::Directory;
pub use writer::Writer;
