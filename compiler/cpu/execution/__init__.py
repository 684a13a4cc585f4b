"""Object files as kernels that can be called, their threads and their memory."""
