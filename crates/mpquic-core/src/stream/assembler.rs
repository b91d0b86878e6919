//! assembler.
