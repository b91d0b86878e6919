//! Loads a page of many objects over HTTP/3. Some objects are requested after other objects have
//! arrived.
//!
//! ```text
//! cargo run --release -p mpquic-benches --example page -- SERVER LOCAL[,LOCAL] KIND...
//! ```
//!
//! connects to a `mpquic serve` from each LOCAL address, and waits for as many paths. A KIND is
//! `NAME:COUNT:URGENCY:AFTER`: COUNT objects NAME-0, NAME-1 and so on, with an urgency of RFC 9218
//! (empty: no urgency; `2i`: incremental), requested once all objects of the kind AFTER have
//! arrived (empty: at once). Prints, for each kind, the seconds from the first request to the end
//! of the kind's last object. `benches/page` runs this program.

use std::net::SocketAddr;

use bytes::{Buf, Bytes};
use http::Request;
use mpquic_benches::process::Failure;
use mpquic_h3::{OpenStreams, Priority, h3};
use mpquic_tokio::{ClientConfig, Endpoint};
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

type Requests = h3::client::SendRequest<OpenStreams, Bytes>;

/// Objects of a kind.
struct Kind {
    name: String,
    count: usize,
    priority: Option<Priority>,
    after: String,
}

impl Kind {
    fn parse(text: &str) -> Result<Self, Failure> {
        let fields: Vec<_> = text.split(':').collect();
        let [name, count, urgency, after] = fields[..] else {
            return Err(format!("'{text}' is no NAME:COUNT:URGENCY:AFTER").into());
        };
        Ok(Self {
            name: name.to_owned(),
            count: count.parse()?,
            priority: match urgency {
                "" => None,
                number => Some(read_priority(number)?),
            },
            after: after.to_owned(),
        })
    }
}

/// Reads an urgency, with `i` behind it for an incremental object.
fn read_priority(text: &str) -> Result<Priority, Failure> {
    let number = text.trim_end_matches('i');
    let priority = Priority::new(number.parse()?).ok_or("urgencies are from 0 to 7")?;
    Ok(if number == text {
        priority
    } else {
        priority.with_incremental()
    })
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [server, locals, kinds @ ..] = &words[..] else {
        return Err("expected SERVER LOCAL[,LOCAL] KIND...".into());
    };
    let locals: Vec<SocketAddr> = locals
        .split(',')
        .map(|local| Ok(SocketAddr::new(local.parse()?, 0)))
        .collect::<Result<_, Failure>>()?;
    let kinds: Vec<Kind> = kinds
        .iter()
        .map(|kind| Kind::parse(kind))
        .collect::<Result<_, _>>()?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(load(server.parse()?, &locals, &kinds))
}

async fn load(server: SocketAddr, locals: &[SocketAddr], kinds: &[Kind]) -> Result<(), Failure> {
    let config = ClientConfig::dangerous_insecure(&[mpquic_h3::ALPN])?;
    let mut builder = Endpoint::builder().client(config);
    for local in locals {
        builder = builder.bind(*local);
    }
    let endpoint = builder.build()?;
    let connection = endpoint.connect(server, "localhost")?.await?;
    let quic = mpquic_h3::Connection::new(connection.clone());
    let (mut driver, requests) = h3::client::builder().send_grease(false).build(quic).await?;
    let driving = tokio::spawn(async move { driver.wait_idle().await });
    connection.wait_for_paths(locals.len()).await?;

    let began = Instant::now();
    let (done, is_done) = watch::channel(Vec::new());
    let mut loading = JoinSet::new();
    for (index, kind) in kinds.iter().enumerate() {
        let before = kinds.iter().position(|other| other.name == kind.after);
        if before.is_none() && !kind.after.is_empty() {
            return Err(format!("there is no kind '{}'", kind.after).into());
        }
        let names = (0..kind.count).map(|number| format!("{}-{number}", kind.name));
        let (names, priority) = (names.collect(), kind.priority);
        let (requests, mut is_done) = (requests.clone(), is_done.clone());
        loading.spawn(async move {
            if let Some(before) = before {
                is_done
                    .wait_for(|done: &Vec<usize>| done.contains(&before))
                    .await?;
            }
            fetch_all(requests, names, priority).await?;
            Ok::<_, Failure>(index)
        });
    }
    while let Some(loaded) = loading.join_next().await {
        let index = loaded??;
        println!("{} {:.4}", kinds[index].name, began.elapsed().as_secs_f64());
        done.send_modify(|done| done.push(index));
    }
    drop(requests);
    driving.await?;
    endpoint.wait_idle().await;
    Ok(())
}

/// Fetches several objects at the same time.
async fn fetch_all(
    requests: Requests,
    names: Vec<String>,
    priority: Option<Priority>,
) -> Result<(), Failure> {
    let mut fetching = JoinSet::new();
    for name in names {
        let requests = requests.clone();
        fetching.spawn(async move { fetch(requests, &name, priority).await });
    }
    while let Some(fetched) = fetching.join_next().await {
        fetched??;
    }
    Ok(())
}

async fn fetch(
    mut requests: Requests,
    name: &str,
    priority: Option<Priority>,
) -> Result<(), Failure> {
    let mut request = Request::get(format!("https://localhost/{name}"));
    if let Some(priority) = priority {
        request = request.header("priority", priority);
    }
    let mut stream = requests.send_request(request.body(())?).await?;
    stream.finish().await?;
    let response = stream.recv_response().await?;
    if !response.status().is_success() {
        return Err(format!("{name}: {}", response.status()).into());
    }
    let length = response.headers().get("content-length");
    let expected: usize = length.ok_or("no length")?.to_str()?.parse()?;
    let mut received = 0;
    while let Some(data) = stream.recv_data().await? {
        received += data.remaining();
    }
    if received == expected {
        Ok(())
    } else {
        Err(format!("{name}: {received} bytes of {expected}").into())
    }
}
