//! A UDP relay that misbehaves as networks do: it loses datagrams, changes its port as a NAT does
//! after a pause, or lets one client's datagrams vanish.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mpquic_interop_peers::{Error, Options};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

const USAGE: &str =
    "usage: relay --to ADDR:PORT [--drop PERCENT] [--rebind-after N] [--second-dies-after N]";

#[derive(Debug)]
struct Relay {
    to: SocketAddr,
    /// Share of datagrams lost in each direction, in percent.
    drop: u64,
    /// Datagrams of a client after which it gets another port.
    rebind_after: Option<u64>,
    /// Datagrams of or to the second client after which no more pass.
    second_dies_after: Option<u64>,
    front: Arc<UdpSocket>,
}

/// The datagrams of one client.
struct Flow {
    upstream: Arc<UdpSocket>,
    back: JoinHandle<()>,
    /// Datagrams of the client.
    count: u64,
    fate: Arc<Fate>,
}

/// Whether a client's datagrams still pass.
struct Fate {
    left: AtomicU64,
}

impl Fate {
    /// Counts a datagram; true if it passes.
    fn passes(&self) -> bool {
        let left = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            });
        if left == Ok(1) {
            println!("the second client is dead");
        }
        left.is_ok()
    }
}

/// Decides which datagrams are lost: the same ones in each run.
struct Dice(u64);

impl Dice {
    fn hit(&mut self, percent: u64) -> bool {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % 100 < percent
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let relay = match Relay::new().await {
        Ok(relay) => relay,
        Err(error) => {
            eprintln!("error: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match relay.run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Relay {
    async fn new() -> Result<Self, Error> {
        let mut options = Options::new(std::env::args().skip(1));
        let (mut to, mut drop, mut rebind_after, mut second_dies_after) = (None, 0, None, None);
        while let Some(option) = options.next() {
            match option.as_str() {
                "--to" => to = Some(options.value()?),
                "--drop" => drop = options.value()?,
                "--rebind-after" => rebind_after = Some(options.value()?),
                "--second-dies-after" => second_dies_after = Some(options.value()?),
                _ => return Err(format!("unknown option {option}").into()),
            }
        }
        let front = UdpSocket::bind("127.0.0.1:0").await?;
        println!("listening on {}", front.local_addr()?);
        Ok(Self {
            to: to.ok_or("no --to")?,
            drop,
            rebind_after,
            second_dies_after,
            front: Arc::new(front),
        })
    }

    async fn run(self) -> Result<(), Error> {
        let mut flows = HashMap::new();
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
        let mut buffer = vec![0; 1 << 16];
        loop {
            let (size, client) = self.front.recv_from(&mut buffer).await?;
            if !flows.contains_key(&client) {
                let flow = self.flow(client, flows.len() == 1).await?;
                flows.insert(client, flow);
            }
            let Some(flow) = flows.get_mut(&client) else {
                continue;
            };
            flow.count += 1;
            if Some(flow.count) == self.rebind_after {
                flow.back.abort();
                (flow.upstream, flow.back) = self.bind(client, flow.fate.clone()).await?;
                println!("{client} has another port");
            }
            if flow.fate.passes() && !dice.hit(self.drop) {
                // What cannot be sent is lost, as on any network.
                let _ = flow.upstream.send(&buffer[..size]).await;
            }
        }
    }

    async fn flow(&self, client: SocketAddr, is_second: bool) -> Result<Flow, Error> {
        let limit = self.second_dies_after.filter(|_| is_second);
        let left = AtomicU64::new(limit.unwrap_or(u64::MAX));
        let fate = Arc::new(Fate { left });
        let (upstream, back) = self.bind(client, fate.clone()).await?;
        Ok(Flow {
            upstream,
            back,
            count: 0,
            fate,
        })
    }

    /// A socket towards the server, and the task that takes what comes back to the client.
    async fn bind(
        &self,
        client: SocketAddr,
        fate: Arc<Fate>,
    ) -> Result<(Arc<UdpSocket>, JoinHandle<()>), Error> {
        let upstream = UdpSocket::bind("127.0.0.1:0").await?;
        upstream.connect(self.to).await?;
        let upstream = Arc::new(upstream);
        let (front, from, drop) = (self.front.clone(), upstream.clone(), self.drop);
        let mut dice = Dice(u64::from(upstream.local_addr()?.port()) << 32 | 1);
        let back = tokio::spawn(async move {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(size) = from.recv(&mut buffer).await {
                if fate.passes() && !dice.hit(drop) {
                    let _ = front.send_to(&buffer[..size], client).await;
                }
            }
        });
        Ok((upstream, back))
    }
}
