//! Steps of interoperability tests, which one side takes during a transfer.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use mpquic_tokio::{Connection, Endpoint, PathId, PathState, PathStatus};

/// Bytes of datagrams in both directions together between two steps.
const BYTES_BETWEEN: u64 = 512 << 10;
/// Interval of the checks whether the next step is due.
const LOOK: Duration = Duration::from_millis(2);

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// No action, only the wait for more data before every step.
    Wait,
    /// Update the keys.
    UpdateKeys,
    /// Use this local address in place of the first one.
    Move(IpAddr),
    /// Abandon a path, once the connection has another path.
    Close(PathId),
    /// Abandon the newest path, and open a path between the same addresses.
    Renew,
    /// Tell the peer how to treat a path.
    Status(PathId, PathStatus),
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let path = || value.parse().map(PathId).map_err(|_| "no path ID");
        let step = match name {
            "wait" => Ok(Self::Wait),
            "update-keys" => Ok(Self::UpdateKeys),
            "renew" => Ok(Self::Renew),
            "move" => value.parse().map(Self::Move).map_err(|_| "no address"),
            "close" => path().map(Self::Close),
            "backup" => path().map(|path| Self::Status(path, PathStatus::Backup)),
            "available" => path().map(|path| Self::Status(path, PathStatus::Available)),
            _ => Err(
                "expected wait, update-keys, renew, move=ADDR, close=PATH, backup=PATH or \
                 available=PATH",
            ),
        };
        step.map_err(str::to_owned)
    }
}

/// Takes the steps on a task of its own, each after more data. The task ends with the connection.
pub(crate) fn start(connection: &Connection, endpoint: Option<&Endpoint>, steps: Vec<Step>) {
    if steps.is_empty() {
        return;
    }
    let drill = Drill {
        connection: connection.clone(),
        endpoint: endpoint.cloned(),
    };
    tokio::spawn(async move {
        for step in steps {
            drill.bytes(BYTES_BETWEEN).await;
            match drill.step(step).await {
                Ok(()) => tracing::info!(?step, "done"),
                Err(error) => tracing::warn!(?step, "not done: {error}"),
            }
        }
    });
}

struct Drill {
    connection: Connection,
    /// The client's endpoint; `None` on a server.
    endpoint: Option<Endpoint>,
}

impl Drill {
    /// Waits until `condition` holds or the connection ends.
    async fn until(&self, mut condition: impl FnMut() -> bool) {
        while !condition() && self.connection.close_reason().is_none() {
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn bytes(&self, more: u64) {
        let moved = || {
            let stats = self.connection.stats();
            stats.bytes_sent + stats.bytes_received
        };
        let enough = moved() + more;
        self.until(|| moved() >= enough).await;
    }

    fn active(&self) -> impl Iterator<Item = PathId> {
        let active = self.connection.path_stats().into_iter();
        active
            .filter(|path| path.state == PathState::Active)
            .map(|path| path.id)
    }

    async fn step(&self, step: Step) -> Result<(), String> {
        match step {
            Step::Wait => Ok(()),
            Step::UpdateKeys => {
                self.until(|| self.connection.force_key_update()).await;
                Ok(())
            }
            Step::Move(ip) => self.move_to(ip),
            Step::Close(id) => {
                self.until(|| self.active().any(|other| other != id)).await;
                let path = self.connection.path(id).ok_or("no such path")?;
                path.close().map_err(|error| error.to_string())
            }
            Step::Renew => self.renew().await,
            Step::Status(id, status) => {
                self.until(|| self.active().any(|path| path == id)).await;
                let path = self.connection.path(id).ok_or("no such path")?;
                path.set_status(status).map_err(|error| error.to_string())
            }
        }
    }

    fn move_to(&self, ip: IpAddr) -> Result<(), String> {
        let endpoint = self.endpoint.as_ref().ok_or("only a client moves")?;
        let old = self.connection.local_address().ok_or("no path")?;
        endpoint
            .add_local(SocketAddr::new(ip, 0))
            .map_err(|error| error.to_string())?;
        endpoint.remove_local(old);
        Ok(())
    }

    async fn renew(&self) -> Result<(), String> {
        self.until(|| self.active().count() > 1).await;
        let newest = self.active().max().ok_or("no path")?;
        let path = self.connection.path(newest).ok_or("no such path")?;
        let four_tuple = path.four_tuple().ok_or("no such path")?;
        path.close().map_err(|error| error.to_string())?;
        let opened = self
            .connection
            .open_path(four_tuple.local, four_tuple.remote)
            .await;
        opened.map(|_| ()).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use futures_util::FutureExt;

    use super::*;
    use crate::options::Alpn;
    use crate::serve::limits::Limits;
    use crate::testing::{Anything, Served, soon};

    const FILE: u64 = 300_000;

    /// A client with paths from `paths` local addresses.
    async fn drill(paths: usize) -> Drill {
        let served = Served::start(Anything::new(FILE), Limits::default(), Alpn::HqInterop);
        let locals: Vec<_> = (1..=paths as u8)
            .map(|last| [127, 0, 0, last].into())
            .collect();
        let connected = served.connect_from(&locals, 1 << 20).await;
        let (endpoint, connection) = connected.unwrap();
        soon(connection.handshake_confirmed()).await.unwrap();
        soon(connection.wait_for_paths(paths)).await.unwrap();
        let drill = Drill {
            connection,
            endpoint: Some(endpoint),
        };
        soon(drill.until(|| drill.active().count() == paths)).await;
        drill
    }

    fn active(drill: &Drill) -> Vec<u32> {
        let mut active: Vec<_> = drill.active().map(|path| path.0).collect();
        active.sort_unstable();
        active
    }

    async fn fetch(connection: &Connection) {
        let (mut send, mut recv) = connection.open_bi().await.unwrap();
        send.write_all(b"GET /file\r\n").await.unwrap();
        send.finish().unwrap();
        let file = soon(recv.read_to_end(1 << 20)).await.unwrap();
        assert_eq!(file.len() as u64, FILE);
    }

    #[tokio::test]
    async fn steps_wait_until_they_can_be_taken() {
        let drill = drill(1).await;
        let status = |id| Step::Status(PathId(id), PathStatus::Backup);
        for step in [Step::Close(PathId(0)), Step::Renew, status(1)] {
            assert_eq!(drill.step(step).now_or_never(), None, "{step:?}");
        }
        assert_eq!(drill.step(Step::Wait).now_or_never(), Some(Ok(())));
        assert_eq!(soon(drill.step(status(0))).await, Ok(()));
        let path = drill.connection.path(PathId(0)).unwrap();
        assert_eq!(path.status().unwrap().0, PathStatus::Backup);
        let back = Step::Status(PathId(0), PathStatus::Available);
        assert_eq!(soon(drill.step(back)).await, Ok(()));
        assert_eq!(path.status().unwrap().0, PathStatus::Available);
        // A drill does not wait for events on a closed connection.
        drill.connection.close(0u32.into(), b"");
        let late = soon(drill.step(status(1))).await;
        assert_eq!(late, Err("no such path".to_owned()));
    }

    #[tokio::test]
    async fn a_path_is_closed_or_another_one_takes_its_place() {
        let drill = drill(2).await;
        assert_eq!(active(&drill), [0, 1]);
        let tuple = |id| drill.connection.path(PathId(id)).unwrap().four_tuple();
        let before = tuple(1);
        assert_eq!(soon(drill.step(Step::Renew)).await, Ok(()));
        assert_eq!((active(&drill), tuple(2)), (vec![0, 2], before));
        assert_eq!(soon(drill.step(Step::Close(PathId(0)))).await, Ok(()));
        assert_eq!(active(&drill), [2]);
    }

    #[tokio::test]
    async fn a_client_moves_to_another_address() {
        let mut drill = drill(1).await;
        let there = Ipv4Addr::new(127, 0, 0, 2).into();
        assert_eq!(soon(drill.step(Step::Move(there))).await, Ok(()));
        let locals = drill.endpoint.as_ref().unwrap().local_addrs();
        let is_any_port = |local: &SocketAddr| local.port() >= 1024;
        assert!(locals.iter().all(is_any_port), "{locals:?}");
        let locals: Vec<_> = locals.iter().map(SocketAddr::ip).collect();
        assert_eq!(locals, [there]);
        fetch(&drill.connection).await;
        drill.endpoint = None;
        let moved = drill.step(Step::Move(there)).await;
        assert_eq!(moved, Err("only a client moves".to_owned()));
    }

    #[tokio::test]
    async fn drill_step_follows_its_amount_of_data() {
        let drill = drill(1).await;
        assert_eq!(drill.bytes(0).now_or_never(), Some(()));
        assert_eq!(drill.bytes(FILE).now_or_never(), None);
        // Both directions count, and so do the headers of frames and packets.
        let waits = async { soon(drill.bytes(FILE)).await };
        tokio::join!(waits, fetch(&drill.connection));
        let more = drill.bytes(u64::from(u32::MAX));
        let end = async {
            fetch(&drill.connection).await;
            drill.connection.close(0u32.into(), b"");
        };
        tokio::join!(async { soon(more).await }, end);
    }

    #[tokio::test]
    async fn the_steps_of_a_drill_are_taken_one_by_one() {
        let drill = drill(1).await;
        let status = |status| Step::Status(PathId(0), status);
        let steps = [PathStatus::Backup, PathStatus::Available].map(status);
        start(&drill.connection, None, steps.to_vec());
        let path = drill.connection.path(PathId(0)).unwrap();
        let ours = || path.status().unwrap().0;
        for expected in [PathStatus::Backup, PathStatus::Available] {
            // Two files exceed 512 KiB, and one file does not.
            for _ in 0..2 {
                assert_ne!(ours(), expected, "too early");
                fetch(&drill.connection).await;
            }
            soon(drill.until(|| ours() == expected)).await;
        }
    }

    #[test]
    fn steps_are_read() {
        let read = |text: &str| text.parse::<Step>().ok();
        assert_eq!(read("wait"), Some(Step::Wait));
        assert_eq!(read("update-keys"), Some(Step::UpdateKeys));
        let address = IpAddr::from([127, 0, 0, 2]);
        assert_eq!(read("move=127.0.0.2"), Some(Step::Move(address)));
        assert_eq!(read("close=0"), Some(Step::Close(PathId(0))));
        let backup = Step::Status(PathId(1), PathStatus::Backup);
        assert_eq!(read("backup=1"), Some(backup));
        let available = Step::Status(PathId(2), PathStatus::Available);
        assert_eq!(read("available=2"), Some(available));
        assert_eq!(read("renew"), Some(Step::Renew));
        for wrong in ["", "close", "close=x", "move=1", "jump"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
