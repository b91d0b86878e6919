//! Streams and DATAGRAMs, and the errors of both.

use bytes::Bytes;
use mpquic_quinn as quinn;
use quinn::{
    ReadError, ReadExactError, ReadToEndError, SendDatagramError, StreamId, TransportConfig,
    VarInt, WriteError,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::{Pair, TestResult};

const CODE: VarInt = VarInt::from_u32(42);

#[tokio::test]
async fn streams_carry_data_in_both_directions() -> TestResult {
    let pair = Pair::new().await?;
    let data: Vec<u8> = (0..300_000u32).map(|byte| byte as u8).collect();
    pair.echo(&data).await?;
    crate::harness::echo(&pair.server, &pair.client, &data).await?;

    let mut send = pair.server.open_uni().await?;
    let mut chunks = [Bytes::from_static(b"one"), Bytes::from_static(b"two")];
    let written = send.write_chunks(&mut chunks).await?;
    assert_eq!((written.bytes, written.chunks), (6, 2));
    send.write_all_chunks(&mut [Bytes::from_static(b"three")])
        .await?;
    AsyncWriteExt::write_all(&mut send, b"four").await?;
    send.finish()?;
    let mut recv = pair.client.accept_uni().await?;
    assert_eq!(recv.id(), send.id());
    assert_eq!(StreamId::from(VarInt::from(send.id())), send.id());
    let mut text = String::new();
    recv.read_to_string(&mut text).await?;
    assert_eq!(text, "onetwothreefour");
    Ok(())
}

#[tokio::test]
async fn chunks_name_their_offsets() -> TestResult {
    let pair = Pair::new().await?;
    let mut send = pair.client.open_uni().await?;
    send.write_all(b"abcdef").await?;
    send.finish()?;
    let mut recv = pair.server.accept_uni().await?;
    let first = recv.read_chunk(4, true).await?.ok_or("no data")?;
    assert_eq!((first.offset, &*first.bytes), (0, &b"abcd"[..]));
    let second = recv.read_chunk(4, false).await?.ok_or("no data")?;
    assert_eq!((second.offset, &*second.bytes), (4, &b"ef"[..]));
    assert_eq!(
        recv.read_chunk(4, true).await,
        Err(ReadError::IllegalOrderedRead)
    );
    assert_eq!(recv.read_chunk(4, false).await?, None);
    Ok(())
}

#[tokio::test]
async fn reads_end_with_quinns_errors() -> TestResult {
    let pair = Pair::new().await?;
    let mut send = pair.client.open_uni().await?;
    send.write_all(b"short").await?;
    send.finish()?;
    let mut recv = pair.server.accept_uni().await?;
    let exact = recv.read_exact(&mut [0; 9]).await;
    assert_eq!(exact, Err(ReadExactError::FinishedEarly(5)));

    let mut send = pair.client.open_uni().await?;
    send.write_all(b"too long").await?;
    send.finish()?;
    let mut recv = pair.server.accept_uni().await?;
    assert_eq!(recv.read_to_end(3).await, Err(ReadToEndError::TooLong));

    let mut send = pair.client.open_uni().await?;
    send.write_all(b"given up").await?;
    send.reset(CODE)?;
    let mut recv = pair.server.accept_uni().await?;
    assert_eq!(recv.received_reset().await, Ok(Some(CODE)));
    assert_eq!(recv.read(&mut [0; 9]).await, Err(ReadError::Reset(CODE)));

    let mut send = pair.client.open_uni().await?;
    send.write_all(b"not wanted").await?;
    let mut recv = pair.server.accept_uni().await?;
    recv.stop(CODE)?;
    assert!(recv.stop(CODE).is_err());
    assert_eq!(recv.read(&mut [0; 9]).await, Err(ReadError::ClosedStream));
    assert_eq!(send.stopped().await, Ok(Some(CODE)));
    assert_eq!(send.write(b"more").await, Err(WriteError::Stopped(CODE)));
    Ok(())
}

/// quinn's programs wait in one task and write in another.
#[tokio::test]
async fn each_waiter_hears_of_the_end_of_a_stream() -> TestResult {
    let pair = Pair::new().await?;
    let mut send = pair.client.open_uni().await?;
    send.write_all(b"hi").await?;
    let (elsewhere, here, late) = (send.stopped(), send.stopped(), send.stopped());
    let elsewhere = tokio::spawn(elsewhere);
    let stop = async {
        let mut recv = pair.server.accept_uni().await?;
        recv.read_exact(&mut [0; 2]).await?;
        recv.stop(CODE)?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    };
    let (elsewhere, here, stop) = tokio::join!(elsewhere, here, stop);
    stop?;
    assert_eq!((elsewhere?, here), (Ok(Some(CODE)), Ok(Some(CODE))));
    drop(send);
    assert_eq!(late.await, Ok(Some(CODE)));
    Ok(())
}

#[tokio::test]
async fn dropped_streams_end_as_in_quinn() -> TestResult {
    let pair = Pair::new().await?;
    let mut send = pair.client.open_uni().await?;
    send.write_all(b"whole").await?;
    drop(send);
    let mut recv = pair.server.accept_uni().await?;
    assert_eq!(recv.read_to_end(9).await?, b"whole");

    let mut send = pair.client.open_uni().await?;
    send.write_all(b"unread").await?;
    drop(pair.server.accept_uni().await?);
    assert_eq!(send.stopped().await, Ok(Some(VarInt::from_u32(0))));

    let mut send = pair.client.open_uni().await?;
    send.write_all(b"read").await?;
    send.finish()?;
    assert!(send.finish().is_err());
    assert_eq!(send.write(b"more").await, Err(WriteError::ClosedStream));
    let mut recv = pair.server.accept_uni().await?;
    recv.read_to_end(9).await?;
    assert_eq!(send.stopped().await, Ok(None));
    Ok(())
}

#[tokio::test]
async fn datagrams_pass_in_both_directions() -> TestResult {
    let pair = Pair::new().await?;
    pair.client.send_datagram(Bytes::from_static(b"there"))?;
    assert_eq!(&pair.server.read_datagram().await?[..], b"there");
    pair.server
        .send_datagram_wait(Bytes::from_static(b"back"))
        .await?;
    assert_eq!(&pair.client.read_datagram().await?[..], b"back");
    let most = pair.client.max_datagram_size().ok_or("no datagrams")?;
    assert!(pair.client.datagram_send_buffer_space() > most);
    let large = Bytes::from(vec![0; 70_000]);
    assert_eq!(
        pair.client.send_datagram(large),
        Err(SendDatagramError::TooLarge)
    );
    Ok(())
}

#[tokio::test]
async fn a_peer_may_have_no_datagrams() -> TestResult {
    let mut server = TransportConfig::default();
    server.datagram_receive_buffer_size(None);
    let pair = Pair::with(TransportConfig::default(), server).await?;
    assert_eq!(pair.client.max_datagram_size(), None);
    let sent = pair.client.send_datagram(Bytes::from_static(b"no"));
    assert_eq!(sent, Err(SendDatagramError::UnsupportedByPeer));
    Ok(())
}
