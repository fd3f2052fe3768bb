/* Starts a compiled kernel. Triton builds a launcher for each kernel, which reads its arguments by
   PyArg_ParseTuple, some 70 of them in tuples: longer than the rest of a small call. This one walks
   them by a word that `direct.py` makes of the kernel's signature, a letter an argument:

     ( )      those between are a tuple
     -        left out, the compiler knows it
     p        a pointer: an address, None, or what has data_ptr()
     T        a descriptor of TMA
     b h i l  a whole number of 1, 2, 4, 8 bytes
     f d      a float of 4, 8 bytes                                                              */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>
#include "cuda.h"

enum { ROOM = 4096, MOST = 256 }; /* bytes of arguments that a kernel takes, and their number */

typedef struct { /* as Triton's driver.c has it */
  PyObject_HEAD;
  _Alignas(128) CUtensorMap map;
} Descriptor;

typedef struct {
  _Alignas(64) char data[ROOM];
  void *params[MOST];
  size_t used;
  int count;
} Packed;

static PyObject *data_ptr;
static PyTypeObject *descriptor;

static int put(Packed *to, const void *from, size_t size, size_t align) {
  to->used = (to->used + align - 1) / align * align;
  if (to->used + size > ROOM || to->count == MOST) {
    PyErr_SetString(PyExc_ValueError, "more arguments than a kernel takes");
    return 0;
  }
  to->params[to->count++] = memcpy(to->data + to->used, from, size);
  to->used += size;
  return 1;
}

static int pointer(Packed *to, PyObject *given) {
  uint64_t address = 0;
  if (PyLong_Check(given)) {
    address = PyLong_AsUnsignedLongLong(given);
  } else if (given != Py_None) {
    PyObject *found = PyObject_CallMethodNoArgs(given, data_ptr);
    if (!found) return 0;
    address = PyLong_AsUnsignedLongLong(found);
    Py_DECREF(found);
  }
  return !PyErr_Occurred() && put(to, &address, 8, 8);
}

static int one(Packed *to, char kind, PyObject *given) {
  if (kind == '-') return 1;
  if (kind == 'p') return pointer(to, given);
  if (kind == 'T') {
    if (Py_TYPE(given) == descriptor) return put(to, &((Descriptor *)given)->map, 128, 64);
    PyErr_SetString(PyExc_TypeError, "an argument is no descriptor of TMA");
    return 0;
  }
  if (kind == 'f' || kind == 'd') {
    double wide = PyFloat_AsDouble(given);
    float narrow = (float)wide;
    if (wide == -1.0 && PyErr_Occurred()) return 0;
    return kind == 'd' ? put(to, &wide, 8, 8) : put(to, &narrow, 4, 4);
  }
  long long number = PyLong_AsLongLong(given); /* its first bytes are the number in fewer */
  size_t size = kind == 'l' ? 8 : kind == 'i' ? 4 : kind == 'h' ? 2 : 1;
  if (number == -1 && PyErr_Occurred()) return 0;
  return put(to, &number, size, size);
}

/* Packs arguments by the word and returns what is left of it; NULL where they do not fit. */
static const char *walk(Packed *to, const char *word, PyObject *const *given, Py_ssize_t count) {
  for (; *word && *word != ')'; word++, given++, count--) {
    if (count == 0) break;
    if (*word != '(') {
      if (!one(to, *word, *given)) return NULL;
      continue;
    }
    if (!PyTuple_Check(*given)) break;
    word = walk(to, word + 1, &PyTuple_GET_ITEM(*given, 0), PyTuple_GET_SIZE(*given));
    if (!word) return NULL;
  }
  if (count == 0 && (*word == ')' || !*word)) return word;
  PyErr_SetString(PyExc_TypeError, "the arguments are not those that the kernel was compiled for");
  return NULL;
}

static int failed(CUresult code) {
  const char *why = "unknown error";
  if (code == CUDA_SUCCESS) return 0;
  cuGetErrorString(code, &why);
  PyErr_Format(PyExc_RuntimeError, "CUDA could not start a kernel: %s", why);
  return 1;
}

/* A thread that torch has not been busy in has no context yet. */
static int has_context(int device) {
  CUcontext context = NULL;
  if (failed(cuCtxGetCurrent(&context))) return 0;
  if (context) return 1;
  return !failed(cuDevicePrimaryCtxRetain(&context, device)) && !failed(cuCtxSetCurrent(context));
}

/* launch(function, threads, shared, early, word, device, stream, programs, *arguments) */
static PyObject *launch(PyObject *self, PyObject *const *given, Py_ssize_t count) {
  enum { OWN = 8 };
  Packed packed;
  if (count < OWN) return PyErr_Format(PyExc_TypeError, "launch takes at least %d arguments", OWN);
  CUfunction function = (CUfunction)PyLong_AsUnsignedLongLong(given[0]);
  long threads = PyLong_AsLong(given[1]), shared = PyLong_AsLong(given[2]);
  int early = PyObject_IsTrue(given[3]);
  const char *word = PyUnicode_AsUTF8(given[4]);
  long device = PyLong_AsLong(given[5]);
  CUstream stream = (CUstream)PyLong_AsUnsignedLongLong(given[6]);
  long programs = PyLong_AsLong(given[7]);
  if (PyErr_Occurred() || !has_context((int)device)) return NULL;
  packed.used = 0;
  packed.count = 0;
  if (!walk(&packed, word, given + OWN, count - OWN)) return NULL;
  uint64_t nothing = 0; /* what kernels of Triton may be given to write to, last of all */
  if (!put(&packed, &nothing, 8, 8) || !put(&packed, &nothing, 8, 8)) return NULL;
  CUlaunchAttribute attribute;
  memset(&attribute, 0, sizeof attribute);
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config = {
      .gridDimX = (unsigned)programs, .gridDimY = 1, .gridDimZ = 1,
      .blockDimX = (unsigned)threads, .blockDimY = 1, .blockDimZ = 1,
      .sharedMemBytes = (unsigned)shared, .hStream = stream,
      .attrs = &attribute, .numAttrs = early ? 1 : 0,
  };
  CUresult code = CUDA_SUCCESS;
  Py_BEGIN_ALLOW_THREADS;
  if (programs > 0) code = cuLaunchKernelEx(&config, function, packed.params, NULL);
  Py_END_ALLOW_THREADS;
  if (failed(code)) return NULL;
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"launch", (PyCFunction)(void (*)(void))launch, METH_FASTCALL, NULL}, {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "limelight_direct", NULL, -1, methods};

PyMODINIT_FUNC PyInit_limelight_direct(void) {
  PyObject *driver = PyImport_ImportModule("triton.backends.nvidia.driver");
  if (!driver) return NULL;
  descriptor = (PyTypeObject *)PyObject_GetAttrString(driver, "PyCUtensorMap");
  Py_DECREF(driver);
  data_ptr = PyUnicode_InternFromString("data_ptr");
  return descriptor && data_ptr ? PyModule_Create(&module) : NULL;
}
