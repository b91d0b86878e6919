//! The server of the QUIC performance protocol, described in [`crate::perf::stream`].
//!
//! DATAGRAMs are an addition to the protocol, described in [`crate::perf::datagram`].

use std::sync::Arc;

use mpquic_tokio::{Connection, ReadError, RecvStream, SendStream, VarInt, WriteError};
use tokio::sync::Semaphore;

use crate::perf::datagram::Echo;
use crate::perf::stream::{FIRST, HEADER, content};
use crate::process::clock;
use crate::serve::drain::{Draining, ENDS};
use crate::serve::limits::{OpenFile, Stalled};
use crate::serve::send_file::{Over, QuicSession, Session};

/// Answers up to this size need no permission. A client measures latency with such answers while
/// large answers are on their way.
const SMALL: u64 = 64 << 10;
/// Most unidirectional streams of a client answered at a time. The stream limit does not bound
/// their number, because each stream has ended before its answer.
const MAX_UNI: usize = 100;
/// Application error codes, with the names and numbers of HTTP's status codes.
const BAD_REQUEST: VarInt = VarInt::from_u32(400);
const STALLED: VarInt = VarInt::from_u32(408);
const TOO_MANY: VarInt = VarInt::from_u32(429);
const NO_ERROR: VarInt = VarInt::from_u32(0);

/// The reason why a stream gets no answer.
enum Refusal {
    Code(VarInt),
    /// The client is gone.
    Gone,
}

impl From<Stalled> for Refusal {
    fn from(_: Stalled) -> Self {
        Self::Code(STALLED)
    }
}

impl From<ReadError> for Refusal {
    fn from(_: ReadError) -> Self {
        Self::Gone
    }
}

impl From<WriteError> for Refusal {
    fn from(_: WriteError) -> Self {
        Self::Gone
    }
}

/// Answers a client until its connection or the server ends. A measurement has no end of its own,
/// so the server's end does not wait for one.
pub(crate) async fn serve(session: QuicSession, mut draining: Draining) -> String {
    let session = Arc::new(session);
    let connection = session.connection.clone();
    let uni = Arc::new(Semaphore::new(MAX_UNI));
    let answered = async {
        tokio::select! {
            () = bidirectional(&session) => {}
            () = unidirectional(&session, uni) => {}
            () = datagrams(&connection) => {}
        }
    };
    tokio::select! {
        () = answered => {}
        () = draining.begun() => connection.close(NO_ERROR, ENDS),
    }
    connection.closed().await.to_string()
}

async fn bidirectional(session: &Arc<QuicSession>) {
    while let Ok((send, mut recv)) = session.connection.accept_bi().await {
        let session = session.clone();
        tokio::spawn(async move {
            let Some(_memory) = session.limits.request() else {
                return;
            };
            let Some(stream) = Stream::begin(&session, &mut recv).await else {
                return;
            };
            stream.answer(send).await;
        });
    }
}

async fn unidirectional(session: &Arc<QuicSession>, uni: Arc<Semaphore>) {
    loop {
        let Ok(permit) = uni.clone().acquire_owned().await else {
            return;
        };
        let Ok(mut recv) = session.connection.accept_uni().await else {
            return;
        };
        let session = session.clone();
        tokio::spawn(async move {
            if let Some(_memory) = session.limits.request()
                && let Some(stream) = Stream::begin(&session, &mut recv).await
                && stream.wanted > 0
                && let Ok(send) = session.connection.open_uni().await
            {
                stream.answer(send).await;
            }
            drop(permit);
        });
    }
}

/// Returns every DATAGRAM. A DATAGRAM without room is lost, as on a full link.
async fn datagrams(connection: &Connection) {
    let mut echo = Echo::new(clock::now());
    while let Ok(datagram) = connection.read_datagram().await {
        if let Some(answer) = echo.answer(&datagram, clock::now()) {
            let _ = connection.send_datagram(answer);
        }
    }
}

/// A stream whose client has sent all its data.
struct Stream<'a> {
    session: &'a Session,
    wanted: u64,
    began: std::time::Instant,
}

impl<'a> Stream<'a> {
    /// Reads the client's data; `None` without an end of the data.
    async fn begin(session: &'a Session, recv: &mut RecvStream) -> Option<Self> {
        let began = clock::now();
        let _in_use = session.limits.in_use();
        let mut header = Vec::with_capacity(HEADER);
        loop {
            let read = session.limits.progress(recv.read_chunk(usize::MAX, true));
            match read.await {
                Ok(Ok(Some(chunk))) => {
                    let missing = HEADER - header.len();
                    header.extend(chunk.bytes.iter().take(missing));
                }
                Ok(Ok(None)) => break,
                Ok(Err(_)) => return None,
                Err(Stalled) => {
                    let _ = recv.stop(STALLED);
                    return None;
                }
            }
        }
        // A stream that ends inside its header gets nothing.
        let header: Option<[u8; HEADER]> = header.try_into().ok();
        Some(Self {
            session,
            wanted: header.map_or(0, u64::from_be_bytes),
            began,
        })
    }

    async fn answer(&self, mut send: SendStream) {
        let _in_use = self.session.limits.in_use();
        let mut sent = 0;
        let answered = self.send(&mut send, &mut sent).await;
        let answered_in_part = answered.is_err() && sent > 0;
        let status = match answered {
            Ok(()) => Some(200),
            Err(Refusal::Gone) => None,
            Err(Refusal::Code(code)) => {
                let _ = send.reset(code);
                u16::try_from(code.into_inner()).ok()
            }
        };
        self.session.on_over(&Over {
            method: "PERF",
            target: &format!("/{}", self.wanted),
            protocol: "perf",
            user: None,
            status,
            bytes: sent,
            is_cut: answered_in_part,
            began: self.began,
        });
    }

    async fn send(&self, send: &mut SendStream, sent: &mut u64) -> Result<(), Refusal> {
        let limits = &self.session.limits;
        if !limits.may_request() {
            return Err(Refusal::Code(TOO_MANY));
        }
        let leave = match self.wanted {
            ..=SMALL => {
                let _ = send.set_priority(FIRST);
                None
            }
            _ => Some(limits.open_file(None).await.ok_or(Refusal::Gone)?),
        };
        match &leave {
            Some(open) => open.keep(self.pieces(send, sent, Some(open))).await?,
            None => self.pieces(send, sent, None).await?,
        }
        send.finish().map_err(|_| Refusal::Code(BAD_REQUEST))
    }

    async fn pieces(
        &self,
        send: &mut SendStream,
        sent: &mut u64,
        open: Option<&OpenFile>,
    ) -> Result<(), Refusal> {
        let limits = &self.session.limits;
        let most = limits.largest_piece().max(1) as u64;
        while *sent < self.wanted {
            let room = limits.progress(send.writable()).await?? as u64;
            let piece = content((self.wanted - *sent).min(most).min(room.max(1)));
            let bytes = piece.len();
            limits.pace(bytes).await;
            limits.progress(send.write_chunk(piece)).await??;
            *sent += bytes as u64;
            open.into_iter().for_each(|open| open.on_bytes(bytes));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Alpn;
    use crate::serve::Service;
    use crate::serve::access_log::{AccessLog, Format};
    use crate::serve::client_limits::AddressLimits;
    use crate::serve::limits::{self, Limits};
    use crate::serve::observer::Observer;
    use crate::testing::{Anything, Served, soon};

    /// A server that logs to a file, with these limits.
    fn served(log: &std::path::Path, limits: Limits) -> (Served, Arc<Observer>) {
        let log = AccessLog::open(log, Format::Common).unwrap();
        let observer = Observer::new(Some(log));
        let service = Service {
            observer: observer.clone(),
            limits: limits::Shared::new(limits),
            ..Service::new(Arc::new(Anything::new(1)))
        };
        (Served::of(service, Alpn::Perf), observer)
    }

    /// Requests and reads this number of bytes.
    async fn ask(
        connection: &Connection,
        wanted: u64,
    ) -> Result<Vec<u8>, mpquic_tokio::ReadToEndError> {
        let (mut send, mut recv) = connection.open_bi().await.unwrap();
        send.write_all(&wanted.to_be_bytes()).await.unwrap();
        send.finish().unwrap();
        soon(recv.read_to_end(1 << 20)).await
    }

    #[tokio::test]
    async fn perf_answers_are_logged() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let limits = Limits {
            address: AddressLimits {
                requests_per_second: Some(2),
                ..AddressLimits::default()
            },
            ..Limits::default()
        };
        let (served, observer) = served(&log, limits);
        let connection = served.connect(1 << 20).await;
        for wanted in [5, 100_000] {
            let answer = ask(&connection, wanted).await.unwrap();
            assert_eq!(answer.len() as u64, wanted);
        }
        assert!(ask(&connection, 7).await.is_err(), "one too many");
        let told = || {
            let text = observer.metrics(&served.endpoints);
            text.matches("mpquic_http_requests_total{protocol=\"perf\",method=\"other\"")
                .count()
        };
        while told() < 2 {
            tokio::task::yield_now().await;
        }
        observer.finish();
        let text = std::fs::read_to_string(&log).unwrap();
        let lines: Vec<_> = text.lines().map(|line| line.split('"').skip(1)).collect();
        let lines: Vec<_> = lines
            .into_iter()
            .map(|line| line.collect::<String>())
            .collect();
        let expected = [
            "PERF /5 perf 200 5",
            "PERF /100000 perf 200 100000",
            "PERF /7 perf 429 0",
        ];
        assert_eq!(lines, expected);
    }

    #[tokio::test]
    async fn a_client_that_does_not_go_on_is_given_up() {
        let directory = tempfile::tempdir().unwrap();
        let limits = Limits {
            stall: std::time::Duration::from_millis(50),
            ..Limits::default()
        };
        let (served, _observer) = served(&directory.path().join("log"), limits);
        let connection = served.connect(1 << 20).await;
        let (mut send, _recv) = connection.open_bi().await.unwrap();
        send.write_all(&[0; HEADER]).await.unwrap();
        assert_eq!(soon(send.stopped()).await.unwrap(), Some(STALLED));
    }

    /// The answer comes on a new stream. A stream without a header gets no answer.
    #[tokio::test]
    async fn streams_in_one_direction_are_answered_in_the_other() {
        let served = Served::start(Anything::new(1), Limits::default(), Alpn::Perf);
        let connection = served.connect(1 << 20).await;
        let send = async |bytes: &[u8]| {
            let mut send = connection.open_uni().await.unwrap();
            send.write_all(bytes).await.unwrap();
            send.finish().unwrap();
        };
        for (wanted, answered) in [
            (0, None),
            (5, Some(5)),
            (1, Some(1)),
            (70_000, Some(70_000)),
        ] {
            send(&u64::to_be_bytes(wanted)).await;
            let Some(bytes) = answered else {
                continue;
            };
            let mut recv = soon(connection.accept_uni()).await.unwrap();
            let answer = soon(recv.read_to_end(1 << 20)).await.unwrap();
            assert_eq!(answer.len(), bytes);
        }
        let (mut send, mut recv) = connection.open_bi().await.unwrap();
        send.write_all(&[1; HEADER - 1]).await.unwrap();
        send.finish().unwrap();
        assert_eq!(soon(recv.read_to_end(10)).await.unwrap(), b"");
    }

    #[tokio::test]
    async fn measurements_end_with_the_server() {
        let directory = tempfile::tempdir().unwrap();
        let (served, _observer) = served(&directory.path().join("log"), Limits::default());
        let connection = served.connect(1 << 20).await;
        assert_eq!(ask(&connection, 1).await.unwrap(), [0]);
        served.drain.begin();
        let ended = soon(connection.closed()).await;
        let mpquic_tokio::ConnectionError::ApplicationClosed(close) = ended else {
            panic!("{ended}");
        };
        assert_eq!((close.error_code, &close.reason[..]), (NO_ERROR, ENDS));
    }
}
