//! A proxy, a client of it over two paths, and targets.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mpquic_proxy::{
    Access, Client, ClientOptions, Entrance, Listener, Observe, Over, Resolve, Resolving, Server,
    ServerOptions,
};
use mpquic_tokio::{
    ClientConfig, Connection, Endpoint, ServerConfig, TransportOptions, default_transport,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type TestResult = Result<(), Error>;

const LIMIT: Duration = Duration::from_secs(30);

pub(crate) async fn within<T>(what: &str, future: impl IntoFuture<Output = T>) -> Result<T, Error> {
    let result = tokio::time::timeout(LIMIT, future).await;
    result.map_err(|_| format!("{what} took too long").into())
}

pub(crate) fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// For names, instead of the system: `localhost.test` is this machine, `silent.test` is never
/// answered.
pub(crate) struct Names;

impl Resolve for Names {
    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> Resolving<'a> {
        Box::pin(async move {
            match name {
                "localhost.test" => Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]),
                "silent.test" => std::future::pending().await,
                _ => Err(io::ErrorKind::NotFound.into()),
            }
        })
    }
}

/// Method, target, user, status, and bytes to and from the client.
type Line = (String, String, Option<String>, u16, u64, u64);

/// Remembers what it was told.
#[derive(Default)]
pub(crate) struct Told(pub(crate) Mutex<Vec<Line>>);

impl Observe for Told {
    fn on_over(&self, over: &Over<'_>) {
        self.0.lock().unwrap().push((
            over.method.to_owned(),
            over.target.to_owned(),
            over.user.map(str::to_owned),
            over.status.as_u16(),
            over.sent,
            over.received,
        ));
    }
}

/// A proxy that lets everybody connect to this machine.
pub(crate) fn open() -> ServerOptions {
    let mut options = ServerOptions::new(Access::Anybody);
    options.resolver = Arc::new(Names);
    options.rules.allow = vec!["127.0.0.0/8".parse().unwrap()];
    options
}

pub(crate) struct Setup {
    pub(crate) server: Server,
    pub(crate) client: Client,
    pub(crate) connection: Connection,
    pub(crate) endpoint: Endpoint,
    pub(crate) address: SocketAddr,
    /// Of [`Self::forwarded`].
    entrances: Mutex<Vec<Listener>>,
}

impl Setup {
    pub(crate) async fn new(options: ServerOptions) -> Result<Self, Error> {
        Self::with(options, |_| {}, |_| {}).await
    }

    /// With options of the client, and of the transport on both sides.
    pub(crate) async fn with(
        options: ServerOptions,
        of_client: impl FnOnce(&mut ClientOptions),
        of_transport: impl FnOnce(&mut TransportOptions),
    ) -> Result<Self, Error> {
        let mut transport = default_transport();
        of_transport(&mut transport);
        let mut of_server = transport.clone();
        mpquic_proxy::adapt_server(&mut of_server);
        mpquic_proxy::adapt(&mut transport, mpquic_proxy::STREAMS_OF_STRANGERS);
        let transport = transport.build()?;
        let (config, _) = ServerConfig::self_signed(&["localhost"], &[mpquic_h3::ALPN])?;
        let config = config.transport_config(of_server.build()?);
        let listening = Endpoint::server(config, loopback())?;
        let address = listening.local_addr()?;
        let server = Server::new(options);
        tokio::spawn(serve(listening, server.clone()));
        let config = ClientConfig::dangerous_insecure(&[mpquic_h3::ALPN])?;
        let endpoint = Endpoint::builder()
            .bind("127.0.0.2:0".parse()?)
            .bind("127.0.0.3:0".parse()?)
            .client(config.transport_config(transport))
            .build()?;
        let mut options = ClientOptions::new(address.to_string().parse()?);
        of_client(&mut options);
        let client = Client::new(options);
        let connection = connect(&endpoint, address, &client).await?;
        Ok(Self {
            server,
            client,
            connection,
            endpoint,
            address,
            entrances: Mutex::default(),
        })
    }

    pub(crate) async fn until_two_paths(&self) -> TestResult {
        Ok(within("the second path", self.connection.wait_for_paths(2)).await??)
    }

    pub(crate) async fn listen(&self, entrance: Entrance) -> Result<Listener, Error> {
        Ok(self.client.listen(entrance, loopback()).await?)
    }

    /// An application's connection to a target, by a port of its own.
    pub(crate) async fn forwarded(&self, target: SocketAddr) -> Result<TcpStream, Error> {
        let entrance = self.listen(Entrance::Tcp(target.into())).await?;
        let stream = TcpStream::connect(entrance.address()).await?;
        self.entrances.lock().unwrap().push(entrance);
        Ok(stream)
    }
}

/// A new connection, over which the client opens flows.
pub(crate) async fn connect(
    endpoint: &Endpoint,
    address: SocketAddr,
    client: &Client,
) -> Result<Connection, Error> {
    let connection = within("handshake", endpoint.connect(address, "localhost")?).await??;
    let (running, opened) = (client.clone(), connection.clone());
    tokio::spawn(async move { running.run(opened).await });
    within("HTTP/3", client.connected()).await?;
    Ok(connection)
}

async fn serve(endpoint: Endpoint, server: Server) -> TestResult {
    while let Some(incoming) = endpoint.accept().await {
        let server = server.clone();
        tokio::spawn(async move {
            let connection = incoming.await?;
            answer(connection, &server).await
        });
    }
    Ok(())
}

/// Answers the requests of a connection.
pub(crate) async fn answer(connection: Connection, server: &Server) -> TestResult {
    let requests = server.connection(&connection);
    let quic = mpquic_h3::Connection::new(connection);
    let mut http = Server::http().build(quic).await?;
    while let Some(request) = http.accept().await? {
        let requests = requests.clone();
        tokio::spawn(async move { requests.answer(request).await });
    }
    Ok(())
}

/// A target that runs `talk` for each connection.
pub(crate) async fn target<F>(talk: fn(TcpStream) -> F) -> Result<SocketAddr, Error>
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let listener = TcpListener::bind(loopback()).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(talk(stream));
        }
    });
    Ok(address)
}

/// Says back what it hears, as it hears it.
pub(crate) async fn echo(mut stream: TcpStream) -> io::Result<()> {
    let (mut read, mut write) = stream.split();
    tokio::io::copy(&mut read, &mut write).await?;
    write.shutdown().await
}

pub(crate) fn pattern(length: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(next).collect()
}

/// Sends all and its end, and reads to the end meanwhile.
pub(crate) async fn exchange(stream: TcpStream, data: &[u8]) -> Result<Vec<u8>, Error> {
    let (mut read, mut write) = stream.into_split();
    let sending = async {
        write.write_all(data).await?;
        write.shutdown().await
    };
    let mut answer = Vec::new();
    let reading = read.read_to_end(&mut answer);
    within("exchange", async { tokio::try_join!(sending, reading) }).await??;
    Ok(answer)
}
