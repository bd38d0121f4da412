"""The host part of an object: what C programs and the runtime call, around the kernels."""
