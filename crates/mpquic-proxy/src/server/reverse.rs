//! TCP ports of the proxy that lead to clients: the open ports, and the connections that wait for a
//! client.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use mpquic_h3::h3::error::{Code, StreamError};
use mpquic_tokio::StreamWatch;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use super::accounts::{Accounts, Counted};
use super::outwards;
use super::refusal::Refused;
use crate::capsule::Capsules;
use crate::listening::listen_tcp;
use crate::reverse::Told;
use crate::shares::Taker;
use crate::streams::{Incoming, Outgoing, end};

/// Ports of one user.
const MOST_PORTS: usize = 16;
/// Connections of one port that wait for the client. Further ones wait in the kernel.
const MOST_WAITING: usize = 64;
/// A connection gets a reset if the client has not taken the connection after this time.
const PATIENCE: Duration = Duration::from_secs(30);
/// A port without its client's connection stays open for this time: the client may come back.
const GRACE: Duration = Duration::from_secs(60);

/// The open ports of all clients.
#[derive(Debug, Default)]
pub(super) struct Ports {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    ports: BTreeMap<SocketAddr, Port>,
    waiting: BTreeMap<u64, Waiting>,
}

/// An open port.
#[derive(Debug)]
struct Port {
    owner: Taker,
    listener: Arc<TcpListener>,
    /// Counts the requests that have served the port. An older request ends.
    turn: watch::Sender<u64>,
    room: Arc<Notify>,
}

/// A connection that waits for the client.
#[derive(Debug)]
struct Waiting {
    owner: Taker,
    connection: Option<TcpStream>,
    from: SocketAddr,
    room: Arc<Notify>,
    /// `None` once the client has taken the connection.
    open: Option<Counted>,
}

impl Waiting {
    fn has_given_way(&self) -> bool {
        self.open.as_ref().is_some_and(Counted::has_given_way)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.room.notify_one();
        if let Some(connection) = &self.connection {
            let _ = connection.set_zero_linger();
        }
    }
}

/// A connection that the client has taken. Dropping this resets the connection.
#[derive(Debug)]
pub(super) struct Picked {
    pub(super) from: SocketAddr,
    connection: Option<TcpStream>,
}

impl Picked {
    pub(super) fn into_connection(mut self) -> Option<TcpStream> {
        self.connection.take()
    }
}

impl Drop for Picked {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            let _ = connection.set_zero_linger();
        }
    }
}

/// Listens at an address; on all addresses of IPv4 where the system has no IPv6.
fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let opened = listen_tcp(at, &[]);
    match opened {
        Err(error) if at.ip().is_unspecified() && error.kind() != io::ErrorKind::AddrInUse => {
            listen_tcp((Ipv4Addr::UNSPECIFIED, at.port()).into(), &[])
        }
        opened => opened,
    }
}

fn refused(error: &io::Error) -> Refused {
    match error.kind() {
        io::ErrorKind::AddrInUse => Refused::new(StatusCode::CONFLICT, "http_request_error"),
        io::ErrorKind::AddrNotAvailable => {
            Refused::new(StatusCode::UNPROCESSABLE_ENTITY, "http_request_error")
        }
        // Low ports belong to root.
        io::ErrorKind::PermissionDenied => Refused::PORT,
        _ => outwards::refused(error),
    }
}

impl Ports {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a port, or takes the port over from an earlier request of the same owner.
    ///
    /// # Errors
    ///
    /// If another owner has the port, or the owner has too many, or the system refuses.
    pub(super) fn open(
        self: &Arc<Self>,
        at: SocketAddr,
        owner: &Taker,
    ) -> Result<Serving, Refused> {
        let mut table = self.lock();
        if let Some(port) = table.ports.get(&at) {
            if port.owner != *owner {
                return Err(Refused::new(StatusCode::CONFLICT, "http_request_error"));
            }
            port.turn.send_modify(|turn| *turn += 1);
            return Ok(self.serving(at, port));
        }
        let own = table.ports.values().filter(|port| port.owner == *owner);
        if own.count() >= MOST_PORTS {
            return Err(Refused::too_many(1));
        }
        let listener = listen(at).map_err(|error| refused(&error))?;
        let port = Port {
            owner: owner.clone(),
            listener: Arc::new(listener),
            turn: watch::Sender::new(0),
            room: Arc::default(),
        };
        let serving = self.serving(at, &port);
        table.ports.insert(at, port);
        Ok(serving)
    }

    fn serving(self: &Arc<Self>, at: SocketAddr, port: &Port) -> Serving {
        let mut changed = port.turn.subscribe();
        let turn = *changed.borrow_and_update();
        Serving {
            ports: self.clone(),
            at,
            owner: port.owner.clone(),
            listener: port.listener.clone(),
            turn,
            changed,
            room: port.room.clone(),
            is_over: false,
        }
    }

    /// The connection with this number, if it waits for this owner.
    pub(super) fn pick(&self, number: u64, owner: &Taker) -> Option<(Picked, Counted)> {
        let mut table = self.lock();
        let is_own = table.waiting.get(&number)?.owner == *owner;
        let mut waiting = is_own.then(|| table.waiting.remove(&number)).flatten()?;
        drop(table);
        let open = waiting.open.take_if(|open| !open.has_given_way())?;
        let picked = Picked {
            from: waiting.from,
            connection: waiting.connection.take(),
        };
        Some((picked, open))
    }

    /// Resets the connections to ports of an owner that gave way to later connections.
    fn sweep(&self, owner: &Taker) {
        let mut table = self.lock();
        let given = (table.waiting.iter())
            .filter(|(_, waiting)| waiting.owner == *owner && waiting.has_given_way());
        let given: Vec<_> = given.map(|(number, _)| *number).collect();
        let given = given.iter().map(|number| table.waiting.remove(number));
        let given: Vec<_> = given.collect();
        // The drop of a connection needs no lock.
        drop(table);
        drop(given);
    }

    /// Closes the port, unless another request serves the port meanwhile.
    fn close(&self, at: SocketAddr, turn: u64) {
        let mut table = self.lock();
        let is_ours = |port: &Port| *port.turn.borrow() == turn;
        if table.ports.get(&at).is_some_and(is_ours) {
            table.ports.remove(&at);
        }
    }
}

/// A port that a request serves. Without the client's goodbye, the port stays open for a while
/// after the drop.
pub(super) struct Serving {
    ports: Arc<Ports>,
    at: SocketAddr,
    owner: Taker,
    listener: Arc<TcpListener>,
    turn: u64,
    changed: watch::Receiver<u64>,
    room: Arc<Notify>,
    /// The client wants no more connections.
    is_over: bool,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let (ports, at, turn) = (self.ports.clone(), self.at, self.turn);
        match Handle::try_current() {
            Ok(runtime) if !self.is_over => {
                runtime.spawn(async move {
                    tokio::time::sleep(GRACE).await;
                    ports.close(at, turn);
                });
            }
            _ => ports.close(at, turn),
        }
    }
}

/// The numbers of connections that wait, with the times of their resets. Dropping this resets the
/// connections.
struct Announced {
    ports: Arc<Ports>,
    numbers: VecDeque<(u64, Instant)>,
}

impl Announced {
    /// Removes numbers that wait no more: the client has taken or refused them.
    fn sweep(&mut self) {
        let table = self.ports.lock();
        (self.numbers).retain(|(number, _)| table.waiting.contains_key(number));
    }

    fn forget(&mut self, number: u64) {
        let waiting = self.ports.lock().waiting.remove(&number);
        drop(waiting);
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        for (number, _) in std::mem::take(&mut self.numbers) {
            self.forget(number);
        }
    }
}

impl Serving {
    /// Tells the client of each connection, until the client ends the request or another request
    /// serves the port.
    pub(super) async fn run(
        mut self,
        (accounts, most): (&Arc<Accounts>, usize),
        (mut send, mut recv): (impl Outgoing, impl Incoming),
        watch: &StreamWatch,
    ) {
        let (ended, is_over) = tokio::select! {
            ended = self.tell((accounts, most), &mut send, &mut recv) => (ended, false),
            // The client stops the stream, or its connection is lost.
            stopped = watch.stopped() => (Ok(()), stopped.is_ok()),
        };
        self.is_over |= is_over;
        end(ended, send, recv).await;
    }

    async fn tell(
        &mut self,
        (accounts, most): (&Arc<Accounts>, usize),
        send: &mut impl Outgoing,
        recv: &mut impl Incoming,
    ) -> Result<(), Code> {
        let mut capsules = Capsules::of_reverse();
        let mut announced = Announced {
            ports: self.ports.clone(),
            numbers: VecDeque::new(),
        };
        loop {
            announced.sweep();
            let has_room = announced.numbers.len() < MOST_WAITING;
            let first = announced.numbers.front().copied();
            let late = first.map_or_else(Instant::now, |(_, until)| until);
            tokio::select! {
                accepted = self.listener.accept(), if has_room => {
                    let Ok((connection, from)) = accepted else {
                        // Out of descriptors, for example: a descriptor becomes free soon.
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        continue;
                    };
                    let Some(number) = self.wait((connection, from), accounts, most) else {
                        continue;
                    };
                    announced.numbers.push_back((number, Instant::now() + PATIENCE));
                    let from = SocketAddr::new(from.ip().to_canonical(), from.port());
                    let waiting = Told::Waiting(number, from).to_capsule();
                    send.send(waiting).await.map_err(|_| Code::H3_CONNECT_ERROR)?;
                }
                piece = recv.recv() => match piece {
                    Ok(Some(piece)) => capsules.push(piece),
                    Ok(None) => {
                        self.is_over = true;
                        return Ok(());
                    }
                    Err(error) => {
                        // The client resets the stream, or its connection is lost.
                        self.is_over = matches!(error, StreamError::RemoteTerminate { .. });
                        return Err(Code::H3_CONNECT_ERROR);
                    }
                },
                _ = self.changed.changed() => return Ok(()),
                () = self.room.notified() => {}
                () = sleep_until(late), if first.is_some() => {
                    if let Some((number, _)) = announced.numbers.pop_front() {
                        announced.forget(number);
                    }
                }
            }
            while let Some((kind, value)) = (capsules.take()).map_err(|_| Code::H3_MESSAGE_ERROR)? {
                match Told::parse(kind, &value) {
                    // The drop resets the connection.
                    Some(Told::Refused(number)) => drop(self.ports.pick(number, &self.owner)),
                    Some(Told::Waiting(..)) => return Err(Code::H3_MESSAGE_ERROR),
                    // A DATAGRAM capsule means nothing here.
                    None => {}
                }
            }
        }
    }

    /// Keeps a connection for the client. `None` if the owner's ports have too many connections:
    /// the connection gets a reset.
    fn wait(
        &self,
        (connection, from): (TcpStream, SocketAddr),
        accounts: &Arc<Accounts>,
        most: usize,
    ) -> Option<u64> {
        let open = accounts.begin_of_stranger(&self.owner, from.ip(), most);
        self.ports.sweep(&self.owner);
        let Some(open) = open else {
            let _ = connection.set_zero_linger();
            return None;
        };
        let mut table = self.ports.lock();
        let number = table.next;
        table.next += 1;
        let waiting = Waiting {
            owner: self.owner.clone(),
            connection: Some(connection),
            from: SocketAddr::new(from.ip().to_canonical(), from.port()),
            room: self.room.clone(),
            open: Some(open),
        };
        table.waiting.insert(number, waiting);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tokio::io::AsyncReadExt;
    use tokio::sync::mpsc;

    use super::*;

    fn owner(name: &str) -> Taker {
        Taker::User(name.into())
    }

    /// Addresses with free ports.
    fn free(count: usize) -> Vec<SocketAddr> {
        let bound = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let bound: Vec<_> = (0..count).map(|_| bound()).collect();
        let addresses = bound.iter().map(|listener| listener.local_addr().unwrap());
        addresses.collect()
    }

    /// A stream whose capsules are heard, and that has no end.
    struct Heard(mpsc::UnboundedSender<Bytes>);

    impl Outgoing for Heard {
        async fn send(&mut self, piece: Bytes) -> Result<(), StreamError> {
            let _ = self.0.send(piece);
            Ok(())
        }

        async fn finish(&mut self) -> Result<(), StreamError> {
            Ok(())
        }

        fn reset(&mut self, _: Code) {}
    }

    /// A client that says nothing.
    struct Silent;

    impl Incoming for Silent {
        async fn recv(&mut self) -> Result<Option<Bytes>, StreamError> {
            std::future::pending().await
        }

        fn stop(&mut self, _: Code) {}
    }

    /// The error of a connection that gets a reset within a minute.
    async fn is_reset(connection: &mut TcpStream) -> io::Error {
        let mut byte = [0];
        let reading = tokio::time::timeout(Duration::from_secs(60), connection.read(&mut byte));
        reading.await.expect("a reset").unwrap_err()
    }

    #[tokio::test]
    async fn ports_of_a_user_are_bounded_and_its_own() {
        let ports = Arc::new(Ports::default());
        let addresses = free(MOST_PORTS + 1);
        let open = |at: usize, name: &str| {
            let opened = ports.open(addresses[at], &owner(name));
            opened.map_err(|refused| refused.status.as_u16())
        };
        let mut own: Vec<_> = (0..MOST_PORTS).map(|at| open(at, "a").unwrap()).collect();
        assert_eq!(open(MOST_PORTS, "a").err(), Some(429));
        assert_eq!(open(0, "b").err(), Some(409));
        assert!(open(MOST_PORTS, "b").is_ok());
        // A client that comes back takes its port over, and the old request ends.
        assert!(!own[0].changed.has_changed().unwrap());
        let again = open(0, "a").unwrap();
        assert!(own[0].changed.has_changed().unwrap());
        own[0].is_over = true;
        drop(own.remove(0));
        assert_eq!(
            open(0, "b").err(),
            Some(409),
            "the new request has the port"
        );
        drop(again);
        // The client of this one has said goodbye.
        own[0].is_over = true;
        drop(own.remove(0));
        assert!(open(1, "b").is_ok());
    }

    #[tokio::test]
    async fn connections_that_wait_are_bounded_and_belong_to_one_user() {
        let ports = Arc::new(Ports::default());
        let at = free(1)[0];
        let mut serving = ports.open(at, &owner("a")).unwrap();
        let accounts = Accounts::new(1000);
        let (heard, mut capsules) = mpsc::unbounded_channel();
        let talking = async {
            let connecting = (0..MOST_WAITING + 10).map(|_| TcpStream::connect(at));
            let open = futures_util::future::join_all(connecting).await;
            for _ in 0..MOST_WAITING {
                capsules.recv().await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert!(capsules.try_recv().is_err());
            assert!(ports.pick(0, &owner("b")).is_none());
            assert!(ports.pick(0, &owner("a")).is_some());
            assert!(ports.pick(0, &owner("a")).is_none());
            capsules.recv().await.unwrap();
            drop(open);
        };
        let (mut heard, mut silent) = (Heard(heard), Silent);
        tokio::select! {
            ended = serving.tell((&accounts, 1000), &mut heard, &mut silent) => panic!("{ended:?}"),
            () = talking => {}
        }
        assert!(ports.lock().waiting.is_empty());
    }

    /// Of silent connections the oldest gives way, and does not wait for the client any more.
    #[tokio::test]
    async fn at_the_limit_of_a_port_the_oldest_connection_is_reset() {
        let ports = Arc::new(Ports::default());
        let at = free(1)[0];
        let mut serving = ports.open(at, &owner("a")).unwrap();
        let accounts = Accounts::new(1000);
        let (heard, mut capsules) = mpsc::unbounded_channel();
        let talking = async {
            let mut first = TcpStream::connect(at).await.unwrap();
            capsules.recv().await.unwrap();
            let _others = [TcpStream::connect(at).await, TcpStream::connect(at).await];
            let reset = is_reset(&mut first).await;
            assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
            capsules.recv().await.unwrap();
            capsules.recv().await.unwrap();
            assert_eq!(ports.lock().waiting.len(), 2);
            assert!(ports.pick(0, &owner("a")).is_none());
            assert!(ports.pick(1, &owner("a")).is_some());
        };
        let (mut heard, mut silent) = (Heard(heard), Silent);
        tokio::select! {
            ended = serving.tell((&accounts, 4), &mut heard, &mut silent) => panic!("{ended:?}"),
            () = talking => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_waits_half_a_minute() {
        let ports = Arc::new(Ports::default());
        let at = free(1)[0];
        let mut serving = ports.open(at, &owner("a")).unwrap();
        let accounts = Accounts::new(1000);
        let (heard, mut capsules) = mpsc::unbounded_channel();
        let talking = async {
            let mut connection = TcpStream::connect(at).await.unwrap();
            capsules.recv().await.unwrap();
            let begin = Instant::now();
            let reset = is_reset(&mut connection).await;
            assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
            assert!(begin.elapsed() >= PATIENCE);
        };
        let (mut heard, mut silent) = (Heard(heard), Silent);
        tokio::select! {
            ended = serving.tell((&accounts, 9), &mut heard, &mut silent) => panic!("{ended:?}"),
            () = talking => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_port_outlives_its_client_for_a_minute() {
        let ports = Arc::new(Ports::default());
        let at = free(1)[0];
        drop(ports.open(at, &owner("a")).unwrap());
        tokio::time::sleep(GRACE - Duration::from_secs(1)).await;
        assert!(ports.open(at, &owner("b")).is_err());
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(ports.open(at, &owner("b")).is_ok());
    }
}
