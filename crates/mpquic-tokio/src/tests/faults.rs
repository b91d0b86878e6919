//! Sockets that fail at random in every way: no stream byte is lost, doubled or altered,
//! connections end as applications want, and the endpoints keep no memory.
//!
//! `FAULTS=1000` sets the number of seeds, `SEED=n` sets the first seed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, advance, sleep, timeout};

use crate::testing::{Error, Errors, Host, Pair, Port, Random, TestResult, pattern};
use crate::{Connection, ConnectionError, Endpoint};

const MS: Duration = Duration::from_millis(1);
/// Time limit of a run: faults last for a few seconds, and probe timeouts double meanwhile.
pub(super) const LIMIT: Duration = Duration::from_secs(120);

/// The port after which the client chooses its next ports.
const FIRST_PORT: u16 = 1000;

/// EPERM, EAGAIN, ENOBUFS, ENOMEM and EMSGSIZE: the datagram is not sent.
const PASSING: &[i32] = &[1, 11, 105, 12, 90];
/// EIO, EINVAL, EINTR, EMFILE: errors that a call on a socket should never return.
const ODD: &[i32] = &[5, 22, 4, 24];
/// ENETUNREACH, EHOSTUNREACH, ENETDOWN, EADDRNOTAVAIL and ENODEV: the system has no route.
const UNREACHABLE: &[i32] = &[101, 113, 100, 99, 19];
/// ECONNREFUSED and the like: an ICMP message has arrived.
const REFUSED: &[i32] = &[111, 101, 113, 71, 92];

pub(super) fn number(variable: &str, default: u64) -> u64 {
    let given = std::env::var(variable);
    given.map_or(default, |value| value.parse().unwrap())
}

/// The faults of the sockets of both sides.
struct Trouble {
    start: Instant,
    pair: Pair,
    random: Random,
    /// The next port that the client moves to.
    port: u16,
}

impl Trouble {
    fn ports(&self) -> Vec<Arc<Port>> {
        let both = self.pair.at_client.iter().chain(&self.pair.at_server);
        both.cloned().collect()
    }

    /// True if a client moved more than once and received no later packet. The client needs a
    /// connection ID for each address (RFC 9000 section 9.5), and gets no connection ID while no
    /// packet arrives. A server that gives up a new path can report so only on the old path, at an
    /// address that is gone.
    fn is_stranded(&self, sides: [&Connection; 2]) -> bool {
        let silent = Some(ConnectionError::TimedOut);
        let timed_out = sides.iter().any(|side| side.close_reason() == silent);
        self.port > FIRST_PORT + 1 && timed_out
    }

    /// Breaks or heals a socket.
    async fn act(&mut self) -> TestResult {
        let ports = self.ports();
        let index = self.random.below(ports.len() as u64) as usize;
        let port = &ports[index];
        let errors = |random: &mut Random, numbers| {
            let percent = random.one_of(&[5, 50, 100]);
            Some(Errors::new(random.next(), percent, numbers))
        };
        let what = self.random.below(10);
        println!("{:?}: {what} at {:?}", self.start.elapsed(), port.local());
        match what {
            0 | 1 => {
                let numbers = self.random.one_of(&[PASSING, ODD, UNREACHABLE, REFUSED]);
                port.fail_at_random(errors(&mut self.random, numbers), None);
            }
            2 => {
                let numbers = self.random.one_of(&[ODD, REFUSED]);
                port.fail_at_random(None, errors(&mut self.random, numbers));
            }
            3 => port.fill_after(self.random.below(20) as usize),
            4 => port.set_max_size(self.random.one_of(&[1199, 1200, 1300, 1400])),
            5 => port.silence(true),
            // The process gets no time, and every datagram and timer is late.
            6 => advance(MS * self.random.below(3000) as u32).await,
            7 if index < self.pair.at_client.len() => {
                self.port += 1;
                let new = format!("{}:{}", port.local().ip(), self.port);
                self.pair.at_client[index] = self.pair.client.replace(port.local(), &new)?;
            }
            _ => heal(port),
        }
        Ok(())
    }

    /// Disturbs the sockets for a while, and then heals the sockets.
    async fn run(&mut self) -> TestResult {
        let end = Instant::now() + MS * self.random.below(8000) as u32;
        while Instant::now() < end {
            self.act().await?;
            let longest = self.random.one_of(&[5, 50, 500]);
            sleep(MS * self.random.below(longest) as u32).await;
            let ports = self.ports();
            // The runtime reports room, even with a full buffer.
            self.random.one_of(&ports.iter().collect::<Vec<_>>()).wake();
        }
        self.ports().iter().for_each(|port| heal(port));
        Ok(())
    }
}

/// Makes the socket work again.
fn heal(port: &Port) {
    port.fail_at_random(None, None);
    port.set_max_size(usize::MAX);
    port.silence(false);
    port.empty();
}

/// Sends streams one after the other.
async fn send(from: &Connection, to: &Connection, mut random: Random) -> TestResult {
    for _ in 0..random.below(4) {
        let size = random.one_of(&[1, 3000, 100_000, 1_000_000]);
        let data = pattern(random.below(size) as usize);
        let pause = MS * random.one_of(&[0, 0, 100, 2000]);
        let write = async {
            let mut stream = from.open_uni().await?;
            stream.write_all(&data).await?;
            stream.finish()?;
            Ok::<_, Error>(stream.stopped().await?)
        };
        let read = async {
            let mut stream = to.accept_uni().await?;
            // A slow reader.
            sleep(pause).await;
            Ok::<_, Error>(stream.read_to_end(data.len()).await?)
        };
        let (_, read) = tokio::try_join!(write, read)?;
        assert!(read == data, "something else arrived");
    }
    Ok(())
}

/// Asks questions and checks the answers.
async fn ask(from: &Connection, to: &Connection, mut random: Random) -> TestResult {
    for _ in 0..random.below(4) {
        let data = pattern(random.below(20_000) as usize);
        let ask = async {
            let (mut send, mut receive) = from.open_bi().await?;
            send.write_all(&data).await?;
            send.finish()?;
            Ok::<_, Error>(receive.read_to_end(data.len()).await?)
        };
        let answer = async {
            let (mut send, mut receive) = to.accept_bi().await?;
            let data = receive.read_to_end(usize::MAX).await?;
            send.write_all(&data).await?;
            Ok::<_, Error>(send.finish()?)
        };
        let (answer, ()) = tokio::try_join!(ask, answer)?;
        assert!(answer == data, "something else came back");
    }
    Ok(())
}

/// Sends DATAGRAMs; the network may lose some.
async fn send_datagrams(from: &Connection, mut random: Random) -> TestResult {
    for number in 0..random.below(50) as u32 {
        let data = pattern(4 * (number as usize + 2)).slice(4..);
        let numbered = [&number.to_be_bytes()[..], &data].concat();
        from.send_datagram(numbered.into())?;
        sleep(MS * random.below(100) as u32).await;
    }
    Ok(())
}

/// Checks the received DATAGRAMs: no DATAGRAM arrives twice.
fn check_datagrams(received: &[Bytes]) {
    let mut numbers = BTreeSet::new();
    for datagram in received {
        let number = u32::from_be_bytes(*datagram.first_chunk().unwrap());
        let data = pattern(4 * (number as usize + 2)).slice(4..);
        assert!(datagram[4..] == data, "datagram {number} was altered");
        assert!(numbers.insert(number), "datagram {number} came twice");
    }
}

async fn work(a: &Connection, b: &Connection, random: &mut Random) -> TestResult {
    let mut seed = || Random(random.next());
    let mut received = Vec::new();
    let receive = async {
        while let Ok(datagram) = b.read_datagram().await {
            received.push(datagram);
        }
        Ok(())
    };
    let work = async {
        tokio::try_join!(
            send(a, b, seed()),
            send(b, a, seed()),
            ask(a, b, seed()),
            ask(b, a, seed()),
            send_datagrams(a, seed()),
        )?;
        Ok::<_, Error>(())
    };
    tokio::select! {
        result = work => result?,
        result = receive => return result,
    }
    check_datagrams(&received);
    Ok(())
}

/// Both sides' connections end, and the endpoints keep no memory.
async fn end(trouble: &mut Trouble, a: Connection, b: Connection) -> TestResult {
    let Trouble {
        random, pair, port, ..
    } = trouble;
    let (closes, other) = match random.below(2) {
        0 => (a, b),
        _ => (b, a),
    };
    if random.below(2) == 0 {
        closes.close(7u32.into(), b"enough");
    }
    // The drop of the last handle closes, too.
    drop(closes);
    let reason = other.closed().await;
    let is_told = matches!(reason, ConnectionError::ApplicationClosed(_));
    // The server may have sent its close to an address that the client has left.
    let is_missed = *port > FIRST_PORT && reason == ConnectionError::Reset;
    // A server that could not move may have closed: see `Trouble::is_stranded`.
    let is_unheard = *port > FIRST_PORT + 1 && reason == ConnectionError::TimedOut;
    assert!(is_told || is_missed || is_unheard, "{reason:?}");
    drop(other);
    let untaken = drop_untaken(&pair.server.endpoint).await;
    println!("{untaken} untaken");
    for host in [&pair.client, &pair.server] {
        keep_nothing(host).await;
    }
    Ok(())
}

/// The endpoint's connections end, and the endpoint keeps no memory.
pub(super) async fn keep_nothing(host: &Host) {
    host.endpoint.wait_idle().await;
    assert_eq!(host.endpoint.open_connections(), 0);
    host.state.sockets.remove(|_| true);
    // The tasks of the sockets end.
    sleep(MS).await;
    assert_eq!(host.endpoint.stats().memory, 0);
}

/// A client without an answer tries its other addresses, too, and the server's application has not
/// taken the further attempts.
async fn drop_untaken(endpoint: &Endpoint) -> usize {
    let mut count = 0;
    while let Ok(Some(incoming)) = timeout(MS, endpoint.accept()).await {
        incoming.ignore();
        count += 1;
    }
    count
}

/// Runs with the pair that `pair` makes for a number of paths.
pub(super) async fn run(seed: u64, pair: impl FnOnce(usize) -> Result<Pair, Error>) -> TestResult {
    let mut random = Random(seed);
    let paths = 1 + random.below(3) as usize;
    let mut trouble = Trouble {
        start: Instant::now(),
        pair: pair(paths)?,
        random: Random(random.next()),
        port: FIRST_PORT,
    };
    let early = random.below(4) == 0;
    let (a, b) = match early {
        // The handshake sends refused datagrams again.
        true => {
            let port = &trouble.pair.at_client[0];
            port.fail_at_random(Some(Errors::new(random.next(), 60, PASSING)), None);
            trouble.pair.connect().await?
        }
        false => trouble.pair.connect_over(paths).await?,
    };
    // A client cannot move before the confirmation (RFC 9000 section 9).
    a.handshake_confirmed().await?;
    let result = tokio::try_join!(work(&a, &b, &mut random), trouble.run());
    if result.is_err() && trouble.is_stranded([&a, &b]) {
        println!("stranded");
        return Ok(());
    }
    if let Err(error) = result {
        let elapsed = trouble.start.elapsed();
        println!(
            "{elapsed:?}: {error}, {:?}, {:?}",
            a.path_stats(),
            b.path_stats()
        );
        return Err(error);
    }
    end(&mut trouble, a, b).await
}

#[tokio::test(start_paused = true)]
async fn sockets_fail_at_random() -> TestResult {
    let first = number("SEED", 0);
    for seed in first..first + number("FAULTS", 60) {
        println!("seed {seed}");
        timeout(LIMIT, run(seed, Pair::with_paths)).await??;
    }
    Ok(())
}
