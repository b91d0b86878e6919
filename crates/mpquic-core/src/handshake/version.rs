//! [`Versions`]: the current and the possible versions of a connection (RFC 9368).

use quinn_proto::Side;

use crate::config::EndpointConfig;
use crate::error::{Fault, TransportError};
use crate::version::Version;
use crate::wire::transport_parameters::{TransportParameters, VersionInformation};

/// The current version of a connection, and versions to switch to.
#[derive(Debug, Clone)]
pub(crate) struct Versions {
    /// The version of our packets, except for 0-RTT.
    current: Version,
    /// The version of the client's first packets.
    original: Version,
    /// The versions we speak, the preferred one first.
    supported: Vec<Version>,
    /// A reserved version number to offer, which no one speaks (RFC 9000 section 15).
    reserved: u32,
    /// True once `current` is final.
    is_fixed: bool,
    /// Client: it chose `original` from a Version Negotiation packet.
    is_second_choice: bool,
}

impl Versions {
    /// For a client whose first packet has the version `original`.
    pub(crate) fn new(config: &EndpointConfig, original: Version, seed: u32) -> Self {
        Self {
            current: original,
            original,
            supported: config.supported_versions.clone(),
            reserved: Version::reserved(seed),
            is_fixed: false,
            is_second_choice: false,
        }
    }

    pub(super) fn current(&self) -> Version {
        self.current
    }

    /// The version of Retry and 0-RTT packets.
    pub(super) fn original(&self) -> Version {
        self.original
    }

    /// The version information that we announce.
    pub(crate) fn information(&self) -> VersionInformation {
        let supported = self.supported.iter().map(|version| version.to_u32());
        VersionInformation {
            chosen: self.current.to_u32(),
            available: supported.chain([self.reserved]).collect(),
        }
    }

    /// The versions we speak, the preferred one first.
    pub(super) fn supported(&self) -> &[Version] {
        &self.supported
    }

    /// Client: the version was chosen from a Version Negotiation packet.
    pub(super) fn is_second_choice(&self) -> bool {
        self.is_second_choice
    }

    /// Client: starts over in a version chosen from a Version Negotiation packet.
    pub(super) fn start_over(&mut self, version: Version, seed: u32) {
        self.current = version;
        self.original = version;
        self.reserved = Version::reserved(seed);
        self.is_second_choice = true;
    }

    /// The version will not change any more.
    pub(super) fn fix(&mut self, version: Version) {
        self.current = version;
        self.is_fixed = true;
    }

    /// Client: true for a version that the server may still choose (RFC 9369 section 4.1).
    pub(super) fn may_become(&self, version: Version) -> bool {
        !self.is_fixed && self.supported.contains(&version)
    }

    /// Server: chooses the version to continue in. Faults in the client's information are found
    /// later.
    pub(super) fn choose(&self, client: Option<&VersionInformation>) -> Version {
        let offered = client.filter(|client| client.chosen == self.original.to_u32());
        offered
            .and_then(|client| Version::select(&self.supported, &client.available))
            .unwrap_or(self.original)
    }

    /// Checks what the peer announced (RFC 9368 section 4).
    pub(super) fn check(
        &self,
        side: Side,
        peer: &TransportParameters,
    ) -> Result<(), TransportError> {
        let announced = peer.version_information.as_ref();
        match side {
            Side::Client => self.check_server(announced),
            Side::Server => match announced {
                Some(client) if client.chosen != self.original.to_u32() => {
                    Err(Fault::ChosenVersionNotUsed.into())
                }
                Some(_) | None => Ok(()),
            },
        }
    }

    fn check_server(&self, announced: Option<&VersionInformation>) -> Result<(), TransportError> {
        // RFC 9368 section 8: what the absence of version information means: a server that speaks
        // only version 1.
        let version_1 = VersionInformation {
            chosen: 1,
            available: vec![1],
        };
        let is_version_1 = self.current == Version::V1 && self.original == Version::V1;
        let server = match announced {
            Some(server) => server,
            None if is_version_1 => &version_1,
            None => return Err(Fault::VersionInformationMissing.into()),
        };
        if server.chosen != self.current.to_u32() {
            return Err(Fault::ChosenVersionNotUsed.into());
        }
        if self.is_second_choice {
            let mut offered = server.available.clone();
            if !offered.is_empty() {
                offered.push(server.chosen);
            }
            if Version::select(&self.supported, &offered) != Some(self.original) {
                return Err(Fault::VersionNegotiationForged.into());
            }
        }
        Ok(())
    }
}
