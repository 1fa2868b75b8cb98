//! The functions of `entry_points.txt` that need no code of their own: `build.rs` makes one of each
//! line that says `computes`, `handle` or `refused`.

/// Device work, or a setting that changes nothing here: done.
macro_rules! computes {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> i32 {
            0
        }
    )*};
}

/// A new handle in the first argument.
macro_rules! handle {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(out: *mut u64) -> i32 {
            // SAFETY: the caller's pointer, checked for null.
            unsafe { crate::border::blas::new_handle(out) }
        }
    )*};
}

/// An error that the library's callers understand, named in the report.
macro_rules! refused {
    ($library:literal, $status:literal: $($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> i32 {
            crate::machine::report::refuse($library, stringify!($name), $status)
        }
    )*};
}

include!(concat!(env!("OUT_DIR"), "/table.rs"));
