//! The server of every workload.

use std::time::Instant;

use bytes::Bytes;
use rustc_hash::{FxHashMap, FxHashSet};

use super::stream::Outgoing;
use super::{Application, Link};
use crate::Result;
use crate::options::DATAGRAM_SIZE;
use crate::request::{DATAGRAMS, Request};

/// Bytes read at a time.
const BUFFER: usize = 1 << 20;

/// Answers requests.
#[derive(Debug)]
pub struct Server {
    requests: FxHashMap<(u64, u64), Request>,
    answers: FxHashMap<(u64, u64), Outgoing>,
    /// Connections that want DATAGRAM frames, with the number of the next frame.
    datagrams: FxHashMap<u64, u64>,
    /// Connections with streams.
    used: FxHashSet<u64>,
    buffer: Vec<u8>,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            requests: FxHashMap::default(),
            answers: FxHashMap::default(),
            datagrams: FxHashMap::default(),
            used: FxHashSet::default(),
            buffer: vec![0; BUFFER],
        }
    }
}

impl Server {
    /// Reads the received bytes of a request; at its end, returns the number in the request.
    fn read(&mut self, key: (u64, u64), link: &mut dyn Link) -> Result<Option<u64>> {
        let request = self.requests.entry(key).or_default();
        while let Some((count, end)) = link.read(key.1, &mut self.buffer)? {
            request.receive(&self.buffer[..count]);
            if end {
                let wanted = request.wanted().ok_or("a stream without a request")?;
                self.requests.remove(&key);
                return Ok(Some(wanted));
            }
        }
        Ok(None)
    }

    fn answer(&mut self, key: (u64, u64), link: &mut dyn Link) -> Result<()> {
        if let Some(answer) = self.answers.get_mut(&key)
            && answer.write(link, key.1)?
        {
            self.answers.remove(&key);
        }
        Ok(())
    }
}

impl Application for Server {
    fn established(&mut self, _: u64, _: &mut dyn Link) -> Result<()> {
        Ok(())
    }

    fn readable(&mut self, connection: u64, link: &mut dyn Link, stream: u64) -> Result<()> {
        self.used.insert(connection);
        let key = (connection, stream);
        match self.read(key, link)? {
            Some(DATAGRAMS) => {
                self.datagrams.insert(connection, 0);
                self.datagrams(connection, link)
            }
            Some(wanted) => {
                self.answers
                    .insert(key, Outgoing::new(Bytes::new(), wanted));
                self.answer(key, link)
            }
            None => Ok(()),
        }
    }

    fn writable(&mut self, connection: u64, link: &mut dyn Link, stream: u64) -> Result<()> {
        self.answer((connection, stream), link)
    }

    fn datagrams(&mut self, connection: u64, link: &mut dyn Link) -> Result<()> {
        let Some(number) = self.datagrams.get_mut(&connection) else {
            return Ok(());
        };
        let mut data = [0x5a; DATAGRAM_SIZE];
        loop {
            data[..8].copy_from_slice(&number.to_be_bytes());
            if !link.send_datagram(&data)? {
                return Ok(());
            }
            *number += 1;
        }
    }

    fn closed(&mut self, connection: u64) {
        self.datagrams.remove(&connection);
        // Only few connections end with open streams.
        if self.used.remove(&connection) {
            self.requests.retain(|key, _| key.0 != connection);
            self.answers.retain(|key, _| key.0 != connection);
        }
    }

    fn connect(&mut self) -> bool {
        false
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn is_done(&mut self) -> Result<bool> {
        Ok(false)
    }
}
