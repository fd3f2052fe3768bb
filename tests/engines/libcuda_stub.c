/* What Triton's launchers and limelight's ask of CUDA's driver; a launch is written down. */
#include <string.h>
#include "cuda.h"

static int sizes[256], count, failing, used;
static char seen[1 << 14];

void expect(const int *given, int number) { memcpy(sizes, given, 4 * (count = number)); }
void fail(int whether) { failing = whether; }
char *handed(int *length) { *length = used; return seen; }

static void note(const void *from, int size) { memcpy(seen + used, from, size); used += size; }

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params, void **extra) {
  if (failing) return CUDA_ERROR_UNKNOWN;
  used = 0;
  note(config, 7 * sizeof(unsigned)); /* the grid, the block, shared memory */
  note(&config->hStream, 8);
  note(&f, 8);
  note(&config->numAttrs, 4);
  for (unsigned i = 0; i < config->numAttrs; i++) {
    note(&config->attrs[i].id, sizeof config->attrs[i].id);
    note(&config->attrs[i].value, 4);
  }
  for (int i = 0; i < count; i++) note(params[i], sizes[i]);
  return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                                void *address, const cuuint64_t *shape, const cuuint64_t *strides,
                                const cuuint32_t *block, const cuuint32_t *steps,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  memset(map, 7, sizeof *map);
  memcpy(map, &address, 8);
  memcpy((char *)map + 8, shape, 8 * rank);
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult code, const char **text) { *text = "stub"; return CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext *context) { *context = NULL; return CUDA_SUCCESS; }
CUresult cuPointerGetAttribute(void *to, CUpointer_attribute which, CUdeviceptr pointer) {
  memcpy(to, &pointer, 8);
  return CUDA_SUCCESS;
}

/* Asked for when they are loaded, and with success where called. */
CUresult cuCtxGetLimit(size_t *to, CUlimit which) { return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext context) { return CUDA_SUCCESS; }
CUresult cuCtxSetLimit(CUlimit which, size_t value) { return CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *device, int number) { return CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int *to, CUdevice_attribute which, CUdevice device) {
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) { return CUDA_SUCCESS; }
CUresult cuFuncGetAttribute(int *to, CUfunction_attribute which, CUfunction f) {
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute which, int value) {
  return CUDA_SUCCESS;
}
CUresult cuFuncSetCacheConfig(CUfunction f, CUfunc_cache config) { return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction *f, CUmodule module, const char *name) {
  return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule *module, const void *image) { return CUDA_SUCCESS; }
