//! CONNECT requests (RFC 9114 section 4.4), and extended ones (RFC 9220).

use h3::ext::Protocol;
use http::{Method, Request, Version};
use mpquic_h3::h3;

use crate::harness::{Http, Pair, TestResult, within};

#[tokio::test]
async fn a_connect_request_has_an_authority_and_no_more() -> TestResult {
    let pair = Pair::new().await?;
    let Http {
        mut server,
        driver,
        mut requests,
    } = pair.http().await?;
    let _driver = driver;
    let plain = Request::connect("example.org:443").body(())?;
    let mut extended = Request::connect("https://localhost/a/b").body(())?;
    extended.extensions_mut().insert(Protocol::CONNECT_UDP);
    for (request, expected) in [
        (plain, "example.org:443"),
        (extended, "https://localhost/a/b"),
    ] {
        let protocol = request.extensions().get::<Protocol>().copied();
        let mut stream = requests.send_request(request).await?;
        stream.finish().await?;
        let accepted = within("accept", server.accept()).await??;
        let (seen, _stream) = accepted.ok_or("no request")?.resolve_request().await?;
        assert_eq!(
            (seen.method(), seen.version()),
            (&Method::CONNECT, Version::HTTP_3)
        );
        assert_eq!(seen.uri().to_string(), expected);
        assert_eq!(seen.uri().scheme().is_some(), protocol.is_some());
        assert_eq!(seen.extensions().get::<Protocol>().copied(), protocol);
    }
    Ok(())
}
