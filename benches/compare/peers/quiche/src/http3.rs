//! HTTP/3 on a connection: a stream is a POST request and its answer, and what the application
//! reads and writes their bodies.

use std::collections::VecDeque;

use bytes::Bytes;
use compare_peer::Result;
use quiche::Connection;
use quiche::h3::{self, Config, Error, Event, Header};
use rustc_hash::FxHashSet;

use crate::link::{Buffer, Buffers};

pub(crate) struct Http3 {
    session: h3::Connection,
    /// The next stream that we open, and the streams whose fields wait for room.
    next: u64,
    waiting: VecDeque<u64>,
    /// Completely received streams of which the application was not told yet.
    ended: FxHashSet<u64>,
    /// Streams whose fields we have sent.
    begun: FxHashSet<u64>,
}

impl Http3 {
    pub(crate) fn new(connection: &mut Connection<Buffers>) -> Result<Self> {
        Ok(Self {
            session: h3::Connection::with_transport(connection, &Config::new()?)?,
            next: 0,
            waiting: VecDeque::new(),
            ended: FxHashSet::default(),
            begun: FxHashSet::default(),
        })
    }

    /// The next stream with a body to read, or its end.
    pub(crate) fn readable(&mut self, connection: &mut Connection<Buffers>) -> Result<Option<u64>> {
        loop {
            match self.session.poll(connection) {
                Ok((stream, Event::Data)) => return Ok(Some(stream)),
                Ok((stream, Event::Finished)) => {
                    self.ended.insert(stream);
                    return Ok(Some(stream));
                }
                Ok(_) => {}
                Err(Error::Done) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The next stream that takes data again.
    pub(crate) fn writable(&mut self, connection: &mut Connection<Buffers>) -> Result<Option<u64>> {
        match self.ask(connection)? {
            Some(stream) => Ok(Some(stream)),
            None => Ok(connection.stream_writable_next()),
        }
    }

    pub(crate) fn open(&mut self, connection: &mut Connection<Buffers>) -> Result<u64> {
        let stream = self.next;
        self.next += 4;
        self.waiting.push_back(stream);
        if self.waiting.len() == 1 {
            self.ask(connection)?;
        }
        Ok(stream)
    }

    /// Sends the fields of the first waiting request; returns its stream if there was room.
    fn ask(&mut self, connection: &mut Connection<Buffers>) -> Result<Option<u64>> {
        if self.waiting.is_empty() {
            return Ok(None);
        }
        let fields = [
            Header::new(b":method", b"POST"),
            Header::new(b":scheme", b"https"),
            Header::new(b":authority", b"localhost"),
            Header::new(b":path", b"/"),
        ];
        match self.session.send_request(connection, &fields, false) {
            Ok(stream) => {
                self.waiting.pop_front();
                self.begun.insert(stream);
                Ok(Some(stream))
            }
            Err(Error::StreamBlocked) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn read(
        &mut self,
        connection: &mut Connection<Buffers>,
        stream: u64,
        buffer: &mut [u8],
    ) -> Result<Option<(usize, bool)>> {
        match self.session.recv_body(connection, stream, buffer) {
            Ok(read) => Ok(Some((read, false))),
            Err(Error::Done) => Ok(self.ended.remove(&stream).then_some((0, true))),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn write(
        &mut self,
        connection: &mut Connection<Buffers>,
        stream: u64,
        data: Bytes,
        end: bool,
    ) -> Result<usize> {
        if self.waiting.contains(&stream) {
            return Ok(0);
        }
        if !self.begun.contains(&stream) {
            let fields = [Header::new(b":status", b"200")];
            match self
                .session
                .send_response(connection, stream, &fields, false)
            {
                Ok(()) => self.begun.insert(stream),
                Err(Error::Done | Error::StreamBlocked) => return Ok(0),
                Err(error) => return Err(error.into()),
            };
        }
        let length = data.len();
        match self
            .session
            .send_body_zc(connection, stream, &mut Buffer(data), end)
        {
            Ok(taken) => {
                if end && taken == length {
                    self.begun.remove(&stream);
                }
                Ok(taken)
            }
            Err(Error::Done | Error::StreamBlocked) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}
