//! TCP ports of the proxy that lead to targets near the client, from end to end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mpquic_proxy::{
    Access, Client, ClientOptions, Credential, Credentials, NoFlow, Reverse, Server, ServerOptions,
};
use mpquic_tokio::{ClientConfig, Endpoint, ServerConfig, default_transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::going_away::ends_when_told;
use crate::harness::{
    Error, Setup, TestResult, Told, connect, echo, exchange, loopback, open, pattern, target,
    within,
};

async fn free() -> Result<SocketAddr, Error> {
    Ok(TcpListener::bind(loopback()).await?.local_addr()?)
}

/// A proxy with the users alice and bob, where alice may have a port.
fn options(at: SocketAddr) -> Result<ServerOptions, Error> {
    let mut options = open();
    let users = ["basic alice:secret", "basic bob:secret"].map(str::parse::<Credential>);
    let [alice, bob] = users;
    options.access = Access::Users(Credentials::new([alice?, bob?]));
    options.reverse = vec![format!("alice={}", at.port()).parse()?];
    Ok(options)
}

fn user(name: &str) -> impl FnOnce(&mut ClientOptions) {
    let credential = format!("basic {name}:secret").parse().ok();
    move |options| options.credential = credential
}

/// Opens the port, and keeps it open until the returned task ends.
async fn begin(
    client: &Client,
    at: SocketAddr,
    target: SocketAddr,
) -> Result<JoinHandle<Result<(), NoFlow>>, Error> {
    let reverse = Reverse {
        address: Some(at.ip()),
        port: at.port(),
        target: target.into(),
    };
    let (opened, is_open) = oneshot::channel();
    let client = client.clone();
    let task = tokio::spawn(async move {
        let opened = || {
            let _ = opened.send(());
        };
        client.reverse(&reverse, opened).await
    });
    let _ = within("the port", is_open).await?;
    Ok(task)
}

#[tokio::test]
async fn connections_to_a_port_reach_the_client() -> TestResult {
    let at = free().await?;
    let told = Arc::new(Told::default());
    let mut options = options(at)?;
    options.observer = Some(told.clone());
    let setup = Setup::with(options, user("alice"), |_| {}).await?;
    setup.until_two_paths().await?;
    let near = target(echo).await?;
    let _port = begin(&setup.client, at, near).await?;
    let data = pattern(1 << 20, 7);
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(TcpStream::connect(at).await?);
    }
    let sources: Vec<_> = open.iter().map(TcpStream::local_addr).collect();
    for stream in open {
        assert!(exchange(stream, &data).await? == data);
    }
    let over = async {
        while told.0.lock().unwrap().len() < 3 {
            tokio::task::yield_now().await;
        }
    };
    within("the ends", over).await?;
    let lines = told.0.lock().unwrap().clone();
    for source in sources {
        let source = source?.to_string();
        let line = lines
            .iter()
            .find(|line| line.1 == source)
            .ok_or("no line")?;
        assert_eq!(
            (&*line.0, line.2.as_deref(), line.3),
            ("TCP-ACCEPT", Some("alice"), 200)
        );
        assert_eq!((line.4, line.5), (1 << 20, 1 << 20));
    }
    assert_eq!(setup.server.stats().open_tcp, 0);
    Ok(())
}

#[tokio::test]
async fn ports_are_for_those_who_may_have_them() -> TestResult {
    let at = free().await?;
    let near = target(echo).await?;
    let setup = Setup::with(options(at)?, user("alice"), |_| {}).await?;
    let port = begin(&setup.client, at, near).await?;
    let mut of_bob = ClientOptions::new(setup.address.to_string().parse()?);
    user("bob")(&mut of_bob);
    let bob = Client::new(of_bob);
    let _connection = connect(&setup.endpoint, setup.address, &bob).await?;
    let refused = |task: JoinHandle<Result<(), NoFlow>>| async {
        let Some(NoFlow::Refused(status)) = within("a refusal", task).await??.err() else {
            return Err::<u16, Error>("another end".into());
        };
        Ok(status.as_u16())
    };
    // The operator has not allowed the port for bob, nor another one for alice.
    assert_eq!(refused(begin(&bob, at, near).await?).await?, 403);
    assert_eq!(
        refused(begin(&setup.client, free().await?, near).await?).await?,
        403
    );
    let mut both = options(at)?;
    both.reverse = vec![at.port().to_string().parse()?];
    setup.server.set_options(both);
    assert_eq!(refused(begin(&bob, at, near).await?).await?, 409);
    // What is open goes on.
    let stream = TcpStream::connect(at).await?;
    assert_eq!(exchange(stream, b"hello").await?, b"hello");
    assert!(!port.is_finished());
    // By default nobody has ports.
    let setup = Setup::new(open()).await?;
    assert_eq!(refused(begin(&setup.client, at, near).await?).await?, 403);
    Ok(())
}

#[tokio::test]
async fn a_target_that_refuses_is_a_reset() -> TestResult {
    let at = free().await?;
    let setup = Setup::with(options(at)?, user("alice"), |_| {}).await?;
    let _port = begin(&setup.client, at, free().await?).await?;
    let mut stream = TcpStream::connect(at).await?;
    let reset = within("a reset", stream.read(&mut [0])).await?;
    assert_eq!(
        reset.unwrap_err().kind(),
        std::io::ErrorKind::ConnectionReset
    );
    Ok(())
}

/// Who connects while the client is away is served when the client is back.
#[tokio::test]
async fn a_port_waits_for_its_client() -> TestResult {
    let at = free().await?;
    let setup = Setup::with(options(at)?, user("alice"), |_| {}).await?;
    let near = target(echo).await?;
    let port = begin(&setup.client, at, near).await?;
    setup.connection.close(0u32.into(), b"");
    assert_eq!(within("the end", port).await??, Ok(()));
    // The server learns of the end meanwhile, or not yet.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let stream = TcpStream::connect(at).await?;
    let _new = connect(&setup.endpoint, setup.address, &setup.client).await?;
    let _port = begin(&setup.client, at, near).await?;
    assert_eq!(exchange(stream, b"hello").await?, b"hello");
    Ok(())
}

/// The successor of a proxy gets the port, because the client closes the port at the old one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_moves_to_the_next_proxy() -> TestResult {
    let at = free().await?;
    let near = target(echo).await?;
    let may = || {
        let mut options = open();
        options.reverse = vec![at.port().to_string().parse()?];
        Ok::<_, Error>(options)
    };
    let next = Setup::new(may()?).await?;
    let mut transport = default_transport();
    mpquic_proxy::adapt(&mut transport, mpquic_proxy::STREAMS_OF_STRANGERS);
    let transport = transport.build()?;
    let (config, _) = ServerConfig::self_signed(&["localhost"], &[mpquic_h3::ALPN])?;
    let listening = Endpoint::server(config.transport_config(transport.clone()), loopback())?;
    let address: SocketAddr = listening.local_addr()?;
    let (tell, told) = oneshot::channel();
    let _ending = tokio::spawn(ends_when_told(listening, Server::new(may()?), told));
    let config = ClientConfig::dangerous_insecure(&[mpquic_h3::ALPN])?;
    let endpoint = Endpoint::builder()
        .bind(loopback())
        .client(config.transport_config(transport))
        .build()?;
    let client = Client::new(ClientOptions::new(address.to_string().parse()?));
    let _old = connect(&endpoint, address, &client).await?;
    let port = begin(&client, at, near).await?;
    let mut open = TcpStream::connect(at).await?;
    open.write_all(b"before").await?;
    let mut heard = [0; 6];
    within("the echo", open.read_exact(&mut heard)).await??;
    tell.send(()).map_err(|()| "it has ended")?;
    assert_eq!(within("the end", port).await??, Ok(()));
    let _new = connect(&endpoint, next.address, &client).await?;
    let moved = async {
        loop {
            let port = begin(&client, at, near).await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
            if !port.is_finished() {
                return Ok::<_, Error>(port);
            }
        }
    };
    let _port = within("the port", moved).await??;
    let stream = TcpStream::connect(at).await?;
    assert_eq!(exchange(stream, b"after").await?, b"after");
    // The open connection goes on over the old proxy.
    assert_eq!(exchange(open, b"behind").await?, b"behind");
    Ok(())
}

/// A client that ends its request gives the port up.
#[tokio::test]
async fn a_cancelled_port_is_closed() -> TestResult {
    let at = free().await?;
    let setup = Setup::with(options(at)?, user("alice"), |_| {}).await?;
    let port = begin(&setup.client, at, target(echo).await?).await?;
    port.abort();
    let closed = async {
        while TcpListener::bind(at).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within("the close", closed).await
}

/// Strangers open connections to the port without a word. The user's own flows find room, and a
/// stranger with a request gets an answer.
#[tokio::test]
async fn silent_strangers_leave_the_user_its_flows() -> TestResult {
    let at = free().await?;
    let mut options = options(at)?;
    options.max_flows = 8;
    let setup = Setup::with(options, user("alice"), |_| {}).await?;
    let near = target(echo).await?;
    let _port = begin(&setup.client, at, near).await?;
    let mut strangers = Vec::new();
    for _ in 0..20 {
        strangers.push(TcpStream::connect(at).await?);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut own = Vec::new();
    // The port itself is a flow.
    for number in 0..7 {
        let mut stream = setup.forwarded(near).await?;
        stream.write_all(b"own").await?;
        let mut heard = [0; 3];
        let read = within("the echo", stream.read_exact(&mut heard)).await?;
        assert!(read.is_ok(), "flow {number}: {read:?}");
        own.push(stream);
    }
    let stream = TcpStream::connect(at).await?;
    assert_eq!(exchange(stream, b"hello").await?, b"hello");
    Ok(())
}

/// The client has fewer connections than the server lets in.
#[tokio::test]
async fn silent_strangers_give_way_at_the_client() -> TestResult {
    let at = free().await?;
    let of_client = |options: &mut ClientOptions| {
        user("alice")(options);
        options.max_reverse = 4;
    };
    let setup = Setup::with(options(at)?, of_client, |_| {}).await?;
    let near = target(echo).await?;
    let _port = begin(&setup.client, at, near).await?;
    let mut strangers = Vec::new();
    for _ in 0..10 {
        strangers.push(TcpStream::connect(at).await?);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut speaking = TcpStream::connect(at).await?;
    speaking.write_all(b"first").await?;
    let mut heard = [0; 5];
    within("the echo", speaking.read_exact(&mut heard)).await??;
    for _ in 0..10 {
        strangers.push(TcpStream::connect(at).await?);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(exchange(speaking, b"second").await?, b"second");
    Ok(())
}
