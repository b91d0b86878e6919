//! The client of each workload.

use std::time::Instant;

use rustc_hash::FxHashMap;

use super::stream::Outgoing;
use super::{Application, Link};
use crate::options::{
    DATAGRAM_SIZE, HANDSHAKE_CONCURRENCY, REQUEST_CONCURRENCY, REQUEST_SIZE, STREAMS,
};
use crate::report::Meter;
use crate::request::{DATAGRAMS, request};
use crate::{Options, Result, Workload};

/// Bytes read at a time.
const BUFFER: usize = 1 << 20;

/// Exchanges on one connection.
#[derive(Debug, Clone, Copy)]
struct Plan {
    exchanges: u64,
    /// At a time.
    concurrency: u64,
    /// Bytes to receive in each exchange.
    wanted: u64,
    /// Bytes to send in each exchange, after the first eight.
    rest: u64,
}

impl Plan {
    fn new(workload: Workload, options: &Options) -> Self {
        let bytes = options.bytes();
        let (exchanges, concurrency, wanted, rest) = match workload {
            Workload::Streams => (STREAMS, STREAMS, bytes / STREAMS, 0),
            Workload::Requests => {
                let (requests, rest) = (options.requests, REQUEST_SIZE - 8);
                (requests, REQUEST_CONCURRENCY, REQUEST_SIZE, rest)
            }
            Workload::Handshakes | Workload::Resumed => (1, 1, 1, 0),
            Workload::Memory => (0, 0, 0, 0),
            Workload::Datagrams => (1, 1, DATAGRAMS, 0),
            Workload::Upload => (1, 1, 0, bytes),
            Workload::Bulk | Workload::TwoPaths | Workload::FourPaths => (1, 1, bytes, 0),
        };
        Self {
            exchanges,
            concurrency,
            wanted,
            rest,
        }
    }
}

/// A stream of ours.
#[derive(Debug)]
struct Exchange {
    outgoing: Outgoing,
    received: u64,
}

/// Progress of a connection.
#[derive(Debug, Default)]
struct Progress {
    begun: u64,
    done: u64,
}

/// Does a workload.
#[derive(Debug)]
pub struct Client {
    workload: Workload,
    options: Options,
    plan: Plan,
    exchanges: FxHashMap<(u64, u64), Exchange>,
    connections: FxHashMap<u64, Progress>,
    /// Connections being made or in use.
    busy: u64,
    /// Connections whose work is done.
    finished: u64,
    warm: Option<u64>,
    datagrams: Datagrams,
    meter: Option<Meter>,
    deadline: Option<Instant>,
    done: bool,
    buffer: Vec<u8>,
}

/// DATAGRAM frames received.
#[derive(Debug, Default)]
struct Datagrams {
    received: u64,
    first: Option<u64>,
    last: u64,
}

impl Client {
    /// The client of a workload.
    pub fn new(workload: Workload, options: &Options) -> Self {
        Self {
            workload,
            options: options.clone(),
            plan: Plan::new(workload, options),
            exchanges: FxHashMap::default(),
            connections: FxHashMap::default(),
            busy: 0,
            finished: 0,
            warm: None,
            datagrams: Datagrams::default(),
            meter: None,
            deadline: None,
            done: false,
            buffer: vec![0; BUFFER],
        }
    }

    fn handshakes(&self) -> bool {
        matches!(self.workload, Workload::Handshakes | Workload::Resumed)
    }

    /// Begins exchanges while some are left, up to the number at a time.
    fn begin(&mut self, connection: u64, link: &mut dyn Link) -> Result<()> {
        let progress = self.connections.entry(connection).or_default();
        let Plan { wanted, rest, .. } = self.plan;
        while progress.begun < self.plan.exchanges
            && progress.begun - progress.done < self.plan.concurrency
        {
            progress.begun += 1;
            let stream = link.open()?;
            let mut outgoing = match rest {
                ..=REQUEST_SIZE => Outgoing::new(request(wanted, rest as usize), 0),
                _ => Outgoing::new(request(wanted, 0), rest),
            };
            outgoing.write(link, stream)?;
            let exchange = Exchange {
                outgoing,
                received: 0,
            };
            self.exchanges.insert((connection, stream), exchange);
        }
        Ok(())
    }

    /// An exchange is complete.
    fn end(&mut self, connection: u64, link: &mut dyn Link) -> Result<()> {
        let progress = self.connections.entry(connection).or_default();
        progress.done += 1;
        if progress.done < self.plan.exchanges {
            return self.begin(connection, link);
        }
        self.connections.remove(&connection);
        self.busy -= 1;
        self.finished += 1;
        if !self.handshakes() {
            self.stop(self.units(), "")?;
        }
        link.close();
        Ok(())
    }

    /// The units of the workload that a finished connection counts.
    fn units(&self) -> u64 {
        match self.workload {
            Workload::Requests => self.plan.exchanges,
            _ => self.options.bytes(),
        }
    }

    fn stop(&mut self, count: u64, remark: &str) -> Result<()> {
        self.done = true;
        self.meter.take().ok_or("not started")?.stop(count, remark)
    }

    fn start(&mut self) -> Result<()> {
        self.meter = Some(Meter::start()?);
        if self.handshakes() || self.workload == Workload::Datagrams {
            self.deadline = Some(Instant::now() + self.options.duration());
        }
        Ok(())
    }
}

impl Application for Client {
    fn established(&mut self, connection: u64, link: &mut dyn Link) -> Result<()> {
        match self.workload {
            Workload::Memory => {
                self.busy -= 1;
                self.finished += 1;
                if self.finished == self.options.connections {
                    self.meter
                        .take()
                        .ok_or("not started")?
                        .stop(self.finished, "")?;
                }
                return Ok(());
            }
            Workload::Resumed if self.warm.is_some() && !link.resumed() => {
                return Err("handshakes were full, not resumed".into());
            }
            Workload::Handshakes if link.resumed() => {
                return Err("handshakes were resumed, not full".into());
            }
            Workload::Handshakes | Workload::Resumed | Workload::Datagrams => {}
            _ => self.start()?,
        }
        self.begin(connection, link)
    }

    fn readable(&mut self, connection: u64, link: &mut dyn Link, stream: u64) -> Result<()> {
        let key = (connection, stream);
        let Some(exchange) = self.exchanges.get_mut(&key) else {
            return Ok(());
        };
        while let Some((count, end)) = link.read(stream, &mut self.buffer)? {
            exchange.received += count as u64;
            if end {
                let received = exchange.received;
                self.exchanges.remove(&key);
                if received != self.plan.wanted {
                    return Err(format!("received {received} bytes").into());
                }
                return self.end(connection, link);
            }
        }
        Ok(())
    }

    fn writable(&mut self, connection: u64, link: &mut dyn Link, stream: u64) -> Result<()> {
        if let Some(exchange) = self.exchanges.get_mut(&(connection, stream)) {
            exchange.outgoing.write(link, stream)?;
        }
        Ok(())
    }

    fn datagrams(&mut self, _: u64, link: &mut dyn Link) -> Result<()> {
        if self.workload != Workload::Datagrams {
            return Ok(());
        }
        let mut data = [0; DATAGRAM_SIZE];
        while let Some(DATAGRAM_SIZE) = link.receive_datagram(&mut data)? {
            let number = data.first_chunk().copied().map_or(0, u64::from_be_bytes);
            if self.datagrams.first.is_none() {
                self.datagrams.first = Some(number);
                self.start()?;
            } else {
                self.datagrams.received += 1;
            }
            self.datagrams.last = number;
        }
        Ok(())
    }

    fn closed(&mut self, connection: u64) {
        if self.connections.remove(&connection).is_some() {
            self.busy -= 1;
        }
    }

    fn connect(&mut self) -> bool {
        let made = self.busy + self.finished;
        let (concurrency, total) = match self.workload {
            Workload::Memory => (HANDSHAKE_CONCURRENCY, self.options.connections),
            Workload::Handshakes | Workload::Resumed => match self.warm {
                Some(_) => (HANDSHAKE_CONCURRENCY, u64::MAX),
                // One at a time at first: to warm up, and for session tickets.
                None => (1, u64::MAX),
            },
            _ => (1, 1),
        };
        let connect = !self.done && self.busy < concurrency && made < total;
        self.busy += u64::from(connect);
        connect
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn is_done(&mut self) -> Result<bool> {
        let over = self
            .deadline
            .is_some_and(|deadline| Instant::now() >= deadline);
        if self.workload == Workload::Memory && self.meter.is_none() && self.finished == 0 {
            self.start()?;
        }
        if self.handshakes() {
            if self.warm.is_none() && self.finished == 2 * HANDSHAKE_CONCURRENCY {
                self.warm = Some(self.finished);
                self.start()?;
            }
            if over && !self.done {
                self.stop(self.finished - self.warm.unwrap_or(0), "")?;
            }
        } else if over && !self.done {
            let Datagrams {
                received,
                first,
                last,
            } = self.datagrams;
            let sent = last.saturating_sub(first.unwrap_or(0)).max(1);
            let lost = 100.0 * (1.0 - received as f64 / sent as f64);
            self.stop(received, &format!("{lost:.1}% lost"))?;
        }
        Ok(self.done)
    }
}
