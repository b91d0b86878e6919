//! HTTP/0.9 on quinn.

fn main() -> std::process::ExitCode {
    mpquic_interop_peers::main::<mpquic_interop_peers::Quinn>()
}
