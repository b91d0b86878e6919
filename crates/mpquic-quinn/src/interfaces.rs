//! [`Interfaces`]: the network interfaces of a client's endpoints.

use std::env;
use std::net::SocketAddr;
use std::sync::{PoisonError, RwLock};

use mpquic_tokio::EndpointBuilder;

/// The environment variable that chooses the interfaces of programs without a call of
/// [`use_interfaces`].
pub const INTERFACES_VARIABLE: &str = "MPQUIC_INTERFACES";

/// The choice of [`use_interfaces`], which goes before the environment variable.
static CHOSEN: RwLock<Option<Interfaces>> = RwLock::new(None);

/// The network interfaces from which a client's connections have paths.
///
/// # Examples
///
/// The texts of the environment variable `MPQUIC_INTERFACES`:
///
/// ```
/// use mpquic_quinn::Interfaces;
///
/// assert_eq!(Interfaces::parse("all"), Interfaces::All);
/// assert_eq!(Interfaces::parse("eth0,wwan0"), Interfaces::named(&["eth0", "wwan0"]));
/// assert_eq!(Interfaces::parse("all,!tun0"), Interfaces::all_but(&["tun0"]));
/// assert_eq!(Interfaces::parse(""), Interfaces::BoundSocket);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Interfaces {
    /// Paths start from the bound socket only, as with quinn.
    #[default]
    BoundSocket,
    /// Each usable interface has a path. Paths open and close as interfaces come and go.
    All,
    /// Each usable interface except the interfaces with these names has a path. A name may be a
    /// pattern with `*`.
    AllBut(Vec<String>),
    /// The interfaces with these names have a path each.
    Named(Vec<String>),
}

impl Interfaces {
    /// The interfaces with these names.
    pub fn named(names: &[&str]) -> Self {
        Self::Named(names.iter().map(|&name| name.to_owned()).collect())
    }

    /// All interfaces except the interfaces with these names.
    pub fn all_but(names: &[&str]) -> Self {
        Self::AllBut(names.iter().map(|&name| name.to_owned()).collect())
    }

    /// Reads the text of the environment variable: `all`, names with commas between them, or `all`
    /// with names behind `!`. An empty text, `none` and `off` stand for [`Self::BoundSocket`].
    pub fn parse(text: &str) -> Self {
        let words = text
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty());
        let mut all = false;
        let (mut named, mut excluded) = (Vec::new(), Vec::new());
        for word in words {
            match (word, word.strip_prefix('!')) {
                ("all", _) => all = true,
                ("none" | "off", _) => {}
                (_, Some(name)) => excluded.push(name.to_owned()),
                (name, None) => named.push(name.to_owned()),
            }
        }
        match (all || !excluded.is_empty(), named.is_empty()) {
            (_, false) => Self::Named(named),
            (true, true) if excluded.is_empty() => Self::All,
            (true, true) => Self::AllBut(excluded),
            (false, true) => Self::BoundSocket,
        }
    }

    /// The choice in force for new endpoints: the last call of [`use_interfaces`], otherwise the
    /// environment variable.
    pub fn in_force() -> Self {
        let chosen = CHOSEN.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(chosen) = &*chosen {
            return chosen.clone();
        }
        env::var(INTERFACES_VARIABLE).map_or(Self::BoundSocket, |text| Self::parse(&text))
    }

    /// True if an endpoint that asks for this address gets sockets of interfaces instead. An
    /// address of one interface stays the program's choice, and so does the socket of a server.
    pub(crate) fn replace(&self, address: SocketAddr, is_server: bool) -> bool {
        *self != Self::BoundSocket && address.ip().is_unspecified() && !is_server
    }

    /// Gives the endpoint the sockets of the interfaces.
    pub(crate) fn add_to(&self, builder: EndpointBuilder) -> EndpointBuilder {
        match self {
            Self::BoundSocket => builder,
            Self::All => builder.all_interfaces(),
            Self::AllBut(names) => names
                .iter()
                .fold(builder.all_interfaces(), |builder, name| {
                    builder.exclude_interface(name)
                }),
            Self::Named(names) => names
                .iter()
                .fold(builder, |builder, name| builder.bind_interface(name)),
        }
    }
}

/// Chooses the interfaces of all client endpoints that the process makes from now on. The choice
/// goes before the environment variable [`INTERFACES_VARIABLE`].
///
/// Interfaces take the place of a socket that is bound to all addresses (`0.0.0.0` or `[::]`), in
/// endpoints without a [`ServerConfig`](crate::ServerConfig).
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// mpquic_quinn::use_interfaces(mpquic_quinn::Interfaces::All);
/// let endpoint = mpquic_quinn::Endpoint::client(([0, 0, 0, 0], 0).into())?;
/// println!("{:?}", endpoint.as_mpquic().local_addrs());
/// # Ok(())
/// # }
/// ```
pub fn use_interfaces(interfaces: Interfaces) {
    let mut chosen = CHOSEN.write().unwrap_or_else(PoisonError::into_inner);
    *chosen = Some(interfaces);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_name_interfaces() {
        for (text, expected) in [
            ("all", Interfaces::All),
            (
                " all , !tun0,!docker*",
                Interfaces::all_but(&["tun0", "docker*"]),
            ),
            ("!tun0", Interfaces::all_but(&["tun0"])),
            ("wlan0", Interfaces::named(&["wlan0"])),
            ("eth0, wwan0,", Interfaces::named(&["eth0", "wwan0"])),
            ("none", Interfaces::BoundSocket),
            ("off", Interfaces::BoundSocket),
            (" ,", Interfaces::BoundSocket),
        ] {
            assert_eq!(Interfaces::parse(text), expected, "{text:?}");
        }
    }

    #[test]
    fn only_unspecified_addresses_of_clients_give_way() {
        let any: [SocketAddr; 2] = [([0, 0, 0, 0], 0).into(), ([0; 8], 4433).into()];
        let chosen: SocketAddr = ([192, 0, 2, 7], 0).into();
        for address in any {
            assert!(Interfaces::All.replace(address, false));
            assert!(!Interfaces::All.replace(address, true));
            assert!(!Interfaces::BoundSocket.replace(address, false));
        }
        assert!(!Interfaces::All.replace(chosen, false));
    }
}
