//! [`Cipher`]: encrypts server ID and nonce without increasing their length (section 5.4).

use aes::Aes128;
use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};

/// The size of an AES block, bytes.
const BLOCK: usize = 16;
/// Half of the length of the longest text, rounded up, bytes.
const MAX_HALF: usize = 10;

/// Encrypts texts of 5 to 19 bytes with a key.
///
/// A text of 16 bytes is encrypted as one AES block. Texts of other lengths go through a Feistel
/// network of four rounds.
pub(crate) struct Cipher(Aes128);

impl Cipher {
    pub(crate) fn new(key: &[u8; BLOCK]) -> Self {
        Self(Aes128::new(key.into()))
    }

    /// Encrypts server ID and nonce for a connection ID.
    pub(crate) fn encrypt(&self, text: &mut [u8]) {
        if let Ok(block) = <&mut [u8; BLOCK]>::try_from(&mut *text) {
            self.0.encrypt_block(block.into());
            return;
        }
        let mut halves = Halves::split(text);
        for pass in 1..=4 {
            self.pass(pass, &mut halves);
        }
        halves.join(text);
    }

    /// Decrypts server ID and nonce from a connection ID.
    pub(crate) fn decrypt(&self, text: &mut [u8]) {
        if let Ok(block) = <&mut [u8; BLOCK]>::try_from(&mut *text) {
            self.0.decrypt_block(block.into());
            return;
        }
        let mut halves = Halves::split(text);
        for pass in (1..=4).rev() {
            self.pass(pass, &mut halves);
        }
        halves.join(text);
    }

    /// One round of the network. An odd pass changes the right half by the left half, an even pass
    /// changes the left half by the right half. Applying the same pass twice restores the halves.
    fn pass(&self, pass: u8, halves: &mut Halves) {
        let (from, into) = match pass % 2 {
            1 => (&halves.left, &mut halves.right),
            _ => (&halves.right, &mut halves.left),
        };
        let mut block = [0; BLOCK];
        block[..MAX_HALF].copy_from_slice(from);
        block[BLOCK - 2] = halves.length as u8;
        block[BLOCK - 1] = pass;
        self.0.encrypt_block((&mut block).into());
        for (byte, mask) in into.iter_mut().zip(block) {
            *byte ^= mask;
        }
        halves.clear_what_is_not_theirs();
    }
}

/// The two halves of a text, each followed by zeros. If the number of bytes is odd, both halves
/// contain four bits of the middle byte: its high bits are at the end of the left half, its low
/// bits at the beginning of the right half.
struct Halves {
    left: [u8; MAX_HALF],
    right: [u8; MAX_HALF],
    length: usize,
}

impl Halves {
    fn split(text: &[u8]) -> Self {
        let length = text.len();
        let half = length.div_ceil(2);
        let mut halves = Self {
            left: [0; MAX_HALF],
            right: [0; MAX_HALF],
            length,
        };
        halves.left[..half].copy_from_slice(&text[..half]);
        halves.right[..half].copy_from_slice(&text[length - half..]);
        halves.clear_what_is_not_theirs();
        halves
    }

    fn clear_what_is_not_theirs(&mut self) {
        let half = self.length.div_ceil(2);
        self.left[half..].fill(0);
        self.right[half..].fill(0);
        if self.length % 2 == 1 {
            self.left[half - 1] &= 0xf0;
            self.right[0] &= 0x0f;
        }
    }

    fn join(&self, text: &mut [u8]) {
        let half = self.length.div_ceil(2);
        text.fill(0);
        text[..half].copy_from_slice(&self.left[..half]);
        for (byte, right) in text[self.length - half..].iter_mut().zip(self.right) {
            *byte |= right;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of section 5.4.2.3.
    #[test]
    fn four_passes_as_in_the_example() {
        let key = 0xfdf7_26a9_893e_c05c_0632_d395_6680_baf0_u128.to_be_bytes();
        let mut text = [0x31, 0x44, 0x1a, 0x9c, 0x69, 0xc2, 0x75];
        Cipher::new(&key).encrypt(&mut text);
        assert_eq!(text, [0x67, 0x94, 0x7d, 0x29, 0xbe, 0x05, 0x4a]);
    }

    #[test]
    fn decrypting_undoes_encrypting_for_each_length() {
        let cipher = Cipher::new(&[7; 16]);
        for length in 5..=19 {
            let text: Vec<u8> = (1..=length).collect();
            let mut changed = text.clone();
            cipher.encrypt(&mut changed);
            assert_ne!(changed, text);
            cipher.decrypt(&mut changed);
            assert_eq!(changed, text);
        }
    }
}
