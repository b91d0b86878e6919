//! Rules of RFC 10069, 9000, 9001 and 9002 that concern a connection as a whole, datagram by
//! datagram. `docs/conformance.md` says which rule each test is for.

mod abandon;
mod ack_frequency;
mod acknowledgement;
mod broken_peers;
mod closing;
mod connection_ids;
mod economy;
mod first_flight;
mod handshake;
mod handshake_duration;
mod harness;
mod memory;
mod messages;
mod migration;
mod moves;
mod packets;
mod parameters;
mod paths;
mod preferred;
mod proven;
mod server_addresses;
mod statistics;
mod suspects;
mod tokens;
mod trim;
mod upkeep;
mod versions;
