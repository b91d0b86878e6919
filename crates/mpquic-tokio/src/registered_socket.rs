//! [`RegisteredSocket`]: a UDP socket of the kernel, and tokio's knowledge of its readiness.

use std::io;
use std::net::UdpSocket;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::Interest;

/// A socket whose readiness tokio reports. While the reports are paused, datagrams that arrive wake
/// no thread.
#[derive(Debug)]
pub(crate) struct RegisteredSocket {
    socket: UdpSocket,
    /// A second descriptor of the socket; `None` while the reports are paused.
    registered: Mutex<Option<Arc<tokio::net::UdpSocket>>>,
}

impl RegisteredSocket {
    pub(crate) fn new(socket: UdpSocket) -> io::Result<Self> {
        let registered = Mutex::new(Some(register(&socket)?));
        Ok(Self { socket, registered })
    }

    /// The socket.
    pub(crate) fn get(&self) -> &UdpSocket {
        &self.socket
    }

    /// Waits for datagrams, or for errors on Linux. Ends a pause.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        let interest = Interest::READABLE | Interest::ERROR;
        #[cfg(not(target_os = "linux"))]
        let interest = Interest::READABLE;
        let registered = self.registered()?;
        registered.ready(interest).await.map(|_| ())
    }

    /// Waits for room in the send buffer. Ends a pause.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        let registered = self.registered()?;
        registered.writable().await
    }

    /// Stops the reports until the next wait; meanwhile, [`Self::try_io`] always asks the kernel.
    /// Returns false if the system cannot do this, or a task waits for the socket.
    pub(crate) fn pause(&self) -> bool {
        let mut registered = self.lock();
        let is_awaited = |socket: &Arc<_>| Arc::strong_count(socket) > 1;
        let can_pause = cfg!(unix) && !registered.as_ref().is_some_and(is_awaited);
        if can_pause {
            *registered = None;
        }
        can_pause
    }

    /// Runs `call` if the socket may be ready for it. `WouldBlock` tells tokio that it is not.
    pub(crate) fn try_io<R>(
        &self,
        interest: Interest,
        call: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        let registered = self.lock().clone();
        match registered {
            Some(registered) => registered.try_io(interest, call),
            None => call(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<tokio::net::UdpSocket>>> {
        self.registered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn registered(&self) -> io::Result<Arc<tokio::net::UdpSocket>> {
        let mut registered = self.lock();
        match &*registered {
            Some(registered) => Ok(registered.clone()),
            None => Ok(registered.insert(register(&self.socket)?).clone()),
        }
    }
}

/// Registers a second descriptor, because the first one stays open in a pause.
fn register(socket: &UdpSocket) -> io::Result<Arc<tokio::net::UdpSocket>> {
    let socket = tokio::net::UdpSocket::from_std(socket.try_clone()?)?;
    Ok(Arc::new(socket))
}

#[cfg(all(test, unix))]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    fn pair() -> io::Result<(RegisteredSocket, UdpSocket)> {
        let receiver = UdpSocket::bind("127.0.0.1:0")?;
        receiver.set_nonblocking(true)?;
        let sender = UdpSocket::bind("127.0.0.1:0")?;
        sender.connect(receiver.local_addr()?)?;
        Ok((RegisteredSocket::new(receiver)?, sender))
    }

    fn read(socket: &RegisteredSocket) -> io::Result<usize> {
        socket.try_io(Interest::READABLE, || socket.get().recv(&mut [0; 16]))
    }

    /// While reads are paused, the kernel is asked each time. Afterwards, a datagram that arrived
    /// in the pause is reported.
    #[tokio::test]
    async fn a_datagram_of_a_pause_is_read_in_the_pause_or_reported_after_it() -> io::Result<()> {
        let (socket, sender) = pair()?;
        assert!(timeout(SOON, socket.readable()).await.is_err());
        assert!(socket.pause());
        sender.send(b"one")?;
        tokio::time::sleep(SOON).await;
        assert_eq!(read(&socket)?, 3);
        assert_eq!(read(&socket).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        sender.send(b"two and")?;
        tokio::time::sleep(SOON).await;
        socket.readable().await?;
        assert_eq!(read(&socket)?, 7);
        assert_eq!(read(&socket).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(timeout(SOON, socket.readable()).await.is_err());
        Ok(())
    }

    /// The socket sends in a pause. A task that waits for room ends the pause, and keeps the socket
    /// from another one.
    #[tokio::test]
    async fn waiting_for_room_ends_a_pause() -> io::Result<()> {
        let (socket, sender) = pair()?;
        socket.get().connect(sender.local_addr()?)?;
        let send = || socket.try_io(Interest::WRITABLE, || socket.get().send(b"back"));
        assert!(socket.pause());
        assert_eq!(send()?, 4);
        let awaited = socket.registered()?;
        assert!(!socket.pause());
        drop(awaited);
        socket.writable().await?;
        assert!(socket.lock().is_some());
        assert_eq!(send()?, 4);
        assert!(socket.pause());
        Ok(())
    }
}
