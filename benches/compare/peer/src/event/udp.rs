//! A socket that receives coalesced datagrams and sends trains of datagrams.

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSockRef, UdpSocketState};

use crate::{Options, Result, socket};

/// Largest UDP payload of one datagram or of a train.
const MAX_PAYLOAD: usize = 65_507;
/// Most datagrams in a train: the limit of Linux.
const MAX_SEGMENTS: usize = 64;

/// A UDP socket.
#[derive(Debug)]
pub struct Udp {
    socket: UdpSocket,
    state: UdpSocketState,
    address: SocketAddr,
    buffer: Vec<u8>,
}

impl Udp {
    /// A socket bound to an address, with the buffers of the options.
    pub fn bind(address: SocketAddr, options: &Options) -> Result<Self> {
        let socket = socket(address, options)?;
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        let address = socket.local_addr()?;
        Ok(Self {
            socket,
            state,
            address,
            buffer: vec![0; BATCH_SIZE << 16],
        })
    }

    /// The socket's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Receives one batch of coalesced datagrams, and passes each on with its sender. False without
    /// a datagram.
    pub fn receive(
        &mut self,
        mut each: impl FnMut(SocketAddr, &mut [u8]) -> Result<()>,
    ) -> Result<bool> {
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        let mut slots = self.buffer.chunks_mut(1 << 16);
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(slots.next().unwrap_or_default()));
        let socket = UdpSockRef::from(&self.socket);
        let count = match self.state.recv(socket, &mut slices, &mut metas) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        for (slice, meta) in slices.iter_mut().zip(&metas[..count]) {
            for datagram in slice[..meta.len].chunks_mut(meta.stride.max(1)) {
                each(meta.addr, datagram)?;
            }
        }
        Ok(true)
    }

    /// Sends a train. False if the socket has no room for the train.
    pub fn send(&self, to: SocketAddr, train: &Train) -> Result<bool> {
        let contents = &train.data[..train.end];
        let transmit = Transmit {
            destination: to,
            ecn: None,
            contents,
            segment_size: (contents.len() > train.size).then_some(train.size),
            src_ip: None,
        };
        match self
            .state
            .try_send(UdpSockRef::from(&self.socket), &transmit)
        {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Sleeps until a datagram arrives or the deadline has passed.
    pub fn wait(&self, deadline: Option<Instant>) -> Result<()> {
        self.sleep(PollFlags::POLLIN, deadline)
    }

    /// Sleeps until a datagram arrives or the socket has room to send.
    pub fn wait_to_send(&self) -> Result<()> {
        self.sleep(PollFlags::POLLIN | PollFlags::POLLOUT, None)
    }

    fn sleep(&self, flags: PollFlags, deadline: Option<Instant>) -> Result<()> {
        let mut sockets = [PollFd::new(self.socket.as_fd(), flags)];
        let timeout = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = timeout.map(|time| TimeSpec::from(time.min(Duration::from_secs(60))));
        match ppoll(&mut sockets, timeout, None) {
            Ok(_) => Ok(()),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }
}

/// Datagrams of equal length; the last one may be shorter. A datagram that is longer than the first
/// one waits for the next train.
#[derive(Debug)]
pub struct Train {
    /// Memory for the datagrams, never cleared.
    data: Box<[u8]>,
    /// Used bytes of the memory.
    filled: usize,
    /// Size of the first datagram.
    size: usize,
    /// Bytes of this train; the waiting datagram follows.
    end: usize,
    /// No datagram can follow.
    ended: bool,
    max_segments: usize,
}

impl Train {
    /// An empty train.
    pub fn new(options: &Options) -> Self {
        Self {
            data: vec![0; 2 * MAX_PAYLOAD].into(),
            filled: 0,
            size: 0,
            end: 0,
            ended: false,
            max_segments: options.train.min(MAX_SEGMENTS),
        }
    }

    /// True without a datagram in the train.
    pub fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// Begins a train, with the waiting datagram, if any. True with a waiting datagram.
    pub fn begin(&mut self) -> bool {
        self.data.copy_within(self.end..self.filled, 0);
        self.filled -= self.end;
        self.size = self.filled;
        self.end = self.filled;
        self.ended = false;
        self.size > 0
    }

    /// True if a datagram of up to `size` bytes can follow.
    pub fn has_room(&self, size: usize) -> bool {
        let few = self.end == 0 || self.end < self.max_segments * self.size;
        !self.ended && few && self.end + size <= MAX_PAYLOAD
    }

    /// Appends a datagram that `write` makes: it gets `size` bytes, and returns the number of used
    /// bytes, or `None` without a datagram.
    pub fn write(
        &mut self,
        size: usize,
        write: impl FnOnce(&mut [u8]) -> Result<Option<usize>>,
    ) -> Result<bool> {
        let room = &mut self.data[self.filled..][..size];
        let Some(length) = write(room)? else {
            return Ok(false);
        };
        self.take(length);
        Ok(true)
    }

    /// Appends a datagram.
    pub fn push(&mut self, datagram: &[u8]) {
        self.data[self.filled..][..datagram.len()].copy_from_slice(datagram);
        self.take(datagram.len());
    }

    /// Counts the next bytes as a datagram.
    fn take(&mut self, length: usize) {
        self.filled += length;
        if self.end == 0 {
            self.size = length;
        }
        if length <= self.size {
            self.end += length;
        }
        self.ended = length != self.size;
    }
}
