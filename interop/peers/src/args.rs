//! The command line.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

/// The usage of a peer.
pub const USAGE: &str = "\
usage: PEER server --listen ADDR:PORT --dir DIR --cert PEM --key PEM [--retry] [--drill STEPS]
       PEER client URL.. --out DIR [--connections N] [--early-data] [--paths N] [--drill STEPS]
steps: update-keys move=ADDR close=PATH renew backup=PATH available=PATH, separated by commas";

/// The task of a peer.
#[derive(Debug)]
pub enum Command {
    /// Serve files.
    Server(Server),
    /// Fetch files.
    Client(Client),
}

/// The options of a server.
#[derive(Debug)]
pub struct Server {
    /// Address and port to listen on.
    pub listen: SocketAddr,
    /// The directory of the files.
    pub directory: PathBuf,
    /// The certificate, in PEM.
    pub certificate: PathBuf,
    /// The certificate's key, in PEM.
    pub key: PathBuf,
    /// True if clients have to prove their address by a Retry.
    pub retry: bool,
    /// The drill for each connection.
    pub drill: Vec<Step>,
}

/// The options of a client.
#[derive(Debug)]
pub struct Client {
    /// The server.
    pub remote: SocketAddr,
    /// The server's name.
    pub host: String,
    /// The files, each with its leading slash.
    pub paths: Vec<String>,
    /// Receives the files, under their names; written anew by each connection.
    pub out: PathBuf,
    /// The number of connections, one after the other.
    pub connections: u32,
    /// True if requests may travel as 0-RTT data.
    pub early_data: bool,
    /// The number of paths that each connection opens before its first request.
    pub path_count: u8,
    /// The drill of each connection during the transfer.
    pub drill: Vec<Step>,
}

/// A step of a drill: an action in the middle of a transfer, after some data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Update the keys.
    UpdateKeys,
    /// Go on from this local address.
    Move(IpAddr),
    /// Abandon a path, once another path is open.
    Close(u32),
    /// Abandon the newest path and open another one between the same addresses.
    Renew,
    /// Use this path only if no other path works.
    Backup(u32),
    /// Use this path again.
    Available(u32),
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let path = || value.parse().map_err(|_| format!("no path: {text}"));
        match name {
            "update-keys" => Ok(Self::UpdateKeys),
            "renew" => Ok(Self::Renew),
            "move" => match value.parse() {
                Ok(address) => Ok(Self::Move(address)),
                Err(_) => Err(format!("no address: {text}")),
            },
            "close" => path().map(Self::Close),
            "backup" => path().map(Self::Backup),
            "available" => path().map(Self::Available),
            _ => Err(format!("unknown step {text}")),
        }
    }
}

/// A command line, argument by argument.
#[derive(Debug)]
pub struct Options<I> {
    rest: I,
    last: String,
}

impl<I: Iterator<Item = String>> Options<I> {
    /// A command line of arguments without the program's name.
    pub fn new(rest: I) -> Self {
        Self {
            rest,
            last: String::new(),
        }
    }

    /// The value of the option that [`Iterator::next`] returned last.
    ///
    /// # Errors
    /// A message if the value is missing or has another type.
    pub fn value<T: FromStr>(&mut self) -> Result<T, String> {
        let option = &self.last;
        let text = self.rest.next();
        let text = text.ok_or_else(|| format!("{option} without a value"))?;
        text.parse()
            .map_err(|_| format!("{option}: cannot use `{text}`"))
    }

    /// The values of the option, separated by commas.
    ///
    /// # Errors
    /// A message if the values are missing or one has another type.
    pub fn values<T: FromStr>(&mut self) -> Result<Vec<T>, String> {
        let option = self.last.clone();
        let text: String = self.value()?;
        text.split(',')
            .map(|value| value.parse())
            .collect::<Result<_, _>>()
            .map_err(|_| format!("{option}: cannot use `{text}`"))
    }
}

impl<I: Iterator<Item = String>> Iterator for Options<I> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let next = self.rest.next()?;
        self.last.clone_from(&next);
        Some(next)
    }
}

/// Reads a command line without the program's name.
///
/// # Errors
/// A message about the first fault.
pub fn parse(args: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut options = Options::new(args);
    match options.next().as_deref() {
        Some("server") => server(options).map(Command::Server),
        Some("client") => client(options).map(Command::Client),
        _ => Err("neither server nor client".to_owned()),
    }
}

fn server(mut options: Options<impl Iterator<Item = String>>) -> Result<Server, String> {
    let (mut listen, mut directory, mut certificate, mut key) = (None, None, None, None);
    let (mut retry, mut drill) = (false, Vec::new());
    while let Some(option) = options.next() {
        match option.as_str() {
            "--listen" => listen = Some(options.value()?),
            "--dir" => directory = Some(options.value()?),
            "--cert" => certificate = Some(options.value()?),
            "--key" => key = Some(options.value()?),
            "--retry" => retry = true,
            "--drill" => drill = options.values()?,
            _ => return Err(format!("unknown option {option}")),
        }
    }
    Ok(Server {
        listen: listen.ok_or("no --listen")?,
        directory: directory.ok_or("no --dir")?,
        certificate: certificate.ok_or("no --cert")?,
        key: key.ok_or("no --key")?,
        retry,
        drill,
    })
}

fn client(mut options: Options<impl Iterator<Item = String>>) -> Result<Client, String> {
    let (mut urls, mut out, mut connections) = (Vec::new(), None, 1);
    let (mut early_data, mut path_count, mut drill) = (false, 1, Vec::new());
    while let Some(option) = options.next() {
        match option.as_str() {
            "--out" => out = Some(options.value()?),
            "--connections" => connections = options.value()?,
            "--early-data" => early_data = true,
            "--paths" => path_count = options.value()?,
            "--drill" => drill = options.values()?,
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
        early_data,
        path_count,
        drill,
    })
}

/// `https://HOST:PORT/FILE` as `HOST:PORT` and `/FILE`.
fn split(url: &str) -> Option<(String, String)> {
    let rest = url.strip_prefix("https://")?;
    let (authority, path) = rest.split_at(rest.find('/')?);
    Some((authority.to_owned(), path.to_owned()))
}
