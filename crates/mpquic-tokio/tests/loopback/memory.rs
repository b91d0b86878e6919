//! What received data that nobody reads keeps in memory.

use mpquic_tokio::{Connection, default_transport};

use crate::harness::{Error, Net, TestResult, client, pattern, within};

/// How often the peer leaves a byte behind.
const ROUNDS: usize = 400;
/// Bytes that are read, after each byte that is not.
const FILLER: usize = 60_000;
/// As much as sockets may allocate to receive all of that. If each byte left behind kept what it
/// came in, 24 MB would not do.
const ENOUGH: u64 = 10 << 20;

/// Lets `leave` send something that the server does not read, again and again, between bytes that
/// it does read.
async fn bury(
    from: &Connection,
    to: &Connection,
    mut leave: impl AsyncFnMut(&Connection) -> TestResult,
) -> TestResult {
    let mut filler = from.open_uni().await?;
    filler.write_all(&[0]).await?;
    let mut reader = within("filler", to.accept_uni()).await??;
    let send = async {
        let data = pattern(FILLER, 1);
        for _ in 0..ROUNDS {
            leave(from).await?;
            filler.write_all(&data).await?;
        }
        filler.finish()?;
        Ok::<_, Error>(())
    };
    let read = async {
        let mut read = 0;
        while let Some(chunk) = reader.read_chunk(usize::MAX, true).await? {
            read += chunk.bytes.len();
        }
        assert_eq!(read, 1 + ROUNDS * FILLER);
        Ok(())
    };
    within("transfer", async { tokio::try_join!(send, read) }).await??;
    Ok(())
}

#[tokio::test]
async fn unread_bytes_keep_no_more_than_themselves() -> TestResult {
    let mut transport = default_transport();
    transport.max_concurrent_uni_streams = 2 + ROUNDS as u64;
    let one = ["127.0.0.1"];
    let net = Net::with_server(transport, &one, &one, client(default_transport())?)?;
    let (a, b) = net.connect().await?;
    let mut kept = Vec::new();
    let leave = async |from: &Connection| {
        let mut stream = from.open_uni().await?;
        stream.write_all(b"x").await?;
        kept.push(stream);
        Ok(())
    };
    bury(&a, &b, leave).await?;
    let allocated = net.server.driver_stats().receive_memory_allocated;
    assert!(allocated < ENOUGH, "{allocated} bytes");
    // All of them can still be read.
    for mut sent in kept {
        sent.finish()?;
        let mut stream = within("stream", b.accept_uni()).await??;
        let read = within("byte", stream.read_to_end(10)).await??;
        assert_eq!(read, b"x");
    }
    Ok(())
}

#[tokio::test]
async fn unread_datagrams_keep_no_more_than_themselves() -> TestResult {
    let one = ["127.0.0.1"];
    let net = Net::new(&one, &one, client(default_transport())?)?;
    let (a, b) = net.connect().await?;
    // So large that they were never copied for being small.
    let data = pattern(700, 2);
    let leave = async |from: &Connection| {
        from.send_datagram_wait(data.clone()).await?;
        Ok(())
    };
    bury(&a, &b, leave).await?;
    let allocated = net.server.driver_stats().receive_memory_allocated;
    assert!(allocated < ENOUGH, "{allocated} bytes");
    assert_eq!(within("datagram", b.read_datagram()).await??, data);
    Ok(())
}
