//! The contestants.

use std::fmt;

use clap::ValueEnum;
use compare_peer::tls;

/// A QUIC stack, or a limit of the machine, to be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Contestant {
    Mpquic,
    /// mpquic with mpquic-h3 and h3
    MpquicH3,
    Quinn,
    /// quinn with cryptography of aws-lc-rs
    QuinnAwsLc,
    /// quinn with h3-quinn and h3
    QuinnAwsLcH3,
    Noq,
    /// noq with cryptography of aws-lc-rs
    NoqAwsLc,
    S2nQuic,
    Quiche,
    /// quiche with its own HTTP/3
    QuicheH3,
    Tquic,
    /// UDP in trains (GSO, GRO), no encryption
    Udp,
    /// UDP in trains, with AES-128-GCM of ring
    UdpRing,
    /// UDP in trains, with AES-128-GCM of aws-lc-rs
    UdpAwsLc,
    /// Encryption alone, by ring
    SealRing,
    /// Decryption alone, by ring
    OpenRing,
    /// Encryption alone, by aws-lc-rs
    SealAwsLc,
    /// Decryption alone, by aws-lc-rs
    OpenAwsLc,
    /// TCP
    Tcp,
    /// TCP with TLS by rustls
    TcpTls,
}

impl Contestant {
    /// A limit of the machine, not a QUIC stack.
    pub(crate) fn is_limit(self) -> bool {
        self.package() == "peer-limits"
    }

    /// The package with its program, and the program.
    pub(crate) fn package(self) -> &'static str {
        match self {
            Self::Mpquic | Self::MpquicH3 => "peer-mpquic",
            Self::Quinn | Self::QuinnAwsLc | Self::QuinnAwsLcH3 => "peer-quinn",
            Self::Noq | Self::NoqAwsLc => "peer-noq",
            Self::S2nQuic => "peer-s2n-quic",
            Self::Quiche | Self::QuicheH3 => "peer-quiche",
            Self::Tquic => "peer-tquic",
            _ => "peer-limits",
        }
    }

    /// True if streams are requests of HTTP/3.
    pub(crate) fn is_http3(self) -> bool {
        matches!(self, Self::MpquicH3 | Self::QuinnAwsLcH3 | Self::QuicheH3)
    }

    /// The variant of the program, if the program has several.
    pub(crate) fn variant(self) -> Option<String> {
        match self {
            Self::Mpquic
            | Self::MpquicH3
            | Self::QuinnAwsLc
            | Self::QuinnAwsLcH3
            | Self::NoqAwsLc => Some(tls::AWS_LC.to_owned()),
            _ => self.is_limit().then(|| self.to_string()),
        }
    }

    /// The name of the contestant's row in a table.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Mpquic => "mpquic",
            Self::MpquicH3 => "mpquic, HTTP/3",
            Self::Quinn => "quinn 0.11, ring",
            Self::QuinnAwsLc => "quinn 0.11, aws-lc",
            Self::QuinnAwsLcH3 => "quinn 0.11, aws-lc, HTTP/3",
            Self::Noq => "noq 1.4, ring",
            Self::NoqAwsLc => "noq 1.4, aws-lc",
            Self::S2nQuic => "s2n-quic 1.91",
            Self::Quiche => "quiche 0.30",
            Self::QuicheH3 => "quiche 0.30, HTTP/3",
            Self::Tquic => "tquic 1.6",
            Self::Udp => "limit: UDP with GSO and GRO",
            Self::UdpRing => "limit: the same + AES-128-GCM, ring",
            Self::UdpAwsLc => "limit: the same + AES-128-GCM, aws-lc-rs",
            Self::SealRing => "limit: AES-128-GCM alone, ring, encrypt",
            Self::OpenRing => "limit: AES-128-GCM alone, ring, decrypt",
            Self::SealAwsLc => "limit: AES-128-GCM alone, aws-lc-rs, encrypt",
            Self::OpenAwsLc => "limit: AES-128-GCM alone, aws-lc-rs, decrypt",
            Self::Tcp => "limit: TCP",
            Self::TcpTls => "limit: TCP with TLS (rustls)",
        }
    }
}

/// The name in options.
impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}
