//! HTTP datagrams (RFC 9297).

use bytes::Bytes;
use h3::quic::StreamId;
use h3_datagram::datagram_handler::{HandleDatagramsExt, SendDatagramError};
use mpquic_h3::{DatagramSender, h3, h3_datagram};

use crate::harness::{Error, Http, Pair, TestResult, get, pattern, within};

/// HTTP/3 on both ends with datagrams announced.
async fn http(pair: &Pair) -> Result<Http, Error> {
    let server = mpquic_h3::Connection::new(pair.server.clone());
    let client = mpquic_h3::Connection::new(pair.client.clone());
    let server = async {
        let mut builder = h3::server::builder();
        Ok::<_, Error>(builder.enable_datagram(true).build(server).await?)
    };
    let client = async {
        let mut builder = h3::client::builder();
        Ok::<_, Error>(builder.enable_datagram(true).build(client).await?)
    };
    let (server, (driver, requests)) = tokio::try_join!(server, client)?;
    Ok(Http {
        server,
        driver,
        requests,
    })
}

#[tokio::test]
async fn datagrams_of_the_first_request_go_both_ways_by_h3_datagram() -> TestResult {
    let pair = Pair::new().await?;
    let Http {
        mut server,
        driver,
        mut requests,
    } = http(&pair).await?;
    let mut stream = requests.send_request(get("/")?).await?;
    stream.finish().await?;
    let request = within("accept", server.accept())
        .await??
        .ok_or("no request")?;
    let (_, _answer) = within("resolve", request.resolve_request()).await??;
    let mut from_client = driver.get_datagram_sender(stream.id());
    let mut from_server = server.get_datagram_sender(stream.id());
    let mut at_client = driver.get_datagram_reader();
    let mut at_server = server.get_datagram_reader();
    for round in 0..50 {
        let payload = pattern(100, round);
        from_client.send_datagram(payload.clone())?;
        let received = within("datagram", at_server.read_datagram()).await??;
        assert_eq!(received.stream_id(), stream.id());
        from_server.send_datagram(received.into_payload().into())?;
        let echoed = within("datagram", at_client.read_datagram()).await??;
        assert_eq!(echoed.into_payload(), payload);
    }
    let too_large = from_client.send_datagram(pattern(1 << 16, 1));
    assert!(matches!(too_large, Err(SendDatagramError::TooLarge { .. })));
    pair.server.close(7u32.into(), b"");
    assert!(within("end", at_client.read_datagram()).await?.is_err());
    let lost = from_client.send_datagram(Bytes::new());
    assert!(matches!(
        lost,
        Err(SendDatagramError::ConnectionError { .. })
    ));
    Ok(())
}

#[tokio::test]
async fn datagrams_of_any_request_have_its_number() -> TestResult {
    let pair = Pair::new().await?;
    let Http {
        server,
        driver: _driver,
        requests: _requests,
    } = http(&pair).await?;
    let mut at_server = server.get_datagram_reader();
    for id in [0, 4, 252, 256, 1 << 16, 1 << 32, (1 << 62) - 4] {
        let id = StreamId::try_from(id).map_err(|error| error.to_string())?;
        let sender = DatagramSender::new(&pair.client, id);
        let largest = sender.max_size().ok_or("no datagrams")?;
        for length in [0, 1, largest] {
            let payload = pattern(length, 3);
            sender.send(&payload)?;
            let received = within("datagram", at_server.read_datagram()).await??;
            assert_eq!(received.stream_id(), id);
            assert!(*received.payload() == payload);
        }
    }
    Ok(())
}
