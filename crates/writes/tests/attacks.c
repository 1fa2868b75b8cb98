/* Attacks the tracer: between its look at a name and the kernel's, another thread puts the name of another file there.
   attacks HOW OWN OTHER N: opens OWN for writing N times; OTHER is what it must not reach. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *how, *own, *other;
static char name[4096];
static int times, memory;
static volatile int step;
static sigjmp_buf jump;

enum { PAGE = 4096, MOST = 1 << 20 };
static uintptr_t first[MOST], last[MOST], found[MOST];

static void caught(int signal) { siglongjmp(jump, signal); }

static void wait_for(int which) {
  while (step < which) usleep(100);
}

/* Each page that is mapped, in their order. */
static void mapped(uintptr_t *pages) {
  char text[1 << 16];
  int n = 0, file = open("/proc/self/maps", O_RDONLY), length = 0, more;
  while (0 < (more = read(file, text + length, sizeof text - 1 - length))) length += more;
  text[length] = 0;
  close(file);
  for (char *line = text; line && *line; line = strchr(line, '\n'), line += !!line) {
    uintptr_t from, to;
    sscanf(line, "%lx-%lx", &from, &to);
    for (; from < to && n < MOST - 1; from += PAGE) pages[n++] = from;
  }
  pages[n] = 0;
}

static void try_page(uintptr_t at) {
  void *page = (void *)at, *new;
  size_t length = strlen(other) + 1;
  struct iovec from = {(void *)other, length}, into = {page, length};
  if (!strcmp(how, "protect")) mprotect(page, PAGE, PROT_READ | PROT_WRITE);
  if (!strcmp(how, "protect-far")) mprotect((void *)(at & ~0xffffffffUL), 1UL << 32, PROT_READ | PROT_WRITE);
  if (!strcmp(how, "map")) mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (!strcmp(how, "unmap")) {
    munmap(page, PAGE);
    mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  if (!strcmp(how, "move")) {
    new = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(new, other, length);
    mremap(new, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, page);
  }
  if (!strcmp(how, "move-away")) {
    mremap(page, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)0x600000000000);
    mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  if (!strcmp(how, "attach")) shmat(shmget(IPC_PRIVATE, PAGE, 0600 | IPC_CREAT), page, SHM_REMAP);
  if (!strcmp(how, "forget")) madvise(page, PAGE, MADV_DONTNEED);
  if (!strcmp(how, "file")) pwrite(memory, other, length, at);
  if (!strcmp(how, "call")) process_vm_writev(getpid(), &from, 1, &into, 1, 0);
  if (!sigsetjmp(jump, 1)) memcpy(page, other, length);
}

/* The thread whose names are changed. */
static void *opens(void *nothing) {
  wait_for(1);
  close(open(own, O_WRONLY));
  step = 2;
  wait_for(3);
  for (int n = times; n; n--) {
    int file = open(strcmp(how, "name") ? own : name, O_WRONLY);
    if (0 <= file) {
      (void)!write(file, "changed", 7);
      close(file);
    }
  }
  step = 4;
  return 0;
}

int main(int argc, char **argv) {
  if (argc != 5) return 1;
  how = argv[1], own = argv[2], other = argv[3], times = atoi(argv[4]);
  strcpy(name, own);
  signal(SIGSEGV, caught), signal(SIGBUS, caught);
  close(open(own, O_WRONLY | O_CREAT, 0600));
  memory = open("/proc/self/mem", O_RDWR);
  pthread_t thread;
  pthread_create(&thread, 0, opens, 0);
  mapped(first), step = 1, wait_for(2), mapped(last);
  /* What has come is the tracer's. */
  int n = 0;
  for (int before = 0, after = 0; last[after]; after++) {
    while (first[before] && first[before] < last[after]) before++;
    if (first[before] != last[after]) found[n++] = last[after];
  }
  step = 3;
  while (step < 4) {
    for (int it = 0; it < n; it++) try_page(found[it]);
    for (int it = 0; it < 100 && !strcmp(how, "name"); it++) strcpy(name, own), strcpy(name, other);
  }
  pthread_join(thread, 0);
  puts(n ? "did" : "there is no page of the tracer's");
  return 0;
}
