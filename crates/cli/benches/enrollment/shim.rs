//! A disk that is slower than it is.

use std::path::PathBuf;
use std::process::Command;

/// A library that makes every fsync two milliseconds slower; none without a C compiler.
pub fn slow_fsync() -> Option<PathBuf> {
    let dir = std::env::temp_dir().join(format!("enlist-bench-shim-{}", std::process::id()));
    std::fs::create_dir_all(&dir).ok()?;
    let (source, library) = (dir.join("slow.c"), dir.join("slow.so"));
    let code = "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <unistd.h>\n\
        static int slow(const char *name, int fd) {\n\
          int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);\n  usleep(2000);\n  return real(fd);\n}\n\
        int fsync(int fd) { return slow(\"fsync\", fd); }\n\
        int fdatasync(int fd) { return slow(\"fdatasync\", fd); }\n";
    std::fs::write(&source, code).ok()?;
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(&source)
        .arg("-ldl")
        .status();
    built.is_ok_and(|status| status.success()).then_some(library)
}
