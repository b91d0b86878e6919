//! Names with several addresses, of both IP versions.

use std::net::SocketAddr;
use std::time::Duration;

use mpquic_core::PathState;
use tokio::time::{Instant, sleep};

use crate::testing::{DELAY, Error, Pair, TestResult, client, server, transfer};
use crate::{ClientConfig, ConnectError, Connection, default_transport};

const V6: &str = "[2001:db8::1]:443";
const V4: &str = "10.0.0.1:443";
const NEXT: Duration = Duration::from_millis(300);

/// A server with these addresses; the client knows no address of the server.
fn pair(at_server: &[&str], at_client: &[&str]) -> Result<(Pair, ClientConfig), Error> {
    let configs = (server(default_transport())?, client(default_transport())?);
    let pair = Pair::new((configs.0, at_server), (configs.1.clone(), at_client))?;
    Ok((pair, configs.1))
}

fn addresses(all: &[&str]) -> Result<Vec<SocketAddr>, std::net::AddrParseError> {
    all.iter().map(|address| address.parse()).collect()
}

/// Connects, and says how long that took.
async fn connect(
    pair: &Pair,
    config: &ClientConfig,
    all: &[&str],
) -> Result<(Connection, Connection, Duration), Error> {
    let start = Instant::now();
    let endpoint = &pair.client.endpoint;
    let connecting = endpoint.connect_any(config.clone(), &addresses(all)?, "localhost")?;
    let connect = async { Ok::<_, Error>(connecting.await?) };
    let (a, b) = tokio::try_join!(connect, pair.accept())?;
    Ok((a, b, start.elapsed()))
}

/// Remote addresses of the paths that carry data.
fn remotes(connection: &Connection) -> Vec<String> {
    let paths = connection.path_stats().into_iter();
    let active = paths.filter(|path| path.state == PathState::Active);
    let mut remotes: Vec<_> = active
        .map(|path| path.four_tuple.remote.to_string())
        .collect();
    remotes.sort();
    remotes
}

/// A link of IPv6 alone, beside a link of IPv4 alone.
#[tokio::test(start_paused = true)]
async fn each_link_reaches_the_address_of_its_version() -> TestResult {
    for locals in [
        ["10.0.1.1:1", "[2001:db8:1::1]:1"],
        ["[2001:db8:1::1]:1", "10.0.1.1:1"],
    ] {
        let (pair, config) = pair(&[V6, V4], &locals)?;
        let (a, b, _) = connect(&pair, &config, &[V6, V4]).await?;
        for connection in [&a, &b] {
            connection.wait_for_paths(2).await?;
        }
        assert_eq!(remotes(&a), [V4, V6]);
        transfer(&a, &b, 10_000).await?;
    }
    Ok(())
}

/// Each link has both IP versions. The next connection begins at the address that answered first.
#[tokio::test(start_paused = true)]
async fn a_version_that_leads_nowhere_costs_little_and_once() -> TestResult {
    let locals = ["10.0.1.1:1", "[2001:db8:1::1]:1", "10.0.2.1:1"];
    let dead = "[2001:db8::dead]:443";
    let (pair, config) = pair(&[V4], &locals)?;
    let all = [dead, "[2001:db8::beef]:443", V4];
    let (a, _b, took) = connect(&pair, &config, &all).await?;
    let expected = NEXT + 3 * DELAY;
    assert!((expected..expected + DELAY).contains(&took), "{took:?}");
    assert_eq!(remotes(&a), [V4]);
    a.close(0u32.into(), b"");
    sleep(Duration::from_secs(1)).await;
    let (_a, _b, took) = connect(&pair, &config, &all).await?;
    assert!(took < 4 * DELAY, "{took:?}");
    Ok(())
}

/// The addresses of a name may belong to different machines.
#[tokio::test(start_paused = true)]
async fn addresses_that_lead_elsewhere_are_not_tried_for_ever() -> TestResult {
    let elsewhere = "10.0.0.9:443";
    let (pair, config) = pair(&[V4], &["10.0.1.1:1", "10.0.2.1:1"])?;
    let (a, b, _) = connect(&pair, &config, &[V4, elsewhere]).await?;
    for connection in [&a, &b] {
        connection.wait_for_paths(2).await?;
    }
    // From each local address, and first of all.
    assert_eq!(remotes(&a), [V4, V4]);
    let tried = || {
        let sent = pair.at_client.iter().flat_map(|port| port.take_calls());
        sent.filter(|call| call.to.to_string() == elsewhere).count()
    };
    sleep(Duration::from_secs(60)).await;
    assert!(tried() > 0);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(tried(), 0);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn without_an_address_nothing_begins() -> TestResult {
    let (pair, config) = pair(&[V4], &["10.0.1.1:1"])?;
    let connect = |all: &[&str]| -> Result<_, Error> {
        let addresses = addresses(all)?;
        let connecting = (pair.client.endpoint).connect_any(config.clone(), &addresses, "x");
        Ok(connecting.err())
    };
    assert_eq!(connect(&[])?, Some(ConnectError::NoAddress));
    let no_socket = ConnectError::NoSocket(V6.parse()?);
    assert_eq!(connect(&[V6])?, Some(no_socket));
    Ok(())
}

/// Some resolvers write IPv4 addresses in IPv6 form.
#[tokio::test(start_paused = true)]
async fn an_ipv4_address_in_ipv6_form_is_one() -> TestResult {
    let (pair, config) = pair(&[V4], &["10.0.1.1:1"])?;
    let mapped = "[::ffff:10.0.0.1]:443";
    let (a, ..) = connect(&pair, &config, &[mapped]).await?;
    assert_eq!(remotes(&a), [V4]);
    let endpoint = &pair.client.endpoint;
    let connecting = endpoint.connect_with(config, mapped.parse()?, "localhost")?;
    assert_eq!(connecting.remote_address(), Some(V4.parse()?));
    Ok(())
}
