//! Builds this directory's Lua 5.1, in place of the crate `lua-src` that `mlua` uses.

use std::env;
use std::fs;
use std::path::PathBuf;

pub struct Build;

#[derive(Clone, Copy)]
pub enum Version {
    Lua51,
}
pub use Version::Lua51;

pub struct Artifacts {
    lib_dir: PathBuf,
    include_dir: PathBuf,
}

const FILES: &[&str] = &[
    "lapi", "lauxlib", "lbaselib", "lcode", "ldblib", "ldebug", "ldo", "ldump", "lfunc", "lgc", "linit", "liolib",
    "llex", "lmathlib", "lmem", "loadlib", "lobject", "lopcodes", "loslib", "lparser", "lpow", "lstate", "lstring",
    "lstrlib", "ltable", "ltablib", "ltm", "lundump", "lvm", "lzio",
];

impl Build {
    #[allow(clippy::new_without_default)]
    pub fn new() -> Build {
        Build
    }

    pub fn build(&self, _: Version) -> Artifacts {
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("a build script has OUT_DIR"));
        let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("lua-5.1.5");
        let (lib_dir, include_dir) = (out.join("lib"), out.join("include"));
        fs::create_dir_all(&include_dir).expect("the output directory can be created");
        println!("cargo:rerun-if-changed={}", source.display());
        let mut config = cc::Build::new();
        config
            .warnings(false)
            .cargo_metadata(false)
            .include(&source)
            .opt_level(2)
            .flag("-w")
            .flag_if_supported("-fno-common")
            // A fused multiplication and addition rounds differently, and not every CPU has it.
            .flag_if_supported("-ffp-contract=off");
        for file in FILES {
            config.file(source.join(file).with_extension("c"));
        }
        config.out_dir(&lib_dir).compile("lua5.1");
        for header in ["lauxlib.h", "lua.h", "luaconf.h", "lualib.h"] {
            fs::copy(source.join(header), include_dir.join(header)).expect("a header can be copied");
        }
        Artifacts { lib_dir, include_dir }
    }
}

impl Artifacts {
    pub fn print_cargo_metadata(&self) {
        println!("cargo:rustc-link-search=native={}", self.lib_dir.display());
        println!("cargo:rustc-link-lib=static=lua5.1");
        println!("cargo:include={}", self.include_dir.display());
        println!("cargo:lib={}", self.lib_dir.display());
    }
}
