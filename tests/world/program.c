/* What a program does that is linked statically: `raw A B` writes by system calls alone, `uring A B` has the kernel write. The code is errno. */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char text[] = "changed by a static program\n";

static int raw(const char *a, const char *b) {
  int file = open(a, O_WRONLY | O_TRUNC);
  if (file < 0 || write(file, text, sizeof text - 1) < 0 || unlink(b) != 0) return errno;
  return 0;
}

static struct io_uring_params with;
static char *submitted, *completed;
static struct io_uring_sqe *entries;

static int queue(int ring, struct io_uring_sqe it) {
  unsigned *tail = (unsigned *)(submitted + with.sq_off.tail);
  unsigned *array = (unsigned *)(submitted + with.sq_off.array);
  entries[0] = it;
  array[*tail & (with.sq_entries - 1)] = 0;
  __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
  if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) < 0) return -errno;
  unsigned *head = (unsigned *)(completed + with.cq_off.head);
  struct io_uring_cqe *answers = (struct io_uring_cqe *)(completed + with.cq_off.cqes);
  int answer = answers[*head & (with.cq_entries - 1)].res;
  __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
  return answer;
}

static int uring(const char *a, const char *b) {
  int ring = syscall(SYS_io_uring_setup, 4, &with);
  if (ring < 0) return errno;
  submitted = mmap(0, with.sq_off.array + with.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
  completed = mmap(0, with.cq_off.cqes + with.cq_entries * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_CQ_RING);
  entries = mmap(0, with.sq_entries * sizeof *entries, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
  int file = queue(ring, (struct io_uring_sqe){.opcode = IORING_OP_OPENAT, .fd = AT_FDCWD, .addr = (unsigned long)a, .open_flags = O_WRONLY | O_TRUNC});
  if (file < 0) return -file;
  int wrote = queue(ring, (struct io_uring_sqe){.opcode = IORING_OP_WRITE, .fd = file, .addr = (unsigned long)text, .len = sizeof text - 1});
  if (wrote < 0) return -wrote;
  int gone = queue(ring, (struct io_uring_sqe){.opcode = IORING_OP_UNLINKAT, .fd = AT_FDCWD, .addr = (unsigned long)b});
  return gone < 0 ? -gone : 0;
}

int main(int n, char **words) {
  if (n < 4) return EINVAL;
  return strcmp(words[1], "uring") ? raw(words[2], words[3]) : uring(words[2], words[3]);
}
