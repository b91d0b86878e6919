//! The rest of a body that the server refuses, over HTTP/2.

use std::time::Duration;

use hyper::body::{Body as _, Incoming};

use crate::serve::change::RequestBody as _;

/// Most bytes of a refused body that are read.
pub(crate) const MOST: usize = 256 << 10;
/// How long a refused body is kept at most.
pub(crate) const WAIT: Duration = Duration::from_secs(1);

/// Keeps the stream of a request open after its answer, while the client may still send the body.
/// Without a reader hyper resets the stream at once, and clients such as curl 7.88 then report the
/// reset instead of the answer's status. The client has [`WAIT`] to notice the answer. Of its body
/// at most [`MOST`] bytes are read, so flow control stops a client that goes on.
pub(crate) async fn outlast(body: &mut Incoming) {
    if body.is_end_stream() {
        return;
    }
    let read = async {
        let mut left = MOST;
        while let Ok(Some(data)) = body.data().await {
            left = left.saturating_sub(data.len());
            if left == 0 {
                return std::future::pending().await;
            }
        }
    };
    // The end of the time is the end of the body for this server.
    let _ = tokio::time::timeout(WAIT, read).await;
}
