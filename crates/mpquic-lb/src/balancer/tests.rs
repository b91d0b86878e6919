use super::*;

#[expect(clippy::disallowed_methods, reason = "any instant will do")]
fn start() -> Instant {
    Instant::now()
}

fn server(number: u8) -> SocketAddr {
    ([10, 0, 0, number], 4433).into()
}

fn tuple(client: u16) -> FourTuple {
    let [a, b] = client.to_be_bytes();
    FourTuple::new(([192, 0, 2, 1], 443).into(), ([198, 51, a, b], 5000).into())
}

fn id(number: u8) -> ServerId {
    ServerId::new(&[number]).unwrap()
}

fn balancer(servers: u8) -> Balancer {
    balancer_with([7; 32], servers)
}

fn balancer_with(secret: [u8; 32], servers: u8) -> Balancer {
    let mut balancer = Balancer::new(1000, secret);
    balancer.set_config(Config::new(2, 1, 7).unwrap().with_key([5; 16]));
    for number in 1..=servers {
        balancer.add_server(2, id(number), server(number)).unwrap();
    }
    balancer
}

fn config() -> Config {
    Config::new(2, 1, 7).unwrap().with_key([5; 16])
}

fn short(connection_id: &[u8]) -> Vec<u8> {
    [&[0x40], connection_id, &[0xaa; 30]].concat()
}

fn long(connection_id: &[u8]) -> Vec<u8> {
    let version = [0, 0, 0, 1, connection_id.len() as u8];
    [&[0xc0], &version[..], connection_id, &[0; 1200]].concat()
}

/// A connection ID made by a client. It has the rotation of no configuration.
fn unknown(client: u16) -> [u8; 8] {
    let [a, b] = client.to_be_bytes();
    [0xff, 1, 2, 3, 4, 5, a, b]
}

/// An attacker who knew the secret could direct all connections to one server.
#[test]
fn only_the_secret_tells_which_server_a_client_gets() {
    let choices = |secret: u8| -> Vec<_> {
        let mut balancer = balancer_with([secret; 32], 4);
        let clients = 0..200_u16;
        let chosen =
            clients.map(|client| balancer.route(start(), tuple(client), &long(&unknown(client))));
        chosen.map(|routed| routed.unwrap().server).collect()
    };
    assert_eq!(choices(1), choices(1));
    let (one, other) = (choices(1), choices(2));
    let same = one.iter().zip(&other).filter(|(one, other)| one == other);
    // A quarter, if one does not tell the other.
    assert!((25..75).contains(&same.count()));
}

#[test]
fn connection_ids_of_every_path_lead_to_the_server_that_made_them() {
    let mut balancer = balancer(3);
    let now = start();
    for number in 1..=3 {
        for path in 0..50_u16 {
            let made = config().connection_id(id(number), path.into(), 0);
            for datagram in [short(&made), long(&made)] {
                let routed = balancer.route(now, tuple(path), &datagram).unwrap();
                assert_eq!(routed.server, server(number));
                assert!(routed.by_connection_id);
            }
        }
    }
    assert_eq!(balancer.counts().by_connection_id, 300);
}

#[test]
fn new_connections_are_spread_and_stay_where_they_are() {
    let mut balancer = balancer(3);
    let now = start();
    let mut chosen = BTreeMap::new();
    let first: Vec<_> = (0..900)
        .map(|client| {
            balancer
                .route(now, tuple(client), &long(&unknown(client)))
                .unwrap()
                .server
        })
        .collect();
    for server in &first {
        *chosen.entry(*server).or_insert(0) += 1;
    }
    assert!(
        chosen.values().all(|count| (200..400).contains(count)),
        "{chosen:?}"
    );
    // A server is added and another one is drained. Known clients stay with their servers.
    balancer.add_server(2, id(4), server(4)).unwrap();
    assert!(balancer.drain(server(1)));
    for (client, before) in (0..).zip(&first) {
        let routed = balancer
            .route(now, tuple(client), &long(&unknown(client)))
            .unwrap();
        assert_eq!((routed.server, routed.by_connection_id), (*before, false));
    }
    for client in 1000..2000 {
        let routed = balancer
            .route(now, tuple(client), &long(&unknown(client)))
            .unwrap();
        assert_ne!(routed.server, server(1));
    }
    assert_eq!(balancer.counts().remembered, 900);
}

#[test]
fn a_draining_server_keeps_its_connections_until_it_is_removed() {
    let mut balancer = balancer(2);
    let now = start();
    let made = config().connection_id(id(1), 9, 0);
    assert!(balancer.drain(server(1)) && !balancer.drain(server(9)));
    let routed = balancer.route(now, tuple(1), &short(&made)).unwrap();
    assert_eq!(routed.server, server(1));
    balancer.remove_server(server(1));
    let routed = balancer.route(now, tuple(1), &short(&made)).unwrap();
    assert_eq!((routed.server, routed.by_connection_id), (server(2), false));
    assert!(balancer.drain(server(2)));
    assert_eq!(balancer.route(now, tuple(2), &long(&unknown(2))), None);
    assert!(balancer.resume(server(2)));
    assert!(balancer.route(now, tuple(2), &long(&unknown(2))).is_some());
    assert_eq!(balancer.counts().dropped, 1);
}

/// The client's connection with a drained server has ended. A new connection from the same address
/// goes to another server.
#[test]
fn a_draining_server_gets_no_new_connection_of_a_known_client() {
    let mut balancer = balancer(2);
    let now = start();
    let before = balancer.route(now, tuple(1), &long(&unknown(1))).unwrap();
    let [one, other] = [server(1), server(2)];
    let left = if before.server == one { other } else { one };
    assert!(balancer.drain(before.server));
    // The connection that began at the drained server continues there.
    for datagram in [long(&unknown(1)), short(&unknown(7))] {
        let routed = balancer.route(now, tuple(1), &datagram).unwrap();
        assert_eq!(routed.server, before.server);
    }
    for datagram in [long(&unknown(2)), long(&unknown(2))] {
        let routed = balancer.route(now, tuple(1), &datagram).unwrap();
        assert_eq!(routed.server, left);
    }
}

#[test]
fn old_and_new_keys_work_side_by_side() {
    let mut balancer = balancer(2);
    let next = Config::new(3, 1, 7).unwrap().with_key([6; 16]);
    let made = next.connection_id(id(2), 1, 0);
    let now = start();
    assert!(
        !balancer
            .route(now, tuple(1), &short(&made))
            .unwrap()
            .by_connection_id
    );
    let refused = balancer.add_server(3, id(2), server(2)).unwrap_err();
    assert_eq!(refused, ConfigError::Rotation(3));
    balancer.set_config(next);
    balancer.add_server(3, id(2), server(2)).unwrap();
    let old = config().connection_id(id(2), 1, 0);
    for connection_id in [made, old] {
        let routed = balancer
            .route(now, tuple(1), &short(&connection_id))
            .unwrap();
        assert_eq!((routed.server, routed.by_connection_id), (server(2), true));
    }
    balancer.remove_config(2);
    assert!(
        !balancer
            .route(now, tuple(1), &short(&old))
            .unwrap()
            .by_connection_id
    );
}

#[test]
fn choices_expire_after_their_lifetime_and_stay_within_the_capacity() {
    let mut balancer = balancer(3);
    let start = start();
    let lifetime = Balancer::REMEMBERED;
    let known = |balancer: &mut Balancer, seconds, client| {
        let now = start + Duration::from_secs(seconds);
        let before = balancer.counts().remembered;
        balancer.route(now, tuple(client), &long(&unknown(client)));
        balancer.counts().remembered > before
    };
    assert_eq!(lifetime, Duration::from_secs(30));
    assert!(!known(&mut balancer, 0, 1));
    // A lookup in each generation keeps the choice.
    for seconds in [29, 31, 61, 91] {
        assert!(known(&mut balancer, seconds, 1), "after {seconds} s");
    }
    assert!(!known(&mut balancer, 160, 1));
    for client in 0..5000 {
        known(&mut balancer, 161, client);
    }
    assert!((1000..=2000).contains(&balancer.by_addresses.len()));
}

#[test]
fn datagrams_that_are_not_quic_are_dropped() {
    let mut balancer = balancer(2);
    let now = start();
    // An empty datagram, and long headers that end within the version, before the length of the
    // connection ID, and within the connection ID.
    for datagram in [
        &[][..],
        &[0xc0, 0, 0],
        &[0xc0, 0, 0, 0, 1],
        &[0xc0, 0, 0, 0, 1, 8, 1, 2],
    ] {
        assert_eq!(balancer.route(now, tuple(1), datagram), None);
    }
    // A datagram with a short header that is too short for our connection IDs may belong to another
    // version of QUIC.
    assert!(
        !balancer
            .route(now, tuple(1), &[0x40, 0x40])
            .unwrap()
            .by_connection_id
    );
    assert_eq!(balancer.counts().dropped, 4);
}

/// A client that sends from two addresses at once begins a single connection.
#[test]
fn first_datagrams_from_two_addresses_go_to_the_same_server() {
    let mut balancer = balancer(3);
    let now = start();
    for client in 0..100 {
        let first = balancer
            .route(now, tuple(client), &long(&unknown(client)))
            .unwrap();
        let other = balancer.route(now, tuple(client + 1000), &long(&unknown(client)));
        assert_eq!(other, Some(first));
        // Later datagrams from this address go to the same server, even with a connection ID that
        // leads to no server.
        let short = short(&unknown(client));
        assert_eq!(
            balancer.route(now, tuple(client + 1000), &short),
            Some(first)
        );
    }
    assert_eq!(
        (balancer.counts().chosen, balancer.counts().remembered),
        (100, 200)
    );
    assert!(balancer.by_first_id.len() == 100);
    // A connection ID longer than 20 bytes is not remembered.
    balancer.route(now, tuple(1), &long(&[0xff; 21]));
    assert!(balancer.by_first_id.len() == 100);
}
