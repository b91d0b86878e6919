//! TCP connections, from end to end.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mpquic_proxy::{Client, ClientOptions, Entrance};
use mpquic_tokio::{StreamId, VarInt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::harness::{
    Setup, TestResult, Told, connect, echo, exchange, loopback, open, pattern, target, within,
};

/// Says nothing before it has heard the end, and then all of it, backwards.
async fn reverse(mut stream: TcpStream) -> io::Result<()> {
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).await?;
    heard.reverse();
    stream.write_all(&heard).await?;
    stream.shutdown().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_direction_ends_by_itself() -> TestResult {
    let told = Arc::new(Told::default());
    let mut options = open();
    options.observer = Some(told.clone());
    let setup = Setup::new(options).await?;
    setup.until_two_paths().await?;
    let target = target(reverse).await?;
    let data = pattern(3_000_000, 1);
    let mut answer = exchange(setup.forwarded(target).await?, &data).await?;
    answer.reverse();
    assert!(answer == data);
    let is_over = async {
        while told.0.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    within("the log", is_over).await?;
    let length = data.len() as u64;
    let expected = (
        "CONNECT".to_owned(),
        target.to_string(),
        None,
        200,
        length,
        length,
    );
    assert_eq!(*told.0.lock().unwrap(), [expected]);
    let stats = setup.server.stats();
    assert_eq!((stats.open_tcp, stats.to_targets), (0, length));
    // Both paths carried some.
    let paths = setup.connection.path_stats();
    assert!(
        paths.iter().all(|path| path.bytes_sent > 100_000),
        "{paths:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_flows_at_once_do_not_mix() -> TestResult {
    let setup = Setup::new(open()).await?;
    let target = target(echo).await?;
    let entrance = setup.listen(Entrance::Tcp(target.into())).await?;
    let mut flows = tokio::task::JoinSet::new();
    for number in 0..20 {
        let address = entrance.address();
        flows.spawn(async move {
            let data = pattern(100_000 + 1000 * number as usize, number);
            let stream = TcpStream::connect(address).await?;
            let answer = exchange(stream, &data).await?;
            assert!(answer == data, "{number}");
            TestResult::Ok(())
        });
    }
    while let Some(flow) = flows.join_next().await {
        flow??;
    }
    Ok(())
}

#[tokio::test]
async fn a_reset_of_the_target_is_one_for_the_application() -> TestResult {
    let setup = Setup::new(open()).await?;
    let target = target(|mut stream: TcpStream| async move {
        stream.read_u8().await?;
        stream.set_zero_linger()
    })
    .await?;
    let mut application = setup.forwarded(target).await?;
    application.write_u8(1).await?;
    let read = within("reset", application.read_u8()).await?;
    assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
    Ok(())
}

#[tokio::test]
async fn a_reset_of_the_application_is_one_for_the_target() -> TestResult {
    let setup = Setup::new(open()).await?;
    let listener = TcpListener::bind(loopback()).await?;
    let mut application = setup.forwarded(listener.local_addr()?).await?;
    let (mut target, _) = within("accept", listener.accept()).await??;
    application.write_u8(1).await?;
    assert_eq!(within("byte", target.read_u8()).await??, 1);
    application.set_zero_linger()?;
    drop(application);
    let read = within("reset", target.read_u8()).await?;
    assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
    Ok(())
}

/// RFC 9114 section 4.4: an error of the TCP connection is one of the stream, in both directions. A
/// client that is not told to stop would send until the windows are full.
#[tokio::test]
async fn a_reset_of_the_target_stops_the_stream_with_the_error_of_connect() -> TestResult {
    let setup = Setup::new(open()).await?;
    let listener = TcpListener::bind(loopback()).await?;
    let target = listener.local_addr()?.into();
    let _flow = within("a flow", setup.client.connect(&target)).await??;
    let (reset, _) = within("accept", listener.accept()).await??;
    reset.set_zero_linger()?;
    drop(reset);
    let request = StreamId::from(VarInt::from_u32(0));
    let watch = setup.connection.watch_stream(request);
    let code = within("the stop", watch.stopped()).await??;
    assert_eq!(code.map(VarInt::into_inner), Some(0x10f));
    Ok(())
}

/// Whoever does not read makes the other side wait, not the memory grow, and no other flow wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_stops_its_own_flow_only() -> TestResult {
    let setup = Setup::with(
        open(),
        |_| {},
        |transport| transport.max_receive_window = 8 << 20,
    )
    .await?;
    let listener = TcpListener::bind(loopback()).await?;
    let silent = setup.forwarded(listener.local_addr()?).await?;
    let (mut pouring, _) = within("accept", listener.accept()).await??;
    let poured = Arc::new(AtomicU64::new(0));
    let count = poured.clone();
    tokio::spawn(async move {
        let piece = vec![0; 64 << 10];
        while let Ok(written) = pouring.write(&piece).await {
            count.fetch_add(written as u64, Ordering::Relaxed);
        }
    });
    let until_stopped = async {
        let mut seen = 0;
        loop {
            // An exchange on another flow lasts longer than a step of this one.
            let target = target(echo).await?;
            let data = pattern(200_000, 5);
            assert!(exchange(setup.forwarded(target).await?, &data).await? == data);
            let now = poured.load(Ordering::Relaxed);
            if now == seen && now > 0 {
                return TestResult::Ok(());
            }
            seen = now;
        }
    };
    within("standstill", until_stopped).await??;
    // A window, twice the buffers of two TCP connections in the kernel, and what waits in between.
    let poured = poured.load(Ordering::Relaxed);
    assert!(poured < 40 << 20, "{poured} bytes");
    let memory = setup.connection.stats().memory.total();
    assert!(memory < 16 << 20, "{memory} bytes");
    drop(silent);
    Ok(())
}

/// Three flows that nobody reads leave room for the fourth: each keeps an eighth of the
/// connection's window.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_readers_leave_room_for_others() -> TestResult {
    let window = 1 << 20;
    let setup = Setup::with(
        open(),
        |_| {},
        |transport| transport.max_receive_window = window,
    )
    .await?;
    let listener = TcpListener::bind(loopback()).await?;
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(setup.forwarded(listener.local_addr()?).await?);
        let (mut pouring, _) = within("accept", listener.accept()).await??;
        tokio::spawn(async move { while pouring.write(&[0; 64 << 10]).await.is_ok() {} });
    }
    let until_full = async {
        let mut seen = 0;
        loop {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let received = setup.client.flows().iter().map(|flow| flow.received).sum();
            if received == seen && received > 3 * window / 8 {
                return;
            }
            seen = received;
        }
    };
    within("three flows", until_full).await?;
    let data = pattern(200_000, 5);
    let target = target(echo).await?;
    assert!(exchange(setup.forwarded(target).await?, &data).await? == data);
    Ok(())
}

/// Connections of one user to targets that do not read have windows of 1 MiB once the memory of the
/// user is used up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_user_fills_only_its_share_of_the_memory() -> TestResult {
    let mut options = open();
    options.user_memory = 9 << 20;
    let setup = Setup::with(
        options,
        |_| {},
        |transport| transport.send_window = 64 << 10,
    )
    .await?;
    let socket = TcpSocket::new_v4()?;
    // Otherwise the kernel keeps megabytes for each flow.
    socket.set_recv_buffer_size(4096)?;
    socket.bind(loopback())?;
    let listener = socket.listen(64)?;
    let (mut clients, mut silent) = (vec![setup.client.clone()], Vec::new());
    for _ in 0..3 {
        let client = Client::new(ClientOptions::new(setup.address.to_string().parse()?));
        connect(&setup.endpoint, setup.address, &client).await?;
        clients.push(client);
    }
    for client in &clients {
        for _ in 0..2 {
            let flow = client.connect(&listener.local_addr()?.into()).await?;
            silent.push(within("accept", listener.accept()).await??);
            let near = TcpListener::bind(loopback()).await?;
            let connecting = TcpStream::connect(near.local_addr()?);
            let (pouring, joined) = tokio::join!(connecting, near.accept());
            let (mut pouring, (joined, _)) = (pouring?, joined?);
            tokio::spawn(flow.join(joined, Bytes::new()));
            tokio::spawn(async move { while pouring.write(&[0; 64 << 10]).await.is_ok() {} });
        }
    }
    let until_full = async {
        let mut seen = 0;
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let flows = clients.iter().flat_map(Client::flows);
            let sent: u64 = flows.map(|flow| flow.sent).sum();
            if sent == seen && sent > 0 {
                return sent - setup.server.stats().to_targets;
            }
            seen = sent;
        }
    };
    let held = within("full windows", until_full).await?;
    assert!(held < 8 << 20, "{held} bytes");
    assert!(held > 3 << 20, "{held} bytes are less than the windows");
    assert_eq!(setup.server.stats().window_memory, 0);
    drop(silent);
    Ok(())
}

/// The windows of a user's connection come out of the memory of the user, and end with the
/// connection.
#[tokio::test]
async fn windows_are_given_back_with_their_connection() -> TestResult {
    let setup = Setup::new(open()).await?;
    let data = pattern(10_000, 5);
    let target = target(echo).await?;
    assert!(exchange(setup.forwarded(target).await?, &data).await? == data);
    let third = (512 << 20) / 3 / 3 * 3;
    assert_eq!(setup.server.stats().window_memory, third);
    setup.connection.close(0_u32.into(), b"");
    let given_back = async {
        while setup.server.stats().window_memory > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within("given back", given_back).await
}

/// The windows of the first connection are a sixteenth of the memory of all users, if a user may
/// have more.
#[tokio::test]
async fn all_users_share_the_memory_of_windows() -> TestResult {
    let mut options = open();
    options.all_memory = 96 << 20;
    let setup = Setup::new(options).await?;
    let data = pattern(10_000, 5);
    let echoing = target(echo).await?;
    assert!(exchange(setup.forwarded(echoing).await?, &data).await? == data);
    assert_eq!(setup.server.stats().window_memory, 6 << 20);
    Ok(())
}

/// With an option of the server's, a flow that carries nothing ends, as a reset.
#[tokio::test]
async fn an_idle_flow_ends() -> TestResult {
    let mut options = open();
    options.tcp_idle = Duration::from_millis(200);
    let setup = Setup::new(options).await?;
    let mut application = setup.forwarded(target(echo).await?).await?;
    application.write_u8(1).await?;
    assert_eq!(within("byte", application.read_u8()).await??, 1);
    assert_eq!(setup.server.stats().request_memory, 8 << 10);
    let read = within("reset", application.read_u8()).await?;
    assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(setup.server.stats().open_tcp, 0);
    Ok(())
}

/// A download over two paths goes on over one, without a new connection of either kind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_dies_and_the_download_goes_on() -> TestResult {
    let setup = Setup::new(open()).await?;
    setup.until_two_paths().await?;
    let target = target(|mut stream: TcpStream| async move {
        stream.write_all(&pattern(20_000_000, 3)).await?;
        stream.shutdown().await
    })
    .await?;
    let mut application = setup.forwarded(target).await?;
    let mut begin = vec![0; 2_000_000];
    within("begin", application.read_exact(&mut begin)).await??;
    let dying = setup.endpoint.local_addrs()[0];
    assert!(setup.endpoint.remove_local(dying));
    let mut rest = Vec::new();
    within("rest", application.read_to_end(&mut rest)).await??;
    assert!([begin, rest].concat() == pattern(20_000_000, 3));
    Ok(())
}

/// What is asked for waits behind no flow; what is open takes its turn.
#[tokio::test]
async fn requests_are_more_urgent_than_all_flows() -> TestResult {
    let rule = "real-time=127.0.0.0/8".parse()?;
    let of_client = |options: &mut ClientOptions| options.classes = vec![rule];
    let setup = Setup::with(open(), of_client, |_| {}).await?;
    let target = target(echo).await?.into();
    let flow = within("a flow", setup.client.connect(&target)).await??;
    let unanswered = "silent.test:1".parse()?;
    let (client, connection) = (setup.client.clone(), setup.connection.clone());
    let asking = tokio::spawn(async move { client.connect(&unanswered).await.is_ok() });
    let priority = |stream| {
        connection
            .watch_stream(StreamId::from(VarInt::from_u32(stream)))
            .priority()
    };
    within("the second request", async {
        while setup.server.flows().len() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await?;
    let near = TcpListener::bind(loopback()).await?;
    let application = TcpStream::connect(near.local_addr()?).await?;
    let (joined, _) = near.accept().await?;
    let joining = tokio::spawn(flow.join(joined, Bytes::new()));
    within("the first flow's turn", async {
        while priority(0)? >= priority(4)? {
            tokio::task::yield_now().await;
        }
        TestResult::Ok(())
    })
    .await??;
    assert_eq!(priority(0)?, 3);
    drop(application);
    within("its end", joining).await??;
    asking.abort();
    Ok(())
}
