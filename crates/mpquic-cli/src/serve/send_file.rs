//! How a server sends files, whatever the application protocol: not before the client has room for
//! them, a piece at a time, and within limits.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{Response, StatusCode};
use mpquic_tokio::{Connection, VarInt, WriteError};

use crate::files::directory_page::Page;
use crate::files::{OpenContent, OpenError, Source};
use crate::process::clock;
use crate::serve::access_log::Entry;
use crate::serve::limits::{self, OpenFile, Stalled};
use crate::serve::observer::Observer;
use crate::serve::rights::{Caller, Rights};

/// Bytes read from a file at first. Each further read is twice as long, so a request that is
/// cancelled early costs few bytes from the disk.
pub(crate) const FIRST_PIECE: usize = 16 << 10;
/// The most bytes read from a file at a time.
const MAX_PIECE: usize = 256 << 10;

/// Why a request was not answered in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The request makes no sense.
    BadRequest,
    NotFound,
    /// The client asks too often.
    TooMany,
    /// The client, or the server, has no right to the file.
    Forbidden,
    /// Reading the file failed.
    Failed,
    /// The client lets nothing through.
    Stalled,
    /// The client does not want the answer any more.
    Cancelled,
    /// The client is gone.
    Gone,
}

impl Refusal {
    /// The words of log messages for an incomplete answer.
    pub(crate) fn cut_short(self) -> &'static str {
        match self {
            Self::Stalled => "given up, the client is silent",
            Self::Cancelled | Self::Gone => "not wanted to the end",
            _ => "failed",
        }
    }
}

impl From<OpenError> for Refusal {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::NotFound => Self::NotFound,
            OpenError::Io(error) => error.into(),
        }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        tracing::warn!(%error, "reading a file");
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::Forbidden,
            _ => Self::Failed,
        }
    }
}

impl From<Stalled> for Refusal {
    fn from(_: Stalled) -> Self {
        Self::Stalled
    }
}

impl From<WriteError> for Refusal {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Stopped(_) => Self::Cancelled,
            _ => Self::Gone,
        }
    }
}

/// Where the answer to a request goes.
pub(crate) trait Outlet: Send {
    /// Waits until something can be written, and tells how much.
    fn writable(&mut self) -> impl Future<Output = Result<usize, Refusal>> + Send;

    /// Waits until the client does not want the answer any more, or is gone.
    fn stopped(&mut self) -> impl Future<Output = Refusal> + Send;

    /// True if the client cancelled the request in another way than by stopping the answer.
    fn is_cancelled(&mut self) -> bool;

    /// Writes some of a piece, and takes that off it.
    fn write_some(&mut self, piece: &mut Bytes)
    -> impl Future<Output = Result<(), Refusal>> + Send;
}

/// Where the answer to one request goes.
pub(crate) trait Exchange: Outlet {
    /// The version of HTTP, as logs have it.
    fn protocol(&self) -> &'static str;

    /// True if something can be said before the answer.
    fn has_interim(&self) -> bool {
        false
    }

    /// Sends status and fields.
    fn head(&mut self, head: Response<()>) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// Ends the answer.
    fn finish(&mut self) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// Waits for a sign that the client is still there. Without a sign, its request must change
    /// nothing.
    fn present(&mut self) -> impl Future<Output = Result<(), Refusal>> + Send;
}

/// An exchange with a count of the bytes of an answer, complete or cut.
pub(crate) struct Tally<'a, E> {
    exchange: &'a mut E,
    /// The status that was sent.
    pub(crate) status: Option<StatusCode>,
    /// Bytes of the body that were sent.
    pub(crate) bytes: u64,
}

impl<'a, E: Exchange> Tally<'a, E> {
    pub(crate) fn new(exchange: &'a mut E) -> Self {
        Self {
            exchange,
            status: None,
            bytes: 0,
        }
    }
}

impl<E: Exchange> Outlet for Tally<'_, E> {
    async fn writable(&mut self) -> Result<usize, Refusal> {
        self.exchange.writable().await
    }

    async fn stopped(&mut self) -> Refusal {
        self.exchange.stopped().await
    }

    fn is_cancelled(&mut self) -> bool {
        self.exchange.is_cancelled()
    }

    async fn write_some(&mut self, piece: &mut Bytes) -> Result<(), Refusal> {
        let before = piece.len();
        self.exchange.write_some(piece).await?;
        self.bytes += (before - piece.len()) as u64;
        Ok(())
    }
}

impl<E: Exchange> Exchange for Tally<'_, E> {
    fn protocol(&self) -> &'static str {
        self.exchange.protocol()
    }

    fn has_interim(&self) -> bool {
        self.exchange.has_interim()
    }

    async fn head(&mut self, head: Response<()>) -> Result<(), Refusal> {
        let status = head.status();
        self.exchange.head(head).await?;
        if !status.is_informational() {
            self.status = Some(status);
        }
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), Refusal> {
        self.exchange.finish().await
    }

    async fn present(&mut self) -> Result<(), Refusal> {
        self.exchange.present().await
    }
}

/// What the requests of one client share.
pub(crate) struct Session {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) limits: limits::Client,
    pub(crate) observer: Arc<Observer>,
    pub(crate) client: IpAddr,
    pub(crate) rights: Arc<Rights>,
    /// The client of the connection.
    pub(crate) caller: Caller,
}

/// The same, of a client over QUIC.
pub(crate) struct QuicSession {
    pub(crate) session: Session,
    pub(crate) connection: Connection,
}

/// A request that is over.
pub(crate) struct Over<'a> {
    pub(crate) method: &'a str,
    /// The path, with the query.
    pub(crate) target: &'a str,
    pub(crate) protocol: &'static str,
    pub(crate) user: Option<String>,
    pub(crate) status: Option<u16>,
    /// Bytes of the body that were sent.
    pub(crate) bytes: u64,
    /// The answer began, and did not come to its end.
    pub(crate) is_cut: bool,
    pub(crate) began: Instant,
}

impl Session {
    /// Counts a request, and adds it to the access log.
    pub(crate) fn on_over(&self, over: &Over<'_>) {
        self.observer.on_request(Entry {
            time: clock::time_of_day(),
            client: self.client,
            user: over.user.clone(),
            method: over.method.to_owned(),
            target: over.target.to_owned(),
            protocol: over.protocol,
            status: over.status,
            bytes: over.bytes,
            cut: over.is_cut,
            seconds: clock::now() - over.began,
        });
    }

    /// Waits for permission to open a file, and for room for the first bytes. Until then, a client
    /// costs only its stream.
    pub(crate) async fn admit(
        &self,
        outlet: &mut impl Outlet,
        user: Option<&str>,
    ) -> Result<OpenFile, Refusal> {
        self.limits.turn(outlet.writable()).await??;
        let open = tokio::select! {
            open = self.limits.open_file(user) => open.ok_or(Refusal::Gone)?,
            refusal = outlet.stopped() => return Err(refusal),
        };
        self.limits.turn(outlet.writable()).await??;
        if outlet.is_cancelled() {
            Err(Refusal::Cancelled)
        } else {
            Ok(open)
        }
    }

    /// Opens a file.
    pub(crate) async fn open(&self, target: &str) -> Result<OpenContent, Refusal> {
        let opened = OpenContent::open(self.source.clone(), target.to_owned()).await;
        opened.map_err(Refusal::from)
    }

    /// Sends content to its end. The server reads a piece of the file when the client has room for
    /// the piece.
    pub(crate) async fn send(
        &self,
        outlet: &mut impl Outlet,
        content: &mut OpenContent,
        open: &OpenFile,
    ) -> Result<(), Refusal> {
        let most = self.limits.largest_piece().min(MAX_PIECE);
        let first = most.min(FIRST_PIECE);
        let (mut sent, mut size) = (0, first);
        while sent < content.length {
            let room = self.limits.turn(outlet.writable()).await??;
            if outlet.is_cancelled() {
                return Err(Refusal::Cancelled);
            }
            let mut piece = content.read(room.clamp(first, size)).await?;
            if piece.is_empty() {
                // The file shrank while it was read: the client must not take its end for the end
                // of the file as announced.
                return Err(Refusal::Failed);
            }
            sent += piece.len() as u64;
            size = (2 * size).min(most);
            self.pace(piece.len(), open).await;
            self.write_within(outlet, &mut piece, open).await?;
        }
        Ok(())
    }

    /// Sends the page of a directory. Each piece is made when the client has room for it.
    pub(crate) async fn send_page(
        &self,
        outlet: &mut impl Outlet,
        page: &mut Page,
        open: &OpenFile,
    ) -> Result<(), Refusal> {
        loop {
            self.limits.turn(outlet.writable()).await??;
            let mut piece = Bytes::from(page.piece(FIRST_PIECE));
            if piece.is_empty() {
                return Ok(());
            }
            self.pace(piece.len(), open).await;
            self.write_within(outlet, &mut piece, open).await?;
        }
    }

    /// Waits until the rates allow these bytes. The client is not blamed for the wait.
    async fn pace(&self, bytes: usize, open: &OpenFile) {
        self.limits.pace(bytes).await;
        if self.limits.is_paced() {
            open.on_wait();
        }
    }

    /// Sends bytes that are there already.
    pub(crate) async fn write(
        &self,
        outlet: &mut impl Outlet,
        mut piece: Bytes,
    ) -> Result<(), Refusal> {
        while !piece.is_empty() {
            self.limits.turn(outlet.write_some(&mut piece)).await??;
            self.limits.on_sent();
        }
        Ok(())
    }

    /// The same, and what the client lets through counts.
    async fn write_within(
        &self,
        outlet: &mut impl Outlet,
        piece: &mut Bytes,
        open: &OpenFile,
    ) -> Result<(), Refusal> {
        while !piece.is_empty() {
            let left = piece.len();
            self.limits.turn(outlet.write_some(piece)).await??;
            self.limits.on_sent();
            open.on_bytes(left - piece.len());
        }
        Ok(())
    }
}

impl Deref for QuicSession {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl QuicSession {
    /// Ends a connection on which too many requests are cancelled, with this code: each costs the
    /// client next to nothing, and us a file opened and read.
    pub(crate) fn on_cancelled(&self, too_many: VarInt) {
        if self.limits.on_cancelled() && self.connection.close_reason().is_none() {
            let reason = b"too many requests cancelled";
            self.connection.close(too_many, reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::limits::{Limits, Shared};
    use crate::testing::Anything;

    /// An outlet with `room` bytes of room, cancelled after a number of writes.
    struct Written {
        room: usize,
        sizes: Vec<usize>,
        cancelled_after: usize,
    }

    impl Outlet for Written {
        async fn writable(&mut self) -> Result<usize, Refusal> {
            Ok(self.room)
        }

        async fn stopped(&mut self) -> Refusal {
            std::future::pending().await
        }

        fn is_cancelled(&mut self) -> bool {
            self.sizes.len() >= self.cancelled_after
        }

        async fn write_some(&mut self, piece: &mut Bytes) -> Result<(), Refusal> {
            self.sizes.push(piece.len());
            piece.clear();
            Ok(())
        }
    }

    /// What is written of a file, and how that ends.
    async fn written(
        source: Anything,
        room: usize,
        cancelled_after: usize,
    ) -> (Vec<usize>, Result<(), Refusal>) {
        let address = IpAddr::from([192, 0, 2, 1]);
        let limits = limits::Client::new(Shared::new(Limits::default()), address);
        let session = Session {
            source: Arc::new(source),
            limits: limits.unwrap(),
            observer: Observer::new(None),
            client: address,
            rights: Arc::new(Rights::open()),
            caller: Caller::default(),
        };
        let mut content = session.open("/").await.unwrap();
        let mut outlet = Written {
            room,
            sizes: Vec::new(),
            cancelled_after,
        };
        let open = session.limits.open_file(None).await.unwrap();
        let sent = session.send(&mut outlet, &mut content, &open).await;
        (outlet.sizes, sent)
    }

    const KIB: usize = 1 << 10;
    const FILE: u64 = 1000 << 10;

    #[tokio::test]
    async fn pieces_grow_up_to_what_there_is_room_for() {
        let file = || Anything::new(FILE);
        let never = usize::MAX;
        let sizes = [16, 32, 64, 128, 256, 256, 248].map(|size| size * KIB);
        assert_eq!(
            written(file(), never, never).await,
            (sizes.to_vec(), Ok(()))
        );
        let (sizes, sent) = written(file(), 100 * KIB, never).await;
        assert_eq!(
            sizes[..6],
            [16, 32, 64, 100, 100, 100].map(|size| size * KIB)
        );
        assert_eq!((sizes.len(), sent), (12, Ok(())));
        // A little is read at once, even if there is less room.
        let (sizes, _) = written(file(), 1, never).await;
        assert!(
            sizes[..62].iter().all(|size| *size == 16 * KIB),
            "{sizes:?}"
        );
        assert_eq!(
            written(Anything::new(0), never, never).await,
            (vec![], Ok(()))
        );
    }

    #[test]
    fn files_that_the_server_may_not_read_are_forbidden() {
        for (kind, refusal) in [
            (io::ErrorKind::PermissionDenied, Refusal::Forbidden),
            (io::ErrorKind::Other, Refusal::Failed),
        ] {
            assert_eq!(Refusal::from(io::Error::from(kind)), refusal);
        }
    }

    #[tokio::test]
    async fn shrunk_or_cancelled_file_is_not_sent_to_its_end() {
        let shrunk = Anything::new(FILE).that_became(20 << 10);
        let (sizes, sent) = written(shrunk, usize::MAX, usize::MAX).await;
        assert_eq!(
            (sizes, sent),
            (vec![16 * KIB, 4 * KIB], Err(Refusal::Failed))
        );
        let (sizes, sent) = written(Anything::new(FILE), usize::MAX, 2).await;
        assert_eq!((sizes.len(), sent), (2, Err(Refusal::Cancelled)));
        // One that grows is sent as it was announced.
        let grown = Anything::new(10).that_became(20);
        assert_eq!(written(grown, usize::MAX, 9).await, (vec![10], Ok(())));
    }
}
