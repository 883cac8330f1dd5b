#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| enlist_fuzz::targets::server_chain(data));
