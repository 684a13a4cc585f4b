"""Loop programs of `te` to LLVM code, and LLVM code to an object file."""
