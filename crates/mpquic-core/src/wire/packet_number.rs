//! wire/packet_number
