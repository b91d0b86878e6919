//! The command line.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

pub(crate) const USAGE: &str = "\
usage: PEER server --listen ADDR:PORT --dir DIR [--retry] [--close-first-path]
       PEER client URL.. --out FILE [--connections N] [--second-path] [--close-first-path]";

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
    /// Whether path 0 is closed as soon as there is a second one.
    pub close_first_path: bool,
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
    /// Whether path 0 is then closed.
    pub close_first_path: bool,
}

/// A command line, argument by argument.
#[derive(Debug)]
pub struct Options<I> {
    rest: I,
    last: String,
}

impl<I: Iterator<Item = String>> Options<I> {
    /// From arguments without the program's name.
    pub fn new(rest: I) -> Self {
        Self {
            rest,
            last: String::new(),
        }
    }

    /// The value of the option that [`Iterator::next`] returned last.
    ///
    /// # Errors
    /// A message if there is none, or one of another type.
    pub fn value<T: FromStr>(&mut self) -> Result<T, String> {
        let option = &self.last;
        let text = self.rest.next();
        let text = text.ok_or_else(|| format!("{option} without a value"))?;
        text.parse()
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

pub(crate) fn parse(args: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut options = Options::new(args);
    match options.next().as_deref() {
        Some("server") => server(options).map(Command::Server),
        Some("client") => client(options).map(Command::Client),
        _ => Err("neither server nor client".to_owned()),
    }
}

fn server(mut options: Options<impl Iterator<Item = String>>) -> Result<Server, String> {
    let (mut listen, mut directory) = (None, None);
    let (mut retry, mut close_first_path) = (false, false);
    while let Some(option) = options.next() {
        match option.as_str() {
            "--listen" => listen = Some(options.value()?),
            "--dir" => directory = Some(options.value()?),
            "--retry" => retry = true,
            "--close-first-path" => close_first_path = true,
            _ => return Err(format!("unknown option {option}")),
        }
    }
    Ok(Server {
        listen: listen.ok_or("no --listen")?,
        directory: directory.ok_or("no --dir")?,
        retry,
        close_first_path,
    })
}

fn client(mut options: Options<impl Iterator<Item = String>>) -> Result<Client, String> {
    let (mut urls, mut out, mut connections) = (Vec::new(), None, 1);
    let (mut second_path, mut close_first_path) = (false, false);
    while let Some(option) = options.next() {
        match option.as_str() {
            "--out" => out = Some(options.value()?),
            "--connections" => connections = options.value()?,
            "--second-path" => second_path = true,
            "--close-first-path" => close_first_path = true,
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
        close_first_path,
    })
}

/// `https://HOST:PORT/FILE` as `HOST:PORT` and `/FILE`.
fn split(url: &str) -> Option<(String, String)> {
    let rest = url.strip_prefix("https://")?;
    let (authority, path) = rest.split_at(rest.find('/')?);
    Some((authority.to_owned(), path.to_owned()))
}
