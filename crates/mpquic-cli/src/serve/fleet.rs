//! A server among others behind a load balancer: its ID stands in its connection IDs (QUIC-LB).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use mpquic_lb::{Config, Server, ServerId};
use mpquic_tokio::{ConnectionIds, RetryTokenKey, RetryTokens};
use serde::Deserialize;

use crate::process::clock;
use crate::process::failure::{Cause, Failure};
use crate::serve::endpoints::Endpoints;
use crate::text::hex;

/// A server with its ID in connection IDs, and the file with the ID and its encoding.
#[derive(Debug, Clone)]
pub(crate) struct Fleet {
    file: PathBuf,
    server: Server,
}

/// The content of the file, as in `docs/fleets.md`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    server_id: String,
    rotation: u8,
    nonce_length: usize,
    key: Option<String>,
    #[serde(default)]
    retry_key: Vec<RetryKey>,
}

/// A key with which the balancer encrypts the tokens of its Retry packets.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RetryKey {
    sequence: u8,
    key: String,
    iv: String,
}

impl Fleet {
    /// Reads the server's ID and its encoding from the file.
    pub(crate) fn read(file: &Path) -> Result<Self, Failure> {
        let (config, id) = place(file)?;
        // The clock gives a restarted server unused nonces.
        let since = clock::time_of_day().duration_since(UNIX_EPOCH);
        let first_nonce = since.map_or(0, |since| since.as_nanos() as u64);
        let server = Server::new(config, id, first_nonce);
        let server = server.map_err(|error| about(file, error))?;
        Ok(Self {
            file: file.to_owned(),
            server,
        })
    }

    pub(crate) fn connection_ids(&self) -> ConnectionIds {
        self.server.connection_ids()
    }

    /// Reads the file again, and gives all clients new connection IDs.
    pub(crate) fn reread(&self, endpoints: &Endpoints) -> Result<(), Failure> {
        let (config, id) = place(&self.file)?;
        let changed = self.server.change(config, id);
        changed.map_err(|error| about(&self.file, error))?;
        endpoints.replace_connection_ids();
        Ok(())
    }
}

/// The keys for Retry tokens of the balancer; `None` if the file has no such keys.
pub(crate) fn retry_tokens(file: &Path) -> Result<Option<Arc<RetryTokens>>, Failure> {
    let key = |read: &RetryKey| {
        Some(RetryTokenKey {
            sequence: read.sequence,
            key: hex::bytes(&read.key)?,
            iv: hex::bytes(&read.iv)?,
        })
    };
    let read = read(file)?.retry_key;
    if read.is_empty() {
        return Ok(None);
    }
    let keys: Option<Vec<_>> = read.iter().map(key).collect();
    let expected = "a retry_key has a key of 32 hexadecimal digits and an iv of 24";
    let keys = keys.ok_or_else(|| about(file, expected))?;
    let tokens = RetryTokens::new(&keys);
    let tokens = tokens.map_err(|error| about(file, format_args!("retry_key: {error}")))?;
    Ok(Some(Arc::new(tokens)))
}

fn read(file: &Path) -> Result<Place, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Cause::File.failed(format_args!("cannot read {}: {error}", file.display()))
    })?;
    toml::from_str(&text).map_err(|error| about(file, error.message()))
}

fn place(file: &Path) -> Result<(Config, ServerId), Failure> {
    let place = read(file)?;
    let id: ServerId = place
        .server_id
        .parse()
        .map_err(|error| about(file, error))?;
    let config = Config::new(place.rotation, id.as_bytes().len(), place.nonce_length);
    let config = config.map_err(|error| about(file, error))?;
    let Some(key) = place.key else {
        return Ok((config, id));
    };
    let wrong = || about(file, "a key has 32 hexadecimal digits");
    let key = hex::bytes(&key).ok_or_else(wrong)?;
    Ok((config.with_key(key), id))
}

fn about(file: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::usage(format!("--quic-lb {}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use mpquic_tokio::Endpoint;

    use super::*;
    use crate::options::Alpn;
    use crate::serve;
    use crate::serve::drain::drain;
    use crate::testing::{Served, soon};

    /// Connected clients also get new connection IDs.
    #[tokio::test]
    async fn a_file_that_has_changed_gives_clients_other_connection_ids() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("place.toml");
        let write = |id: &str, rotation: u8| {
            let key = "09".repeat(16);
            let place = format!(
                "server_id = \"{id}\"\nrotation = {rotation}\nnonce_length = 5\nkey = \"{key}\"\n"
            );
            std::fs::write(&file, place).unwrap();
        };
        write("0a0b", 1);
        let fleet = Fleet::read(&file).unwrap();
        let all = fleet.server.nonces_left().unwrap();
        let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let alpn = Alpn::HqInterop;
        let (config, pin) = serve::self_signed(&[any], &[alpn.bytes()]).unwrap();
        let builder = Endpoint::builder().bind(any).server(config);
        let builder = builder.connection_ids(fleet.connection_ids());
        let endpoint = builder.build().unwrap();
        let served = Served {
            address: endpoint.local_addrs()[0],
            endpoints: Endpoints::one(endpoint.clone()),
            pin,
            alpn,
            drain: drain().0,
        };
        let accept = async { endpoint.accept().await.unwrap().await.unwrap() };
        let (_client, _connection) =
            soon(async { tokio::join!(served.connect(1000), accept) }).await;
        assert!(fleet.server.nonces_left().unwrap() < all);

        let endpoints = &served.endpoints;
        write("0a0c", 2);
        fleet.reread(endpoints).unwrap();
        let are_replaced = async {
            while fleet.server.nonces_left() == Some(all) {
                tokio::task::yield_now().await;
            }
        };
        soon(are_replaced).await;
        // An unusable file changes nothing.
        write("0a0c0d", 2);
        let told = fleet.reread(endpoints).unwrap_err();
        assert!(told.message().starts_with("--quic-lb "), "{told:?}");
        std::fs::write(&file, "").unwrap();
        assert_eq!(fleet.reread(endpoints).unwrap_err().code(), 2);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(fleet.reread(endpoints).unwrap_err().code(), 3);
    }

    #[test]
    fn errors_of_the_fleet_file_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("place.toml");
        let message = |text: &str| {
            std::fs::write(&file, text).unwrap();
            let failure = Fleet::read(&file).unwrap_err();
            assert!(matches!(failure, Failure::Usage(_)));
            let message = failure.message().to_owned();
            let start = format!("--quic-lb {}: ", file.display());
            message.strip_prefix(&start).unwrap().to_owned()
        };
        let place = "server_id = \"0a\"\nrotation = 1\nnonce_length = 7\n";
        assert_eq!(
            message(&place.replace("0a", "a")),
            "\"a\" is not a server ID: two hexadecimal digits for each byte, from 1 to 15 bytes"
        );
        assert_eq!(
            message(&place.replace("= 1", "= 9")),
            "the rotation is 9, but must be from 0 to 6"
        );
        assert_eq!(
            message(&place.replace("= 7", "= 3")),
            "a nonce has 3 bytes, but must have from 4 to 18 beside a server ID of 1"
        );
        assert_eq!(
            message(&format!("{place}key = \"1234\"")),
            "a key has 32 hexadecimal digits"
        );
        assert_eq!(
            message("server_id = \"0a\"\nrotation = 1"),
            "missing field `nonce_length`"
        );
        assert!(message(&format!("{place}other = 1")).starts_with("unknown field `other`"));
        std::fs::write(&file, place).unwrap();
        assert!(retry_tokens(&file).unwrap().is_none());
        assert_eq!(Fleet::read(&file).unwrap().connection_ids().length(), 9);
        let missing = Fleet::read(&directory.path().join("none")).unwrap_err();
        assert_eq!(missing.cause(), Some(Cause::File));

        let with_keys = |iv: &str, sequences: &[u8]| {
            let key = "09".repeat(16);
            let keys = sequences.iter().map(|sequence| {
                format!("[[retry_key]]\nsequence = {sequence}\nkey = \"{key}\"\niv = \"{iv}\"\n")
            });
            std::fs::write(&file, place.to_owned() + &keys.collect::<String>()).unwrap();
            let tokens = retry_tokens(&file);
            tokens.map_err(|failure| failure.message().to_owned())
        };
        let iv = "0a".repeat(12);
        assert!(with_keys(&iv, &[0, 127]).unwrap().is_some());
        for (iv, sequences, told) in [
            (&iv[1..], &[0][..], "and an iv of 24"),
            (
                &iv,
                &[128],
                "retry_key: sequence is 128, but must be from 0 to 127",
            ),
            (&iv, &[1, 1], "but must be another one for each key"),
        ] {
            let message = with_keys(iv, sequences).unwrap_err();
            assert!(message.ends_with(told), "{message}");
        }
    }
}
