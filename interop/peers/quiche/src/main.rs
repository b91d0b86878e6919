//! HTTP/0.9 on quiche.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token};
use mpquic_interop_peers::{
    BYTES_BETWEEN, Client, Command, Error, Server, Step, USAGE, any_port, parse,
};
use quiche::{Config, ConnectionId, Header, Type};

mod session;

use session::{MAX_DATAGRAM, Session, connection_id};

const PROTOCOL: &[u8] = b"hq-interop";
/// The longest time of the client.
const LIMIT: Duration = Duration::from_secs(110);
const CONNECTION_ID_LENGTH: usize = 16;
/// Begins the tokens of Retry packets.
const TOKEN: &[u8] = b"retry";

fn main() -> ExitCode {
    let result = match parse(std::env::args().skip(1)) {
        Ok(Command::Server(args)) => serve(&args),
        Ok(Command::Client(args)) => fetch(&args),
        Err(message) => {
            eprintln!("error: {message}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn config() -> Result<Config, Error> {
    let mut config = Config::new(quiche::PROTOCOL_VERSION)?;
    config.set_application_protos(&[PROTOCOL])?;
    config.set_max_idle_timeout(30_000);
    config.set_max_recv_udp_payload_size(MAX_DATAGRAM);
    config.set_max_send_udp_payload_size(MAX_DATAGRAM);
    config.set_initial_max_data(8 << 20);
    config.set_initial_max_stream_data_bidi_local(4 << 20);
    config.set_initial_max_stream_data_bidi_remote(4 << 20);
    config.set_initial_max_streams_bidi(100);
    config.set_active_connection_id_limit(4);
    config.enable_early_data();
    config.enable_pacing(false);
    Ok(config)
}

/// Sockets, and datagrams that wait for room.
struct Sockets {
    poll: Poll,
    events: Events,
    open: Vec<UdpSocket>,
}

impl Sockets {
    fn new() -> Result<Self, Error> {
        Ok(Self {
            poll: Poll::new()?,
            events: Events::with_capacity(16),
            open: Vec::new(),
        })
    }

    fn add(&mut self, address: SocketAddr) -> Result<SocketAddr, Error> {
        let mut socket = UdpSocket::bind(address)?;
        let token = Token(self.open.len());
        self.poll
            .registry()
            .register(&mut socket, token, Interest::READABLE)?;
        let local = socket.local_addr()?;
        self.open.push(socket);
        Ok(local)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), Error> {
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Takes all received datagrams.
    fn receive(
        &self,
        mut take: impl FnMut(&UdpSocket, &mut [u8], SocketAddr) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut buffer = [0; 1 << 16];
        for socket in &self.open {
            // An error means that no datagram is left.
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                take(socket, &mut buffer[..length], from)?;
            }
        }
        Ok(())
    }
}

fn serve(args: &Server) -> Result<(), Error> {
    let path = |path: &Path| path.to_str().map(str::to_owned).ok_or("no text");
    let mut config = config()?;
    config.load_cert_chain_from_pem_file(&path(&args.certificate)?)?;
    config.load_priv_key_from_pem_file(&path(&args.key)?)?;
    let mut sockets = Sockets::new()?;
    let local = sockets.add(args.listen)?;
    println!("listening on {local}");
    // By the client's first destination and by our own connection IDs.
    let mut ids: HashMap<ConnectionId<'static>, usize> = HashMap::new();
    let mut sessions: Vec<Option<Session>> = Vec::new();
    loop {
        let timeouts = sessions.iter().flatten();
        let timeout = timeouts.filter_map(|session| session.connection.timeout());
        sockets.wait(timeout.min())?;
        for session in sessions.iter_mut().flatten() {
            session.connection.on_timeout();
        }
        sockets.receive(|socket, data, from| {
            let Ok(header) = Header::from_slice(data, CONNECTION_ID_LENGTH) else {
                return Ok(());
            };
            let known = ids.get(&header.dcid).copied();
            let index = match known {
                Some(index) => index,
                None => {
                    let Some(session) = accept(args, &mut config, socket, &header, from)? else {
                        return Ok(());
                    };
                    ids.insert(header.dcid.clone().into_owned(), sessions.len());
                    sessions.push(Some(session));
                    sessions.len() - 1
                }
            };
            if let Some(session) = sessions.get_mut(index).and_then(Option::as_mut) {
                session.receive(data, from, local);
                session.read_requests(&args.directory);
            }
            Ok(())
        })?;
        for (index, slot) in sessions.iter_mut().enumerate() {
            let Some(session) = slot else { continue };
            session.transmit(&sockets.open)?;
            while session.connection.path_event_next().is_some() {}
            for id in session.connection.source_ids() {
                ids.insert(id.clone().into_owned(), index);
            }
            if session.connection.is_closed() {
                *slot = None;
                ids.retain(|_, known| *known != index);
            }
        }
    }
}

/// Takes a client's first packet. Returns a connection, or `None` after an answer without a
/// connection.
fn accept(
    args: &Server,
    config: &mut Config,
    socket: &UdpSocket,
    header: &Header<'_>,
    from: SocketAddr,
) -> Result<Option<Session>, Error> {
    let mut packet = [0; MAX_DATAGRAM];
    if header.ty != Type::Initial {
        return Ok(None);
    }
    if !quiche::version_is_supported(header.version) {
        let length = quiche::negotiate_version(&header.scid, &header.dcid, &mut packet)?;
        let _ = socket.send_to(&packet[..length], from);
        return Ok(None);
    }
    let token = header.token.as_deref().unwrap_or_default();
    let mut scid = connection_id()?;
    let mut original = None;
    if args.retry {
        // In a test, an address in the clear suffices as a token.
        let address = from.to_string();
        let proof = [TOKEN, &[address.len() as u8], address.as_bytes()].concat();
        match token.strip_prefix(proof.as_slice()) {
            Some(id) => {
                original = Some(ConnectionId::from_ref(id));
                scid = header.dcid.clone().into_owned();
            }
            None => {
                let token = [&proof, header.dcid.as_ref()].concat();
                let length = quiche::retry(
                    &header.scid,
                    &header.dcid,
                    &scid,
                    &token,
                    header.version,
                    &mut packet,
                )?;
                let _ = socket.send_to(&packet[..length], from);
                return Ok(None);
            }
        }
    }
    let local = socket.local_addr()?;
    let connection = quiche::accept(&scid, original.as_ref(), local, from, config)?;
    Ok(Some(Session::new(connection)))
}

fn fetch(args: &Client) -> Result<(), Error> {
    let mut config = config()?;
    config.verify_peer(false);
    let mut known = None;
    for _ in 0..args.connections {
        known = connect(args, &mut config, known)?;
    }
    Ok(())
}

/// Runs one connection until every file is complete; returns the TLS session.
fn connect(
    args: &Client,
    config: &mut Config,
    known: Option<Vec<u8>>,
) -> Result<Option<Vec<u8>>, Error> {
    let mut sockets = Sockets::new()?;
    let mut local = sockets.add(any_port(args.remote))?;
    let connection = quiche::connect(
        Some("localhost"),
        &connection_id()?,
        local,
        args.remote,
        config,
    )?;
    let mut session = Session::new(connection);
    if let Some(known) = known {
        session.connection.set_session(&known)?;
    }
    let deadline = Instant::now() + LIMIT;
    let (mut asked, mut complete) = (0, 0);
    let mut drill = args.drill.iter();
    let mut next_step = BYTES_BETWEEN;
    session.transmit(&sockets.open)?;
    while complete < args.paths.len() {
        if Instant::now() > deadline {
            return Err("too late".into());
        }
        let early = args.early_data && session.connection.is_in_early_data();
        if session.connection.is_established() || early {
            while asked < args.paths.len() && session.connection.peer_streams_left_bidi() > 0 {
                session.request(4 * asked as u64, &args.paths[asked], &args.out)?;
                asked += 1;
            }
        }
        session.transmit(&sockets.open)?;
        sockets.wait(session.connection.timeout())?;
        session.connection.on_timeout();
        sockets.receive(|socket, data, from| {
            session.receive(data, from, socket.local_addr()?);
            Ok(())
        })?;
        complete += session.read_answers()?;
        while session.connection.path_event_next().is_some() {}
        if session.received >= next_step
            && let Some(step) = drill.next()
        {
            let Step::Move(ip) = step else {
                return Err(format!("quiche cannot do {step:?}").into());
            };
            local = sockets.add((*ip, 0).into())?;
            session.connection.migrate(local, args.remote)?;
            next_step = session.received + BYTES_BETWEEN;
        }
        if session.connection.is_closed() {
            return Err(format!("connection lost: {:?}", session.connection.peer_error()).into());
        }
    }
    let known = session.connection.session().map(<[u8]>::to_vec);
    session.connection.close(true, 0, b"done")?;
    session.transmit(&sockets.open)?;
    Ok(known)
}
