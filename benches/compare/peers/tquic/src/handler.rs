//! The callbacks of tquic: for events of a connection, and for packets to send.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use compare_peer::Options;
use compare_peer::event::{Application, Link, Train, Udp};
use compare_peer::{Failure, Result};
use tquic::{Connection, Error, PacketInfo, PacketSendHandler, TransportHandler};

/// The state that callbacks and the loop share.
pub(crate) struct Shared {
    pub(crate) application: Box<dyn Application>,
    /// The last session that a server gave.
    pub(crate) session: Option<Vec<u8>>,
    failure: Option<Failure>,
}

impl Shared {
    pub(crate) fn new(application: Box<dyn Application>) -> Self {
        Self {
            application,
            session: None,
            failure: None,
        }
    }

    /// The first error of a callback.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }
}

/// Tells the application about events.
pub(crate) struct Handler(pub(crate) Rc<RefCell<Shared>>);

impl Handler {
    fn tell(
        &self,
        connection: &mut Connection,
        tell: impl FnOnce(&mut dyn Application, u64, &mut dyn Link) -> Result<()>,
    ) {
        let Some(key) = connection.index() else {
            return;
        };
        let shared = &mut *self.0.borrow_mut();
        let told = tell(&mut *shared.application, key, &mut Peer(connection));
        if let Err(failure) = told {
            shared.failure.get_or_insert(failure);
        }
    }
}

impl TransportHandler for Handler {
    fn on_conn_created(&mut self, _: &mut Connection) {}

    fn on_conn_established(&mut self, connection: &mut Connection) {
        self.tell(connection, |application, key, link| {
            application.established(key, link)
        });
    }

    fn on_conn_closed(&mut self, connection: &mut Connection) {
        self.tell(connection, |application, key, _| {
            application.closed(key);
            Ok(())
        });
    }

    fn on_stream_created(&mut self, _: &mut Connection, _: u64) {}

    fn on_stream_readable(&mut self, connection: &mut Connection, stream: u64) {
        if !connection.is_server()
            && let Some(session) = connection.session()
        {
            let session = session.to_vec();
            self.0.borrow_mut().session = Some(session);
        }
        self.tell(connection, |application, key, link| {
            application.readable(key, link, stream)
        });
    }

    fn on_stream_writable(&mut self, connection: &mut Connection, stream: u64) {
        self.tell(connection, |application, key, link| {
            application.writable(key, link, stream)
        });
    }

    fn on_stream_closed(&mut self, _: &mut Connection, _: u64) {}

    fn on_new_token(&mut self, _: &mut Connection, _: Vec<u8>) {}
}

/// A connection as the application sees it.
struct Peer<'a>(&'a mut Connection);

impl Link for Peer<'_> {
    fn resumed(&self) -> bool {
        self.0.is_resumed()
    }

    fn open(&mut self) -> Result<u64> {
        Ok(self.0.stream_bidi_new(127, true)?)
    }

    fn read(&mut self, stream: u64, buffer: &mut [u8]) -> Result<Option<(usize, bool)>> {
        match self.0.stream_read(stream, buffer) {
            Ok(read) => Ok(Some(read)),
            Err(Error::Done) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn write(&mut self, stream: u64, data: Bytes, end: bool) -> Result<usize> {
        let length = data.len();
        let taken = match self.0.stream_write(stream, data, end) {
            Ok(taken) => taken,
            Err(Error::Done) => 0,
            Err(error) => return Err(error.into()),
        };
        // Fails only for a stream that has ended.
        let _ = self.0.stream_want_write(stream, taken < length);
        Ok(taken)
    }

    fn send_datagram(&mut self, _: &[u8]) -> Result<bool> {
        Err("no DATAGRAM frames".into())
    }

    fn receive_datagram(&mut self, _: &mut [u8]) -> Result<Option<usize>> {
        Err("no DATAGRAM frames".into())
    }

    fn close(&mut self) {
        // Fails only if the connection is closed.
        let _ = self.0.close(true, 0, b"");
    }
}

/// Sends packets in trains.
pub(crate) struct Sender {
    udp: Rc<RefCell<Udp>>,
    train: RefCell<Train>,
}

impl Sender {
    pub(crate) fn new(udp: Rc<RefCell<Udp>>, options: &Options) -> Self {
        Self {
            udp,
            train: RefCell::new(Train::new(options)),
        }
    }
}

impl PacketSendHandler for Sender {
    fn on_packets_send(&self, packets: &[(Vec<u8>, PacketInfo)]) -> tquic::Result<usize> {
        let udp = self.udp.borrow();
        let mut train = self.train.borrow_mut();
        let mut sent = 0;
        while let Some((first, info)) = packets.get(sent) {
            train.begin();
            let mut count = 0;
            for (packet, other) in &packets[sent..] {
                let fits = packet.len() <= first.len() && other.dst == info.dst;
                if !fits || !train.has_room(first.len()) {
                    break;
                }
                train.push(packet);
                count += 1;
            }
            match udp.send(info.dst, &train) {
                Ok(true) => sent += count,
                Ok(false) => break,
                Err(error) => return Err(Error::IoError(error.to_string())),
            }
        }
        Ok(sent)
    }
}
