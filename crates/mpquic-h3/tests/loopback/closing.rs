//! Requests and connections that end early, and connections that end in order.

use bytes::Bytes;
use h3::error::{Code, ConnectionError, StreamError};
use h3::quic::ConnectionErrorIncoming;
use http::Request;
use mpquic_h3::{h3, reject_requests};
use mpquic_tokio::{VarInt, default_transport};

use crate::harness::{
    Error, Pair, ServerRequests, ServerStream, TestResult, accept, get, ok, pattern, read_request,
    read_response, within,
};

#[track_caller]
fn assert_terminated<T: std::fmt::Debug>(result: Result<T, StreamError>, expected: Code) {
    match result {
        Err(StreamError::RemoteTerminate { code, .. }) => assert_eq!(code, expected),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn assert_closed<T: std::fmt::Debug>(result: Result<T, StreamError>, expected: u64) {
    match result {
        Err(StreamError::ConnectionError(ConnectionError::Remote(
            ConnectionErrorIncoming::ApplicationClose { error_code },
        ))) => assert_eq!(error_code, expected),
        other => panic!("{other:?}"),
    }
}

/// Begins a response of which only a part is sent.
async fn begin(stream: &mut ServerStream) -> TestResult {
    stream.send_response(ok()).await?;
    stream.send_data(pattern(1000, 1).into()).await?;
    Ok(())
}

#[tokio::test]
async fn a_connection_closed_in_the_middle_of_a_response_is_no_clean_end() -> TestResult {
    let pair = Pair::new().await?;
    let (mut server, mut requests) = pair.http().await?.run_client();
    let mut stream = requests.send_request(get("/")?).await?;
    stream.finish().await?;
    let mut answer = accept(&mut server).await?;
    begin(&mut answer).await?;
    within("response", stream.recv_response()).await??;
    assert!(within("data", stream.recv_data()).await??.is_some());
    pair.server.close(VarInt::from_u32(0x107), b"too much");
    assert_closed(within("end", read_response(&mut stream)).await?, 0x107);
    // On the closing side, the error tells that it was this application.
    let sent = answer.send_data(Bytes::from_static(b"more").into()).await;
    let Err(StreamError::ConnectionError(ConnectionError::Remote(
        ConnectionErrorIncoming::Undefined(error),
    ))) = sent
    else {
        return Err(format!("{sent:?}").into());
    };
    let error = error.downcast_ref::<mpquic_tokio::ConnectionError>();
    assert_eq!(error, Some(&mpquic_tokio::ConnectionError::LocallyClosed));
    Ok(())
}

#[tokio::test]
async fn a_connection_closed_in_the_middle_of_a_request_is_no_clean_end() -> TestResult {
    let pair = Pair::new().await?;
    let (mut server, mut requests) = pair.http().await?.run_client();
    let mut stream = requests.send_request(get("/")?).await?;
    stream.send_data(pattern(1000, 1)).await?;
    let mut request = accept(&mut server).await?;
    assert!(within("data", request.recv_data()).await??.is_some());
    pair.client.close(VarInt::from_u32(0x100), b"");
    let end = within("end", request.recv_data()).await?;
    assert_closed(end.map(|data| data.is_some()), 0x100);
    Ok(())
}

/// RFC 9114 section 4.1.1: a part must not look like the whole.
#[tokio::test]
async fn a_response_that_is_dropped_is_cancelled() -> TestResult {
    let pair = Pair::new().await?;
    let (mut server, mut requests) = pair.http().await?.run_client();
    let mut stream = requests.send_request(get("/")?).await?;
    stream.finish().await?;
    let mut answer = accept(&mut server).await?;
    begin(&mut answer).await?;
    within("response", stream.recv_response()).await??;
    assert!(within("data", stream.recv_data()).await??.is_some());
    drop(answer);
    let end = within("end", read_response(&mut stream)).await?;
    assert_terminated(end, Code::H3_REQUEST_CANCELLED);
    Ok(())
}

#[tokio::test]
async fn a_request_that_is_dropped_is_cancelled_in_both_directions() -> TestResult {
    let pair = Pair::new().await?;
    let (mut server, mut requests) = pair.http().await?.run_client();
    let mut stream = requests.send_request(get("/")?).await?;
    stream.send_data(pattern(1000, 1)).await?;
    let mut request = accept(&mut server).await?;
    begin(&mut request).await?;
    drop(stream);
    let end = within("end", read_request(&mut request))
        .await?
        .unwrap_err();
    assert_terminated::<()>(Err(*end.downcast()?), Code::H3_REQUEST_CANCELLED);
    let sending = async {
        loop {
            request.send_data(pattern(1000, 2).into()).await?;
        }
    };
    assert_terminated::<()>(within("end", sending).await?, Code::H3_REQUEST_CANCELLED);
    Ok(())
}

#[tokio::test]
async fn codes_of_the_application_arrive() -> TestResult {
    let pair = Pair::new().await?;
    let (mut server, mut requests) = pair.http().await?.run_client();
    let mut stream = requests.send_request(get("/")?).await?;
    stream.send_data(pattern(1000, 1)).await?;
    let mut request = accept(&mut server).await?;
    request.stop_stream(Code::H3_REQUEST_REJECTED);
    request.stop_sending(Code::H3_EXCESSIVE_LOAD);
    let response = within("response", stream.recv_response()).await?;
    assert_terminated(response, Code::H3_REQUEST_REJECTED);
    let sending = async {
        loop {
            stream.send_data(pattern(1000, 2)).await?;
        }
    };
    assert_terminated::<()>(within("end", sending).await?, Code::H3_EXCESSIVE_LOAD);
    Ok(())
}

/// RFC 9114 section 4.1: the client need not send the rest, and gets the whole answer.
#[tokio::test]
async fn a_server_may_answer_before_it_has_read_all() -> TestResult {
    let pair = Pair::new().await?;
    let (mut server, mut requests) = pair.http().await?.run_client();
    let mut stream = requests.send_request(get("/")?).await?;
    stream.send_data(pattern(1000, 1)).await?;
    let mut request = accept(&mut server).await?;
    begin(&mut request).await?;
    request.finish().await?;
    drop(request);
    let sending = async {
        loop {
            stream.send_data(pattern(1000, 2)).await?;
        }
    };
    assert_terminated::<()>(within("end", sending).await?, Code::H3_NO_ERROR);
    within("response", stream.recv_response()).await??;
    let body = within("body", read_response(&mut stream)).await??;
    assert!(body == pattern(1000, 1));
    Ok(())
}

/// RFC 9114 section 5.2: what was accepted is answered, and nothing else is asked.
#[tokio::test]
async fn a_server_goes_away_after_its_last_answer() -> TestResult {
    let pair = Pair::new().await?;
    let (mut server, mut requests) = pair.http().await?.run_client();
    let mut stream = requests.send_request(get("/")?).await?;
    stream.finish().await?;
    let mut answer = accept(&mut server).await?;
    server.shutdown(0).await?;
    let refused = async {
        // Until the client hears of it.
        loop {
            match requests.send_request(get("/late")?).await {
                Ok(mut late) => {
                    late.finish().await?;
                    tokio::task::yield_now().await;
                }
                Err(error) => return Ok::<_, Error>(error),
            }
        }
    };
    let (refused, _) = tokio::join!(within("refused", refused), async {
        // What comes after GOAWAY is turned away while the server looks for requests.
        let look = std::time::Duration::from_millis(200);
        tokio::time::timeout(look, server.accept()).await.is_err()
    });
    assert!(matches!(refused??, StreamError::RemoteClosing), "GOAWAY");
    begin(&mut answer).await?;
    answer.finish().await?;
    drop(answer);
    within("response", stream.recv_response()).await??;
    let body = within("body", read_response(&mut stream)).await??;
    assert!(body == pattern(1000, 1));
    drop((stream, requests));
    // The client closes the connection; the server had nothing more to do.
    let end = within("end", server.accept()).await?;
    let is_over = match &end {
        Ok(None) => true,
        Ok(Some(_)) => false,
        Err(error) => error.is_h3_no_error(),
    };
    assert!(is_over);
    Ok(())
}

/// The client's last handle closes the connection for both.
#[tokio::test]
async fn a_client_that_is_done_closes_the_connection_in_order() -> TestResult {
    async fn answer(_: Request<()>, mut stream: ServerStream) -> TestResult {
        begin(&mut stream).await?;
        stream.finish().await?;
        Ok(())
    }
    let pair = Pair::new().await?;
    let mut running = pair.http().await?.run(answer);
    let mut stream = running.requests.send_request(get("/")?).await?;
    stream.finish().await?;
    within("response", stream.recv_response()).await??;
    within("body", read_response(&mut stream)).await??;
    drop((stream, running.requests));
    let end = within("the client's end", running.driver).await??;
    assert!(end.is_h3_no_error(), "{end}");
    let end = within("the server's end", running.server).await??;
    assert!(end.unwrap_err().is_h3_no_error());
    let mpquic_tokio::ConnectionError::ApplicationClosed(close) = pair.server.closed().await else {
        return Err("not closed by the client".into());
    };
    assert_eq!(close.error_code.into_inner(), Code::H3_NO_ERROR.value());
    Ok(())
}

#[tokio::test]
async fn a_connection_that_times_out_is_no_clean_end() -> TestResult {
    let mut transport = default_transport();
    transport.max_idle_timeout = Some(std::time::Duration::from_millis(500));
    let pair = Pair::with(transport).await?;
    let (mut server, mut requests) = pair.http().await?.run_client();
    let mut stream = requests.send_request(get("/")?).await?;
    stream.finish().await?;
    let mut answer = accept(&mut server).await?;
    begin(&mut answer).await?;
    within("response", stream.recv_response()).await??;
    let end = within("end", read_response(&mut stream)).await?;
    let is_timeout = matches!(
        end,
        Err(StreamError::ConnectionError(ConnectionError::Timeout))
    );
    assert!(is_timeout, "{end:?}");
    Ok(())
}

/// RFC 9114 section 5.2: nothing more was to come after the GOAWAY of a client.
#[tokio::test]
async fn requests_behind_a_goaway_of_the_client_are_rejected() -> TestResult {
    let pair = Pair::new().await?;
    let connection = pair.server.clone();
    let (tell, told) = tokio::sync::oneshot::channel();
    let server = tokio::spawn(async move {
        let quic = mpquic_h3::Connection::new(connection.clone());
        let mut server: ServerRequests = h3::server::Connection::new(quic).await?;
        assert!(server.accept().await?.is_none());
        let _ = tell.send(());
        reject_requests(&connection).await;
        Ok::<_, Error>(())
    });
    // The control stream, empty SETTINGS, and GOAWAY for push 0.
    let mut control = pair.client.open_uni().await?;
    control.write_all(&[0, 4, 0, 7, 1, 0]).await?;
    within("the GOAWAY", told).await??;
    let rejected = Some(VarInt::from_u64(Code::H3_REQUEST_REJECTED.value())?);
    for _ in 0..2 {
        let (mut send, mut recv) = pair.client.open_bi().await?;
        send.write_all(&[1, 8, 0, 0, 0xd1, 0xd7, 0xc1, 0x50, 1, b'a'])
            .await?;
        let reset = within("the reset", recv.received_reset()).await??;
        assert_eq!(reset, rejected);
        assert_eq!(within("the stop", send.stopped()).await??, rejected);
    }
    pair.client.close(0u32.into(), b"");
    within("the server's end", server).await???;
    Ok(())
}
