//! The two processes of a transfer: what is the same whatever the stack.

use std::net::Ipv4Addr;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use bytes::Bytes;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::unistd::Pid;
use tokio::runtime::{Builder, Runtime};

use crate::report::Cost;
use crate::{Result, Stack, Transfer, mpquic, quinn_peer};

/// What servers write at a time.
const PIECE: usize = 1 << 20;
/// Pieces clients read at a time.
pub(crate) const PIECES: usize = 64;

/// Runs a server for one transfer. Prints its port, then what the transfer cost it.
pub(crate) fn serve(stack: Stack, cpu: usize, transfer: &Transfer) -> Result<()> {
    let runtime = runtime(cpu)?;
    runtime.block_on(async {
        match stack {
            Stack::Mpquic => mpquic::serve(transfer).await,
            Stack::Quinn => quinn_peer::serve(transfer).await,
        }
    })
}

/// Runs a client. Prints the seconds it took, then what it cost.
pub(crate) fn fetch(
    (stack, paths): (Stack, u8),
    cpu: usize,
    port: u16,
    transfer: &Transfer,
) -> Result<()> {
    let server = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    let runtime = runtime(cpu)?;
    let before = usage()?;
    let (bytes, time) = runtime.block_on(async {
        match stack {
            Stack::Mpquic => mpquic::fetch(server, paths, transfer).await,
            Stack::Quinn => quinn_peer::fetch(server, transfer).await,
        }
    })?;
    if bytes != transfer.size << 20 {
        return Err(format!("received {bytes} bytes").into());
    }
    println!("{}", time.as_secs_f64());
    println!("{}", usage()? - before);
    Ok(())
}

/// One thread on one CPU for everything: tasks, sockets, timers.
fn runtime(cpu: usize) -> Result<Runtime> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &cpus)?;
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// CPU time of this process so far.
pub(crate) fn usage() -> Result<Cost> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    Ok(Cost {
        user: seconds(usage.user_time()),
        system: seconds(usage.system_time()),
    })
}

fn seconds(time: TimeVal) -> f64 {
    let whole = Duration::from_secs(time.tv_sec().unsigned_abs());
    let part = Duration::from_micros(time.tv_usec().unsigned_abs());
    (whole + part).as_secs_f64()
}

/// What a server sends: pieces of the same memory.
pub(crate) fn pieces(bytes: u64) -> impl Iterator<Item = Bytes> {
    let piece = Bytes::from(vec![0x5a; PIECE]);
    (0..bytes.div_ceil(PIECE as u64)).map(move |index| {
        let rest = bytes - index * PIECE as u64;
        piece.slice(..rest.min(PIECE as u64) as usize)
    })
}

/// A socket with the buffers asked for. mpquic makes its own.
pub(crate) fn socket(address: SocketAddr, transfer: &Transfer) -> Result<UdpSocket> {
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(address),
        socket2::Type::DGRAM,
        Some(socket2::Protocol::UDP),
    )?;
    socket.set_recv_buffer_size(transfer.buffer << 10)?;
    socket.set_send_buffer_size(transfer.buffer << 10)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}
