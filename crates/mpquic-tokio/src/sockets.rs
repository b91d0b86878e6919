//! [`Sockets`]: the sockets of an endpoint.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};

use mpquic_core::FourTuple;
use mpquic_paths::Local;

use crate::backups::Backups;
use crate::runtime::Runtime;
use crate::send_queues::SendQueues;
use crate::socket::Socket;
use crate::traffic::TrafficMeter;

/// The sockets of an endpoint, and the send queues behind them.
pub(crate) struct Sockets {
    runtime: Arc<dyn Runtime>,
    open: RwLock<Vec<Arc<Socket>>>,
    /// Removed, but needed by a connection.
    leaving: RwLock<Vec<Weak<Leaving>>>,
    /// The places from which backup paths start.
    backups: OnceLock<Backups>,
    /// Counts the bytes of all sockets, if the application wants them counted.
    meter: OnceLock<TrafficMeter>,
    /// ICMP messages about sent datagrams matter: the endpoint has connections as a client.
    watches_errors: AtomicBool,
    /// Size of the kernel buffers to request for each socket, in bytes.
    buffer_size: usize,
    send_queues: Mutex<SendQueues>,
}

/// A removed socket. The socket stays open until the drop of the `Leaving`, for connections whose
/// paths cannot leave the socket yet.
#[derive(Debug)]
pub(crate) struct Leaving(Arc<Socket>);

impl Leaving {
    /// True if `socket` is the removed socket.
    pub(crate) fn is(&self, socket: &Arc<Socket>) -> bool {
        Arc::ptr_eq(&self.0, socket)
    }
}

impl Deref for Leaving {
    type Target = Socket;
    fn deref(&self) -> &Socket {
        &self.0
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Sockets {
    /// Holds no sockets yet. Each later socket asks the kernel for buffers of `buffer_size` bytes.
    pub(crate) fn new(runtime: Arc<dyn Runtime>, buffer_size: usize) -> Self {
        Self {
            runtime,
            open: RwLock::default(),
            leaving: RwLock::default(),
            backups: OnceLock::new(),
            meter: OnceLock::new(),
            watches_errors: AtomicBool::new(false),
            buffer_size,
            send_queues: Mutex::default(),
        }
    }

    /// Names the starts of backup paths, before the first socket exists.
    pub(crate) fn set_backups(&self, backups: Backups) {
        let _ = self.backups.set(backups);
    }

    /// Counts the bytes of all sockets. Call it before the first socket exists.
    pub(crate) fn set_meter(&self, meter: TrafficMeter) {
        let _ = self.meter.set(meter);
    }

    /// Binds a socket with the settings of the other sockets. [`Self::insert`] adds the socket.
    pub(crate) fn bind(&self, local: SocketAddr, interface: Option<&str>) -> io::Result<Socket> {
        Socket::bind(&*self.runtime, local, interface, self.buffer_size)
    }

    /// Makes a socket that gets datagrams of one peer only. [`Self::insert`] adds the socket.
    pub(crate) fn connect(&self, tuple: FourTuple) -> io::Result<Socket> {
        Socket::connected(&*self.runtime, tuple, self.buffer_size)
    }

    /// Wraps a socket that the application has bound. [`Self::insert`] adds the socket.
    pub(crate) fn adopt(&self, socket: std::net::UdpSocket) -> io::Result<Socket> {
        Socket::adopt(&*self.runtime, socket, self.buffer_size)
    }

    pub(crate) fn insert(&self, socket: Arc<Socket>) {
        let backups = self.backups.get();
        socket.set_backup(backups.is_some_and(|backups| backups.contains(&socket)));
        if let Some(meter) = self.meter.get() {
            socket.count(meter);
        }
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        if self.watches_errors.load(Ordering::Relaxed) {
            socket.watch_errors();
        }
        open.push(socket);
    }

    /// Makes all sockets, current and future, report ICMP messages. A server without connections as
    /// a client does not ask for reports: its clients come to the server, and each message costs a
    /// search.
    pub(crate) fn watch_errors(&self) {
        if !self.watches_errors.load(Ordering::Relaxed) {
            let open = self.open.write().unwrap_or_else(PoisonError::into_inner);
            self.watches_errors.store(true, Ordering::Relaxed);
            open.iter().for_each(|socket| socket.watch_errors());
        }
    }

    /// All sockets in the order of binding, backups last.
    pub(crate) fn all(&self) -> Vec<Arc<Socket>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let mut all = open.clone();
        all.sort_by_key(|socket| socket.is_backup());
        all
    }

    /// The path manager's view of all sockets.
    pub(crate) fn places(&self) -> Arc<[Local]> {
        self.all().iter().map(|socket| socket.place()).collect()
    }

    /// The addresses of all sockets, in the order of binding.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.iter().map(|socket| socket.local()).collect()
    }

    /// The socket that sends datagrams from `local`.
    pub(crate) fn owner(&self, local: SocketAddr) -> Option<Arc<Socket>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let exact = open.iter().find(|socket| socket.local() == local);
        exact
            .or_else(|| open.iter().find(|socket| socket.owns(local)))
            .cloned()
    }

    /// True if paths from this address are backup paths.
    pub(crate) fn is_backup(&self, local: SocketAddr) -> bool {
        self.owner(local).is_some_and(|socket| socket.is_backup())
    }

    /// The address of the first socket with this IP.
    pub(crate) fn with_ip(&self, ip: IpAddr) -> Option<SocketAddr> {
        let mut addresses = self.addresses().into_iter();
        addresses.find(|local| local.ip() == ip)
    }

    /// Removes and returns the sockets for which `matches` is true. Each socket closes with its
    /// last owner.
    pub(crate) fn remove(&self, matches: impl Fn(&Socket) -> bool) -> Vec<Arc<Leaving>> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let removed = open.extract_if(.., |socket| matches(socket));
        let removed: Vec<_> = removed.map(|socket| Arc::new(Leaving(socket))).collect();
        drop(open);
        let leaving = &self.leaving;
        let mut leaving = leaving.write().unwrap_or_else(PoisonError::into_inner);
        leaving.retain(|socket| socket.strong_count() > 0);
        leaving.extend(removed.iter().map(Arc::downgrade));
        removed
    }

    /// The removed sockets that connections still use.
    pub(crate) fn leaving(&self) -> Vec<Arc<Leaving>> {
        let leaving = self.leaving.read().unwrap_or_else(PoisonError::into_inner);
        leaving.iter().filter_map(Weak::upgrade).collect()
    }

    /// The socket for a path that begins at `local`; a removed socket if no open socket has the
    /// address.
    pub(crate) fn sender(&self, local: SocketAddr) -> Option<Arc<Socket>> {
        self.owner(local).or_else(|| {
            let mut leaving = self.leaving().into_iter();
            let found = leaving.find(|socket| socket.owns(local));
            found.map(|socket| socket.0.clone())
        })
    }

    /// The send queues behind the sockets. To lock both, lock the connection first.
    pub(crate) fn send_queues(&self) -> MutexGuard<'_, SendQueues> {
        self.send_queues
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
