//! The shim as a program of its own, for tests and for nodes that want the smallest one.

fn main() {
    std::process::exit(node::shim_main(std::env::args_os().skip(1)));
}
