//! Signs that a client is still there.
//!
//! Requests of a client that has vanished, for example of a closed laptop, may wait at the server
//! until the connection times out. Meanwhile the user may have stored newer files over another
//! connection, so the server carries out no change for a silent client.

use std::time::Duration;

use mpquic_tokio::Connection;
use tokio::time::{Instant, interval};

use crate::serve::send_file::Refusal;

/// A client whose last packet is not older counts as present.
const RECENT: Duration = Duration::from_millis(250);
/// Time between two looks for an answer to the PING.
const LOOK: Duration = Duration::from_millis(20);

/// Waits until the client has sent a packet a short time ago. A silent client gets a PING on each
/// path.
pub(crate) async fn sign_of(connection: &Connection) -> Result<(), Refusal> {
    if connection.silent_for() < RECENT {
        return Ok(());
    }
    let asked = Instant::now();
    connection.ping();
    let answered = async {
        let mut looks = interval(LOOK);
        while connection.silent_for() >= asked.elapsed() {
            looks.tick().await;
        }
    };
    tokio::select! {
        () = answered => Ok(()),
        _ = connection.closed() => Err(Refusal::Gone),
    }
}
