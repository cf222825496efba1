/*
 * The interpreter of programs of system calls: what spawn_linux_amd64.s and
 * spawn_linux_arm64.s of package sysprog do in a Go process, for processes that
 * were executed. The memory of a program comes from a descriptor, laid out for
 * one address; package sysprog writes it (export.go) with the same structs.
 */
#include <asm/errno.h>
#include <linux/mman.h>
#include <linux/types.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

/* "cloche" and the version of the format. */
#define IMAGE_MAGIC 0x00016568636f6c63ull

/* The number of a record that makes no call: its result is the first argument
 * XOR the second. */
#define NUMBER_XOR 0xffff

#define RECORD_WANTS 2 /* the result has to be want */

/* The head of a program's memory. An address of 0 means that there is none. */
struct image {
	__u64 magic, base, size;
	__u64 records, count;
	__u64 namespaces;
	__u64 environment; /* the address of the variables: whoever runs it puts it here */
	__u64 texts;	   /* the address of a struct explanation for each record */
	__u64 errors, error_count; /* the names of error numbers, by number */
	__u64 clone_failed, changed;
};

struct operation {
	__u64 number, args[6];
	__u64 indirect; /* bit i: args[i] is the address of the argument */
	__u64 result;
	__u64 ignore; /* the address of results to be taken as -1; a 0 ends them */
	__u64 flags, want;
};

/* How far a program has come. Where another process reads it, it lies in memory
 * that both share. */
struct progress {
	__u64 begun; /* how many records were begun */
	__u64 failed; /* 1: the last of them failed */
	__u64 error; /* with this error number; 0: another result than wanted */
};

static int is_error(long result)
{
	return result < 0 && result >= -4095;
}

/* Puts the program of a descriptor at the address it was laid out for. The copy
 * is this process's own. Returns an error, or the address in *found. */
static long map_image(int fd, struct image **found)
{
	struct image head;
	long at, n;

	n = CALL4(__NR_pread64, fd, &head, sizeof head, 0);
	if (n < 0)
		return n;
	if (n != sizeof head || head.magic != IMAGE_MAGIC)
		return -ENOEXEC;
	at = call(__NR_mmap, head.base, head.size, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_FIXED_NOREPLACE, fd, 0);
	if (is_error(at))
		return at;
	if ((__u64)at != head.base) /* before Linux 4.17 it was only a wish */
		return -EEXIST;
	*found = (struct image *)at;
	return 0;
}

static long argument(const struct operation *r, int i)
{
	return r->indirect >> i & 1 ? *(__u64 *)r->args[i] : r->args[i];
}

static int is_ignored(const struct operation *r, __u64 result)
{
	__u64 *one = (__u64 *)r->ignore;

	for (; one && *one; one++)
		if (*one == result)
			return 1;
	return 0;
}

/* Does what a record says. Returns whether the program may go on; if not, *error
 * has the reason. */
static int perform(struct operation *r, volatile __u64 *error)
{
	long result;

	if (r->number == NUMBER_XOR) {
		r->result = result = argument(r, 0) ^ argument(r, 1);
	} else {
		r->result = result = call(r->number, argument(r, 0), argument(r, 1), argument(r, 2),
					  argument(r, 3), argument(r, 4), argument(r, 5));
		if (is_error(result)) {
			*error = -result;
			if (!is_ignored(r, result))
				return 0;
			r->result = -1;
			return 1;
		}
	}
	*error = 0;
	return !(r->flags & RECORD_WANTS) || r->result == r->want;
}

/* Runs a program. It returns 0 at the end of one that executes nothing, and 1
 * where a record failed. */
static int interpret(struct image *im, volatile struct progress *p)
{
	struct operation *r = (struct operation *)im->records;
	__u64 i;

	for (i = 0; i < im->count; i++) {
		p->begun = i + 1;
		if (!perform(&r[i], &p->error)) {
			p->failed = 1;
			return 1;
		}
	}
	return 0;
}
