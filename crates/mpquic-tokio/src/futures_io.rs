//! The traits of the crate `futures-io`, for code without a runtime. The traits behave like the
//! traits of tokio.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_io::{AsyncRead, AsyncWrite};
use tokio::io::ReadBuf;

use crate::recv_stream::RecvStream;
use crate::send_stream::SendStream;

impl AsyncRead for RecvStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buf = ReadBuf::new(buf);
        ready!(tokio::io::AsyncRead::poll_read(self, cx, &mut buf))?;
        Poll::Ready(Ok(buf.filled().len()))
    }
}

impl AsyncWrite for SendStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        tokio::io::AsyncWrite::poll_write(self, cx, data)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        tokio::io::AsyncWrite::poll_flush(self, cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        tokio::io::AsyncWrite::poll_shutdown(self, cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::testing::{Error, Pair, TestResult};

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_written_closed_and_read_to_its_end() -> TestResult {
        let pair = Pair::with_paths(1)?;
        let (a, b) = pair.connect().await?;
        let mut send = a.open_uni().await?;
        let write = async {
            let written = poll_fn(|cx| AsyncWrite::poll_write(Pin::new(&mut send), cx, b"hello"));
            assert_eq!(written.await?, 5);
            poll_fn(|cx| AsyncWrite::poll_flush(Pin::new(&mut send), cx)).await?;
            poll_fn(|cx| AsyncWrite::poll_close(Pin::new(&mut send), cx)).await?;
            Ok::<_, Error>(())
        };
        let read = async {
            let mut receive = b.accept_uni().await?;
            let (mut all, mut buffer) = (Vec::new(), [0; 3]);
            loop {
                let stream = Pin::new(&mut receive);
                let mut stream = stream;
                let read = poll_fn(|cx| AsyncRead::poll_read(stream.as_mut(), cx, &mut buffer));
                match read.await? {
                    0 => return Ok(all),
                    length => all.extend_from_slice(&buffer[..length]),
                }
            }
        };
        let ((), all) = tokio::try_join!(write, read)?;
        assert_eq!(all, b"hello");
        Ok(())
    }
}
