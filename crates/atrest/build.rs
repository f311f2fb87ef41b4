//! Compiles `src/files.cc`.

#[path = "../sst/headers.rs"]
mod headers;

fn main() {
    println!("cargo:rerun-if-changed=../sst/headers.rs");
    headers::compile("src/files.cc", "steelyard_atrest");
}
