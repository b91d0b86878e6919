//! [`Exporter`]: exports keying material (RFC 8446 section 7.5).

use rustls::Tls13CipherSuite;
use rustls::crypto::tls13::OkmBlock;

use super::key_derivation::with_label;
use crate::crypto::ExportError;

/// Longest label: its length and that of a prefix of six bytes are written in one byte.
const MAX_LABEL_LENGTH: usize = 255 - 6;

/// Exports keying material without the rest of a TLS connection.
pub(super) struct Exporter {
    suite: &'static Tls13CipherSuite,
    secret: OkmBlock,
}

impl Exporter {
    /// Exports from the exporter secret of a connection with this suite.
    pub(super) fn new(suite: &'static Tls13CipherSuite, secret: OkmBlock) -> Self {
        Self { suite, secret }
    }

    /// Fills `output`, see [`Session::export_keying_material`](crate::crypto::Session).
    pub(super) fn export(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportError> {
        check_label(label)?;
        if output.is_empty() {
            return Err(ExportError::OutputLength);
        }
        let hash = self.suite.common.hash_provider;
        let hkdf = self.suite.hkdf_provider;
        let expander = hkdf.expander_for_okm(&self.secret);
        let secret = with_label(
            label,
            hash.hash(&[]).as_ref(),
            expander.hash_len(),
            |info| expander.expand_block(info),
        );
        let expander = hkdf.expander_for_okm(&secret);
        with_label(
            b"exporter",
            hash.hash(context).as_ref(),
            output.len(),
            |info| expander.expand_slice(info, output),
        )
        .map_err(|_| ExportError::OutputLength)
    }
}

/// Checks a label, which rustls does not do.
pub(super) fn check_label(label: &[u8]) -> Result<(), ExportError> {
    if (1..=MAX_LABEL_LENGTH).contains(&label.len()) {
        Ok(())
    } else {
        Err(ExportError::LabelLength)
    }
}
