//! AES-128-GCM of both libraries, in place, on packets.

use std::time::{Duration, Instant};

use compare_peer::report::{self, Meter};
use compare_peer::{Program, Result, Role, ready, socket};

/// Bytes of an authentication tag.
pub(crate) const TAG: usize = 16;
/// Bytes of a packet that are not encrypted: its number.
pub(crate) const HEADER: usize = 8;
/// Packets handled between two looks at the clock: what stays in the caches.
const BATCH: usize = 44;

/// AES-128-GCM with a key. Packets begin with [`HEADER`] bytes and end with [`TAG`] bytes.
pub(crate) trait Aead {
    /// Encrypts what is between header and tag, and writes the tag.
    fn seal(&self, number: u64, packet: &mut [u8]) -> Result<()>;

    /// Decrypts what is between header and tag, if the tag is right.
    fn open(&self, number: u64, packet: &mut [u8]) -> Result<()>;
}

/// The nonce of a packet.
fn nonce(number: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    nonce
}

/// The same for libraries of the same interface.
macro_rules! aead {
    ($name:ident, $library:ident) => {
        pub(crate) struct $name($library::aead::LessSafeKey);

        impl $name {
            pub(crate) fn new() -> Result<Self> {
                let key = $library::aead::UnboundKey::new(&$library::aead::AES_128_GCM, &[7; 16]);
                let key = key.map_err(|_| "not a key")?;
                Ok(Self($library::aead::LessSafeKey::new(key)))
            }
        }

        impl Aead for $name {
            fn seal(&self, number: u64, packet: &mut [u8]) -> Result<()> {
                use $library::aead::{Aad, Nonce};
                let end = packet.len() - TAG;
                let (header, rest) = packet.split_at_mut(HEADER);
                let (payload, space) = rest.split_at_mut(end - HEADER);
                let nonce = Nonce::assume_unique_for_key(nonce(number));
                let tag = self
                    .0
                    .seal_in_place_separate_tag(nonce, Aad::from(header), payload);
                space.copy_from_slice(tag.map_err(|_| "cannot encrypt")?.as_ref());
                Ok(())
            }

            fn open(&self, number: u64, packet: &mut [u8]) -> Result<()> {
                use $library::aead::{Aad, Nonce};
                let (header, rest) = packet.split_at_mut(HEADER);
                let nonce = Nonce::assume_unique_for_key(nonce(number));
                let opened = self.0.open_in_place(nonce, Aad::from(header), rest);
                opened.map_err(|_| "not authentic")?;
                Ok(())
            }
        }
    };
}

aead!(Ring, ring);
aead!(AwsLc, aws_lc_rs);

/// The client measures; the server is there because the others have one.
pub(crate) fn run<A: Aead>(
    program: &Program,
    aead: &A,
    measure: fn(&A, &mut [u8], usize) -> Result<Duration>,
) -> Result<()> {
    let Role::Client { .. } = program.role else {
        let socket = socket(program.options.server_socket(), &program.options)?;
        ready(socket.local_addr()?);
        loop {
            std::thread::park();
        }
    };
    let packet = usize::from(program.options.datagram);
    let mut packets = vec![0x5a; BATCH * packet];
    let payload = (BATCH * (packet - HEADER - TAG)) as u64;
    let batches = program.options.bytes().div_ceil(payload);
    let _says_so = Meter::start()?;
    let mut time = Duration::ZERO;
    for _ in 0..batches {
        time += measure(aead, &mut packets, packet)?;
    }
    report::stop(
        batches * payload,
        time,
        time.as_secs_f64(),
        "one process, no packets sent",
    );
    Ok(())
}

/// Time to encrypt packets of `size` bytes.
pub(crate) fn seal<A: Aead>(aead: &A, packets: &mut [u8], size: usize) -> Result<Duration> {
    let start = Instant::now();
    for (number, packet) in packets.chunks_exact_mut(size).enumerate() {
        aead.seal(number as u64, packet)?;
    }
    Ok(start.elapsed())
}

/// Time to decrypt packets of `size` bytes.
pub(crate) fn open<A: Aead>(aead: &A, packets: &mut [u8], size: usize) -> Result<Duration> {
    seal(aead, packets, size)?;
    let start = Instant::now();
    for (number, packet) in packets.chunks_exact_mut(size).enumerate() {
        aead.open(number as u64, packet)?;
    }
    Ok(start.elapsed())
}
