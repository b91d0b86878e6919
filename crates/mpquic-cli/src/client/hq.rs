//! The client's side of HTTP/0.9 over QUIC, ALPN `hq-interop`.

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use mpquic_tokio::{Connection, ReadError, RecvStream, WriteError};

use crate::client::protocol::{self, Ask, RequestError, Response};

/// Application error code of an answer that is reset because the server has no such file.
pub(crate) const NOT_FOUND: u32 = 404;
/// Application error code of an answer that is reset because the server cannot read the file.
pub(crate) const SERVER_ERROR: u32 = 500;

/// The client's side.
#[derive(Clone)]
pub(crate) struct Client {
    connection: Connection,
}

impl Client {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { connection }
    }
}

impl protocol::Client for Client {
    type Body = RecvStream;

    async fn ask(&self, ask: &Ask) -> Result<Response<RecvStream>, RequestError> {
        if ask.method != Method::GET {
            return Err(RequestError::Unsupported(
                "the server speaks HTTP/0.9 only, which has no method but GET",
            ));
        }
        let (mut send, body) = self.connection.open_bi().await?;
        let target = ask
            .url
            .path_and_query()
            .map_or("/", |target| target.as_str());
        let request = format!("GET {target}\r\n");
        match send.write_chunk(request.into()).await {
            // The server may answer without reading to the end of the request.
            Ok(()) | Err(WriteError::Stopped(_)) => {}
            Err(WriteError::ConnectionLost(error)) => return Err(error.into()),
            Err(_) => return Err(RequestError::Cancelled),
        }
        // A stream that was stopped meanwhile counts as finished.
        let _ = send.finish();
        Ok(Response {
            start: 0,
            end: None,
            length: None,
            stamp: None,
            status: StatusCode::OK,
            fields: HeaderMap::new(),
            body,
        })
    }
}

impl protocol::Body for RecvStream {
    async fn read(&mut self, chunks: &mut [Bytes]) -> Result<Option<usize>, RequestError> {
        self.read_chunks(chunks).await.map_err(|error| match error {
            ReadError::Reset(code) => match u32::try_from(code.into_inner()) {
                Ok(NOT_FOUND) => RequestError::NotFound,
                Ok(SERVER_ERROR) => RequestError::ServerFailed,
                _ => RequestError::Refused(code.into_inner()),
            },
            ReadError::ConnectionLost(error) => error.into(),
            _ => RequestError::Cancelled,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Alpn;
    use crate::serve::limits::Limits;
    use crate::testing::{Anything, Served, soon};

    /// A client sends GET requests only, and learns the reason for a missing file.
    #[tokio::test]
    async fn the_codes_of_resets_say_what_went_wrong() {
        use protocol::Client as _;

        let gone = Anything::new(400_000).that_became(0);
        let served = Served::start(gone, Limits::default(), Alpn::HqInterop);
        let connection = served.connect(1 << 20).await;
        let client = Client::new(connection);
        let mut ask = Ask::get(&"https://host/file".parse().unwrap());
        let answer = client.ask(&ask).await.unwrap();
        assert_eq!((answer.start, answer.length), (0, None));
        let mut body = answer.body;
        let mut pieces = [Bytes::new()];
        let read = protocol::Body::read(&mut body, &mut pieces);
        let failed = soon(read).await.unwrap_err();
        let told = "the server could not read the file to its end; the file may have changed there";
        assert_eq!(failed.to_string(), told);
        ask.method = Method::HEAD;
        let refused = client.ask(&ask).await.err().unwrap();
        let told = "the server speaks HTTP/0.9 only, which has no method but GET";
        assert_eq!(refused.to_string(), told);
    }
}
