//! [`WorkerSocket`]: the socket of a worker. Several such sockets share an address, and each
//! belongs to a worker.
//!
//! The last byte of a connection ID names the worker of the connection. On Linux the kernel picks
//! the socket by this byte. If a datagram still reaches the socket of another worker, or on other
//! systems, the receiving worker hands the datagram over.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut, Read};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quinn_udp::RecvMeta;
use tokio::sync::Notify;

use crate::kernel_socket::KernelSocket;

/// Bytes that may wait for a worker, including the record of each datagram. Further datagrams are
/// lost, as in a socket's buffer.
const MAX_WAITING: usize = 8 << 20;
/// Set in the first byte of packets with a long header (RFC 8999 section 5.1).
const LONG: u8 = 0x80;
/// The place of a length in a long header: the length of the destination connection ID, which
/// follows.
const LENGTH_AT: usize = 5;

/// The worker of the connection with this connection ID, among `workers` workers.
pub(crate) fn worker_of(connection_id: &[u8], workers: usize) -> Option<usize> {
    let last = connection_id.last()?;
    usize::from(*last).checked_rem(workers)
}

/// The state that the sockets of one address share.
#[derive(Debug)]
pub(crate) struct Group {
    /// Bytes of our connection IDs.
    id_length: usize,
    /// Datagrams that other workers received, for each worker.
    waiting: Vec<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    datagrams: Mutex<Datagrams>,
    /// True if datagrams wait. Without a datagram, the worker need not take the lock.
    any: AtomicBool,
    /// True if the worker is gone.
    is_gone: AtomicBool,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Datagrams {
    meta: VecDeque<RecvMeta>,
    /// Contents of the datagrams in a row.
    contents: VecDeque<u8>,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Datagrams> {
        let datagrams = self.datagrams.lock();
        datagrams.unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds datagrams of one sender, as far as the bound allows.
    fn push<'a>(&self, meta: &RecvMeta, datagrams: impl Iterator<Item = &'a [u8]>) {
        let mut datagrams = datagrams.peekable();
        if datagrams.peek().is_none() {
            return;
        }
        let mut waiting = self.lock();
        if self.is_gone.load(Ordering::Acquire) {
            return;
        }
        let before = waiting.meta.len();
        for datagram in datagrams {
            let bytes = waiting.contents.len() + datagram.len();
            let metas = waiting.meta.len() + 1;
            if bytes + metas * size_of::<RecvMeta>() > MAX_WAITING {
                break;
            }
            waiting.contents.extend(datagram);
            waiting.meta.push_back(RecvMeta {
                len: datagram.len(),
                stride: datagram.len(),
                ..*meta
            });
        }
        if waiting.meta.len() > before {
            self.any.store(true, Ordering::Release);
            drop(waiting);
            self.arrived.notify_one();
        }
    }

    /// Fills buffers as a socket would, and returns the number of filled buffers.
    fn take(&self, buffers: &mut [IoSliceMut<'_>], meta: &mut [RecvMeta]) -> usize {
        if !self.any.load(Ordering::Acquire) {
            return 0;
        }
        let mut waiting = self.lock();
        let mut count = 0;
        for (buffer, slot) in buffers.iter_mut().zip(meta) {
            let Some(next) = waiting.meta.pop_front() else {
                break;
            };
            *slot = next;
            // Every buffer has room for the largest datagram.
            let length = next.len.min(buffer.len());
            // `read` would stop at the end of the ring.
            let is_whole = waiting.contents.read_exact(&mut buffer[..length]).is_ok();
            slot.len = if is_whole { length } else { 0 };
            count += 1;
        }
        self.any.store(!waiting.meta.is_empty(), Ordering::Release);
        count
    }

    /// Drops the waiting datagrams, and accepts no more datagrams.
    fn leave(&self) {
        self.is_gone.store(true, Ordering::Release);
        *self.lock() = Datagrams::default();
    }
}

impl Group {
    /// Sockets of `workers` workers with connection IDs of length `id_length`.
    pub(crate) fn new(workers: usize, id_length: usize) -> Self {
        Self {
            id_length,
            waiting: (0..workers).map(|_| Waiting::default()).collect(),
        }
    }

    /// The worker of a datagram. `None` if any worker will do, because the datagram begins a
    /// connection or its worker is gone.
    fn worker_for(&self, datagram: &[u8]) -> Option<usize> {
        let first = datagram.first()?;
        let begin = match first & LONG {
            0 => 1,
            _ if usize::from(*datagram.get(LENGTH_AT)?) == self.id_length => LENGTH_AT + 1,
            _ => return None,
        };
        let id = datagram.get(begin..begin + self.id_length)?;
        let worker = worker_of(id, self.waiting.len())?;
        let is_gone = self.waiting[worker].is_gone.load(Ordering::Acquire);
        (!is_gone).then_some(worker)
    }

    /// Makes the kernel give each socket the datagrams of its worker. The sockets must be bound in
    /// the order of the workers.
    #[cfg(target_os = "linux")]
    pub(crate) fn steer(&self, one: &UdpSocket) -> io::Result<()> {
        use nix::libc::{
            BPF_A, BPF_ABS, BPF_ALU, BPF_B, BPF_JA, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD,
            BPF_MOD, BPF_RET, sock_filter, sock_fprog,
        };
        let test = |code: u32, k: u32, [jt, jf]: [u8; 2]| sock_filter {
            code: code as u16,
            jt,
            jf,
            k,
        };
        let step = |code: u32, k: u32| test(code, k, [0, 0]);
        let byte = |at: usize| step(BPF_LD | BPF_B | BPF_ABS, at as u32);
        // The program does the work of `worker_for`. A number without a socket makes the kernel
        // choose by the addresses.
        let mut program = [
            byte(0),
            test(BPF_JMP | BPF_JSET | BPF_K, LONG.into(), [2, 0]),
            byte(self.id_length),
            step(BPF_JMP | BPF_JA, 3),
            byte(LENGTH_AT),
            test(BPF_JMP | BPF_JEQ | BPF_K, self.id_length as u32, [0, 3]),
            byte(LENGTH_AT + self.id_length),
            step(BPF_ALU | BPF_MOD | BPF_K, self.waiting.len() as u32),
            step(BPF_RET | BPF_A, 0),
            step(BPF_RET | BPF_K, u32::MAX),
        ];
        let program = sock_fprog {
            len: program.len() as u16,
            filter: program.as_mut_ptr(),
        };
        let option = nix::sys::socket::sockopt::AttachReusePortCbpf;
        Ok(nix::sys::socket::setsockopt(one, option, &program)?)
    }
}

/// A worker's place in a group. After the drop, other workers keep the datagrams of this worker: a
/// datagram with a connection ID of a client's making may begin a connection.
#[derive(Debug)]
pub(crate) struct Place {
    group: Arc<Group>,
    worker: usize,
}

impl Place {
    pub(crate) fn new(group: Arc<Group>, worker: usize) -> Self {
        Self { group, worker }
    }

    fn waiting(&self) -> &Waiting {
        &self.group.waiting[self.worker]
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.waiting().leave();
    }
}

/// A socket of the kernel, and the queue of datagrams that other sockets of the address received
/// for its worker.
#[derive(Debug)]
pub(crate) struct WorkerSocket {
    pub(crate) kernel: KernelSocket,
    place: Place,
}

impl WorkerSocket {
    /// The worker's socket; `socket` is bound already.
    pub(crate) fn new(socket: UdpSocket, place: Place) -> io::Result<Self> {
        Ok(Self {
            kernel: KernelSocket::new(socket)?,
            place,
        })
    }

    /// Waits for datagrams from the kernel or from other workers.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        tokio::select! {
            readable = self.kernel.readable() => readable,
            () = self.place.waiting().arrived.notified() => Ok(()),
        }
    }

    /// Fills buffers with received datagrams and returns the number of buffers. An empty buffer
    /// held datagrams of other workers.
    pub(crate) fn receive(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> io::Result<usize> {
        let taken = self.place.waiting().take(buffers, meta);
        let (Some(buffers), Some(meta)) = (buffers.get_mut(taken..), meta.get_mut(taken..)) else {
            return Ok(taken);
        };
        if buffers.is_empty() {
            return Ok(taken);
        }
        match self.kernel.receive(buffers, meta) {
            Ok(received) => {
                for (buffer, meta) in buffers.iter().zip(meta).take(received) {
                    self.hand_over(buffer, meta);
                }
                Ok(taken + received)
            }
            Err(_) if taken > 0 => Ok(taken),
            Err(error) => Err(error),
        }
    }

    /// Moves datagrams of other workers from a buffer to their queues. A buffer with foreign
    /// datagrams goes to the queues as a whole, with this worker's own datagrams, so that each flow
    /// keeps its order.
    fn hand_over(&self, buffer: &[u8], meta: &mut RecvMeta) {
        let contents = buffer.get(..meta.len).unwrap_or_default();
        let datagrams = || contents.chunks(meta.stride.max(1));
        let Place { group, worker: own } = &self.place;
        let worker_for = |datagram: &[u8]| group.worker_for(datagram).unwrap_or(*own);
        if datagrams().all(|datagram| worker_for(datagram) == *own) {
            return;
        }
        for (worker, waiting) in group.waiting.iter().enumerate() {
            let theirs = datagrams().filter(|datagram| worker_for(datagram) == worker);
            waiting.push(meta, theirs);
        }
        meta.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::{Future, poll_fn};
    use std::task::Poll;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const WORKERS: usize = 3;
    const LENGTH: usize = 8;
    /// Far longer than any step of these tests takes.
    const PATIENCE: Duration = Duration::from_secs(10);

    /// A packet with a short header; `long` makes the first packet of a connection.
    fn short(last: u8) -> Vec<u8> {
        [&[0x40, 1, 2, 3, 4, 5, 6, 7, last][..], &[9; 30]].concat()
    }

    fn long(id: &[u8]) -> Vec<u8> {
        [&[0xc0, 0, 0, 0, 1, id.len() as u8], id, &[0; 30]].concat()
    }

    /// The sockets of the workers, in order.
    fn workers(is_steered: bool) -> io::Result<(Vec<WorkerSocket>, std::net::SocketAddr)> {
        let group = Arc::new(Group::new(WORKERS, LENGTH));
        let mut address = "127.0.0.1:0".parse().expect("an address");
        let mut sockets = Vec::new();
        for _ in 0..WORKERS {
            let socket = crate::socket::bind_shared(address, &[], 1 << 20)?;
            address = socket.local_addr()?;
            sockets.push(socket);
        }
        if is_steered {
            #[cfg(target_os = "linux")]
            group.steer(&sockets[0])?;
        }
        let workers = sockets.into_iter().enumerate();
        let workers = workers
            .map(|(worker, socket)| WorkerSocket::new(socket, Place::new(group.clone(), worker)));
        Ok((workers.collect::<io::Result<_>>()?, address))
    }

    /// The datagrams of each worker, `count` datagrams in all.
    async fn receive(sockets: &[WorkerSocket], count: usize) -> Vec<Vec<Vec<u8>>> {
        let got = RefCell::new(vec![Vec::new(); sockets.len()]);
        let total = || got.borrow().iter().map(Vec::len).sum::<usize>();
        let all = async {
            while total() < count {
                for (socket, got) in sockets.iter().zip(&mut *got.borrow_mut()) {
                    let mut memory = [0; 1 << 16];
                    let mut meta = [RecvMeta::default()];
                    match socket.receive(&mut [IoSliceMut::new(&mut memory)], &mut meta) {
                        Ok(_) => {
                            let datagrams = memory[..meta[0].len].chunks(meta[0].stride.max(1));
                            got.extend(datagrams.map(<[u8]>::to_vec));
                        }
                        Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                    }
                }
                // Any worker wakes this task.
                let mut waiting: Vec<_> =
                    sockets.iter().map(|it| Box::pin(it.readable())).collect();
                poll_fn(|cx| {
                    if waiting.iter_mut().any(|it| it.as_mut().poll(cx).is_ready()) {
                        Poll::Ready(())
                    } else {
                        Poll::Pending
                    }
                })
                .await;
            }
        };
        timeout(PATIENCE, all).await.expect("all datagrams");
        got.into_inner()
    }

    #[tokio::test]
    async fn each_worker_gets_its_own_datagrams() -> io::Result<()> {
        let (sockets, address) = workers(false)?;
        let client = UdpSocket::bind("127.0.0.1:0")?;
        // The kernel gives all datagrams of one address to one socket.
        for last in 0..12 {
            client.send_to(&short(last), address)?;
            client.send_to(&long(&[5, 5, 5, 5, 5, 5, 5, last]), address)?;
        }
        let got = receive(&sockets, 24).await;
        for (worker, got) in got.iter().enumerate() {
            let lasts: Vec<u8> = (0..12)
                .filter(|it| usize::from(*it) % WORKERS == worker)
                .collect();
            let expected = lasts
                .iter()
                .flat_map(|last| [short(*last), long(&[5, 5, 5, 5, 5, 5, 5, *last])]);
            assert_eq!(*got, expected.collect::<Vec<_>>(), "worker {worker}");
        }
        Ok(())
    }

    /// Other workers keep the datagrams of a vanished worker, and no datagram waits for the
    /// vanished worker.
    #[tokio::test]
    async fn no_datagram_waits_for_a_vanished_worker() -> io::Result<()> {
        let (mut sockets, address) = workers(false)?;
        let group = sockets[0].place.group.clone();
        let push = || group.waiting[1].push(&RecvMeta::default(), [&short(1)[..]].into_iter());
        let waiting = || group.waiting[1].lock().meta.len();
        push();
        assert_eq!(waiting(), 1);
        drop(sockets.remove(1));
        assert_eq!(waiting(), 0);
        // Another worker sees too late that worker 1 is gone.
        push();
        assert_eq!(waiting(), 0);

        let client = UdpSocket::bind("127.0.0.1:0")?;
        for last in 0..12 {
            client.send_to(&short(last), address)?;
        }
        let got = receive(&sockets, 12).await;
        let lasts = |got: &[Vec<u8>], of| {
            let lasts = got.iter().map(|it| it[LENGTH] % WORKERS as u8);
            lasts.filter(|it| *it == of).count()
        };
        assert_eq!((lasts(&got[0], 0), lasts(&got[1], 2)), (4, 4));
        assert_eq!(lasts(&got.concat(), 1), 4);
        Ok(())
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_kernel_steers() -> io::Result<()> {
        let (sockets, address) = workers(true)?;
        let client = UdpSocket::bind("127.0.0.1:0")?;
        for last in 0..12 {
            client.send_to(&short(last), address)?;
            client.send_to(&long(&[5, 5, 5, 5, 5, 5, 5, last]), address)?;
        }
        // Each worker reads only its own socket.
        for (worker, socket) in sockets.iter().enumerate() {
            let got = receive(std::slice::from_ref(socket), 8).await.concat();
            let is_own = |it: &Vec<u8>| socket.place.group.worker_for(it) == Some(worker);
            assert!(got.iter().all(is_own), "worker {worker}");
        }
        // Datagrams that begin a connection go by addresses, every datagram of one client to the
        // same socket.
        for byte in 0..12 {
            client.send_to(&long(&[byte; LENGTH + 1]), address)?;
        }
        let got = receive(&sockets, 12).await;
        assert!(
            got.iter().any(|got| got.len() == 12),
            "spread over the workers"
        );
        Ok(())
    }

    /// Only this error tells the runtime that the socket is empty.
    #[tokio::test]
    async fn empty_socket_would_block() -> io::Result<()> {
        let (sockets, _) = workers(false)?;
        let receive = || {
            let (mut memory, mut meta) = ([0; 1500], [RecvMeta::default()]);
            let received = sockets[0].receive(&mut [IoSliceMut::new(&mut memory)], &mut meta);
            received.map_err(|error| error.kind())
        };
        assert_eq!(receive(), Err(io::ErrorKind::WouldBlock));
        let waiting = sockets[0].place.waiting();
        let mut meta = RecvMeta::default();
        (meta.len, meta.stride) = (9, 9);
        waiting.push(&meta, [&[7; 9][..]].into_iter());
        assert_eq!(receive(), Ok(1));
        assert_eq!(receive(), Err(io::ErrorKind::WouldBlock));
        Ok(())
    }

    /// Datagrams keep their order, even in a queue that never runs empty, where datagrams cross the
    /// ring's end.
    #[test]
    fn waiting_datagrams_stay_whole() {
        let waiting = Waiting::default();
        let datagram = |number: usize| vec![number as u8; 1 + number * 7 % 1200];
        let push = |number| waiting.push(&RecvMeta::default(), [&datagram(number)[..]].into_iter());
        (0..5).for_each(push);
        let mut memory = [0; 1500];
        for number in 0..2000 {
            push(number + 5);
            let mut meta = [RecvMeta::default()];
            assert_eq!(
                waiting.take(&mut [IoSliceMut::new(&mut memory)], &mut meta),
                1
            );
            assert_eq!(memory[..meta[0].len], datagram(number), "{number}");
        }
    }

    /// A worker that does not read costs a limited amount of memory.
    #[test]
    fn waiting_datagrams_are_bounded() {
        let waiting = Waiting::default();
        let datagram = [0; 1000];
        let meta = RecvMeta::default();
        waiting.push(
            &meta,
            std::iter::repeat_n(&datagram[..], 2 * MAX_WAITING / 1000),
        );
        let count = waiting.lock().meta.len();
        assert_eq!(count, MAX_WAITING / (1000 + size_of::<RecvMeta>()));
        // Small datagrams cost more than their contents.
        let waiting = Waiting::default();
        waiting.push(&meta, std::iter::repeat_n(&datagram[..1], MAX_WAITING / 2));
        let count = waiting.lock().meta.len();
        assert_eq!(count, MAX_WAITING / (1 + size_of::<RecvMeta>()));
    }

    /// A worker without waiting datagrams stays undisturbed: another task may hold its lock.
    #[tokio::test]
    async fn only_workers_with_datagrams_are_locked() -> io::Result<()> {
        let (sockets, _) = workers(false)?;
        let [receiver, waiting, other] = &sockets[..] else {
            unreachable!("there are three");
        };
        let datagram = short(1);
        let mut meta = RecvMeta::default();
        (meta.len, meta.stride) = (datagram.len(), datagram.len());
        let (done, is_done) = std::sync::mpsc::channel();
        let in_time = std::thread::scope(|scope| {
            let other = other.place.waiting().lock();
            scope.spawn(move || {
                receiver.hand_over(&datagram, &mut meta);
                done.send(meta.len)
            });
            let in_time = is_done.recv_timeout(PATIENCE);
            drop(other);
            in_time
        });
        assert_eq!(in_time, Ok(0));
        assert_eq!(waiting.place.waiting().lock().meta.len(), 1);
        Ok(())
    }
}
