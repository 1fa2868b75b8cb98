// Writes what the driver asks of the kernel, in order: ranges of address space and UVM calls, each as a write to
// descriptor -1, which strace shows and which does nothing.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <stdint.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
static int out = -2;
static void say(const char *text, int n) {
  if (out == -2) { const char *p = getenv("WATCH_OUT"); out = p ? open(p, O_WRONLY|O_CREAT|O_APPEND|O_CLOEXEC, 0644) : -1; }
  if (out >= 0) syscall(SYS_write, out, text, n);
  else syscall(SYS_write, -1, text, n);
}
void watch_mark(const char *s) { char b[300]; int n = snprintf(b, sizeof b, "# %s\n", s); say(b, n < 300 ? n : 299); }
static const char *who(void *ra) {
  Dl_info i; if (dladdr(ra, &i) && i.dli_fname) { const char *s = strrchr(i.dli_fname, '/'); return s ? s + 1 : i.dli_fname; } return "?";
}
void *mmap(void *a, size_t n, int p, int f, int fd, off_t o) {
  void *r = (void *)syscall(SYS_mmap, a, n, p, f, fd, o);
  if (n >= 1 << 16) { char b[200]; int k = snprintf(b, sizeof b, "mmap %p %zx prot %x flags %x fd %d -> %p %s\n", a, n, p, f, fd, r, who(__builtin_return_address(0))); say(b, k); }
  return r;
}
void *mmap64(void *a, size_t n, int p, int f, int fd, off_t o) {
  void *r = (void *)syscall(SYS_mmap, a, n, p, f, fd, o);
  if (n >= 1 << 16) { char b[200]; int k = snprintf(b, sizeof b, "mmap %p %zx prot %x flags %x fd %d -> %p %s\n", a, n, p, f, fd, r, who(__builtin_return_address(0))); say(b, k); }
  return r;
}
int munmap(void *a, size_t n) {
  int r = syscall(SYS_munmap, a, n);
  if (n >= 1 << 16) { char b[200]; int k = snprintf(b, sizeof b, "munmap %p %zx -> %d %s\n", a, n, r, who(__builtin_return_address(0))); say(b, k); }
  return r;
}
int ioctl(int fd, unsigned long req, ...) {
  va_list v; va_start(v, req); void *arg = va_arg(v, void *); va_end(v);
  long r = syscall(SYS_ioctl, fd, req, arg);
  if (req < 0x1000 && arg && req != 0) {
    uint64_t *w = arg; char b[200];
    int k = snprintf(b, sizeof b, "uvm %lu %lx %lx %lx -> %ld\n", req, w[0], w[1], w[2], r); say(b, k);
  }
  return r;
}
static void *next(const char *name) {
  void *f = dlsym(RTLD_NEXT, name); if (f) return f;
  void *l = dlopen("libcudart.so.13", RTLD_NOLOAD | RTLD_LAZY); return l ? dlsym(l, name) : 0;
}
static long (*realMalloc)(void **, size_t); static long (*realFree)(void *);
int cudaMalloc(void **p, size_t n) {
  if (!realMalloc) realMalloc = next("cudaMalloc");
  if (!realMalloc) return 999; int r = realMalloc(p, n); char b[120]; int k = snprintf(b, sizeof b, "cudaMalloc %zx -> %p\n", n, *p); say(b, k); return r;
}
int cudaFree(void *p) {
  if (!realFree) realFree = next("cudaFree");
  char b[120]; int k = snprintf(b, sizeof b, "cudaFree %p\n", p); say(b, k); return realFree(p);
}
