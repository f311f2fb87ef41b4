//! Compiles `src/writer.cc`.

mod headers;

fn main() {
    println!("cargo:rerun-if-changed=headers.rs");
    headers::compile("src/writer.cc", "steelyard_sst");
}
