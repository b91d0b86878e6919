//! mpquic-qlog: writes what happens in a connection to qlog files.
//!
//! ```
//! # fn run(transport: &mut mpquic_core::config::TransportOptions) -> std::io::Result<()> {
//! let logs = mpquic_qlog::Directory::create("logs")?;
//! transport.qlog = Some(std::sync::Arc::new(logs));
//! # Ok(())
//! # }
//! ```
//!
//! Files are JSON text sequences (`.sqlog`, RFC 7464) that follow
//! draft-ietf-quic-qlog-main-schema-14, with the events of draft-ietf-quic-qlog-quic-events-13. No
//! draft covers multipath yet. These logs add `path_id` to packet headers and to
//! `recovery_metrics_updated`, the frames of RFC 10069 and of draft-ietf-quic-ack-frequency-14
//! under their names in lower case, and the parameters `initial_max_path_id` and `min_ack_delay`
//! (microseconds). Each event of a path names its `tuple`: the path ID, and after an address change
//! `ID.1`, `ID.2` and so on. What happens to a path is the event `mpquic:path_updated` with the members
//! `path_id` and `change`: `established`, `suspect` (it fell silent), `recovered`, `abandoned` (with
//! `initiator`, `error` and `error_code`), `discarded`, `peer_available` or `peer_backup`. [`schema::check`] reads a log back and checks all this.

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
