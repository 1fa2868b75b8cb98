//! The table and the library that is built say the same.

use std::collections::BTreeSet;
use std::ffi::{CString, c_void};
use std::path::PathBuf;

/// The library beside this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let folder = test.parent().expect("target/PROFILE/deps/test");
    folder.join("libplimsoll_phantom.so")
}

fn open() -> *mut c_void {
    let path = CString::new(library().to_string_lossy().as_bytes()).expect("a path without NUL");
    // SAFETY: a terminated path; the library has no constructors.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!handle.is_null(), "{} can be loaded", library().display());
    handle
}

fn entries() -> Vec<(&'static str, &'static str, &'static str)> {
    include_str!("../entry_points.txt")
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            (words[0], words[1], words[2])
        })
        .collect()
}

#[test]
fn every_function_of_the_table_is_exported_unless_it_is_left_to_the_real_library() {
    let handle = open();
    for (_, name, answer) in entries() {
        let symbol = CString::new(name).expect("a name without NUL");
        // SAFETY: a library that is loaded and a terminated name.
        let found = !unsafe { libc::dlsym(handle, symbol.as_ptr()) }.is_null();
        assert_eq!(found, !["real", "absent"].contains(&answer), "{name} is {answer}");
    }
}

#[test]
fn no_function_is_in_the_table_twice() {
    let mut names = BTreeSet::new();
    for (_, name, _) in entries() {
        assert!(names.insert(name), "{name}");
    }
}

#[test]
fn without_a_session_there_is_no_device() {
    let handle = open();
    // SAFETY: the functions of our own library, with their types.
    unsafe {
        let symbol = libc::dlsym(handle, c"cudaGetDeviceCount".as_ptr());
        let count: unsafe extern "C" fn(*mut i32) -> i32 = std::mem::transmute(symbol);
        let mut devices = -1;
        assert_eq!((count(&raw mut devices), devices), (100, 0), "cudaErrorNoDevice");
        let symbol = libc::dlsym(handle, c"nvmlInit_v2".as_ptr());
        let init: unsafe extern "C" fn() -> i32 = std::mem::transmute(symbol);
        assert_eq!(init(), 9, "NVML_ERROR_DRIVER_NOT_LOADED");
    }
}
