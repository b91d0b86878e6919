//! [`Config`]: the settings that servers and load balancers share; [`ServerId`].

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use mpquic_core::ConnectionId;
use thiserror::Error;

use crate::cipher::Cipher;

/// The length of the longest server ID, bytes. A connection ID has at most 19 bytes for server ID
/// and nonce, and the nonce needs at least 4 of them.
const MAX_SERVER_ID: usize = 15;
/// The length of the shortest nonce, bytes.
const MIN_NONCE: usize = 4;
/// The largest length of server ID and nonce together, bytes. A connection ID of QUIC has at most
/// 20 bytes, and its first octet is not part of either.
const MAX_TEXT: usize = 19;
/// The bits of the first octet beside the rotation.
pub(crate) const LOW_BITS: u8 = 0x1f;
/// The rotation of connection IDs that lead to no server (section 3.2).
const UNROUTABLE: u8 = 7;

/// The reason why a configuration is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The rotation is not from 0 to 6. A rotation has three bits; the value 7 stands for no
    /// configuration.
    #[error("the rotation is {0}, but must be from 0 to 6")]
    Rotation(u8),
    /// The length of a server ID is not from 1 to 15 bytes.
    #[error("a server ID has {0} bytes, but must have from 1 to 15")]
    ServerIdLength(usize),
    /// The length of a nonce is below 4 bytes, or above 19 bytes together with the server ID.
    #[error(
        "a nonce has {nonce} bytes, but must have from 4 to {most} beside a server ID of {server_id}"
    )]
    NonceLength {
        /// The length of the nonce, bytes.
        nonce: usize,
        /// The length of the server ID, bytes.
        server_id: usize,
        /// The length of the longest nonce beside this server ID, bytes.
        most: usize,
    },
    /// A server ID differs in length from its configuration.
    #[error("the server ID {server_id} has not the {expected} bytes of its configuration")]
    OtherServerId {
        /// The server ID.
        server_id: ServerId,
        /// The length of server IDs in this configuration, bytes.
        expected: usize,
    },
    /// The new configuration has connection IDs of another length than the present one. All
    /// connection IDs of a server must have the same length.
    #[error("connection IDs would have {found} bytes instead of {expected}")]
    OtherLength {
        /// The length of connection IDs in the new configuration, bytes.
        found: usize,
        /// The length of the connection IDs in use, bytes.
        expected: usize,
    },
    /// The text is not a server ID, which has an even number of hexadecimal digits for 1 to 15
    /// bytes.
    #[error("{0:?} is not a server ID: two hexadecimal digits for each byte, from 1 to 15 bytes")]
    NotHexadecimal(String),
}

/// The identifier of a server for load balancers: 1 to 15 bytes. As text, it has two hexadecimal
/// digits per byte.
///
/// # Examples
///
/// ```
/// use mpquic_lb::ServerId;
///
/// let server: ServerId = "0a17".parse()?;
/// assert_eq!(server, ServerId::new(&[0x0a, 0x17])?);
/// assert_eq!(server.to_string(), "0a17");
/// # Ok::<(), mpquic_lb::ConfigError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId {
    length: u8,
    bytes: [u8; MAX_SERVER_ID],
}

impl ServerId {
    /// A server ID of these bytes.
    ///
    /// # Errors
    ///
    /// If there are no bytes, or more than 15.
    pub fn new(id: &[u8]) -> Result<Self, ConfigError> {
        if !(1..=MAX_SERVER_ID).contains(&id.len()) {
            return Err(ConfigError::ServerIdLength(id.len()));
        }
        let mut bytes = [0; MAX_SERVER_ID];
        bytes[..id.len()].copy_from_slice(id);
        let length = id.len() as u8;
        Ok(Self { length, bytes })
    }

    /// The bytes of the server ID.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = self.as_bytes().iter();
        bytes.try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerId({self})")
    }
}

impl FromStr for ServerId {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let wrong = || ConfigError::NotHexadecimal(text.to_owned());
        if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let byte = |at| u8::from_str_radix(&text[at..at + 2], 16);
        let bytes: Result<Vec<u8>, _> = (0..text.len()).step_by(2).map(byte).collect();
        Self::new(&bytes.map_err(|_| wrong())?).map_err(|_| wrong())
    }
}

/// The format of connection IDs, which all servers of a pool and their load balancers share. It
/// says where the server ID is.
///
/// # Examples
///
/// ```
/// use mpquic_lb::{Config, ServerId};
///
/// // Server IDs of two bytes and nonces of six, encrypted.
/// let config = Config::new(0, 2, 6)?.with_key([7; 16]);
/// assert_eq!(config.connection_id_length(), 9);
/// // Any connection ID with this rotation has a server ID, but seldom that of a server in use.
/// assert!(config.server_id(&[0x1f, 1, 2, 3, 4, 5, 6, 7, 8]).is_some());
/// // A connection ID with another rotation belongs to another configuration.
/// assert!(config.server_id(&[0x3f, 1, 2, 3, 4, 5, 6, 7, 8]).is_none());
/// # Ok::<(), mpquic_lb::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Config {
    rotation: u8,
    server_id_length: usize,
    nonce_length: usize,
    cipher: Option<Arc<Cipher>>,
    tells_length: bool,
}

impl Config {
    /// A configuration without encryption: everyone can read the server ID.
    ///
    /// `rotation` is from 0 to 6. The rotation distinguishes this configuration from others in use
    /// at the same time. The lengths are in bytes. A server ID has 1 to 15 bytes, a nonce at least
    /// 4, and both together at most 19.
    ///
    /// # Errors
    ///
    /// If an argument is out of its range.
    pub fn new(
        rotation: u8,
        server_id_length: usize,
        nonce_length: usize,
    ) -> Result<Self, ConfigError> {
        if rotation >= UNROUTABLE {
            return Err(ConfigError::Rotation(rotation));
        }
        if !(1..=MAX_SERVER_ID).contains(&server_id_length) {
            return Err(ConfigError::ServerIdLength(server_id_length));
        }
        let most = MAX_TEXT - server_id_length;
        if !(MIN_NONCE..=most).contains(&nonce_length) {
            return Err(ConfigError::NonceLength {
                nonce: nonce_length,
                server_id: server_id_length,
                most,
            });
        }
        Ok(Self {
            rotation,
            server_id_length,
            nonce_length,
            cipher: None,
            tells_length: false,
        })
    }

    /// The same configuration with server ID and nonce encrypted. Nobody without the key can find
    /// out which connections or addresses belong to the same server.
    #[must_use]
    pub fn with_key(mut self, key: [u8; 16]) -> Self {
        self.cipher = Some(Arc::new(Cipher::new(&key)));
        self
    }

    /// The same configuration with the length of the connection ID in its first octet. Network
    /// cards that remove packet protection need it (section 3.3). Without it, these five bits are
    /// random.
    #[must_use]
    pub fn with_length_told(mut self) -> Self {
        self.tells_length = true;
        self
    }

    /// The number that distinguishes this configuration from others, from 0 to 6.
    pub fn rotation(&self) -> u8 {
        self.rotation
    }

    /// The length of each connection ID, bytes.
    pub fn connection_id_length(&self) -> usize {
        1 + self.text_length()
    }

    /// The ID of the server that made a connection ID. More bytes may follow the connection ID.
    /// `None` if the connection ID belongs to another configuration or is too short.
    pub fn server_id(&self, connection_id: &[u8]) -> Option<ServerId> {
        let (first, rest) = connection_id.split_first()?;
        if first >> 5 != self.rotation {
            return None;
        }
        let mut text = [0; MAX_TEXT];
        let text = &mut text[..self.text_length()];
        text.copy_from_slice(rest.get(..text.len())?);
        if let Some(cipher) = &self.cipher {
            cipher.decrypt(text);
        }
        ServerId::new(&text[..self.server_id_length]).ok()
    }

    /// The length of server ID and nonce together, bytes.
    fn text_length(&self) -> usize {
        self.server_id_length + self.nonce_length
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.cipher.is_some()
    }

    /// The number of different nonces; `u64::MAX` if it does not fit into 64 bits.
    pub(crate) fn nonces(&self) -> u64 {
        let bits = 8 * self.nonce_length as u32;
        1_u64.checked_shl(bits).unwrap_or(u64::MAX)
    }

    pub(crate) fn check(&self, server: ServerId) -> Result<(), ConfigError> {
        if server.as_bytes().len() == self.server_id_length {
            return Ok(());
        }
        Err(ConfigError::OtherServerId {
            server_id: server,
            expected: self.server_id_length,
        })
    }

    /// A connection ID of this server. The low bytes of `nonce` are its nonce. Five bits of
    /// `random` are in the first octet, unless the length of the connection ID is there.
    pub(crate) fn connection_id(&self, server: ServerId, nonce: u128, random: u8) -> ConnectionId {
        let mut bytes = [0; 1 + MAX_TEXT];
        let bytes = &mut bytes[..self.connection_id_length()];
        let (first, text) = bytes.split_first_mut().expect("it has a first octet");
        let low = if self.tells_length {
            text.len() as u8
        } else {
            random & LOW_BITS
        };
        *first = self.rotation << 5 | low;
        let (id, rest) = text.split_at_mut(self.server_id_length);
        id.copy_from_slice(server.as_bytes());
        let nonce = nonce.to_be_bytes();
        for (to, from) in rest.iter_mut().rev().zip(nonce.iter().rev()) {
            *to = *from;
        }
        if let Some(cipher) = &self.cipher {
            cipher.encrypt(text);
        }
        ConnectionId::new(bytes)
    }

    /// A connection ID that leads to no server (section 3.2). It has the length of this
    /// configuration. All bytes except the first octet are `random`.
    pub(crate) fn unroutable(&self, mut random: [u8; 1 + MAX_TEXT]) -> ConnectionId {
        random[0] = UNROUTABLE << 5 | self.text_length() as u8;
        ConnectionId::new(&random[..self.connection_id_length()])
    }
}

impl fmt::Debug for Config {
    /// Shows everything except the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("rotation", &self.rotation)
            .field("server_id_length", &self.server_id_length)
            .field("nonce_length", &self.nonce_length)
            .field("encrypted", &self.is_encrypted())
            .field("tells_length", &self.tells_length)
            .finish()
    }
}

#[cfg(test)]
mod tests;
