//! Sockets of interfaces, on the loopback interface.

use super::*;
use crate::socket::Socket;
use crate::testing::{DELAY, Error, Host, Network, Pair, TestResult, client, server, transfer};
use std::time::Duration;
use tokio::time::sleep;

/// An endpoint without sockets.
fn host() -> Result<Host, Error> {
    let transport = crate::default_transport();
    Host::new(&Network::default(), Some(server(transport)?), None, 1)
}

#[tokio::test]
async fn sockets_follow_the_addresses_of_an_interface() -> TestResult {
    let state = host()?.state;
    let selection = Selection::Named(vec!["lo".to_owned()]);
    assert!(adapt(&state, &selection));
    let bound = state.sockets.addresses();
    let ips: Vec<_> = bound.iter().map(SocketAddr::ip).collect();
    assert!(ips.contains(&IpAddr::from([127, 0, 0, 1])), "{ips:?}");
    assert!(adapt(&state, &selection));
    assert_eq!(state.sockets.addresses(), bound, "nothing is new");
    // An address that the interface does not list, and a socket of no interface.
    let runtime = &*state.runtime;
    let gone = Socket::bind(runtime, "127.0.0.2:0".parse()?, Some("lo"), 1 << 16)?;
    let apart = Socket::bind(runtime, "127.0.0.2:0".parse()?, None, 1 << 16)?;
    let kept = apart.local();
    for socket in [gone, apart] {
        state.sockets.insert(Arc::new(socket));
    }
    assert!(adapt(&state, &selection));
    let expected: Vec<_> = bound.iter().copied().chain([kept]).collect();
    assert_eq!(state.sockets.addresses(), expected);
    // As if the address had disappeared for a moment.
    state.sockets.remove(|socket| socket.local() == bound[0]);
    assert!(adapt(&state, &selection));
    let again = state.sockets.addresses();
    assert_eq!(again.len(), expected.len());
    assert!(again.iter().any(|address| address.ip() == bound[0].ip()));
    Ok(())
}

/// The path moves from a removed address to a new address at the same moment.
#[tokio::test]
async fn connections_follow_the_addresses_of_an_interface() -> TestResult {
    let config = server(crate::default_transport())?;
    let builder = crate::Endpoint::builder().server(config);
    let listening = builder.bind("127.0.0.1:0".parse()?).build()?;
    let config = client(crate::default_transport())?;
    let host = Host::new(&Network::default(), None, Some(config), 2)?;
    let state = &host.state;
    let gone = Socket::bind(&*state.runtime, "127.0.0.2:0".parse()?, Some("lo"), 1 << 16)?;
    let before = gone.local();
    start::read(state, Arc::new(gone));
    let connecting = host
        .endpoint
        .connect(listening.local_addr()?, "localhost")?;
    let accept = async { Ok(listening.accept().await.ok_or("closed")?.await?) };
    let connect = async { Ok::<_, Error>(connecting.await?) };
    let (a, b) = tokio::try_join!(connect, accept)?;
    a.handshake_confirmed().await?;
    assert_eq!(a.path_stats()[0].four_tuple.local, before);

    assert!(adapt(state, &Selection::Named(vec!["lo".to_owned()])));
    tokio::time::timeout(Duration::from_secs(10), transfer(&a, &b, 1 << 20)).await??;
    let paths = a.path_stats();
    let locals: Vec<_> = paths
        .iter()
        .map(|path| path.four_tuple.local.ip())
        .collect();
    assert_eq!(locals, [IpAddr::from([127, 0, 0, 1])]);
    Ok(())
}

/// Any change may bring a new route.
#[tokio::test(start_paused = true)]
async fn a_change_makes_connections_try_again() -> TestResult {
    let pair = Pair::with_paths(1)?;
    let (a, b) = pair.connect().await?;
    transfer(&a, &b, 1 << 20).await?;
    sleep(Duration::from_secs(8)).await;
    let port = &pair.at_client[0];
    port.fail_to_send(Some(io::ErrorKind::NetworkUnreachable));
    let gone = Duration::from_millis(300);
    let end = async {
        sleep(gone).await;
        port.fail_to_send(None);
        adapt(&pair.client.state, &Selection::Named(Vec::new()));
        Ok(())
    };
    let (elapsed, ()) = tokio::try_join!(transfer(&a, &b, 10_000), end)?;
    // The path is probed, answers, and carries the data.
    assert_eq!(elapsed, gone + 3 * DELAY);
    Ok(())
}

#[tokio::test]
async fn interface_task_binds_at_once_and_closes_all_at_the_end() -> TestResult {
    let host = host()?;
    let state = host.state.clone();
    let selection = Selection::Named(vec!["lo".to_owned()]);
    let watching = tokio::spawn(watch(state.clone(), Some(selection), Vec::new()));
    tokio::task::yield_now().await;
    assert!(!state.sockets.addresses().is_empty());
    // The last handle is gone.
    drop(host);
    watching.await?;
    assert_eq!(state.sockets.addresses(), []);
    Ok(())
}
