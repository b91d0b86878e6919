//! Malformed messages (RFC 9114 sections 4.1.2 to 4.4): a table of requests and one of responses,
//! frame by frame. What is malformed ends its own stream with H3_MESSAGE_ERROR, and no more.

use std::time::Duration;

use bytes::Bytes;
use h3::error::{Code, StreamError};
use http::Request;
use mpquic_h3::{MalformedMessage, h3};
use mpquic_tokio::{
    ClientConfig, Connection, Endpoint, MemoryNetwork, ReadError, ReadToEndError, ServerConfig,
    VarInt,
};

use crate::harness::{
    ClientDriver, Error, ServerRequests, TestResult, closed, ok, read_request, read_response,
    within,
};
use crate::message_table::Outcome::{Closed, Malformed, Taken};
use crate::message_table::{
    Asked, GET, HEADERS, Message, OK, Outcome, PUT, data, fields, requests, responses, with,
};

/// Both ends of a connection in memory.
struct Pair {
    client: Connection,
    server: Connection,
    _endpoints: [Endpoint; 2],
}

async fn pair() -> Result<Pair, Error> {
    let network = MemoryNetwork::new(Duration::from_micros(10));
    let (config, _) = ServerConfig::self_signed(&["localhost"], &[mpquic_h3::ALPN])?;
    let server = Endpoint::builder()
        .abstract_socket(network.bind("10.0.0.1:443".parse()?)?)
        .server(config)
        .build()?;
    let client = Endpoint::builder()
        .abstract_socket(network.bind("10.0.0.2:0".parse()?)?)
        .client(ClientConfig::dangerous_insecure(&[mpquic_h3::ALPN])?)
        .build()?;
    let connecting = client.connect(server.local_addr()?, "localhost")?;
    let accept = async {
        let incoming = server.accept().await.ok_or("closed")?;
        Ok::<_, Error>(incoming.await?)
    };
    let connect = async { Ok::<_, Error>(connecting.await?) };
    let (at_client, at_server) = tokio::try_join!(connect, accept)?;
    Ok(Pair {
        client: at_client,
        server: at_server,
        _endpoints: [client, server],
    })
}

/// A server that reads all of each request, trailers too, and answers.
async fn serve(connection: Connection) -> Result<(), Error> {
    let quic = mpquic_h3::Connection::new(connection);
    let mut builder = h3::server::builder();
    builder.enable_extended_connect(true);
    let mut server: ServerRequests = builder.build(quic).await?;
    while let Some(request) = server.accept().await? {
        tokio::spawn(async move {
            let (_, mut stream) = request.resolve_request().await?;
            read_request(&mut stream).await?;
            stream.recv_trailers().await?;
            stream.send_response(ok()).await?;
            stream.finish().await?;
            Ok::<_, Error>(())
        });
    }
    Ok(())
}

/// What becomes of a request, by what comes back.
async fn outcome_of_request(client: &Connection, bytes: &[u8]) -> Result<Outcome, Error> {
    let (mut send, mut recv) = client.open_bi().await?;
    send.write_all(bytes).await?;
    // What stops it may be quicker.
    let _ = send.finish();
    let answer = async {
        let read = recv.read_to_end(1000).await;
        match read {
            Ok(answer) => {
                assert_eq!(answer.first(), Some(&HEADERS));
                Taken
            }
            Err(ReadToEndError::Read(ReadError::Reset(reset))) => {
                assert_eq!(code(reset), Code::H3_MESSAGE_ERROR);
                Malformed
            }
            // The other branch knows why.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        outcome = within("an answer", answer) => outcome,
        closed = closed(client) => Ok(Closed(closed?)),
    }
}

fn code(code: VarInt) -> Code {
    code.into_inner().into()
}

/// All requests of the table, on one connection until it ends. What comes next is answered after
/// each of them.
#[tokio::test]
async fn malformed_requests_are_reset() -> TestResult {
    let mut now: Option<Pair> = None;
    for message in requests() {
        let Message {
            what,
            bytes,
            expected,
            ..
        } = message;
        let open = match now.take() {
            Some(open) => open,
            None => {
                let new = pair().await?;
                tokio::spawn(serve(new.server.clone()));
                new
            }
        };
        let outcome = outcome_of_request(&open.client, &bytes).await?;
        assert_eq!(outcome, expected, "{what}");
        if !matches!(outcome, Closed(_)) {
            let next = outcome_of_request(&open.client, &fields(GET)).await?;
            assert_eq!(next, Taken, "after {what}");
            now = Some(open);
        }
    }
    Ok(())
}

type Requests = h3::client::SendRequest<mpquic_h3::OpenStreams, Bytes>;

/// A client of h3, whose server is played.
async fn client(connection: &Connection) -> Result<Requests, Error> {
    let quic = mpquic_h3::Connection::new(connection.clone());
    let (mut driver, requests): (ClientDriver, _) = h3::client::new(quic).await?;
    tokio::spawn(async move { driver.wait_idle().await });
    Ok(requests)
}

/// What a client makes of a response, and the code with which it stops that.
async fn outcome_of_response(
    server: &Connection,
    requests: &mut Requests,
    (asked, bytes): (Asked, &[u8]),
    is_finished: bool,
) -> Result<(Outcome, Option<Code>), Error> {
    let request = match asked {
        Asked::Get => Request::get("https://a/").body(())?,
        Asked::Head => Request::head("https://a/").body(())?,
        Asked::Connect => Request::connect("a:1").body(())?,
    };
    let mut stream = requests.send_request(request).await?;
    stream.finish().await?;
    let (mut send, _recv) = server.accept_bi().await?;
    send.write_all(bytes).await?;
    if is_finished {
        send.finish()?;
    }
    let read = async {
        while stream.recv_response().await?.status().is_informational() {}
        read_response(&mut stream).await?;
        stream.recv_trailers().await
    };
    match within("the response", read).await? {
        Ok(_) => Ok((Taken, None)),
        Err(StreamError::Undefined(error)) if error.is::<MalformedMessage>() => {
            let stopped = within("the stop", send.stopped()).await?;
            Ok((Malformed, stopped?.map(code)))
        }
        Err(StreamError::ConnectionError(_)) => Ok((Closed(closed(server).await?), None)),
        Err(other) => Err(other.into()),
    }
}

#[tokio::test]
async fn malformed_responses_are_refused() -> TestResult {
    let mut now: Option<(Pair, Requests)> = None;
    for message in responses() {
        let Message {
            what,
            bytes,
            expected,
            asked,
        } = message;
        let (pair, mut requests) = match now.take() {
            Some(open) => open,
            None => {
                let pair = pair().await?;
                let requests = client(&pair.client).await?;
                (pair, requests)
            }
        };
        let sent = (asked, &bytes[..]);
        let outcome = outcome_of_response(&pair.server, &mut requests, sent, true).await?;
        assert_eq!(outcome.0, expected, "{what}");
        // A stream of which all has arrived is not stopped any more.
        let code = outcome.1.unwrap_or(Code::H3_MESSAGE_ERROR);
        assert_eq!(code, Code::H3_MESSAGE_ERROR, "{what}");
        if !matches!(outcome.0, Closed(_)) {
            let sent = (Asked::Get, &fields(OK)[..]);
            let next = outcome_of_response(&pair.server, &mut requests, sent, true).await?;
            assert_eq!(next.0, Taken, "after {what}");
            now = Some((pair, requests));
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_malformed_response_that_goes_on_is_stopped() -> TestResult {
    let pair = pair().await?;
    let mut requests = client(&pair.client).await?;
    for bytes in [
        with(OK, &[("connection", "close")]),
        with(OK, &[("Upper", "x")]),
        [with(OK, &[("content-length", "5")]), data(6)].concat(),
    ] {
        let sent = (Asked::Get, &bytes[..]);
        let outcome = outcome_of_response(&pair.server, &mut requests, sent, false).await?;
        assert_eq!(outcome, (Malformed, Some(Code::H3_MESSAGE_ERROR)));
    }
    Ok(())
}

/// h3 sends whatever fields it is given, in Huffman's code.
#[tokio::test]
async fn fields_are_read_in_the_code_of_huffman() -> TestResult {
    let pair = pair().await?;
    tokio::spawn(serve(pair.server.clone()));
    let mut requests = client(&pair.client).await?;
    for (name, value, is_malformed) in [
        ("connection", "close", true),
        ("te", "gzip, deflate", true),
        ("te", "trailers", false),
        ("host", "a", false),
        ("content-length", "+5", true),
        (
            "x-all",
            " !\"#$%&'()*+,-./0:;<=>?@[\\]^_`{|}~ \t\u{fc}",
            false,
        ),
    ] {
        let mut request = Request::get("https://a/").body(())?;
        let value = http::HeaderValue::from_bytes(value.as_bytes())?;
        request.headers_mut().insert(name, value.clone());
        let mut stream = requests.send_request(request).await?;
        // It may be refused before its end.
        let _ = stream.finish().await;
        match within("an answer", stream.recv_response()).await? {
            Ok(_) => assert!(!is_malformed, "{name}: {value:?}"),
            Err(StreamError::RemoteTerminate { code, .. }) => {
                assert_eq!(code, Code::H3_MESSAGE_ERROR);
                assert!(is_malformed, "{name}: {value:?}");
            }
            Err(other) => return Err(other.into()),
        }
    }
    Ok(())
}

/// A server that does not read what follows a request hears all the same that its content is
/// missing, if that is known.
#[tokio::test]
async fn content_that_is_known_to_be_missing_is_not_waited_for() -> TestResult {
    let pair = pair().await?;
    let (mut send, mut recv) = pair.client.open_bi().await?;
    send.write_all(&with(GET, &[("content-length", "5")]))
        .await?;
    send.finish()?;
    // All of it is there before the server looks at it.
    within("the end", send.stopped()).await??;
    let quic = mpquic_h3::Connection::new(pair.server.clone());
    let mut server: ServerRequests = h3::server::Connection::new(quic).await?;
    let request = within("a request", server.accept()).await??;
    let resolved = request.ok_or("no request")?.resolve_request().await;
    assert!(matches!(resolved, Err(StreamError::Undefined(_))));
    drop(resolved);
    let reset = within("the reset", recv.received_reset()).await??;
    assert_eq!(reset.map(code), Some(Code::H3_MESSAGE_ERROR));
    Ok(())
}

/// Once a request is read and answered by different tasks, its answer ends as it should all the
/// same.
#[tokio::test]
async fn a_malformed_request_in_two_halves_is_reset() -> TestResult {
    let pair = pair().await?;
    let quic = mpquic_h3::Connection::new(pair.server.clone());
    let mut server: ServerRequests = h3::server::Connection::new(quic).await?;
    let (mut send, mut recv) = pair.client.open_bi().await?;
    send.write_all(&with(PUT, &[("content-length", "5")]))
        .await?;
    let request = within("a request", server.accept()).await??;
    let (_, stream) = request.ok_or("no request")?.resolve_request().await?;
    let (answer, mut body) = stream.split();
    send.write_all(&data(6)).await?;
    assert!(within("the body", body.recv_data()).await?.is_err());
    assert_eq!(
        within("the stop", send.stopped()).await??.map(code),
        Some(Code::H3_MESSAGE_ERROR)
    );
    drop(answer);
    let reset = within("the reset", recv.received_reset()).await??;
    assert_eq!(reset.map(code), Some(Code::H3_MESSAGE_ERROR));
    Ok(())
}
