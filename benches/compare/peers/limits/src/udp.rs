//! UDP in trains (GSO) and coalesced (GRO), with a window so that nothing is dropped.
//!
//! The client asks with a datagram. The server sends packets: a number, the payload, room for a
//! tag. The client says every now and then how many packets it has.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use compare_peer::event::{Train, Udp};
use compare_peer::report::Meter;
use compare_peer::{Options, Result, ready};

use crate::aead::{Aead, HEADER, TAG};

/// Packets under way at most: what fits socket buffers, with what the kernel adds to each.
const WINDOW: u64 = 1400;
/// Packets between two reports of the client.
const REPORT: u64 = 200;
/// How long silence may last.
const PATIENCE: Duration = Duration::from_secs(1);

fn packets(options: &Options) -> u64 {
    let payload = usize::from(options.datagram) - HEADER - TAG;
    options.bytes().div_ceil(payload as u64)
}

/// Serves downloads, one after the other.
pub(crate) fn serve(options: &Options, aead: Option<impl Aead>) -> Result<()> {
    let mut udp = Udp::bind(options.server_socket(), options)?;
    ready(udp.address());
    let mut train = Train::new(options);
    loop {
        let mut client = None;
        udp.wait(None)?;
        udp.receive(|from, _| {
            client = Some(from);
            Ok(())
        })?;
        if let Some(client) = client {
            send(&mut udp, &mut train, client, options, aead.as_ref())?;
        }
    }
}

fn send(
    udp: &mut Udp,
    train: &mut Train,
    client: SocketAddr,
    options: &Options,
    aead: Option<&impl Aead>,
) -> Result<()> {
    let total = packets(options);
    let size = options.datagram.into();
    let (mut sent, mut arrived) = (0, 0);
    while arrived < total {
        train.begin();
        while train.has_room(size) && sent < total && sent - arrived < WINDOW {
            train.write(size, |packet| {
                packet[..HEADER].copy_from_slice(&sent.to_be_bytes());
                if let Some(aead) = aead {
                    aead.seal(sent, packet)?;
                }
                sent += 1;
                Ok(Some(packet.len()))
            })?;
        }
        if train.is_empty() {
            wait(udp)?;
        } else {
            while !udp.send(client, train)? {
                udp.wait_to_send()?;
            }
        }
        if sent - arrived > WINDOW / 2 || sent == total {
            udp.receive(|_, report| {
                arrived = arrived.max(number(report)?);
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// Downloads.
pub(crate) fn fetch(options: &Options, port: u16, aead: Option<impl Aead>) -> Result<()> {
    let mut udp = Udp::bind(options.client_socket(1), options)?;
    let server = options.server(port);
    let total = packets(options);
    let meter = Meter::start()?;
    let mut train = Train::new(options);
    report(&udp, &mut train, server, 0)?;
    let (mut arrived, mut reported) = (0, 0);
    while arrived < total {
        wait(&udp)?;
        udp.receive(|_, packet| {
            if let Some(aead) = &aead {
                aead.open(number(packet)?, packet)?;
            }
            arrived += 1;
            Ok(())
        })?;
        if arrived >= reported + REPORT || arrived == total {
            report(&udp, &mut train, server, arrived)?;
            reported = arrived;
        }
    }
    meter.stop(options.bytes(), "")
}

fn report(udp: &Udp, train: &mut Train, server: SocketAddr, arrived: u64) -> Result<()> {
    train.begin();
    train.push(&arrived.to_be_bytes());
    udp.send(server, train)?;
    Ok(())
}

fn number(packet: &[u8]) -> Result<u64> {
    let number = packet.first_chunk().ok_or("a short packet")?;
    Ok(u64::from_be_bytes(*number))
}

/// Waits for a datagram. There is always one: nothing is dropped.
fn wait(udp: &Udp) -> Result<()> {
    let start = Instant::now();
    udp.wait(Some(start + PATIENCE))?;
    if start.elapsed() < PATIENCE {
        Ok(())
    } else {
        Err("packets were dropped".into())
    }
}
