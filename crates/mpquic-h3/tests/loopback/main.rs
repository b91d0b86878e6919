//! Servers and clients of `h3` over real sockets: two loopback addresses are two paths.

mod bodies;
mod closing;
mod connect;
mod datagrams;
mod harness;
mod limits;
mod message_table;
mod messages;
mod priorities;
mod rules;
