//! What the other side of a session sees.

use bytes::Bytes;
use mpquic_tokio::{ClientConfig, Endpoint, ServerConfig, certificate_fingerprint};
use mpquic_web_transport::{Error, Session};
use web_transport_trait::{Error as _, RecvStream as _, SendStream as _, Session as _, Stats as _};

type TestResult<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Those of a client and of its server, and what keeps them.
async fn pair() -> TestResult<(Session, Session, [Endpoint; 2])> {
    let (config, certificate) = ServerConfig::self_signed(&["localhost"], &[b"media"])?;
    let server = Endpoint::server(config, "127.0.0.1:0".parse()?)?;
    let client = Endpoint::client("127.0.0.1:0".parse()?)?;
    let config = ClientConfig::with_pin(certificate_fingerprint(&certificate), &[b"media"])?;
    let connecting = client.connect_with(config, server.local_addr()?, "localhost")?;
    let incoming = server.accept().await.ok_or("closed")?;
    let (ours, theirs) = tokio::try_join!(connecting, async { incoming.await })?;
    Ok((Session::new(ours), Session::new(theirs), [client, server]))
}

fn stream_error<T>(result: Result<T, Error>) -> Option<u32> {
    result.err().and_then(|error| error.stream_error())
}

#[tokio::test]
async fn a_part_is_never_taken_for_the_whole() -> TestResult {
    let (ours, theirs, _endpoints) = pair().await?;
    let mut dropped = ours.open_uni().await?;
    dropped.write_all(b"a part").await?;
    drop(dropped);
    let mut reset = ours.open_uni().await?;
    reset.write_all(b"a part").await?;
    reset.reset(7);
    let mut finished = ours.open_uni().await?;
    finished.write_chunk(Bytes::from("the whole")).await?;
    finished.finish()?;
    for expected in [0, 7] {
        let read = theirs.accept_uni().await?.read_all().await;
        assert_eq!(stream_error(read), Some(expected));
    }
    assert_eq!(theirs.accept_uni().await?.read_all().await?, "the whole");
    finished.closed().await?;
    // Dropping what is finished changes nothing.
    drop(finished);
    Ok(())
}

#[tokio::test]
async fn stopped_streams_and_closed_sessions_carry_their_codes() -> TestResult {
    let (ours, theirs, _endpoints) = pair().await?;
    let (mut send, _) = ours.open_bi().await?;
    send.write_all(b"x").await?;
    let (_, mut recv) = theirs.accept_bi().await?;
    assert_eq!(recv.read_chunk(0).await?.as_deref(), Some(&b""[..]));
    recv.stop(9);
    assert_eq!(stream_error(send.closed().await), Some(9));
    recv.closed().await?;

    ours.close(5, "enough");
    let told = theirs.closed().await.session_error();
    assert_eq!(told, Some((5, "enough".to_owned())));
    assert_eq!(ours.closed().await.session_error(), None);
    Ok(())
}

#[tokio::test]
async fn datagrams_protocol_and_figures() -> TestResult {
    let (ours, theirs, _endpoints) = pair().await?;
    assert_eq!(ours.protocol(), Some("media"));
    assert_eq!(theirs.protocol(), Some("media"));
    let longest = Bytes::from(vec![7; ours.max_datagram_size()]);
    assert!(longest.len() > 1000);
    ours.send_datagram(longest.clone())?;
    assert_eq!(theirs.recv_datagram().await?, longest);
    let too_long = Bytes::from(vec![7; longest.len() + 10_000]);
    assert!(matches!(
        ours.send_datagram(too_long),
        Err(Error::Datagram(_))
    ));
    let stats = ours.stats();
    assert!(stats.bytes_sent() > Some(1000) && stats.packets_sent() > Some(1));
    assert!(stats.rtt().is_some() && stats.estimated_send_rate() > Some(0));
    Ok(())
}
