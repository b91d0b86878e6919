//! The command line.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

pub(crate) const USAGE: &str = "\
usage: PEER server --listen ADDR:PORT --dir DIR [--retry]
       PEER client URL.. --out FILE [--connections N] [--second-path]";

/// What to do.
#[derive(Debug)]
pub enum Command {
    /// Serve files.
    Server(Server),
    /// Fetch files.
    Client(Client),
}

/// How to serve.
#[derive(Debug)]
pub struct Server {
    /// Address and port to listen on.
    pub listen: SocketAddr,
    /// Where the files are.
    pub directory: PathBuf,
    /// Whether clients have to prove their address by a Retry.
    pub retry: bool,
}

/// What to fetch.
#[derive(Debug)]
pub struct Client {
    /// The server.
    pub remote: SocketAddr,
    /// The server's name.
    pub host: String,
    /// The files, each with its leading slash.
    pub paths: Vec<String>,
    /// Receives the files, one after the other; written anew by each connection.
    pub out: PathBuf,
    /// How many connections to make, one after the other.
    pub connections: u32,
    /// Whether each opens a second path before it fetches anything.
    pub second_path: bool,
}

pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Command, String> {
    match args.next().as_deref() {
        Some("server") => server(args).map(Command::Server),
        Some("client") => client(args).map(Command::Client),
        _ => Err("neither server nor client".to_owned()),
    }
}

fn server(mut args: impl Iterator<Item = String>) -> Result<Server, String> {
    let (mut listen, mut directory, mut retry) = (None, None, false);
    while let Some(option) = args.next() {
        match option.as_str() {
            "--listen" => listen = Some(value(&option, args.next())?),
            "--dir" => directory = Some(value(&option, args.next())?),
            "--retry" => retry = true,
            _ => return Err(format!("unknown option {option}")),
        }
    }
    Ok(Server {
        listen: listen.ok_or("no --listen")?,
        directory: directory.ok_or("no --dir")?,
        retry,
    })
}

fn client(mut args: impl Iterator<Item = String>) -> Result<Client, String> {
    let (mut urls, mut out, mut connections, mut second_path) = (Vec::new(), None, 1, false);
    while let Some(option) = args.next() {
        match option.as_str() {
            "--out" => out = Some(value(&option, args.next())?),
            "--connections" => connections = value(&option, args.next())?,
            "--second-path" => second_path = true,
            _ if option.starts_with("--") => return Err(format!("unknown option {option}")),
            _ => urls.push(split(&option).ok_or_else(|| format!("no URL: {option}"))?),
        }
    }
    let (authority, _) = urls.first().ok_or("no URL")?;
    if urls.iter().any(|(other, _)| other != authority) {
        return Err("URLs of several servers".to_owned());
    }
    let remote = authority
        .to_socket_addrs()
        .map_err(|error| format!("{authority}: {error}"))?
        .next()
        .ok_or("the server has no address")?;
    let (host, _) = authority.rsplit_once(':').ok_or("no port")?;
    Ok(Client {
        remote,
        host: host.trim_matches(['[', ']']).to_owned(),
        paths: urls.iter().map(|(_, path)| path.clone()).collect(),
        out: out.ok_or("no --out")?,
        connections,
        second_path,
    })
}

fn value<T: std::str::FromStr>(option: &str, text: Option<String>) -> Result<T, String> {
    let text = text.ok_or_else(|| format!("{option} without a value"))?;
    text.parse()
        .map_err(|_| format!("{option}: cannot use `{text}`"))
}

/// `https://HOST:PORT/FILE` as `HOST:PORT` and `/FILE`.
fn split(url: &str) -> Option<(String, String)> {
    let rest = url.strip_prefix("https://")?;
    let (authority, path) = rest.split_at(rest.find('/')?);
    Some((authority.to_owned(), path.to_owned()))
}
