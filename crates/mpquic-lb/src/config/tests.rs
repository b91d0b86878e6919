use super::*;

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&hexadecimal[at..at + 2], 16).unwrap();
    (0..hexadecimal.len()).step_by(2).map(byte).collect()
}

fn number(bytes: &[u8]) -> u128 {
    bytes
        .iter()
        .fold(0, |sum, byte| sum << 8 | u128::from(*byte))
}

/// The test vectors of appendix A: rotation, server ID, nonce, connection ID, and the key if there
/// is one.
const VECTORS: &[(u8, &str, &str, &str, Option<u128>)] = &[
    (0, "c4605e", "4504cc4f", "07c4605e4504cc4f", None),
    // The draft prints this vector with one zero missing and another one added.
    (
        1,
        "350d28b420",
        "03487d970b",
        "2a350d28b42003487d970b",
        None,
    ),
    (0, "ed793a", "ee080dbf", "0720b1d07b359d3c", KEY),
    (
        1,
        "ed793a51d49b8f5fab65",
        "ee080dbf48",
        "2fcc381bc74cb4fbad2823a3d1f8fed2",
        KEY,
    ),
    (
        2,
        "ed793a51d49b8f5f",
        "ee080dbf48c0d1e5",
        "504dd2d05a7b0de9b2b9907afb5ecf8cc3",
        KEY,
    ),
    // The draft prints this vector with the rotation 0.
    (
        3,
        "ed793a51d49b8f5fab",
        "ee080dbf48c0d1e55d",
        "725779c9cc86beb3a3a4a3ca96fce4bfe0cdbc",
        KEY,
    ),
];
const KEY: Option<u128> = Some(0x8f95_f092_4576_5f80_2569_34e5_0c66_207f);

#[test]
fn connection_ids_match_the_vectors_of_the_draft() {
    for (rotation, server, nonce, connection_id, key) in VECTORS {
        let server = ServerId::new(&bytes(server)).unwrap();
        let nonce = bytes(nonce);
        let mut config = Config::new(*rotation, server.as_bytes().len(), nonce.len())
            .unwrap()
            .with_length_told();
        if let Some(key) = key {
            config = config.with_key(key.to_be_bytes());
        }
        let made = config.connection_id(server, number(&nonce), 0xff);
        assert_eq!(&made[..], bytes(connection_id), "{config:?}");
        assert_eq!(config.server_id(&made), Some(server), "{config:?}");
        // Other bytes may follow the connection ID, but none of its own bytes may be missing.
        assert_eq!(
            config.server_id(&[&made[..], &[1, 2]].concat()),
            Some(server)
        );
        assert_eq!(config.server_id(&made[..made.len() - 1]), None);
    }
}

#[test]
fn a_connection_id_with_another_rotation_has_no_server_id() {
    let config = Config::new(3, 1, 4).unwrap();
    let server = ServerId::new(&[9]).unwrap();
    let made = config.connection_id(server, 0, 0);
    for rotation in 0..=7_u8 {
        let mut other = made.to_vec();
        other[0] = rotation << 5 | other[0] & LOW_BITS;
        let expected = (rotation == 3).then_some(server);
        assert_eq!(config.server_id(&other), expected);
    }
    assert_eq!(config.server_id(&[]), None);
}

#[test]
fn wrong_configurations_are_refused() {
    let message = |rotation, server_id, nonce| {
        let refused = Config::new(rotation, server_id, nonce).unwrap_err();
        refused.to_string()
    };
    assert_eq!(
        message(7, 1, 4),
        "the rotation is 7, but must be from 0 to 6"
    );
    for length in [0, 16] {
        let expected = format!("a server ID has {length} bytes, but must have from 1 to 15");
        assert_eq!(message(0, length, 4), expected);
        assert_eq!(
            ServerId::new(&vec![1; length]).unwrap_err().to_string(),
            expected
        );
    }
    for nonce in [3, 17] {
        let expected = format!(
            "a nonce has {nonce} bytes, but must have from 4 to 16 beside a server ID of 3"
        );
        assert_eq!(message(0, 3, nonce), expected);
    }
    assert!(Config::new(6, 3, 16).is_ok());
    for text in ["", "1", "xy", "0123é", &"00".repeat(16)] {
        let refused = text.parse::<ServerId>().unwrap_err();
        assert_eq!(refused, ConfigError::NotHexadecimal(text.to_owned()));
    }
}

#[test]
fn the_key_is_not_shown() {
    let config = Config::new(0, 1, 4).unwrap().with_key([0xab; 16]);
    let shown = format!("{config:?}");
    assert!(shown.contains("encrypted: true"), "{shown}");
    assert!(!shown.contains("171") && !shown.contains("ab"), "{shown}");
}
