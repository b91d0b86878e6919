//! The tests of the laboratory through its public interface, one program: it links once.

mod datagram_floods;
mod duel;
mod extra_bytes;
mod failover;
mod fairness;
mod lab;
mod lossy;
mod neighbours;
mod other_policies;
mod papers;
mod random_paths;
mod resume;
mod sharing;
mod start;
mod together;
mod way_back;
