"""The host part of an object: the functions that C programs and the runtime call, which run the kernels."""
