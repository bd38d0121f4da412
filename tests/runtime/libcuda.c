/* A CUDA driver without a GPU: every function of the driver's API that mlcc uses, handed to one hook by name with its
   arguments as 64-bit words. Widths are the hook's business: upper halves of narrower arguments hold anything. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>

typedef uint64_t word;
typedef int (*hook_t)(const char *name, const word *args);

static hook_t hook;

void stub_set_hook(hook_t given) { hook = given; }

#define AS(symbol, name)                                                                                         \
    int symbol(word a, word b, word c, word d, word e, word f, word g, word h, word i, word j, word k, word l) { \
        word args[] = {a, b, c, d, e, f, g, h, i, j, k, l};                                                      \
        return hook ? hook(name, args) : 0;                                                                      \
    }
#define STUB(name) AS(name, #name)
#define BOTH(name) STUB(name) AS(name##_v2, #name) /* as packages ask for it, and as programs are linked */

STUB(cuInit)
STUB(cuDriverGetVersion)
STUB(cuDeviceGetCount)
STUB(cuDeviceGet)
STUB(cuDeviceGetName)
STUB(cuDeviceGetAttribute)
STUB(cuDevicePrimaryCtxRetain)
STUB(cuDevicePrimaryCtxReset)
STUB(cuCtxSetCurrent)
BOTH(cuMemAlloc)
BOTH(cuMemFree)
BOTH(cuMemGetInfo)
BOTH(cuMemcpyHtoD)
BOTH(cuMemcpyDtoHAsync)
BOTH(cuMemcpyDtoDAsync)
STUB(cuMemsetD8Async)
STUB(cuStreamCreate)
STUB(cuStreamSynchronize)
STUB(cuEventCreate)
STUB(cuEventRecord)
STUB(cuEventSynchronize)
BOTH(cuEventElapsedTime)
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

/* what pycuda calls besides */
BOTH(cuCtxPushCurrent)
BOTH(cuCtxPopCurrent)
STUB(cuCtxGetDevice)
STUB(cuCtxDetach)
STUB(cuCtxSynchronize)
STUB(cuCtxGetApiVersion)
BOTH(cuDevicePrimaryCtxRelease)
BOTH(cuEventDestroy)
BOTH(cuStreamDestroy)
STUB(cuModuleUnload)

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
