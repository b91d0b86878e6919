#![no_main]

use libfuzzer_sys::fuzz_target;
use mpquic_core::{Side, TransportParameters};

fuzz_target!(|bytes: &[u8]| {
    for sender in [Side::Client, Side::Server] {
        let Ok(parameters) = TransportParameters::decode(sender, bytes) else {
            continue;
        };
        let mut out = Vec::new();
        parameters.encode(sender, &mut out);
        let again = TransportParameters::decode(sender, &out);
        assert_eq!(again, Ok(parameters));
    }
});
