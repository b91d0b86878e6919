//! The application protocol. On each stream the client sends eight bytes that say how many bytes it
//! wants, then any number of bytes, and ends the stream. The server reads to the end and answers
//! with as many bytes.

use std::sync::OnceLock;

use bytes::{BufMut, Bytes, BytesMut};

/// What is written at a time.
const PIECE: usize = 1 << 20;
/// The answer wanted is DATAGRAM frames until the connection ends.
pub const DATAGRAMS: u64 = u64::MAX;

/// Pieces of the same memory, `bytes` in all.
pub fn pieces(bytes: u64) -> impl Iterator<Item = Bytes> + Send {
    static MEMORY: OnceLock<Bytes> = OnceLock::new();
    let piece = MEMORY.get_or_init(|| vec![0x5a; PIECE].into()).clone();
    (0..bytes.div_ceil(PIECE as u64)).map(move |index| {
        let rest = bytes - index * PIECE as u64;
        piece.slice(..rest.min(PIECE as u64) as usize)
    })
}

/// The first piece of a request: the number, and `rest` bytes more.
pub fn request(wanted: u64, rest: usize) -> Bytes {
    let mut request = BytesMut::with_capacity(8 + rest);
    request.put_u64(wanted);
    request.put_bytes(0x5a, rest);
    request.freeze()
}

/// A request being received.
#[derive(Debug, Default)]
pub struct Request {
    number: [u8; 8],
    received: u64,
}

impl Request {
    /// Takes the next bytes.
    pub fn receive(&mut self, data: &[u8]) {
        let have = self.received.min(8) as usize;
        let count = data.len().min(8 - have);
        self.number[have..have + count].copy_from_slice(&data[..count]);
        self.received += data.len() as u64;
    }

    /// How many bytes are wanted, once it is known.
    pub fn wanted(&self) -> Option<u64> {
        (self.received >= 8).then(|| u64::from_be_bytes(self.number))
    }
}
