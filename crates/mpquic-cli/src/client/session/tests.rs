use super::*;
use crate::process::screen::tests::Heard;
use crate::serve::Service;
use crate::serve::limits::Limits;
use crate::testing::{Anything, Served, close_of, far, reach, soon};

#[test]
fn names_and_addresses() {
    let url = |text: &str| text.parse::<Uri>().unwrap();
    for (text, expected) in [
        ("https://host:1/x", "host"),
        ("https://[::1]:1/x", "::1"),
        ("https://192.0.2.1", "192.0.2.1"),
    ] {
        assert_eq!(host(authority(&url(text)).unwrap()), expected);
    }
    assert!(authority(&url("/x")).is_err());
    let any = |all: &[&str]| {
        let all: Vec<_> = all.iter().map(|text| text.parse().unwrap()).collect();
        unspecified(&all).map(|any| any.to_string())
    };
    let (v4, v6) = ("192.0.2.1:1", "[2001:db8::1]:1");
    assert_eq!(any(&[v4]).as_deref(), Some("0.0.0.0"));
    assert_eq!(any(&[v6, v6]).as_deref(), Some("::"));
    assert_eq!(any(&[v6, v4]), None);
    assert!(is_ours([127, 0, 0, 1].into()) && !is_ours([198, 51, 100, 77].into()));
}

/// Windows are what arrives in a tenth of a second, and paths may carry a quarter more.
#[test]
fn a_rate_bounds_windows_and_paths() {
    let mut transport = mpquic_tokio::default_transport();
    hold_to(&mut transport, Rate::mbit(8));
    let windows = [
        transport.initial_stream_receive_window,
        transport.initial_receive_window,
        transport.max_receive_window,
    ];
    assert_eq!(windows, [100_000; 3]);
    assert_eq!(transport.send_window, 1_000_000);
    let controller = transport.controller.build();
    let rate = controller.pacing_rate(mpquic_tokio::PathId(0));
    assert_eq!(rate, Some(1_250_000));
    // The window is never larger than the default.
    let before = mpquic_tokio::default_transport().send_window;
    let mut transport = mpquic_tokio::default_transport();
    hold_to(&mut transport, Rate::mbit(100_000));
    assert!(transport.send_window >= transport.max_receive_window);
    assert!(transport.send_window <= before.max(64 << 20));
}

#[test]
fn looking_sends_no_request() {
    let url = Uri::from_static("https://host/");
    let look = Purpose::look(&url, &[Alpn::H3]);
    assert_eq!(
        (look.urls, look.alpn),
        (&[url.clone()][..], &[Alpn::H3][..])
    );
    assert!(!look.early_data && look.quiet && !look.datagrams && look.rate.is_none());
}

/// A session replaces a connection after the end of the connection's use.
#[tokio::test]
async fn a_connection_is_used_until_it_is_given_up() {
    let served = Served::start(Anything::new(1), Limits::default(), Alpn::H3);
    let port = served.address.port();
    let url = |host: &str| format!("https://{host}:{port}/").parse::<Uri>().unwrap();
    let (url, other) = (url("127.0.0.1"), url("localhost"));
    let address = served.address.to_string();
    let reach = reach(&["--insecure", "--server-addr", &address]);
    let mut purpose = Purpose::look(&url, &[Alpn::H3]);
    let urls = [url.clone(), other.clone()];
    purpose.urls = &urls;
    let sessions = Sessions::new(&reach, purpose).unwrap().that_forget();
    let number = || sessions.current().unwrap().map(|(number, _)| number);
    assert_eq!((number(), sessions.shown().len()), (None, 0));
    let connected = async |url: &Uri| soon(sessions.connection(url)).await.unwrap();
    let first = connected(&url).await;
    assert!(!first.is_old && first.zero_rtt.is_none());
    let again = connected(&url).await;
    assert!(again.is_old);
    let shown: Vec<_> = sessions.shown().iter().map(|(number, _)| *number).collect();
    assert_eq!((number(), shown), (Some(1), vec![0]));
    // A request may fail alone.
    drop(again);
    sessions.give_up().await;
    assert_eq!(number(), Some(1));
    let connection = first.connection.clone();
    drop(first);
    sessions.give_up().await;
    assert!(number().is_none() && connection.close_reason().is_some());
    // Another server has another connection, at any address.
    assert!(!connected(&url).await.is_old);
    assert_eq!(number(), Some(2));
    assert!(!connected(&other).await.is_old);
    assert_eq!(number(), Some(3));
    // A closed connection is useless.
    let last = connected(&other).await;
    assert!(last.is_old);
    last.connection.close(0u32.into(), b"");
    assert!(!connected(&other).await.is_old);
    assert_eq!(number(), Some(4));
    let open = sessions.open().unwrap();
    sessions.close().await;
    assert!(open.close_reason().is_some() && sessions.open().is_none());
    // Addresses of the command line belong to its servers.
    let given = [served.address];
    assert_eq!(sessions.addresses(&other).await.unwrap(), given);
    let elsewhere = Uri::from_static("https://127.0.0.3/x");
    let found = sessions.addresses(&elsewhere).await.unwrap();
    assert_eq!(found, [SocketAddr::from(([127, 0, 0, 3], 443))]);
}

/// A server knows a client by its ports. After a failure, other ports may work better.
#[tokio::test]
async fn the_next_connection_has_the_ports_of_one_that_ended_well() {
    let served = Served::start(Anything::new(1), Limits::default(), Alpn::H3);
    let url: Uri = format!("https://{}/", served.address).parse().unwrap();
    let reach = reach(&["--insecure"]);
    let sessions = Sessions::new(&reach, Purpose::look(&url, &[Alpn::H3]));
    let sessions = sessions.unwrap().that_forget();
    let ports = async || {
        soon(sessions.connection(&url)).await.unwrap();
        let current = sessions.current.lock().await;
        current.as_ref().unwrap().endpoint.local_addrs()
    };
    let first = ports().await;
    assert!(!first.is_empty());
    sessions.close().await;
    assert_eq!(ports().await, first);
    sessions.open().unwrap().close(0u32.into(), b"");
    sessions.give_up().await;
    assert_ne!(ports().await, first);
}

/// The transport of connections with these options and this purpose.
fn transport(options: &[&str], purpose: Purpose<'_>) -> TransportOptions {
    let reach = reach(&[&["--insecure"], options].concat());
    let mut seen = None;
    let adapt = |transport: &mut TransportOptions| seen = Some(transport.clone());
    drop(Sessions::with(&reach, purpose, adapt).unwrap());
    seen.unwrap()
}

#[test]
fn connections_are_made_for_a_purpose() {
    let url = Uri::from_static("https://host/");
    let look = Purpose::look(&url, &[Alpn::H3]);
    let usual = transport(&[], look);
    assert_eq!(usual.max_concurrent_paths, 8);
    assert_eq!(usual.datagram_receive_buffer, None);
    assert_eq!(usual.keep_alive_interval, Some(Duration::from_secs(5)));
    assert_eq!(usual.max_handshake_duration, Duration::from_secs(10));
    let wanted = transport(&["--paths", "3", "--connect-timeout", "4"], look);
    assert_eq!(wanted.max_concurrent_paths, 3);
    assert_eq!(wanted.max_handshake_duration, Duration::from_secs(4));
    let datagrams = Purpose {
        datagrams: true,
        ..look
    };
    let buffer = transport(&[], datagrams).datagram_receive_buffer;
    assert_eq!(buffer, Some(1 << 20));
    let slow = Purpose {
        rate: Some(Rate::mbit(8)),
        ..look
    };
    assert_eq!(transport(&[], slow).initial_receive_window, 100_000);
    assert_ne!(usual.initial_receive_window, 100_000);
    let name = |transport: &TransportOptions| transport.scheduler.build().name();
    let weights = [crate::client::weight::parse_weight("127.0.0.1=3").unwrap()];
    let weighted = Purpose {
        weights: &weights,
        ..look
    };
    let split = SplitRatio::factory(&SplitWeights::default());
    assert_eq!(name(&transport(&[], weighted)), split.build().name());
    assert_ne!(name(&usual), split.build().name());
}

/// What nothing starts from can neither stand by nor cost anything.
#[test]
fn path_options_must_name_used_addresses() {
    let url = Uri::from_static("https://host/");
    let reach = reach(&["--insecure", "--local", "127.0.0.1"]);
    fn told(reach: &Reach, purpose: Purpose<'_>) -> Option<String> {
        let made = Sessions::new(reach, purpose);
        made.err().map(|failure| failure.message().to_owned())
    }
    let look = Purpose::look(&url, &[Alpn::H3]);
    let at = |last| Local::Address([127, 0, 0, last].into());
    for (last, is_used) in [(1, true), (9, false)] {
        let why = |option| {
            let why = "no path starts there; name an address or interface of --local";
            (!is_used).then(|| format!("{option} 127.0.0.9: {why}"))
        };
        let backup = [at(last)];
        let purpose = Purpose {
            backup: &backup,
            ..look
        };
        assert_eq!(told(&reach, purpose), why("--backup"));
        let costs = [Cost {
            from: at(last),
            cost: 5,
        }];
        let purpose = Purpose {
            costs: &costs,
            ..look
        };
        assert_eq!(told(&reach, purpose), why("--cost"));
    }
}

/// Messages of a connection to a server that allows this number of paths.
async fn said(paths: u32, quiet: bool, options: &[&str]) -> String {
    let mut transport = mpquic_tokio::default_transport();
    transport.max_concurrent_paths = paths;
    let service = Service::new(Arc::new(Anything::new(1)));
    let served = Served::over(service, Alpn::H3, transport);
    let (url, reach) = (served.url("/"), served.reach(options));
    let purpose = Purpose {
        quiet,
        ..Purpose::look(&url, &[Alpn::H3])
    };
    let sessions = Sessions::new(&reach, purpose).unwrap().that_forget();
    let heard = Heard::begin();
    let connected = soon(sessions.connection(&url)).await.unwrap();
    assert_eq!(
        connected.connection.is_multipath(),
        paths > 0 && options.is_empty()
    );
    let [output, errors] = heard.take();
    assert_eq!(output, "");
    errors
}

#[tokio::test]
async fn a_server_without_multipath_is_told() {
    let told = "mpquic: the server does not support multipath; going on with one path\n";
    assert_eq!(said(0, false, &[]).await, told);
    assert_eq!(said(0, true, &[]).await, "");
    assert_eq!(said(8, false, &[]).await, "");
    // `--paths 1` is no reason for a message.
    assert_eq!(said(0, false, &["--paths", "1"]).await, "");
}

#[tokio::test]
async fn a_server_is_remembered_when_it_is_met_first() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("known");
    let named = file.to_str().unwrap();
    let reach = reach(&["--first-use", "--known-hosts", named]);
    let served = Served::start(Anything::new(1), Limits::default(), Alpn::H3);
    let other = Served::start(Anything::new(1), Limits::default(), Alpn::H3);
    let url = served.url("/");
    let server = served.address.to_string();
    let connect = async |url: &Uri, quiet| {
        let purpose = Purpose {
            quiet,
            ..Purpose::look(url, &[Alpn::H3])
        };
        let sessions = Sessions::new(&reach, purpose).unwrap().that_forget();
        let heard = Heard::begin();
        let connected = soon(sessions.connection(url)).await;
        let [_, said] = heard.take();
        connected.map(|_| said)
    };
    let said = connect(&url, false).await.unwrap();
    let line = std::fs::read_to_string(&file).unwrap();
    let pin = line.trim_end().strip_prefix(&format!("{server} ")).unwrap();
    let told = format!("mpquic: {server} is new: its certificate {pin} is now in {named}\n");
    assert_eq!(said, told);
    // Now it is known.
    assert_eq!(connect(&url, false).await.unwrap(), "");
    assert_eq!(connect(&other.url("/"), true).await.unwrap(), "");
    let lines = std::fs::read_to_string(&file).unwrap();
    assert_eq!(lines.lines().count(), 2, "{lines}");
    // A server with another certificate is not trusted.
    let swapped = lines
        .replace(&server, "x")
        .replace(&other.address.to_string(), &server);
    std::fs::write(&file, &swapped).unwrap();
    let failure = connect(&url, false).await.unwrap_err();
    assert_eq!(failure.cause(), Some(Cause::Trust));
    let (message, met) = (failure.message(), "at the first contact");
    let start = format!("the server's certificate is {pin}, but it was sha256:");
    assert!(
        message.starts_with(&start) && message.contains(met),
        "{message}"
    );
    let way_out = format!("if you know why, remove its line from {named}");
    assert!(message.ends_with(&way_out), "{message}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), swapped);
    // If nothing can be written, the server stays unknown.
    let reach = self::reach(&["--first-use", "--known-hosts", "/dev/null/x"]);
    let sessions = Sessions::new(&reach, Purpose::look(&url, &[Alpn::H3])).unwrap();
    assert!(sessions.recall(url.authority().unwrap()).is_err());
}

#[test]
fn servers_are_known_by_their_host_and_port() {
    let url = Uri::from_static("https://host/");
    let reach = reach(&["--insecure"]);
    let sessions = Sessions::new(&reach, Purpose::look(&url, &[Alpn::H3])).unwrap();
    for (authority, name) in [
        ("host", "host:443"),
        ("host:5", "host:5"),
        ("[::1]", "[::1]:443"),
    ] {
        assert_eq!(sessions.recall(&authority.parse().unwrap()).unwrap(), name);
    }
    assert_eq!(sessions.renewal(), None);
}

#[tokio::test]
async fn sockets_are_where_paths_start() {
    let url = Uri::from_static("https://host/");
    let ours = SocketAddr::from(([127, 0, 0, 1], 443));
    let look = Purpose::look(&url, &[Alpn::H3]);
    let usual = reach(&["--insecure"]);
    let sessions = Sessions::new(&usual, look).unwrap();
    let at = |last| Local::Address([127, 0, 0, last].into());
    let ips = |locals: &[Local], server| {
        let endpoint = sessions.endpoint(locals, &[server]).unwrap();
        let addresses = endpoint.local_addrs().into_iter();
        addresses
            .map(|address| address.ip().to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(ips(&[at(2), at(3)], ours), ["127.0.0.2", "127.0.0.3"]);
    // Only named addresses are used, wherever the server is.
    let elsewhere = SocketAddr::from(([198, 51, 100, 77], 443));
    assert_eq!(ips(&[at(2)], elsewhere), ["127.0.0.2"]);
    // A server on this machine is reached as the system likes.
    assert_eq!(ips(&[], ours), ["0.0.0.0"]);
    // Without an interface, no path can start.
    let mut options = vec!["--insecure".to_owned()];
    for interface in if_addrs::get_if_addrs().unwrap() {
        options.extend(["--exclude".to_owned(), interface.name]);
    }
    let options: Vec<_> = options.iter().map(String::as_str).collect();
    let reach = reach(&options);
    let sessions = Sessions::new(&reach, look).unwrap();
    let failure = sessions.endpoint(&[], &[elsewhere]).err().unwrap();
    let told = failure.message();
    assert!(
        told.starts_with("cannot use the local addresses: "),
        "{told}"
    );
    assert!(told.ends_with(", apart from those of --exclude"), "{told}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn tun_client_asks_no_resolver() {
    let url = Uri::from_static("https://no-such-host.invalid/");
    let reach = reach(&["--insecure"]);
    let sessions = Sessions::new(&reach, Purpose::look(&url, &[Alpn::H3])).unwrap();
    let given = vec![SocketAddr::from(([192, 0, 2, 1], 5))];
    sessions.become_way_out(given.clone());
    assert_eq!(sessions.addresses(&url).await.unwrap(), given);
    // A lookup finds no other address of the way out.
    sessions.look_up_again(&url).await;
    assert_eq!(sessions.addresses(&url).await.unwrap(), given);
}

/// Addresses of homes change.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_tun_client_finds_a_server_that_has_moved() {
    let url = Uri::from_static("https://localhost:5/");
    let reach = reach(&["--insecure"]);
    let sessions = Sessions::new(&reach, Purpose::look(&url, &[Alpn::H3])).unwrap();
    sessions.look_up_again(&url).await;
    assert!(sessions.way_out().is_none());
    sessions.become_way_out(vec![SocketAddr::from(([192, 0, 2, 1], 5))]);
    soon(sessions.look_up_again(&url)).await;
    let found = sessions.addresses(&url).await.unwrap();
    let is_new = |address: &SocketAddr| address.ip().is_loopback() && address.port() == 5;
    assert!(!found.is_empty() && found.iter().all(is_new), "{found:?}");
}

/// The server learns of the end and its reason. Its earlier data is waited for, but only briefly.
#[tokio::test(start_paused = true)]
async fn a_connection_is_left_with_a_word() {
    let transport = mpquic_tokio::default_transport;
    for (delay, millis) in [(10, 20 + 10), (100, 50)] {
        let far = far(Alpn::H3, Duration::from_millis(delay), transport()).await;
        let began = tokio::time::Instant::now();
        leave(&far.endpoint, &far.client, 7u32.into()).await;
        assert_eq!(began.elapsed().as_millis(), millis);
        let close = close_of(&far.server).await;
        let close = (close.error_code, &close.reason[..]);
        assert_eq!(close, (7u32.into(), &b"done"[..]));
    }
}

/// Options of paths apply once there is a connection.
#[tokio::test]
async fn paths_that_cost_something_stand_by_and_have_their_weights() {
    let served = Served::start(Anything::new(1), Limits::default(), Alpn::H3);
    let two = ["--local", "127.0.0.1", "--local", "127.0.0.2"];
    let (url, reach) = (served.url("/"), served.reach(&two));
    let costs = [Cost {
        from: Local::Address([127, 0, 0, 2].into()),
        cost: 5,
    }];
    let weights = [crate::client::weight::parse_weight("127.0.0.2=7").unwrap()];
    let purpose = Purpose {
        costs: &costs,
        weights: &weights,
        ..Purpose::look(&url, &[Alpn::H3])
    };
    let sessions = Sessions::new(&reach, purpose).unwrap().that_forget();
    let connected = soon(sessions.connection(&url)).await.unwrap();
    let connection = connected.connection;
    let stand_by = || {
        let paths = connection.path_stats().into_iter();
        let states = paths.map(|path| {
            let status = connection.path(path.id).and_then(|path| path.status().ok());
            let is_backup = status.map(|(ours, _)| ours == mpquic_core::PathStatus::Backup);
            (path.four_tuple.local.ip().to_string(), is_backup)
        });
        states.collect::<Vec<_>>()
    };
    let expected = [
        ("127.0.0.1".to_owned(), Some(false)),
        ("127.0.0.2".to_owned(), Some(true)),
    ];
    let both = async {
        let set = "[(PathId(0), 1.0), (PathId(1), 7.0)]";
        while stand_by() != expected || !format!("{:?}", sessions.weights).contains(set) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    soon(both).await;
    let mut told = crate::report::paths(&[], &connection.path_stats());
    backup::mark(&mut told, &connection);
    // A path may be suspect for a moment.
    assert_ne!(told[0].state, "backup");
    assert_ne!(told[1].state, "active");
}

/// Until the need is known, costly paths stand by, and free ones do not.
#[tokio::test]
async fn costly_paths_start_as_backups() {
    let served = Served::start(Anything::new(1), Limits::default(), Alpn::H3);
    let two = ["--local", "127.0.0.1", "--local", "127.0.0.2"];
    let (url, reach) = (served.url("/"), served.reach(&two));
    for (cost, stands_by) in [(1, true), (0, false)] {
        let from = Local::Address([127, 0, 0, 2].into());
        let costs = [Cost { from, cost }];
        let purpose = Purpose {
            costs: &costs,
            ..Purpose::look(&url, &[Alpn::H3])
        };
        let sessions = Sessions::new(&reach, purpose).unwrap().that_forget();
        let local = Some(&costs[0].from);
        let connected = sessions.connect_from(&url, local, served.address);
        let (_endpoint, connection) = soon(connected).await.unwrap();
        soon(connection.handshake_confirmed()).await.unwrap();
        let path = connection.path(mpquic_tokio::PathId(0)).unwrap();
        let (ours, _) = path.status().unwrap();
        assert_eq!(ours == mpquic_core::PathStatus::Backup, stands_by, "{cost}");
    }
}

/// Each side takes its own steps, after some data.
#[tokio::test]
async fn steps_of_a_drill_are_taken_by_both_sides() {
    for of_client in [false, true] {
        let observer = crate::serve::observer::Observer::new(None);
        let mut service = Service {
            observer: observer.clone(),
            ..Service::new(Arc::new(Anything::new(1)))
        };
        let mut options = Vec::new();
        if of_client {
            options.extend(["--drill", "backup=0"])
        } else {
            service.drill.push("backup=0".parse().unwrap())
        }
        let served = Served::of(service, Alpn::Perf);
        let (url, reach) = (served.url("/"), served.reach(&options));
        let look = Purpose::look(&url, &[Alpn::Perf]);
        let sessions = Sessions::new(&reach, look).unwrap().that_forget();
        let connected = soon(sessions.connection(&url)).await.unwrap();
        let connection = connected.connection;
        let client = crate::perf::stream::Client {
            connection: connection.clone(),
            stall: Duration::from_secs(10),
        };
        soon(client.ask(8, 700_000)).await.unwrap();
        let (_, server) = observer.connections().pop().unwrap();
        let is_backup = |side: &Connection| {
            let status = side.path(mpquic_tokio::PathId(0)).unwrap().status();
            status.is_ok_and(|(ours, _)| ours == mpquic_core::PathStatus::Backup)
        };
        let (side, other) = if of_client {
            (&connection, &server)
        } else {
            (&server, &connection)
        };
        let taken = async {
            while !is_backup(side) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        soon(taken).await;
        assert!(!is_backup(other));
    }
}

/// A link may be away when the program starts.
#[tokio::test]
async fn missing_interface_is_reported_once_and_awaited() {
    let served = Served::start(Anything::new(1), Limits::default(), Alpn::H3);
    let url = served.url("/");
    let purpose = Purpose {
        quiet: false,
        ..Purpose::look(&url, &[Alpn::H3])
    };
    let beside = ["--local", "127.0.0.1", "--local", "absent0"];
    let reach = served.reach(&beside);
    let heard = Heard::begin();
    let sessions = Sessions::new(&reach, purpose).unwrap().that_forget();
    let told = "mpquic: absent0 has no address yet; paths start there once it has one\n";
    assert_eq!(heard.take()[1], told);
    soon(sessions.connection(&url)).await.unwrap();
    // So may an address.
    let reach = served.reach(&["--local", "127.0.0.1", "--local", "192.0.2.77"]);
    let sessions = Sessions::new(&reach, purpose).unwrap().that_forget();
    let told = "192.0.2.77 is no address of this machine yet; paths start there once it is";
    assert_eq!(heard.take()[1], format!("mpquic: {told}\n"));
    soon(sessions.connection(&url)).await.unwrap();
    // No other address can be used.
    let nothing = ["absent0", "192.0.2.77"].map(|local| ["--local", local]);
    let nothing = [&nothing.concat()[..], &["--connect-timeout", "1"]].concat();
    let reach = served.reach(&nothing);
    let sessions = Sessions::new(&reach, purpose).unwrap().that_forget();
    let failure = soon(sessions.connection(&url)).await.err().unwrap();
    let told = format!(
        "cannot connect to {}: no address of --local has been there for 1 s; --connect-timeout waits longer, and `mpquic paths` lists the addresses",
        served.address
    );
    assert_eq!(failure.message(), told);
    assert_eq!(failure.cause(), Some(Cause::Connect));
}

/// Both addresses of a name are used: an attempt at the one that leads nowhere may take an hour
/// here.
#[tokio::test]
async fn addresses_of_a_name_are_tried_beside_each_other() {
    let served = Served::start(Anything::new(1), Limits::default(), Alpn::H3);
    let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let silent = socket.local_addr().unwrap();
    let url = served.url("/");
    let reach = served.reach(&["--connect-timeout", "3600"]);
    let look = Purpose::look(&url, &[Alpn::H3]);
    let sessions = Sessions::new(&reach, look).unwrap().that_forget();
    let authority = authority(&url).unwrap();
    let both = [silent, served.address];
    let endpoint = sessions.endpoint(&[], &both).unwrap();
    let connected = sessions.connect_to(endpoint, &both, authority);
    let (_endpoint, connection, _) = soon(connected).await.unwrap();
    assert_eq!(connection.remote_address(), Some(served.address));
}

/// The link of the server may be absent when the program starts.
#[tokio::test]
async fn a_server_on_an_absent_link_may_come() {
    let cause = async |host: &str| {
        let found = resolve(host, 5).await;
        found.map_err(|failure| failure.cause())
    };
    assert_eq!(cause("fe80::1%25absent0").await, Err(Some(Cause::Name)));
    assert_eq!(cause("fe80::1").await, Err(None), "it never will");
}

#[tokio::test]
async fn a_missing_route_is_named() {
    let endpoint = Endpoint::builder().bind(([127, 0, 0, 1], 0).into()).build();
    let endpoint = endpoint.unwrap();
    let away: SocketAddr = "192.0.2.1:443".parse().unwrap();
    let told = "this machine has no route to it from 127.0.0.1: `mpquic paths` lists the addresses for --local";
    assert_eq!(no_route(&endpoint, &[away]).as_deref(), Some(told));
    let here: SocketAddr = "127.0.0.1:443".parse().unwrap();
    assert_eq!(no_route(&endpoint, &[away, here]), None);
}
