//! HTTP datagrams (RFC 9297): the traits of `h3-datagram`.

use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h3::quic::{ConnectionErrorIncoming, StreamId};
use h3_datagram::datagram::EncodedDatagram;
use h3_datagram::quic_traits::{
    DatagramConnectionExt, RecvDatagram, SendDatagram, SendDatagramErrorIncoming,
};
use mpquic_tokio::{DatagramOptions, SendDatagramError};

use crate::connection::Connection;
use crate::error;
use crate::varint::{put_varint, varint_size};

/// Sends the datagrams of `h3-datagram`. A datagram without room in the send buffer is dropped, as
/// the network might drop it.
#[derive(Debug)]
pub struct SendDatagrams(mpquic_tokio::Connection);

/// Receives the datagrams of a connection.
#[derive(Debug)]
pub struct RecvDatagrams(mpquic_tokio::Connection);

/// Sends the datagrams of one request.
///
/// Use this instead of the sender of `h3-datagram` 0.0.2 for all requests but the first one of a
/// connection: that one writes the number of the first request into every datagram.
#[derive(Debug, Clone)]
pub struct DatagramSender {
    connection: mpquic_tokio::Connection,
    quarter_stream_id: u64,
}

impl DatagramSender {
    /// For the request with this stream ID, on a connection that was given to `h3` as well.
    pub fn new(connection: &mpquic_tokio::Connection, stream_id: StreamId) -> Self {
        Self {
            connection: connection.clone(),
            // RFC 9297 section 2.1
            quarter_stream_id: stream_id.into_inner() / 4,
        }
    }

    /// Sends a datagram, unreliably and unordered, at most [`Self::max_size`] bytes. It is copied,
    /// behind the number of the request.
    ///
    /// # Errors
    ///
    /// If the peer accepts no datagrams, this one is too large, the send buffer is full, or the
    /// connection ended.
    pub fn send(&self, payload: &[u8]) -> Result<(), SendDatagramError> {
        self.send_with(payload, DatagramOptions::default())
    }

    /// Like [`Self::send`], on a certain path, on two paths, or with a deadline. Without a
    /// [`DatagramOptions::flow`], the request is the flow: waiting requests take turns.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::send`], and an error for a closed path.
    pub fn send_with(
        &self,
        payload: &[u8],
        options: DatagramOptions,
    ) -> Result<(), SendDatagramError> {
        let size = varint_size(self.quarter_stream_id);
        let mut datagram = BytesMut::with_capacity(size + payload.len());
        put_varint(&mut datagram, self.quarter_stream_id);
        datagram.put_slice(payload);
        let mut options = options;
        options.flow.get_or_insert(self.quarter_stream_id);
        self.connection
            .send_datagram_with(datagram.freeze(), options)
    }

    /// Waiting bytes of the request, with 64 bytes more for each payload; and the number of waiting
    /// flows of the connection, the request included.
    pub fn waiting(&self) -> (usize, usize) {
        let flow = Some(self.quarter_stream_id);
        self.connection.datagram_flow_share(flow)
    }

    /// Largest payload that can be sent now, in bytes; `None` if the peer accepts no datagrams.
    pub fn max_size(&self) -> Option<usize> {
        self.connection
            .max_datagram_size()?
            .checked_sub(varint_size(self.quarter_stream_id))
    }
}

impl<B: Buf> DatagramConnectionExt<B> for Connection {
    type SendDatagramHandler = SendDatagrams;
    type RecvDatagramHandler = RecvDatagrams;

    fn send_datagram_handler(&self) -> SendDatagrams {
        SendDatagrams(self.handle().clone())
    }

    fn recv_datagram_handler(&self) -> RecvDatagrams {
        RecvDatagrams(self.handle().clone())
    }
}

impl<B: Buf> SendDatagram<B> for SendDatagrams {
    fn send_datagram<T: Into<EncodedDatagram<B>>>(
        &mut self,
        data: T,
    ) -> Result<(), SendDatagramErrorIncoming> {
        let mut data = data.into();
        let data = data.copy_to_bytes(data.remaining());
        match self.0.send_datagram(data) {
            Ok(()) | Err(SendDatagramError::Blocked) => Ok(()),
            Err(SendDatagramError::TooLarge) => Err(SendDatagramErrorIncoming::TooLarge),
            Err(SendDatagramError::ConnectionLost(lost)) => Err(
                SendDatagramErrorIncoming::ConnectionError(error::of_connection(lost)),
            ),
            Err(_) => Err(SendDatagramErrorIncoming::NotAvailable),
        }
    }
}

impl RecvDatagram for RecvDatagrams {
    type Buffer = Bytes;

    fn poll_incoming_datagram(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Bytes, ConnectionErrorIncoming>> {
        self.0.poll_read_datagram(cx).map_err(error::of_connection)
    }
}
