//! HTTP/0.9 on noq.

fn main() -> std::process::ExitCode {
    mpquic_interop_peers::main::<mpquic_interop_peers::Noq>()
}
