// build.sh compiles this file, not the go command.
//go:build ignore

/*
 * The launcher: what an exec.Cmd executes to run a command in a sandbox that is
 * made by a program of system calls.
 *
 *   NAME IMAGEFD KEEPFDS FREEFD UIDMAP GIDMAP -- PATH
 *
 * IMAGEFD is the program, which ends in executing the init. Descriptors 0 to
 * 2+KEEPFDS are the command's and are passed on untouched. From FREEFD on no
 * number means anything: the program expects the init's status pipe at FREEFD
 * and the two ends of its rendezvous behind it. UIDMAP and GIDMAP are written
 * for a child that waits to have its ids mapped; they are empty where none does.
 * PATH is the command, for messages.
 *
 * The launcher stays outside of the sandbox, as its caller's child: it forwards
 * signals, and ends as the command does. Killing it ends the sandbox, because the
 * init then finds its status pipe without a reader. It never stops itself: a
 * stopped command that is continued from the inside would end unseen.
 */
#include <asm/errno.h>
#include <linux/fcntl.h>
#include <linux/poll.h>
#include <linux/prctl.h>
#include <linux/resource.h>
#include <linux/signalfd.h>
#include <linux/types.h>
#include <linux/wait.h>

#include "sys.h"
#include "interp.h"
#include "say.h"
#include "status.h"

/* The number of arguments, without the name. */
#define ARGS 7

enum { FD_STDERR = 2 };

/* Where the ends for the child go, from FREEFD on. */
enum { STATUS_END = 0, SYNC_CHILD, SYNC_PARENT, ENDS };

enum { FAMILY_UNIX = 1, TYPE_STREAM_CLOEXEC = 1 | 02000000 };

/* What to say of a record that failed, as package sysprog has it
 * (export_explain.go). */
struct explanation {
	__u64 before, after, mismatch;
};

static int image_fd, keep_fds, free_fd;
static int status_fd, sync_fd, signal_fd; /* our ends; -1: closed */
static int child;
static char *uid_map, *gid_map, *path;
static struct image *image;
static volatile struct progress *progress;
static __u32 last[2]; /* the last report that settles something */

static void quit(int code)
{
	for (;;)
		CALL1(__NR_exit_group, code);
}

static void say_error(long error)
{
	const char **names = 0;

	if (image && image->errors && error < (long)image->error_count)
		names = (const char **)image->errors;
	if (names && names[error]) {
		say(names[error]);
		return;
	}
	say("error ");
	say_number(error);
}

/* Writes the message to standard error and ends the launcher. */
static void give_up(int code)
{
	message[length++] = '\n';
	CALL3(__NR_write, FD_STDERR, message, length);
	quit(code);
}

/* Ends the launcher where the sandbox could not even be begun. */
static void fail(const char *what, long result)
{
	say("cloche: cannot start the sandbox: ");
	say(what);
	say(": ");
	say_error(-result);
	give_up(EXIT_SETUP);
}

static void check(const char *what, long result)
{
	if (result < 0)
		fail(what, result);
}

static long number(const char *s)
{
	long n = 0;

	do
		if (*s < '0' || *s > '9' || n > 1 << 24)
			fail("read the arguments", -EINVAL);
		else
			n = n * 10 + (*s - '0');
	while (*++s);
	return n;
}

static void parse(long argc, char **argv)
{
	if (argc != ARGS + 1)
		fail("read the arguments", -EINVAL);
	image_fd = number(argv[1]);
	keep_fds = number(argv[2]);
	free_fd = number(argv[3]);
	uid_map = argv[4];
	gid_map = argv[5];
	path = argv[7];
	if (image_fd < 3 + keep_fds || free_fd <= image_fd)
		fail("read the arguments", -EINVAL);
}

/* All signals are blocked and read from a descriptor. The child keeps them
 * blocked until the init takes them. A caller that ignores SIGCHLD must not make
 * the kernel reap the child. */
static void take_signals(void)
{
	static struct { unsigned long handler, flags, restorer, mask; } standard;
	__u64 all = ~0ull;

	check("block signals", CALL4(__NR_rt_sigprocmask, SIG_SET_MASK, &all, 0, sizeof all));
	check("watch the child", CALL4(__NR_rt_sigaction, SIG_CHLD, &standard, 0, sizeof all));
	signal_fd = CALL4(__NR_signalfd4, -1, &all, sizeof all, SFD_CLOEXEC | SFD_NONBLOCK);
	check("watch signals", signal_fd);
}

/* Moves a descriptor above the numbers that have a meaning. */
static int move_up(int fd)
{
	long up = CALL3(__NR_fcntl, fd, F_DUPFD_CLOEXEC, free_fd + ENDS);

	check("move a descriptor", up);
	CALL1(__NR_close, fd);
	return up;
}

/* Gives the child's end of a connection the number that the program expects. */
static void place(int fd, int end)
{
	check("place a descriptor", CALL3(__NR_dup3, fd, free_fd + end, O_CLOEXEC));
	CALL1(__NR_close, fd);
}

static void connect_child(void)
{
	int pipe[2], pair[2];

	signal_fd = move_up(signal_fd);
	check("make a pipe", CALL2(__NR_pipe2, pipe, O_CLOEXEC));
	status_fd = move_up(pipe[0]);
	place(move_up(pipe[1]), STATUS_END);
	sync_fd = -1;
	if (!*uid_map)
		return;
	check("make a rendezvous", CALL4(__NR_socketpair, FAMILY_UNIX, TYPE_STREAM_CLOEXEC, 0, pair));
	/* The child closes its copy of our end first: else it would wait on when we
	 * are gone. So there may be only one. */
	pair[0] = move_up(pair[0]);
	place(move_up(pair[1]), SYNC_CHILD);
	place(pair[0], SYNC_PARENT);
	sync_fd = free_fd + SYNC_PARENT;
}

static void load(void)
{
	long at = call(__NR_mmap, 0, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (is_error(at))
		fail("share memory with the child", at);
	progress = (struct progress *)at;
	at = map_image(image_fd, &image);
	if (at < 0)
		fail("load the program of system calls", at);
}

static void start(char **environment)
{
	image->environment = (__u64)environment;
	child = CALL5(__NR_clone, image->namespaces | SIG_CHLD, 0, 0, 0, 0);
	if (!child) {
		interpret(image, progress);
		quit(EXIT_SETUP);
	}
	if (child < 0) {
		say((char *)image->clone_failed);
		say_error(-child);
		give_up(EXIT_SETUP);
	}
	CALL3(__NR_close_range, free_fd + STATUS_END, free_fd + SYNC_CHILD, 0);
}

/* The files of /proc take a map in one write. */
static void write_map(const char *name, const char *map)
{
	static const char *what = "map the sandbox's ids";
	const char *end = map;
	long fd;

	length = 0;
	say("/proc/");
	say_number(child);
	say(name);
	message[length] = 0;
	fd = CALL4(__NR_openat, AT_FDCWD, message, O_WRONLY | O_CLOEXEC, 0);
	length = 0;
	check(what, fd);
	while (*end)
		end++;
	check(what, CALL3(__NR_write, fd, map, end - map));
	CALL1(__NR_close, fd);
}

/* Does the parent's part when the child asks for it. */
static void answer(void)
{
	char byte;

	if (CALL3(__NR_read, sync_fd, &byte, 1) != 1) {
		CALL1(__NR_close, sync_fd);
		sync_fd = -1;
		return;
	}
	write_map("/uid_map", uid_map);
	write_map("/gid_map", gid_map);
	CALL3(__NR_write, sync_fd, &byte, 1);
}

/* Lets go of what the command has: if it closes a pipe, the other side has to
 * see that. */
static void let_go(void)
{
	CALL3(__NR_close_range, 0, free_fd - 1, 0);
}

/* Takes one report of the init; returns whether there may be more. */
static int take_report(void)
{
	__u32 r[2];
	long n;

	do
		n = CALL3(__NR_read, status_fd, r, sizeof r);
	while (n == -EINTR);
	if (n != sizeof r) {
		CALL1(__NR_close, status_fd);
		status_fd = -1;
		return 0;
	}
	switch (r[0]) {
	case STARTED:
		let_go();
		break;
	case STOPPED:
	case CONTINUED:
		return 1;
	}
	last[0] = r[0];
	last[1] = r[1];
	return 1;
}

/* Ends the launcher by a signal, as the command has ended. No core: it would be
 * the launcher's. */
static void end_by(int sig)
{
	static struct { unsigned long handler, flags, restorer, mask; } standard;
	struct rlimit64 none = { 0, 0 };
	__u64 mask = ~(1ull << (sig - 1));

	CALL4(__NR_prlimit64, 0, RLIMIT_CORE, &none, 0);
	CALL4(__NR_rt_sigaction, sig, &standard, 0, sizeof mask);
	CALL2(__NR_kill, CALL0(__NR_getpid), sig);
	CALL4(__NR_rt_sigprocmask, SIG_SET_MASK, &mask, 0, sizeof mask);
	quit(EXIT_SIGNAL + sig); /* one that does not end a process */
}

static void end_like(int status)
{
	if (status & 0x7f)
		end_by(status & 0x7f);
	quit(status >> 8 & 0xff);
}

/* Reports the step of the program that was the last one. */
static void explain(int status)
{
	struct explanation *e;
	__u64 error = progress->error;

	if (!progress->begun)
		fail("the child was ended before its first step", -ECANCELED);
	e = (struct explanation *)image->texts + (progress->begun - 1);
	say((char *)e->before);
	if (!progress->failed) {
		say("ended by signal ");
		say_number(status & 0x7f);
	} else if (error) {
		say_error(error);
	} else {
		say((char *)e->mismatch);
	}
	say((char *)e->after);
	if (progress->failed && (!error || error == ENOENT || error == ENOTDIR || error == ELOOP))
		say((char *)image->changed);
	give_up(EXIT_SETUP);
}

/* What the init did not get done, by the number of the step. */
static const char *const steps[] = {
	[ARGUMENTS] = "reading the arguments",
	[DESCRIPTORS] = "closing descriptors",
	[PROCESS] = "protecting the init",
	[SIGNALS] = "setting up signals",
	[TERMINAL] = "taking the terminal",
	[PIPE] = "making a pipe",
	[FORK] = "forking",
	[LIMITS] = "setting resource limits",
	[WAIT] = "waiting for events",
	[SCOPE] = "keeping signals inside by Landlock",
	[PROGRAM] = "loading the command's program of system calls",
};

static void explain_init(enum step step, long error)
{
	say("cloche: the init of the sandbox failed: ");
	if (step < sizeof steps / sizeof *steps)
		say(steps[step]);
	say(": ");
	say_error(error);
	give_up(EXIT_SETUP);
}

static void explain_exec(int error)
{
	say("cloche: cannot execute ");
	say(path);
	say(": ");
	say_error(error);
	give_up(error == ENOENT || error == ENOTDIR ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
}

/* The init was ended before it had started the command. */
static void explain_end(int status)
{
	say("cloche: the sandbox was ended before the command started");
	give_up(status & 0x7f ? EXIT_SIGNAL + (status & 0x7f) : status >> 8 & 0xff);
}

/* The child is gone, with the status of wait: ends as the command did. An init
 * that reports no end of the command was itself ended, when the session was
 * closed for instance. */
static void finish(int status)
{
	while (status_fd >= 0 && take_report())
		;
	switch (last[0]) {
	case EXITED:
		end_like(last[1]);
		break;
	case EXEC_FAILED:
		explain_exec(last[1]);
		break;
	case SETUP_FAILED:
		explain_init(last[1] >> 16, last[1] & 0xffff);
		break;
	case PROGRAM_FAILED:
		explain_init(PROGRAM, last[1] & 0xfff);
		break;
	case STARTED:
		end_like(status);
	}
	if (!progress->failed && progress->begun == image->count)
		explain_end(status);
	explain(status);
}

/* A signal of our own is a SIGPIPE of a rendezvous that is over. */
static void handle_signals(void)
{
	struct signalfd_siginfo s;
	int self = CALL0(__NR_getpid), status;

	while (CALL3(__NR_read, signal_fd, &s, sizeof s) == sizeof s)
		if (s.ssi_signo != SIG_CHLD && s.ssi_pid != (__u32)self)
			CALL2(__NR_kill, child, s.ssi_signo);
	if (CALL4(__NR_wait4, child, &status, WNOHANG | __WALL, 0) == child)
		finish(status);
}

static void loop(void)
{
	struct pollfd p[3];
	long result;

	for (;;) {
		p[0].fd = signal_fd;
		p[1].fd = status_fd;
		p[2].fd = sync_fd;
		p[0].events = p[1].events = p[2].events = POLLIN;
		result = CALL5(__NR_ppoll, p, 3, 0, 0, 0);
		if (result == -EINTR)
			continue;
		check("wait for events", result);
		if (p[2].fd >= 0 && p[2].revents)
			answer();
		if (p[1].fd >= 0 && p[1].revents)
			take_report();
		if (p[0].revents)
			handle_signals();
	}
}

__attribute__((used, noreturn)) void run(long *stack)
{
	long argc = stack[0];
	char **argv = (char **)(stack + 1);

	CALL2(__NR_prctl, PR_SET_NAME, "cloche-launch");
	parse(argc, argv);
	CALL3(__NR_close_range, free_fd, ~0u, 0); /* the caller's leftovers */
	take_signals();
	connect_child();
	load();
	start(argv + argc + 1);
	loop();
	__builtin_unreachable();
}
