//! Black-box tests of the titan-tpu binary.
