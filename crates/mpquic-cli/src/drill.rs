//! Steps that interoperability tests make one side take in the middle of a transfer.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use mpquic_tokio::{Connection, Endpoint, PathId, PathState, PathStatus};

/// Bytes of datagrams, both directions together, between two steps.
const BYTES_BETWEEN: u64 = 512 << 10;
/// How often it is checked whether the next step is due.
const LOOK: Duration = Duration::from_millis(2);

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing but the wait for more data that precedes every step.
    Wait,
    /// Update the keys.
    UpdateKeys,
    /// Use this local address instead of the first one.
    Move(IpAddr),
    /// Abandon a path, once there is another one.
    Close(PathId),
    /// Abandon the newest path and open another one between the same addresses.
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

/// Takes the steps on a task of its own, each after some more data. The task ends with the
/// connection.
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
    use super::*;

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
        for wrong in ["", "close", "close=x", "move=1", "jump"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
