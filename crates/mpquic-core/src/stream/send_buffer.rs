//! send_buffer.
