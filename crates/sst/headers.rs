// Compiles C++ with the headers of the RocksDB that is linked. The build scripts of the crates that
// call RocksDB's classes include this file.

pub fn compile(source: &str, library: &str) {
    println!("cargo:rerun-if-changed={source}");
    println!("cargo:rerun-if-env-changed=ROCKSDB_INCLUDE_DIR");
    println!("cargo:rerun-if-env-changed=ROCKSDB_LIB_DIR");
    let bundled = || {
        // Headers of another version than the library's would change the layout of its types.
        assert!(
            std::env::var_os("ROCKSDB_LIB_DIR").is_none(),
            "ROCKSDB_LIB_DIR is set, so ROCKSDB_INCLUDE_DIR must name the headers of that library"
        );
        // RocksDB's sources are inside the crate that compiles them.
        let root = std::env::var("DEP_ROCKSDB_CARGO_MANIFEST_DIR").expect("librocksdb-sys tells its place");
        format!("{root}/rocksdb/include")
    };
    let include = std::env::var("ROCKSDB_INCLUDE_DIR").unwrap_or_else(|_| bundled());
    println!("cargo:rerun-if-changed={include}/rocksdb/version.h");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .include(include)
        // RocksDB's headers have unused parameters.
        .flag_if_supported("-Wno-unused-parameter")
        .file(source)
        .compile(library);
}
