//! The two halves of a request's stream, on a client or a server.

use bytes::{Buf, Bytes};
use futures_util::FutureExt;
use mpquic_h3::h3::error::{Code, StreamError};
use mpquic_h3::h3::{client, server};
use mpquic_h3::{RecvStream, SendStream};

/// The sending half of a request's stream.
pub(crate) trait Outgoing: Send {
    /// Sends a piece; waits until the connection has taken it.
    fn send(&mut self, piece: Bytes) -> impl Future<Output = Result<(), StreamError>> + Send;
    /// Ends the stream in order.
    fn finish(&mut self) -> impl Future<Output = Result<(), StreamError>> + Send;
    /// Resets the stream.
    fn reset(&mut self, code: Code);
}

/// The receiving half of a request's stream.
pub(crate) trait Incoming: Send {
    /// The next piece; `None` at the end.
    fn recv(&mut self) -> impl Future<Output = Result<Option<Bytes>, StreamError>> + Send;
    /// Asks the peer to stop sending.
    fn stop(&mut self, code: Code);
}

/// Ends a flow: ends its stream, or resets the stream after an error.
pub(crate) async fn end(ended: Result<(), Code>, mut send: impl Outgoing, mut recv: impl Incoming) {
    match ended {
        Ok(()) => drop(send.finish().await),
        Err(code) => send.reset(code),
    }
    recv.stop(Code::H3_NO_ERROR);
}

macro_rules! halves {
    ($side:ident) => {
        impl Outgoing for $side::RequestStream<SendStream<Bytes>, Bytes> {
            async fn send(&mut self, piece: Bytes) -> Result<(), StreamError> {
                self.send_data(piece).await
            }

            async fn finish(&mut self) -> Result<(), StreamError> {
                $side::RequestStream::finish(self).await
            }

            fn reset(&mut self, code: Code) {
                self.stop_stream(code);
            }
        }

        impl Incoming for $side::RequestStream<RecvStream, Bytes> {
            async fn recv(&mut self) -> Result<Option<Bytes>, StreamError> {
                let data = self.recv_data().await?;
                // The data is `Bytes` inside, so this makes no copy.
                Ok(data.map(|mut data| data.copy_to_bytes(data.remaining())))
            }

            fn stop(&mut self, code: Code) {
                self.stop_sending(code);
            }
        }
    };
}

halves!(client);
halves!(server);

/// Reads all available data together.
pub(crate) struct Gathered<R> {
    pub(crate) recv: R,
    /// The end of the stream, seen after the last returned piece.
    end: Option<Result<(), StreamError>>,
}

impl<R: Incoming> Gathered<R> {
    pub(crate) fn new(recv: R) -> Self {
        Self { recv, end: None }
    }

    /// Adds available pieces, at most `most`, to `pieces`, which is empty. Adds none at the end.
    pub(crate) async fn read(
        &mut self,
        pieces: &mut Vec<Bytes>,
        most: usize,
    ) -> Result<(), StreamError> {
        if let Some(end) = self.end.take() {
            return end;
        }
        let Some(first) = self.recv.recv().await? else {
            return Ok(());
        };
        pieces.push(first);
        while pieces.len() < most {
            match self.recv.recv().now_or_never() {
                Some(Ok(Some(piece))) => pieces.push(piece),
                Some(end) => {
                    self.end = Some(end.map(|_| ()));
                    break;
                }
                None => break,
            }
        }
        Ok(())
    }
}
