//! Address validation tokens: opened tokens have the content of the sealed ones, changed tokens do
//! not open, and authentic nonsense is no token. A service that makes Retry tokens in place of
//! servers survives all datagrams, and its answers are short.

#![no_main]

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use mpquic_core::Version;
use mpquic_core::crypto::{RetryTokenKey, RetryTokens, ScreenedDatagram};
use mpquic_core::testing::{ProvenAddress, TokenContent, Tokens, is_fresh};
use mpquic_fuzz::number::Cid;

#[derive(Debug, Arbitrary)]
enum Content {
    Retry {
        ip: IpAddr,
        port: u16,
        original_dcid: Cid,
        retry_scid: Cid,
    },
    Validation {
        connection: u64,
        /// Address, port, and microseconds since 1970.
        addresses: Vec<(IpAddr, u16, u32)>,
    },
}

#[derive(Debug, Arbitrary)]
enum Change {
    Flip { at: u16, bit: u8 },
    Cut(u16),
    Append(Vec<u8>),
    OtherKey,
    Other(Vec<u8>),
}

#[derive(Debug, Arbitrary)]
struct Input {
    nonce: [u8; 16],
    second_version: bool,
    /// Time of issue, seconds since 1970: about 140 years.
    issued: u32,
    content: Content,
    changes: Vec<Change>,
    text: Vec<u8>,
    age: i16,
    lifetime: u16,
}

fuzz_target!(|input: Input| {
    let ours = Tokens::new(&[1; 32]);
    let version = if input.second_version {
        Version::V2
    } else {
        Version::V1
    };
    let issued = SystemTime::UNIX_EPOCH + Duration::from_secs(input.issued.into());
    check_freshness(&input, issued);
    check_service(&input.text, issued);
    let content = match &input.content {
        Content::Retry {
            ip,
            port,
            original_dcid,
            retry_scid,
        } => TokenContent::Retry {
            version,
            address: SocketAddr::new(*ip, *port),
            original_dcid: original_dcid.0,
            retry_scid: retry_scid.0,
            issued,
        },
        Content::Validation {
            connection,
            addresses,
        } => TokenContent::Validation {
            version,
            connection: *connection,
            addresses: addresses.iter().copied().map(proven).collect(),
            issued,
        },
    };
    let token = ours.seal(input.nonce, content.clone());
    // Only the first eight addresses count.
    let mut expected = content;
    if let TokenContent::Validation { addresses, .. } = &mut expected {
        addresses.truncate(8);
    }
    let nonce = u128::from_be_bytes(input.nonce);
    assert_eq!(ours.open(&token), Some((nonce, expected)));
    check_changes(&ours, &token, &input.changes);

    // Nonsense, sealed with our own key.
    let sealed = ours.seal_text(input.nonce, &input.text);
    assert_eq!(ours.open_text(&sealed).as_ref(), Some(&input.text));
    if let Some((_, content)) = ours.open(&sealed) {
        let again = ours.seal(input.nonce, content);
        // A token of ours has at most eight addresses, so a longer list is cut when it is sealed
        // again.
        let text = ours.open_text(&again).expect("our own");
        assert!(input.text.starts_with(&text));
        let is_list = matches!(
            ours.open(&again),
            Some((_, TokenContent::Validation { .. }))
        );
        assert!(text.len() == input.text.len() || is_list);
    }
});

fn proven((ip, port, microseconds): (IpAddr, u16, u32)) -> ProvenAddress {
    ProvenAddress {
        address: SocketAddr::new(ip, port),
        proven: SystemTime::UNIX_EPOCH + Duration::from_micros(microseconds.into()),
    }
}

/// Passes a datagram of a client without a proven address to the service.
fn check_service(datagram: &[u8], now: SystemTime) {
    let key = RetryTokenKey {
        sequence: 0,
        key: [1; 16],
        iv: [2; 12],
    };
    let tokens = RetryTokens::new(&[key]).expect("a key");
    let client = SocketAddr::from(([192, 0, 2, 1], 443));
    match tokens.screen(datagram, client, now, [3; 20]) {
        ScreenedDatagram::Forward(rest) => assert!(datagram.ends_with(rest)),
        ScreenedDatagram::Retry(retry) => assert!(retry.len() < datagram.len()),
        ScreenedDatagram::Drop => assert!(!datagram.is_empty()),
    }
}

fn check_changes(ours: &Tokens, token: &[u8], changes: &[Change]) {
    let mut changed = token.to_vec();
    let mut key = 1;
    for change in changes {
        match change {
            Change::Flip { at, bit } if !changed.is_empty() => {
                let at = usize::from(*at) % changed.len();
                changed[at] ^= 1 << (bit % 8);
            }
            Change::Flip { .. } => {}
            Change::Cut(at) => changed.truncate(usize::from(*at) % (changed.len() + 1)),
            Change::Append(bytes) => changed.extend_from_slice(bytes),
            Change::OtherKey => key = 2,
            Change::Other(bytes) => changed.clone_from(bytes),
        }
    }
    let opened = Tokens::new(&[key; 32]).open(&changed);
    let is_ours = key == 1 && changed == token;
    assert_eq!(opened.is_some(), is_ours, "{changed:02x?}");
    assert_eq!(ours.open(&changed).is_some(), changed == token);
}

fn check_freshness(input: &Input, issued: SystemTime) {
    let lifetime = Duration::from_secs(input.lifetime.into());
    let age = Duration::from_secs(input.age.unsigned_abs().into());
    let now = if input.age < 0 {
        issued.checked_sub(age)
    } else {
        issued.checked_add(age)
    };
    let Some(now) = now else {
        return;
    };
    // Clocks of servers that share a key may be five seconds apart.
    let expected = match input.age {
        -5..0 => true,
        age => (0..=i64::from(input.lifetime)).contains(&i64::from(age)),
    };
    assert_eq!(is_fresh(issued, lifetime, now), expected);
}
