//! The tests of the lab command as a library, one program: it links once.

mod document;
mod report;
