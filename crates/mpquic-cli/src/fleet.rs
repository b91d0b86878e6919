//! A server among others behind a load balancer: its ID stands in its connection IDs (QUIC-LB).

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use mpquic_lb::{Config, Server, ServerId};
use mpquic_tokio::ConnectionIds;
use serde::Deserialize;

use crate::clock;
use crate::endpoints::Endpoints;
use crate::failure::{Cause, Failure};
use crate::hex;

/// The server, and the file that says how its ID stands there.
#[derive(Debug, Clone)]
pub(crate) struct Fleet {
    file: PathBuf,
    server: Server,
}

/// What the file says; `docs/fleets.md` explains it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    server_id: String,
    rotation: u8,
    nonce_length: usize,
    key: Option<String>,
}

impl Fleet {
    /// As the file says.
    pub(crate) fn read(file: &Path) -> Result<Self, Failure> {
        let (config, id) = place(file)?;
        // Whoever starts again begins where nobody was before.
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

    /// Reads the file again. If it has changed, clients get other connection IDs.
    pub(crate) fn reread(&self, endpoints: &Endpoints) -> Result<(), Failure> {
        let (config, id) = place(&self.file)?;
        let changed = self.server.change(config, id);
        changed.map_err(|error| about(&self.file, error))?;
        endpoints.replace_connection_ids();
        Ok(())
    }
}

fn place(file: &Path) -> Result<(Config, ServerId), Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Cause::File.failed(format_args!("cannot read {}: {error}", file.display()))
    })?;
    let place: Place = toml::from_str(&text).map_err(|error| about(file, error.message()))?;
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
    use super::*;

    #[test]
    fn what_is_wrong_with_the_file_is_said() {
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
        assert_eq!(Fleet::read(&file).unwrap().connection_ids().length(), 9);
        let missing = Fleet::read(&directory.path().join("none")).unwrap_err();
        assert_eq!(missing.cause(), Some(Cause::File));
    }
}
