//! mpquic-qlog: what happened in a connection, as qlog files.
//!
//! ```
//! # fn run(transport: &mut mpquic_core::config::TransportConfig) -> std::io::Result<()> {
//! let logs = mpquic_qlog::Directory::create("logs")?;
//! transport.qlog = Some(std::sync::Arc::new(logs));
//! # Ok(())
//! # }
//! ```
//!
//! Files are JSON text sequences (`.sqlog`, RFC 7464) after draft-ietf-quic-qlog-main-schema-14
//! with the events of draft-ietf-quic-qlog-quic-events-13. No draft defines yet what multipath
//! adds; these logs have `path_id` in packet headers and in `recovery_metrics_updated`, the frames
//! of RFC 10069 and of draft-ietf-quic-ack-frequency-14 under their names in lower case, and
//! `initial_max_path_id` and `min_ack_delay` (microseconds) among the parameters. Each event of a
//! path names its `tuple`: the path ID, and after an address change `ID.1`, `ID.2` and so on.
//! [`schema::check`] reads a log back and checks all this.

mod directory;
mod event;
mod frame;
mod parameters;
pub mod schema;
mod words;
mod writer;

pub use directory::Directory;
pub use writer::Writer;
