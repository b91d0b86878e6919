//! The server of every workload.

use bytes::{BufMut, Bytes, BytesMut};

use crate::options::DATAGRAM_SIZE;
use crate::request::{DATAGRAMS, Request, pieces};
use crate::{Connection, ReceiveStream, Result, SendStream, Stack};

/// Pieces read at a time.
const PIECES: usize = 64;

/// Serves until the process is ended.
pub(crate) async fn serve<S: Stack>(mut stack: S) -> Result<()> {
    loop {
        let incoming = stack.accept().await?;
        tokio::spawn(async move {
            if let Ok(connection) = incoming.await {
                serve_connection(connection).await;
            }
        });
    }
}

async fn serve_connection<C: Connection>(connection: C) {
    while let Ok((send, receive)) = connection.accept().await {
        let connection = connection.clone();
        // Fails when the client ends the connection, which no client does too early. The future is
        // boxed, because it is large over HTTP/3, and would be moved several times on its way to
        // its task.
        tokio::spawn(Box::pin(answer(connection, send, receive)));
    }
}

async fn answer<C: Connection>(
    connection: C,
    mut send: C::Send,
    mut receive: C::Receive,
) -> Result<()> {
    let mut request = Request::default();
    let mut buffer = [const { Bytes::new() }; PIECES];
    while let Some(count) = receive.read(&mut buffer).await? {
        for piece in &mut buffer[..count] {
            request.receive(&std::mem::take(piece));
        }
    }
    match request.wanted().ok_or("a stream without a request")? {
        DATAGRAMS => send_datagrams(&connection).await,
        wanted => {
            for piece in pieces(wanted) {
                send.write(piece).await?;
            }
            send.finish().await
        }
    }
}

/// Sends numbered DATAGRAM frames until the connection ends.
async fn send_datagrams<C: Connection>(connection: &C) -> Result<()> {
    let mut number = 0;
    loop {
        let mut data = BytesMut::with_capacity(DATAGRAM_SIZE);
        data.put_u64(number);
        data.put_bytes(0x5a, DATAGRAM_SIZE - 8);
        connection.send_datagram(data.freeze()).await?;
        number += 1;
    }
}
