//! Requests over TCP whose client goes away before the end of the answer.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::serve::limits::{Limits, Shared};
use crate::testing::{Anything, soon};

/// With more cancelled requests than the limit, the connection is over.
#[tokio::test]
async fn cancelled_requests_over_tcp_count() {
    for (cancelled, is_over) in [(1, false), (0, true)] {
        let limits = Limits {
            cancelled,
            cancelled_per_second: 0,
            ..Limits::default()
        };
        let address = std::net::IpAddr::from([192, 0, 2, 1]);
        let session = Arc::new(Session {
            source: Arc::new(Anything::new(100 << 20)),
            limits: limits::Client::new(Shared::new(limits), address).unwrap(),
            observer: Observer::new(None),
            client: address,
            rights: Arc::new(Rights::open()),
            caller: Caller::default(),
        });
        let (activity, mut active) = watch::channel(Activity::default());
        let service = service_fn(move |request: Request<Incoming>| {
            let announced = HeaderValue::from_static("h3");
            answer(session.clone(), request, announced, activity.clone())
        });
        let (mut client, server) = tokio::io::duplex(1000);
        tokio::spawn(async move {
            let _over = builder(16)
                .serve_connection(TokioIo::new(server), service)
                .await;
            // The sender of the activity stays until the answer has ended.
            pending::<()>().await;
        });
        let request = b"GET /file HTTP/1.1\r\nhost: a\r\n\r\n";
        client.write_all(request).await.unwrap();
        soon(client.read_exact(&mut [0; 500])).await.unwrap();
        assert_eq!(active.borrow().open, 1, "the answer has begun");
        drop(client);
        let ended = soon(active.wait_for(|activity| activity.open == 0)).await;
        assert_eq!(ended.unwrap().is_over, is_over);
    }
}
