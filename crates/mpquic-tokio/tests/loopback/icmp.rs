//! What Linux says of a port on which nobody listens.

use std::time::Duration;

use mpquic_tokio::{ConnectionError, Endpoint};

use crate::harness::{TestResult, client};

/// It would take ten seconds to find out otherwise.
#[tokio::test]
async fn a_closed_port_is_told_at_once() -> TestResult {
    for (local, remote) in [
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("[::]:0", "127.0.0.1:0"),
        ("[::]:0", "[::1]:0"),
        ("[::1]:0", "[::1]:0"),
    ] {
        let nobody = std::net::UdpSocket::bind(remote)?;
        let address = nobody.local_addr()?;
        drop(nobody);
        let endpoint = Endpoint::client(local.parse()?)?;
        let config = client(mpquic_tokio::default_transport())?;
        let connecting = endpoint.connect_with(config, address, "localhost")?;
        let result = tokio::time::timeout(Duration::from_secs(1), connecting).await?;
        assert_eq!(
            result.err(),
            Some(ConnectionError::PortUnreachable),
            "{local}, {remote}"
        );
        endpoint.wait_idle().await;
    }
    Ok(())
}
