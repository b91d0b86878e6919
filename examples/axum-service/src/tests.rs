use bytes::{Buf, Bytes};
use http::Request;
use mpquic_h3::h3::client::{self, SendRequest};
use mpquic_h3::{Connection as Http, OpenStreams};
use mpquic_tokio::ClientConfig;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;

type Requests = SendRequest<OpenStreams, Bytes>;

/// The service, and a client with two addresses and a path from each address.
struct Both {
    client: Endpoint,
    connection: Connection,
    requests: Requests,
    end: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Both {
    async fn start() -> Result<Self, Failure> {
        let alpn = [mpquic_h3::ALPN];
        let (config, certificate) = ServerConfig::self_signed(&["localhost"], &alpn)?;
        let server = Endpoint::server(config, "127.0.0.1:0".parse()?)?;
        let address = server.local_addr()?;
        let (end, told) = oneshot::channel();
        let told = async { told.await.unwrap_or_default() };
        let serving = tokio::spawn(serve::serve(server, service(), told, GRACE));
        let pin = certificate_fingerprint(&certificate);
        let client = Endpoint::builder()
            .bind("127.0.0.1:0".parse()?)
            .bind("127.0.0.2:0".parse()?)
            .client(ClientConfig::with_pin(pin, &alpn)?)
            .build()?;
        let connection = client.connect(address, "localhost")?.await?;
        connection.wait_for_paths(2).await?;
        let (mut driver, requests) = client::new(Http::new(connection.clone())).await?;
        tokio::spawn(async move { driver.wait_idle().await });
        Ok(Self {
            client,
            connection,
            requests,
            end,
            serving,
        })
    }

    /// The status and the body of the answer.
    async fn ask(
        &mut self,
        request: Request<()>,
        body: &[Bytes],
    ) -> Result<(StatusCode, String), Failure> {
        let mut stream = self.requests.send_request(request).await?;
        for data in body {
            stream.send_data(data.clone()).await?;
        }
        stream.finish().await?;
        receive(stream).await
    }

    async fn get(&mut self, path: &str) -> Result<(StatusCode, String), Failure> {
        let request = Request::get(format!("https://localhost{path}")).body(())?;
        self.ask(request, &[]).await
    }
}

type RequestStream = client::RequestStream<mpquic_h3::BidiStream<Bytes>, Bytes>;

async fn receive(mut stream: RequestStream) -> Result<(StatusCode, String), Failure> {
    let status = stream.recv_response().await?.status();
    let mut text = String::new();
    while let Some(mut data) = stream.recv_data().await? {
        text += std::str::from_utf8(&data.copy_to_bytes(data.remaining()))?;
    }
    Ok((status, text))
}

#[tokio::test]
async fn axum_answers_over_two_paths() -> Result<(), Failure> {
    let mut both = Both::start().await?;
    let answer = both.get("/hello/axum").await?;
    assert_eq!(answer, (StatusCode::OK, "Hello, axum!\n".to_owned()));
    assert_eq!(both.get("/else").await?.0, StatusCode::NOT_FOUND);
    assert_eq!(both.get("/length").await?.0, StatusCode::METHOD_NOT_ALLOWED);

    let body = vec![Bytes::from(vec![7; 100_000]); 40];
    let length = Request::post("https://localhost/length").body(())?;
    let answer = both.ask(length, &body).await?;
    assert_eq!(answer, (StatusCode::OK, r#"{"bytes":4000000}"#.to_owned()));

    // The service knows both of the client's addresses.
    let (status, told) = both.get("/paths").await?;
    assert_eq!(status, StatusCode::OK);
    let told: Vec<Value> = serde_json::from_str(&told)?;
    for address in both.client.local_addrs() {
        let is_it = |path: &&Value| path["remote"] == address.to_string();
        let path = told.iter().find(is_it).ok_or("no path from this address")?;
        assert_eq!(path["is_active"], true);
        assert!(path["bytes_received"].as_u64() > Some(0), "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn open_requests_are_answered_before_the_service_ends() -> Result<(), Failure> {
    let mut both = Both::start().await?;
    let length = Request::post("https://localhost/length").body(())?;
    let mut begun = both.requests.send_request(length).await?;
    begun.send_data(Bytes::from("half, ")).await?;
    // This request begins after the first one, and is answered before it.
    assert_eq!(both.get("/hello/you").await?.0, StatusCode::OK);
    both.end.send(()).map_err(|()| "it has ended by itself")?;
    // New clients get no answer now; this client gets the answer to its open request.
    begun.send_data(Bytes::from("and the rest")).await?;
    begun.finish().await?;
    let answer = receive(begun).await?;
    assert_eq!(answer, (StatusCode::OK, r#"{"bytes":18}"#.to_owned()));
    both.connection.closed().await;
    both.serving.await?;
    Ok(())
}
