//! `mpquic demo`: a server, a client, two paths and a download, all in this process.

pub(crate) mod args;
pub(crate) mod outage;
pub(crate) mod relay;

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::Uri;
use mpquic_tokio::{ClientConfig, Endpoint, ServerConfig, VarInt};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::client::protocol::Ask;
use crate::client::requests::Clients;
use crate::demo::args::Demo;
use crate::demo::outage::{Outage, Told};
use crate::demo::relay::Relay;
use crate::files::file_state::FileState;
use crate::files::{Content, OpenError, Reader, Source};
use crate::get::download::{Download, Treatment};
use crate::get::left::Left;
use crate::get::note_key::NoteKey;
use crate::get::sink::Destination;
use crate::options::trust::{Checked, Trust, Verifier};
use crate::options::{Alpn, TlsArgs};
use crate::process::failure::Failure;
use crate::process::screen;
use crate::rate::Limit;
use crate::rate::controller::limited;
use crate::report::{Report, rate};
use crate::serve::drain::{CLOSE_TIME, drain};
use crate::serve::endpoints::Endpoints;
use crate::serve::{self, Service};
use crate::text::hex::hex;
use crate::text::json;

const PATHS: u32 = 2;
/// A transfer within one process never stalls this long.
const STALL: Duration = Duration::from_secs(60);

/// Transfers generated data and checks that it arrived unchanged.
pub(crate) async fn run(args: Demo) -> Result<(), Failure> {
    let generated = Arc::new(Generated::new(args.mib << 20));
    let alpn = [Alpn::HqInterop.bytes()];
    let (config, fingerprint) = serve::self_signed(&[], &alpn)?;
    let mut transport = args.policy.transport(PATHS);
    if let Limit(Some(rate)) = args.rate {
        transport.controller = limited(transport.controller, rate.bytes_per_second());
    }
    args.qlog.apply(&mut transport)?;
    let config = config.transport_config(transport.build().map_err(Failure::usage)?);
    let server = two_addresses(Some(config))?;
    let source: Arc<dyn Source> = generated.clone();
    let accepting = tokio::spawn({
        let server = Endpoints::one(server.clone());
        async move { Service::new(source).accept(&server, drain().1).await }
    });

    let addresses = server.local_addrs();
    let [first, second] = addresses[..] else {
        return Err(Failure::other("the server has fewer than two addresses"));
    };
    let relay = Relay::start(second.ip(), second).await;
    let relay = relay.map_err(|error| Failure::other(format!("no link to cut: {error}")))?;
    let verifier = Verifier::new(&Trust::Pin(fingerprint), TlsArgs::default().provider())?;
    let mut transport = args.policy.transport(PATHS);
    args.qlog.apply(&mut transport)?;
    let transport = transport.build().map_err(Failure::usage)?;
    let config = ClientConfig::new(Arc::new(verifier.tls(&alpn)?))
        .transport_config(transport)
        .server_addresses(vec![first, relay.address()]);
    let client = two_addresses(None)?;
    let connection = client
        .connect_with(config, first, "localhost")
        .map_err(Failure::other)?
        .await
        .map_err(Failure::other)?;
    if !args.json {
        screen::say(format_args!("{}", announcement(&args)));
    }
    let url = Uri::from_static("https://localhost/generated");
    let treatment = Treatment {
        total: Arc::default(),
        left: Left::default(),
        // Nothing is written to files.
        key: Arc::new(NoteKey::at(None)),
        checked: Checked::Certificate,
        quiet: args.json,
        resume: false,
        replace: true,
        private: false,
        pace: None,
        stall: STALL,
        json: None,
    };
    let mut download = Download::start(&url, &Destination::Nowhere, treatment).await?;
    download.length = Some(generated.length);
    let client = Clients::new(connection.clone()).established().await?;
    let mut outage = Outage::new(&args, relay, &connection, download.count.clone());
    let ask = Ask::get(&url);
    let fetched = tokio::select! {
        fetched = download.fetch(&ask, &connection, client) => fetched,
        () = outage.run(), if !args.steady => Ok(()),
    };
    fetched?;
    let outage = outage.told;
    let report = download.finish(&connection, None).await?;

    connection.close(VarInt::from_u32(0), b"done");
    server.close(VarInt::from_u32(0), b"done");
    let _ = tokio::time::timeout(CLOSE_TIME, accepting).await;
    tell(&args, &report, outage)?;
    let sent = generated.sha256.get().map(|hash| hex(hash));
    compare(&args, sent, &report.sha256)
}

/// Reports whether the file arrived unchanged.
fn compare(args: &Demo, sent: Option<String>, received: &str) -> Result<(), Failure> {
    match sent {
        Some(sent) if sent == received => {
            let matching = "SHA-256 of what was sent and of what arrived match";
            if !args.json {
                screen::print(format_args!("{matching}: {sent}"));
            }
            Ok(())
        }
        Some(sent) => Err(Failure::other(format!(
            "SHA-256 differs: sent {sent}, received {received}"
        ))),
        None => Err(Failure::other("the data was not sent to its end")),
    }
}

fn announcement(args: &Demo) -> String {
    let rate = match args.rate {
        Limit(None) => String::new(),
        Limit(Some(limit)) => {
            let limit = rate(limit.bytes_per_second() as f64);
            format!(", each held to {limit}")
        }
    };
    let cut = if args.steady {
        ""
    } else {
        " One is cut after 40 %, and back after 70 %."
    };
    format!(
        "Downloading {} MiB of generated data over two loopback paths{rate}.{cut}",
        args.mib
    )
}

fn tell(args: &Demo, report: &Report, outage: Told) -> Result<(), Failure> {
    if args.json {
        let all = All { report, outage };
        json::print(&all);
        return Ok(());
    }
    screen::write(report.table());
    screen::print(report.summary());
    if args.steady {
        return Ok(());
    }
    let gap = report.longest_gap_ms.unwrap_or_default();
    screen::print(format_args!("Longest time without data: {gap:.0} ms"));
    match outage.used_again_ms {
        Some(time) => screen::print(format_args!(
            "The cut link carried data again after {time:.0} ms"
        )),
        None => screen::print(format_args!("The cut link carried no data before the end")),
    }
    Ok(())
}

/// The JSON output.
#[derive(Debug, Serialize)]
struct All<'a> {
    #[serde(flatten)]
    report: &'a Report,
    outage: Told,
}

/// An endpoint on 127.0.0.1 and 127.0.0.2, or twice on 127.0.0.1 where the system has no 127.0.0.2.
fn two_addresses(server: Option<ServerConfig>) -> Result<Endpoint, Failure> {
    let bind = |second: Ipv4Addr| {
        let any_port = |ip: Ipv4Addr| SocketAddr::new(IpAddr::V4(ip), 0);
        let builder = Endpoint::builder()
            .bind(any_port(Ipv4Addr::LOCALHOST))
            .bind(any_port(second));
        match server.clone() {
            Some(config) => builder.server(config).build(),
            None => builder.build(),
        }
    };
    bind(Ipv4Addr::new(127, 0, 0, 2))
        .or_else(|_| bind(Ipv4Addr::LOCALHOST))
        .map_err(|error| Failure::other(format!("cannot bind on loopback: {error}")))
}

/// Pseudorandom data that cannot be compressed or cached; hashed while it is generated.
struct Generated {
    length: u64,
    sha256: Arc<OnceLock<[u8; 32]>>,
}

impl Generated {
    fn new(length: u64) -> Self {
        Self {
            length,
            sha256: Arc::default(),
        }
    }
}

impl Source for Generated {
    fn open(&self, _: &str) -> Result<Content, OpenError> {
        Ok(Content {
            state: FileState {
                length: self.length,
                ..FileState::default()
            },
            reader: Box::new(Generator {
                state: 0x9e37_79b9_7f4a_7c15,
                left: self.length,
                hash: Sha256::new(),
                sha256: self.sha256.clone(),
            }),
        })
    }
}

struct Generator {
    state: u64,
    left: u64,
    hash: Sha256,
    sha256: Arc<OnceLock<[u8; 32]>>,
}

impl Generator {
    /// The next eight bytes (the generator xorshift64).
    fn next(&mut self) -> [u8; 8] {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state.to_le_bytes()
    }
}

impl Reader for Generator {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        io::copy(&mut self.take(bytes), &mut io::sink()).map(|_| ())
    }
}

impl Read for Generator {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let length = buf
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let filled = &mut buf[..length];
        for piece in filled.chunks_mut(8) {
            let bytes = self.next();
            piece.copy_from_slice(&bytes[..piece.len()]);
        }
        self.hash.update(&*filled);
        self.left -= length as u64;
        if self.left == 0 {
            // Reads after the end change nothing.
            let _ = self.sha256.set(self.hash.clone().finalize().into());
        }
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole data, in pieces of this size.
    fn read(generated: &Generated, skipped: u64, piece: usize) -> Vec<u8> {
        let mut reader = generated.open("/").unwrap().reader;
        reader.skip(skipped).unwrap();
        let mut all = Vec::new();
        let mut buffer = vec![0; piece];
        loop {
            match reader.read(&mut buffer).unwrap() {
                0 => return all,
                length => all.extend_from_slice(&buffer[..length]),
            }
        }
    }

    #[test]
    fn generated_data_repeats_and_is_hashed() {
        let generated = Generated::new(1003);
        let content = generated.open("/").unwrap();
        assert_eq!((content.state.length, content.state.modified), (1003, None));
        let mut part = content.reader;
        part.read_exact(&mut [0; 1000]).unwrap();
        assert!(generated.sha256.get().is_none(), "it is not over");
        let all = read(&generated, 0, 64);
        assert_eq!(all.len(), 1003);
        assert_eq!(
            generated.sha256.get().unwrap()[..],
            Sha256::digest(&all)[..]
        );
        assert_eq!(read(&Generated::new(1003), 0, 512), all);
        assert_eq!(read(&Generated::new(1003), 512, 512), all[512..]);
        // The generator xorshift64, by its definition.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for piece in all.chunks(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            assert_eq!(piece, &state.to_le_bytes()[..piece.len()]);
        }
    }
}
