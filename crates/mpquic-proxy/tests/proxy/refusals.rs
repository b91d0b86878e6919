//! What gets no flow, and what the client is told.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::select_all;
use http::{Method, Request, Response, StatusCode};
use mpquic_h3::h3;
use mpquic_h3::h3::ext::Protocol;
use mpquic_proxy::{
    Access, Client, ClientOptions, Credential, Credentials, NoFlow, STREAMS_OF_STRANGERS,
    ServerOptions, Target,
};
use mpquic_tokio::{ClientConfig, Endpoint};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::harness::{
    Error, Setup, TestResult, Told, connect, echo, exchange, loopback, open, target, within,
};

async fn refusal(client: &Client, target: &str) -> Result<Option<NoFlow>, Error> {
    let target = target.parse()?;
    Ok(within("answer", client.connect(&target)).await?.err())
}

fn status(status: u16) -> Option<NoFlow> {
    StatusCode::from_u16(status).ok().map(NoFlow::Refused)
}

/// The rules are for addresses, so a name does not get around them.
#[tokio::test]
async fn this_machine_is_no_target_unless_allowed() -> TestResult {
    let listener = TcpListener::bind(loopback()).await?;
    let port = listener.local_addr()?.port();
    let mut options = open();
    options.rules.allow.clear();
    let setup = Setup::new(options).await?;
    for host in [
        "127.0.0.1",
        "localhost.test",
        "[::ffff:127.0.0.1]",
        "[::1]",
        "0.0.0.0",
        "[::]",
    ] {
        let refused = refusal(&setup.client, &format!("{host}:{port}")).await?;
        assert_eq!(refused, status(403), "{host}");
    }
    let mut options = open();
    options.rules.deny = vec![format!(":{port}").parse()?];
    let setup = Setup::new(options).await?;
    assert_eq!(
        refusal(&setup.client, &format!("127.0.0.1:{port}")).await?,
        status(403)
    );
    Ok(())
}

/// As a reload of the proxy's configuration does it: what is open goes on.
#[tokio::test]
async fn other_options_are_for_flows_to_come() -> TestResult {
    let target = target(echo).await?;
    let setup = Setup::new(open()).await?;
    let mut begun = setup.forwarded(target).await?;
    begun.write_all(b"before").await?;
    let mut heard = [0; 6];
    within("the echo", begun.read_exact(&mut heard)).await??;
    let mut options = open();
    options.rules.deny = vec!["127.0.0.0/8".parse()?];
    setup.server.set_options(options);
    let refused = refusal(&setup.client, &target.to_string()).await?;
    assert_eq!(refused, status(403));
    assert_eq!(exchange(begun, b"after").await?, b"after");
    setup.server.set_options(open());
    assert_eq!(refusal(&setup.client, &target.to_string()).await?, None);
    let users = Access::Users(Credentials::new(["basic alice:secret".parse()?]));
    setup.server.set_options(ServerOptions::new(users));
    let refused = refusal(&setup.client, &target.to_string()).await?;
    assert_eq!(refused, status(407));
    Ok(())
}

#[tokio::test]
async fn targets_that_do_not_answer() -> TestResult {
    let mut options = open();
    options.connect_timeout = Duration::from_millis(100);
    let setup = Setup::new(options).await?;
    let closed = TcpListener::bind(loopback())
        .await?
        .local_addr()?
        .to_string();
    let refused = refusal(&setup.client, &closed).await?;
    assert_eq!(refused, Some(NoFlow::ConnectionRefused));
    assert_eq!(
        refusal(&setup.client, "missing.test:80").await?,
        status(502)
    );
    assert_eq!(refusal(&setup.client, "silent.test:80").await?, status(504));
    Ok(())
}

fn users() -> Result<ServerOptions, Error> {
    let users = ["basic alice:secret", "bearer abc"].map(str::parse::<Credential>);
    let [alice, bearer] = users;
    let mut options = open();
    options.access = Access::Users(Credentials::new([alice?, bearer?]));
    Ok(options)
}

#[tokio::test]
async fn only_users_get_flows() -> TestResult {
    let target = target(echo).await?;
    for (credential, is_user) in [
        (Some("basic alice:secret"), true),
        (Some("bearer abc"), true),
        (Some("basic alice:wrong"), false),
        (Some("bearer abcd"), false),
        (None, false),
    ] {
        let credential = credential.map(str::parse).transpose()?;
        let with = |options: &mut mpquic_proxy::ClientOptions| options.credential = credential;
        let setup = Setup::with(users()?, with, |_| {}).await?;
        if is_user {
            let stream = setup.forwarded(target).await?;
            assert_eq!(exchange(stream, b"hello").await?, b"hello");
        } else {
            let refused = refusal(&setup.client, &target.to_string()).await?;
            assert_eq!(refused, status(407));
        }
    }
    Ok(())
}

#[tokio::test]
async fn guessing_takes_time() -> TestResult {
    let wrong: Credential = "basic alice:guess".parse()?;
    let with = |options: &mut mpquic_proxy::ClientOptions| options.credential = Some(wrong);
    let setup = Setup::with(users()?, with, |_| {}).await?;
    let mut answers = Vec::new();
    for _ in 0..7 {
        answers.push(refusal(&setup.client, "127.0.0.1:1").await?);
    }
    let expected = [407, 407, 407, 407, 407, 429, 429].map(status);
    assert_eq!(answers, expected);
    Ok(())
}

/// Until it is known who the client is.
#[tokio::test]
async fn strangers_have_few_streams() -> TestResult {
    let right: Credential = "basic alice:secret".parse()?;
    let with = |options: &mut mpquic_proxy::ClientOptions| options.credential = Some(right);
    let setup = Setup::with(users()?, with, |_| {}).await?;
    let mut streams = Vec::new();
    for _ in 1..STREAMS_OF_STRANGERS {
        streams.push(within("a stream", setup.connection.open_bi()).await??);
    }
    // The last one is for the request.
    let target = target(echo).await?.into();
    let _flow = within("a flow", setup.client.connect(&target)).await??;
    for _ in 0..2 * STREAMS_OF_STRANGERS {
        streams.push(within("one more", setup.connection.open_bi()).await??);
    }
    let setup = Setup::new(users()?).await?;
    let mut streams = Vec::new();
    while let Some(stream) = setup.connection.open_bi().now_or_never() {
        streams.push(stream?);
    }
    assert_eq!(streams.len(), STREAMS_OF_STRANGERS as usize);
    Ok(())
}

/// A client without streams left goes on as soon as one stream ends, although the others stay open.
#[tokio::test]
async fn a_client_at_its_limit_gets_a_stream_for_each_that_ends() -> TestResult {
    let right: Credential = "basic alice:secret".parse()?;
    let with = |options: &mut mpquic_proxy::ClientOptions| options.credential = Some(right);
    let mut options = users()?;
    options.max_flows = 20;
    let setup = Setup::with(options, with, |_| {}).await?;
    let target = target(echo).await?.into();
    let first = within("a flow", setup.client.connect(&target)).await??;
    let mut flows = Vec::new();
    for _ in 1..20 {
        flows.push(within("a flow", setup.client.connect(&target)).await??);
    }
    let mut streams = Vec::new();
    while let Ok(stream) = timeout(Duration::from_millis(300), setup.connection.open_bi()).await {
        streams.push(stream?);
    }
    let most = 2 * 20 + STREAMS_OF_STRANGERS as usize;
    assert_eq!(flows.len() + 1 + streams.len(), most);
    for ended in std::iter::once(first).chain(flows.into_iter().take(3)) {
        let waiting = setup.connection.open_bi();
        let ending = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            drop(ended);
        };
        // Streams without a request end after ten seconds.
        let (opened, ()) = timeout(Duration::from_secs(3), async {
            tokio::join!(waiting, ending)
        })
        .await?;
        streams.push(opened?);
    }
    Ok(())
}

/// Who was right on a connection is not kept out by others at the address.
#[tokio::test]
async fn guesses_of_others_keep_no_user_out() -> TestResult {
    let right: Credential = "basic alice:secret".parse()?;
    let with = |options: &mut mpquic_proxy::ClientOptions| options.credential = Some(right);
    let setup = Setup::with(users()?, with, |_| {}).await?;
    assert_ne!(refusal(&setup.client, "127.0.0.1:1").await?, status(429));
    let wrong: Credential = "basic alice:guess".parse()?;
    let mut guessing = mpquic_proxy::ClientOptions::new(setup.address.to_string().parse()?);
    guessing.credential = Some(wrong);
    let stranger = Client::new(guessing);
    connect(&setup.endpoint, setup.address, &stranger).await?;
    for _ in 0..7 {
        refusal(&stranger, "127.0.0.1:1").await?;
    }
    assert_eq!(refusal(&stranger, "127.0.0.1:1").await?, status(429));
    let told = refusal(&setup.client, "127.0.0.1:1").await?;
    assert_eq!(told, Some(NoFlow::ConnectionRefused));
    Ok(())
}

#[tokio::test]
async fn flows_of_one_client_are_bounded() -> TestResult {
    let mut options = open();
    options.max_flows = 2;
    let setup = Setup::new(options).await?;
    let target = target(echo).await?.into();
    let first = setup.client.connect(&target).await?;
    let _second = setup.client.connect(&target).await?;
    let third = setup.client.connect(&target).await;
    assert_eq!(third.err(), status(429));
    drop(first);
    let again = async {
        while setup.client.connect(&target).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    within("room", again).await
}

/// Without names, the address tells clients apart: one of them cannot take the flows of all.
#[tokio::test]
async fn each_address_without_a_name_has_flows_of_its_own() -> TestResult {
    let mut options = open();
    options.max_flows = 1;
    let setup = Setup::new(options).await?;
    let target = target(echo).await?.into();
    let _first = within("a flow", setup.client.connect(&target)).await??;
    for (local, expected) in [
        (
            setup.connection.path_stats()[0].four_tuple.local.ip(),
            status(429),
        ),
        ([127, 0, 0, 4].into(), None),
    ] {
        let config = ClientConfig::dangerous_insecure(&[mpquic_h3::ALPN])?;
        let endpoint = Endpoint::builder()
            .bind((local, 0).into())
            .client(config)
            .build()?;
        let other = ClientOptions::new(setup.address.to_string().parse()?);
        let other = Client::new(other);
        connect(&endpoint, setup.address, &other).await?;
        let refused = within("an answer", other.connect(&target)).await?;
        assert_eq!(refused.err(), expected, "{local}");
    }
    Ok(())
}

/// As flows do that come all at once, and are given up before it is their turn.
#[tokio::test]
async fn abandoned_request_gives_up_its_place() -> TestResult {
    let told = Arc::<Told>::default();
    let mut options = open();
    (options.max_flows, options.flows_per_second) = (1, 0);
    options.observer = Some(told.clone());
    let setup = Setup::new(options).await?;
    let target: Target = "127.0.0.1:1".parse()?;
    let both = [(), ()].map(|()| Box::pin(setup.client.connect(&target)));
    let (refused, _, waiting) = within("one refused", select_all(both)).await?;
    assert_eq!(refused.err(), status(429));
    drop(waiting);
    let statuses = || -> Vec<u16> { told.0.lock().unwrap().iter().map(|line| line.3).collect() };
    let given_up = async {
        while statuses().len() < 2 {
            tokio::task::yield_now().await;
        }
    };
    // Sooner than its turn would be known not to come.
    timeout(Duration::from_secs(10), given_up).await?;
    let mut statuses = statuses();
    statuses.sort();
    assert_eq!(statuses, [200, 429]);
    Ok(())
}

/// The answer to a request of any kind.
async fn ask(setup: &Setup, request: Request<()>) -> Result<Response<()>, Error> {
    let connection = within(
        "connection",
        setup.endpoint.connect(setup.address, "localhost")?,
    );
    let connection = connection.await??;
    let quic = mpquic_h3::Connection::new(connection);
    let (mut driver, mut requests) = h3::client::builder()
        .enable_datagram(true)
        .enable_extended_connect(true)
        .build::<_, _, Bytes>(quic)
        .await?;
    tokio::spawn(async move { driver.wait_idle().await });
    let mut stream = requests.send_request(request).await?;
    stream.finish().await?;
    Ok(within("answer", stream.recv_response()).await??)
}

#[tokio::test]
async fn other_requests_are_refused_by_name() -> TestResult {
    let setup = Setup::new(users()?).await?;
    let authorized = |mut request: Request<()>| -> Result<_, Error> {
        let credential: Credential = "bearer abc".parse()?;
        let fields = request.headers_mut();
        fields.insert("proxy-authorization", credential.to_field());
        Ok(request)
    };
    let extended = |path: &str, protocol| -> Result<Request<()>, Error> {
        let uri = format!("https://localhost{path}");
        let mut request = Request::builder()
            .method(Method::CONNECT)
            .uri(uri)
            .body(())?;
        request.extensions_mut().insert(protocol);
        Ok(request)
    };
    let udp = Protocol::CONNECT_UDP;
    let well_known = "/.well-known/masque/udp";
    for (request, expected, reason) in [
        (
            Request::get("https://localhost/").body(())?,
            405,
            "http_request_error",
        ),
        (
            Request::connect("localhost.test").body(())?,
            400,
            "http_request_error",
        ),
        (extended("/", udp)?, 404, "http_request_error"),
        (
            extended(&format!("{well_known}/a/b/"), udp)?,
            400,
            "http_request_error",
        ),
        (
            extended(&format!("{well_known}/missing.test/1/"), udp)?,
            502,
            "dns_error",
        ),
        (
            extended(&format!("{well_known}/10.0.0.1/1/"), udp)?,
            403,
            "destination_ip_prohibited",
        ),
        (
            extended("/", Protocol::WEB_TRANSPORT)?,
            501,
            "http_request_error",
        ),
    ] {
        let what = format!("{request:?}");
        let response = ask(&setup, authorized(request)?).await?;
        assert_eq!(response.status().as_u16(), expected, "{what}");
        let status = response.headers().get("proxy-status").ok_or("no reason")?;
        assert_eq!(status, &format!("mpquic; error={reason}"), "{what}");
    }
    // Who is no user learns nothing but that.
    let response = ask(&setup, Request::connect("localhost.test:1").body(())?).await?;
    assert_eq!(response.status(), 407);
    let schemes = response.headers().get_all("proxy-authenticate").iter();
    let schemes: Vec<_> = schemes.filter_map(|scheme| scheme.to_str().ok()).collect();
    assert!(
        schemes[0].starts_with("Basic ") && schemes[1].starts_with("Bearer "),
        "{schemes:?}"
    );
    Ok(())
}
