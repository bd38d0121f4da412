/* A CUDA driver without a GPU: every function of the driver's API that mlcc uses, handed to one hook by name with its
   arguments as 64-bit words. Widths are the hook's business: upper halves of narrower arguments hold anything. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>

typedef uint64_t word;
typedef int (*hook_t)(const char *name, const word *args);

static hook_t hook;

void stub_set_hook(hook_t given) { hook = given; }

#define STUB(name)                                                                                             \
    int name(word a, word b, word c, word d, word e, word f, word g, word h, word i, word j, word k, word l) { \
        word args[] = {a, b, c, d, e, f, g, h, i, j, k, l};                                                    \
        return hook(#name, args);                                                                              \
    }

STUB(cuInit)
STUB(cuDriverGetVersion)
STUB(cuDeviceGetCount)
STUB(cuDeviceGet)
STUB(cuDeviceGetName)
STUB(cuDeviceGetAttribute)
STUB(cuDevicePrimaryCtxRetain)
STUB(cuDevicePrimaryCtxReset)
STUB(cuCtxSetCurrent)
STUB(cuMemAlloc)
STUB(cuMemFree)
STUB(cuMemGetInfo)
STUB(cuMemcpyHtoD)
STUB(cuMemcpyDtoHAsync)
STUB(cuMemcpyDtoDAsync)
STUB(cuMemsetD8Async)
STUB(cuStreamCreate)
STUB(cuStreamSynchronize)
STUB(cuEventCreate)
STUB(cuEventRecord)
STUB(cuEventSynchronize)
STUB(cuEventElapsedTime)
STUB(cuModuleLoadDataEx)
STUB(cuModuleGetFunction)
STUB(cuFuncSetAttribute)
STUB(cuLaunchKernel)
STUB(cuStreamBeginCapture)
STUB(cuStreamEndCapture)
STUB(cuGraphInstantiate)
STUB(cuGraphInstantiateWithFlags)
STUB(cuGraphDestroy)
STUB(cuGraphLaunch)
STUB(cuGraphExecDestroy)
STUB(cuGetErrorString)
STUB(cuGetErrorName)
STUB(cuTensorMapEncodeTiled)

int cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status) {
    Dl_info here;
    dladdr((void *)cuGetProcAddress_v2, &here);
    void *self = dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    *found = dlsym(self, name);
    dlclose(self);
    if (status) *status = *found ? 0 : 1; /* found, not found */
    return *found ? 0 : 500;              /* CUDA_ERROR_NOT_FOUND */
}

int cuGetProcAddress(const char *name, void **found, int version, uint64_t flags) {
    return cuGetProcAddress_v2(name, found, version, flags, 0);
}
