//! What connections tell of themselves and let be changed.

use mpquic_tokio::{Connection, ExportError};

use crate::harness::{Net, TestResult, exchange, within};

#[tokio::test]
async fn both_sides_export_the_same_keying_material() -> TestResult {
    fn export(connection: &Connection, label: &[u8]) -> Result<[u8; 32], ExportError> {
        let mut output = [0; 32];
        connection
            .export_keying_material(&mut output, label, b"context")
            .map(|()| output)
    }
    let net = Net::two_paths()?;
    let (client, server) = net.connect().await?;
    let first = export(&client, b"EXPERIMENTAL a")?;
    assert_eq!(export(&server, b"EXPERIMENTAL a")?, first);
    assert_ne!(export(&server, b"EXPERIMENTAL b")?, first);
    assert_eq!(export(&server, b""), Err(ExportError::LabelLength));
    within("the exchange", exchange(&client, &server, 100_000)).await??;
    for connection in [&client, &server] {
        assert_eq!(export(connection, b"EXPERIMENTAL a")?, first);
    }

    let connecting = net.client.connect(net.server.local_addr()?, "localhost")?;
    let Ok((early, accepted)) = connecting.into_0rtt() else {
        return Err("no 0-RTT".into());
    };
    let incomplete = Err(ExportError::HandshakeIncomplete);
    assert_eq!(export(&early, b"EXPERIMENTAL a"), incomplete);
    let server = within("accepting", net.server.accept()).await?;
    let server = server.ok_or("closed")?.await?;
    assert!(within("handshake", accepted).await?);
    let second = export(&early, b"EXPERIMENTAL a")?;
    assert_eq!(export(&server, b"EXPERIMENTAL a")?, second);
    assert_ne!(second, first);
    Ok(())
}
