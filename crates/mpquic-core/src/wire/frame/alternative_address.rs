//! ALTERNATIVE_ADDRESS (draft-munizaga-quic-alternative-server-address-01).

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;

use super::fields::{truncated, varint};
use crate::error::{Fault, TransportError};
use crate::wire::buf::{Sink, take_array};

/// Types of entries.
const CURRENT_PATH: u8 = 0;
const IPV4: u8 = 1;
const IPV6: u8 = 2;

/// ALTERNATIVE_ADDRESS: all addresses of the server besides that of the current path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlternativeAddress {
    /// Rises with each set of addresses, to recognise an old frame.
    pub sequence_number: u64,
    /// Addresses that the server prefers to the address of the current path.
    pub preferred: Vec<AddressEntry>,
    /// The entries behind the address of the current path.
    pub backup: Vec<AddressEntry>,
}

/// One address in ALTERNATIVE_ADDRESS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressEntry {
    /// The lower, the better, among those on the same side of the current path. Never falls from
    /// one entry to the next.
    pub priority_hint: u64,
    /// Address and port, without IPv6 flow information and scope.
    pub address: SocketAddr,
}

impl AlternativeAddress {
    /// The addresses, the best first.
    fn entries(&self) -> impl Iterator<Item = &AddressEntry> {
        self.preferred.iter().chain(&self.backup)
    }

    pub(super) fn decode(buf: &mut Bytes) -> Result<Self, TransportError> {
        let mut frame = Self {
            sequence_number: varint(buf)?,
            preferred: Vec::new(),
            backup: Vec::new(),
        };
        let mut is_past_current = false;
        // Safe for any count: each entry takes bytes, and a packet has few bytes.
        for _ in 0..varint(buf)? {
            let side = if is_past_current {
                &mut frame.backup
            } else {
                &mut frame.preferred
            };
            match AddressEntry::decode(buf)? {
                Some(entry) => {
                    let before = side.last().map(|before| before.priority_hint);
                    // Section 5
                    if before > Some(entry.priority_hint) {
                        return Err(Fault::AddressesNotInOrder.into());
                    }
                    side.push(entry);
                }
                // Section 5
                None if is_past_current => return Err(Fault::CurrentPathNotOnce.into()),
                None => is_past_current = true,
            }
        }
        // Section 5
        if !is_past_current {
            return Err(Fault::CurrentPathNotOnce.into());
        }
        // Section 5
        let mut all: Vec<_> = frame.entries().map(|entry| entry.address).collect();
        all.sort_unstable();
        if all.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Fault::AddressTwice.into());
        }
        Ok(frame)
    }

    pub(super) fn write(&self, out: &mut impl Sink) {
        out.varint(self.sequence_number);
        out.varint(self.entries().count() as u64 + 1);
        for entry in &self.preferred {
            entry.write(out);
        }
        out.bytes(&[CURRENT_PATH]);
        for entry in &self.backup {
            entry.write(out);
        }
    }
}

impl AddressEntry {
    /// `None` for the current path.
    fn decode(buf: &mut Bytes) -> Result<Option<Self>, TransportError> {
        let [entry_type] = take_array(buf).ok_or_else(truncated)?;
        if entry_type == CURRENT_PATH {
            return Ok(None);
        }
        // Section 5
        if !matches!(entry_type, IPV4 | IPV6) {
            return Err(Fault::UnknownAddressType.into());
        }
        let priority_hint = varint(buf)?;
        let ip: IpAddr = match entry_type {
            IPV4 => take_array::<4>(buf).ok_or_else(truncated)?.into(),
            _ => take_array::<16>(buf).ok_or_else(truncated)?.into(),
        };
        let port = u16::from_be_bytes(take_array(buf).ok_or_else(truncated)?);
        Ok(Some(Self {
            priority_hint,
            address: SocketAddr::new(ip, port),
        }))
    }

    fn write(&self, out: &mut impl Sink) {
        match self.address {
            SocketAddr::V4(address) => {
                out.bytes(&[IPV4]);
                out.varint(self.priority_hint);
                out.bytes(&address.ip().octets());
            }
            SocketAddr::V6(address) => {
                out.bytes(&[IPV6]);
                out.varint(self.priority_hint);
                out.bytes(&address.ip().octets());
            }
        }
        out.bytes(&self.address.port().to_be_bytes());
    }
}
