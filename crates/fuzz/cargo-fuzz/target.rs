//! One target, by the name of the binary.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| myriad_fuzz::run(env!("CARGO_BIN_NAME"), bytes));
