//! The tests of the schedulers through their public interface, one program: it links once.

mod transfers;
