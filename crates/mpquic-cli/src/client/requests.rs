//! The client of a connection, for the protocol that the handshake chose.

use std::future::pending;

use futures_util::FutureExt;
use futures_util::future::Shared;
use mpquic_h3::h3::error::Code;
use mpquic_tokio::{Connection, VarInt, ZeroRttAccepted};
use tokio::sync::OnceCell;

use crate::client::hq;
use crate::client::http3;
use crate::options::Alpn;
use crate::process::failure::Failure;

/// A client of one of the tool's protocols.
#[derive(Clone)]
pub(crate) enum AnyClient {
    Http(http3::Client),
    Hq(hq::Client),
}

impl AnyClient {
    /// Starts the client of a protocol. The client ends when `rejected` completes, because the
    /// server then has rejected its 0-RTT data.
    async fn new(
        connection: &Connection,
        protocol: &[u8],
        early: bool,
        rejected: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Self, Failure> {
        let connection = connection.clone();
        if protocol == Alpn::H3.bytes() {
            let client = http3::Client::new(connection, early, rejected).await;
            return client.map(Self::Http).map_err(Failure::from);
        }
        if protocol == Alpn::HqInterop.bytes() {
            return Ok(Self::Hq(hq::Client::new(connection)));
        }
        let protocol = String::from_utf8_lossy(protocol);
        Err(Failure::other(format!(
            "the server speaks `{protocol}`, which this tool does not"
        )))
    }
}

/// The client that all requests of a connection share. If the server rejects 0-RTT, a second client
/// takes its place.
pub(crate) struct Clients {
    connection: Connection,
    zero_rtt: Option<ZeroRtt>,
    early: OnceCell<AnyClient>,
    established: OnceCell<AnyClient>,
}

struct ZeroRtt {
    /// The protocol of the earlier connection, which 0-RTT continues.
    protocol: Option<Vec<u8>>,
    accepted: Shared<ZeroRttAccepted>,
}

impl Clients {
    pub(crate) fn new(connection: Connection) -> Self {
        Self {
            connection,
            zero_rtt: None,
            early: OnceCell::new(),
            established: OnceCell::new(),
        }
    }

    pub(crate) fn with_zero_rtt(
        self,
        protocol: Option<Vec<u8>>,
        accepted: Shared<ZeroRttAccepted>,
    ) -> Self {
        Self {
            zero_rtt: Some(ZeroRtt { protocol, accepted }),
            ..self
        }
    }

    /// A client whose first requests may travel as 0-RTT data.
    pub(crate) async fn early(&self) -> Result<AnyClient, Failure> {
        let Some(ZeroRtt { protocol, accepted }) = &self.zero_rtt else {
            return self.established().await;
        };
        // After a rejection, an early HTTP/3 client would open its streams on the final connection,
        // and the established client would open them once more.
        if accepted.clone().now_or_never() == Some(false) {
            return Box::pin(self.established()).await;
        }
        let answer = accepted.clone();
        let rejected = async move {
            if answer.await {
                pending().await
            }
        };
        let protocol = protocol.as_deref().unwrap_or_default();
        let client = self
            .early
            .get_or_try_init(|| AnyClient::new(&self.connection, protocol, true, rejected));
        match client.await {
            // The server rejected 0-RTT meanwhile.
            Err(_) if accepted.clone().now_or_never() == Some(false) => {
                Box::pin(self.established()).await
            }
            client => client.cloned(),
        }
    }

    /// A client for the time after the handshake.
    pub(crate) async fn established(&self) -> Result<AnyClient, Failure> {
        if let Some(zero_rtt) = &self.zero_rtt
            && zero_rtt.accepted.clone().await
        {
            return Box::pin(self.early()).await;
        }
        let client = self
            .established
            .get_or_try_init(|| async {
                let data = self.connection.handshake_data();
                let protocol = data.and_then(|data| data.protocol).unwrap_or_default();
                AnyClient::new(&self.connection, &protocol, false, pending()).await
            })
            .await;
        client.cloned()
    }

    /// The code for closing a connection that is no longer needed.
    pub(crate) fn no_error(&self) -> VarInt {
        match self.established.get().or(self.early.get()) {
            Some(AnyClient::Http(_)) => {
                VarInt::from_u64(Code::H3_NO_ERROR.value()).unwrap_or(VarInt::MAX)
            }
            Some(AnyClient::Hq(_)) | None => VarInt::from_u32(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::limits::Limits;
    use crate::testing::{Anything, Served};

    async fn clients(alpn: Alpn) -> Clients {
        let served = Served::start(Anything::new(1), Limits::default(), alpn);
        Clients::new(served.connect(1 << 20).await)
    }

    /// RFC 9114 section 8.1 defines a code without an error. HTTP/0.9 has no such code.
    #[tokio::test]
    async fn a_connection_ends_with_the_code_of_its_protocol() {
        for (alpn, code) in [(Alpn::H3, 0x100), (Alpn::HqInterop, 0)] {
            let clients = clients(alpn).await;
            assert_eq!(clients.no_error(), VarInt::from_u32(0), "nothing was asked");
            // Without 0-RTT, both are equal.
            for client in [clients.early().await, clients.established().await] {
                let is_http = matches!(client.unwrap(), AnyClient::Http(_));
                assert_eq!(is_http, alpn == Alpn::H3);
            }
            assert_eq!(clients.no_error(), VarInt::from_u32(code));
            assert!(clients.early.get().is_none());
        }
    }

    #[tokio::test]
    async fn unknown_protocol_is_named() {
        let clients = clients(Alpn::Perf).await;
        let failure = clients.established().await.err().unwrap();
        let protocol = String::from_utf8_lossy(Alpn::Perf.bytes());
        let told = format!("the server speaks `{protocol}`, which this tool does not");
        assert_eq!((failure.code(), failure.message()), (1, told.as_str()));
    }
}
