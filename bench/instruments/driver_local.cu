// What the driver takes when a kernel is launched whose threads need so much local memory: free memory before and after, of kernels one after
// another in each process.  nvcc -O1 -arch=sm_90 -o local driver_local.cu; for list in f b r c a p h i; do ./local $list; done
#include <cassert>
#include <cstdio>
#include <cuda_runtime.h>

template <int N> __global__ void frame(int *out, int i) {
  volatile int a[N];
  for (int k = 0; k < N; k++) a[k] = i * k;
  if (out) *out = a[(i * 7) % N];
}
__device__ __noinline__ int deep(int n, int *p) {
  volatile int a[16];
  for (int k = 0; k < 16; k++) a[k] = n + k;
  return n <= 0 ? a[n & 15] : deep(n - 1, p) + a[(n * 3) & 15];
}
__device__ __noinline__ int flat(int n, int *p) {
  volatile int a[64];
  for (int k = 0; k < 64; k++) a[k] = n * k;
  return a[n & 63];
}
typedef int (*function)(int, int *);
__device__ function table[2] = {flat, deep};
__global__ void recursive(int *out, int n) { if (out) *out = deep(n, out); }
__global__ void called(int *out, int n) { if (out) *out = flat(n, out); }
__global__ void indirect(int *out, int n) { if (out) *out = table[n & 1](n, out); }
__global__ void asserts(int *out, int n) { assert(n < 5); if (out) *out = n; }
__global__ void prints(int *out, int n) { if (n > 5) printf("%d\n", n); if (out) *out = n; }
__global__ void heap(int *out, int n) {
  if (n > 5) {
    int *p = (int *)malloc(n);
    if (out) *out = *p;
    free(p);
  }
}

static const char *list;
static size_t last;

static void look(const char *name) {
  cudaDeviceSynchronize();
  size_t free, total;
  cudaMemGetInfo(&free, &total);
  long long more = last ? ((long long)last - (long long)free) / 1024 : 0;
  printf("LOCAL %s %s %lld KiB free %zu err %d\n", list, name, more, free, cudaGetLastError());
  last = free;
}

template <typename Kernel> static void launch(Kernel kernel, const char *name) {
  cudaFuncAttributes attributes;
  cudaFuncGetAttributes(&attributes, kernel);
  char shown[64];
  snprintf(shown, sizeof shown, "%s local%zu", name, attributes.localSizeBytes);
  kernel<<<1, 32>>>(nullptr, 1);
  look(shown);
}
#define WORDS(n) launch(frame<n>, "frame" #n)
#define K(kernel) launch(kernel, #kernel)

int main(int, char **arguments) {
  list = arguments[1];
  cudaFree(0);
  look("context");
  switch (list[0]) {
    case 'f':
      WORDS(1); WORDS(16); WORDS(64); WORDS(96); WORDS(128); WORDS(192); WORDS(256); WORDS(320); WORDS(384); WORDS(512); WORDS(768); WORDS(1024);
      WORDS(4096); WORDS(64);
      break;
    case 'b': WORDS(256); WORDS(128); K(asserts); K(prints); break;
    case 'r': K(recursive); WORDS(64); WORDS(256); break;
    case 'c': K(called); K(indirect); WORDS(128); break;
    case 'a': K(asserts); WORDS(16); WORDS(128); WORDS(256); break;
    case 'p': K(prints); K(asserts); K(heap); WORDS(128); break;
    case 'h': K(heap); K(prints); break;
    case 'i': K(indirect); K(recursive); break;
  }
}
