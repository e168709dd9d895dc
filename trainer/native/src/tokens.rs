//! Tokens that Rust has made and torch looks at, without a copy in between.

use std::ffi::c_int;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Owns the tokens of one call of the engine, and lends them by the buffer protocol: a writable row of C ints.
/// Whoever looks at them keeps this object alive, and nothing but the loan can reach them any more.
#[pyclass(module = "titan_tpu._native")]
pub(crate) struct Tokens {
    tokens: Vec<i32>,
}

impl Tokens {
    pub(crate) fn new(tokens: Vec<i32>) -> Self {
        Self { tokens }
    }
}

#[pymethods]
#[allow(
    unsafe_code,
    reason = "the buffer protocol is a struct of pointers that Python hands over to be filled"
)]
impl Tokens {
    /// Fills `view`, which is Python's.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("there is no view to fill"));
        }
        let (start, count) = {
            let mut this = slf.try_borrow_mut()?;
            (this.tokens.as_mut_ptr(), this.tokens.len())
        };
        let item = size_of::<i32>();
        // SAFETY: `view` is a valid struct for us to fill, by the contract of the slot. The memory is that of the
        // vector, whose pointer and length are as just read: nothing changes or drops it while this object lives,
        // and FillInfo takes a reference to this object, which is given back after `__releasebuffer__`. No Rust
        // reference to the tokens exists while others write to them. The pointers of a view that are not asked for
        // are null.
        unsafe {
            let bytes = (count * item).cast_signed();
            if ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start.cast(), bytes, 0, flags) != 0 {
                return Err(PyErr::fetch(slf.py()));
            }
            // FillInfo describes single bytes.
            let view = &mut *view;
            view.itemsize = item.cast_signed();
            let shape = Box::into_raw(Box::new(count.cast_signed()));
            view.internal = shape.cast();
            if flags & ffi::PyBUF_FORMAT == ffi::PyBUF_FORMAT {
                view.format = c"i".as_ptr().cast_mut();
            }
            if flags & ffi::PyBUF_ND == ffi::PyBUF_ND {
                view.shape = shape;
            }
            if flags & ffi::PyBUF_STRIDES == ffi::PyBUF_STRIDES {
                view.strides = &raw mut view.itemsize;
            }
        }
        Ok(())
    }

    /// Takes back what `__getbuffer__` has put into `view`.
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: Python calls this once for each view that `__getbuffer__` has filled, with its `internal` as it was
        // left there: a box of ours.
        unsafe { drop(Box::from_raw((*view).internal.cast::<isize>())) };
    }
}
