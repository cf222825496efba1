// build.sh compiles this file, not the go command.
//go:build ignore

/*
 * The first process of a sandbox: pid 1 of its pid namespace or, where there is
 * none, the process that adopts whatever the command leaves behind.
 *
 *   cloche-init STATUSFD LIFELINEFD FLAGS KEEPFDS NPROC NOFILE FSIZE [PROGRAMFD PROGRAMFILES]
 *               -- PATH ARG0 [ARG...]
 *
 * All numbers are decimal and -1 stands for "none". Descriptors 0 to
 * 2+KEEPFDS belong to the command; STATUSFD, LIFELINEFD and PROGRAMFD lie above
 * them. PROGRAMFD is a program of system calls that the command's process runs
 * before it executes the command, with the PROGRAMFILES descriptors behind it.
 * With FLAG_AWAIT there is nothing behind the "--", and STATUSFD is a socket on
 * which the command comes later with its standard descriptors: see take_order.
 * With FLAG_BECOME, too, this process becomes that command: see become_command.
 *
 * It uses no library: what runs next to the command should be small enough to
 * be read, and its memory should hold nothing that is worth stealing. Only
 * plain system calls are made, so that a seccomp filter that was installed
 * before it can stay narrow.
 */
#include <asm/errno.h>
#include <asm/ioctls.h>
#include <linux/fcntl.h>
#include <linux/poll.h>
#include <linux/prctl.h>
#include <linux/resource.h>
#include <linux/signalfd.h>
#include <linux/types.h>
#include <linux/wait.h>

#include "sys.h"
#include "interp.h"
#include "status.h"

#define FLAG_TERMINAL 1
#define FLAG_ADOPT 2 /* not pid 1: adopt orphans, and end them */
#define FLAG_SCOPE 4 /* with FLAG_ADOPT: the kernel has Landlock's signal scope */
#define FLAG_PARK 8 /* no command: hold the namespaces for those that join them */
#define FLAG_AWAIT 16 /* the command comes over STATUSFD */
#define FLAG_BECOME 32 /* with FLAG_AWAIT: become the command, and start none */

/* The place of the "--", without and with a program. */
#define FIXED_ARGS 8
#define FIXED_ARGS_PROGRAM 10

/* MSG_CMSG_CLOEXEC, which only headers of a C library have. */
enum { MSG_CLOSE_ON_EXEC = 0x40000000 };

/* LANDLOCK_SCOPE_SIGNAL, which headers before Linux 6.12 lack. */
enum { LANDLOCK_SIGNAL_SCOPE = 2 };

static int status_fd, lifeline_fd, signal_fd, exec_fd, keep_fds;
static int program_fd, program_last; /* its descriptors, both included */
static int terminal, adopt, scope, parked, await, become, stopped;
/* How many signals, or ended processes, are seen to before the lifeline is looked at
 * again: a command that makes them without end would keep the init from it. */
#define ROUND 16

static int unreaped; /* there may be processes to wait for that no signal tells of */
static int scoped; /* signals of this process reach only its descendants */
static int self, child;
static long limit_processes, limit_files, limit_size;
static char **command; /* PATH ARG0 ARG... */
static char **environment;

static void quit(int code)
{
	for (;;)
		CALL1(__NR_exit_group, code);
}

/* A pipe takes 8 bytes whole or not at all. A reader that is gone is no error
 * here: the loop notices. */
static void report(enum record type, int value)
{
	__u32 r[2] = { type, value };

	if (status_fd >= 0)
		CALL3(__NR_write, status_fd, r, sizeof r);
}

/* Kills the direct children one by one. Those of a killed one become ours. */
static int kill_children(void)
{
	static char list[4096]; /* "PID PID ... ", a new part of it in each round */
	long fd, n, i, pid = 0;

	fd = CALL4(__NR_openat, AT_FDCWD, "/proc/thread-self/children", O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return 0;
	n = CALL3(__NR_read, fd, list, sizeof list);
	CALL1(__NR_close, fd);
	for (i = 0; i < n; i++) {
		if (list[i] >= '0' && list[i] <= '9') {
			pid = pid * 10 + (list[i] - '0');
			continue;
		}
		if (pid > 1)
			CALL2(__NR_kill, pid, SIG_KILL);
		pid = 0;
	}
	return n >= 0;
}

/* Kills everything that descends from this process, whatever it has done to get
 * away. With the signal scope one call does that at once, as the end of a pid
 * namespace would; without it -1 would mean every process of the user. */
static int kill_tree(void)
{
	if (!scoped)
		return kill_children();
	CALL2(__NR_kill, -1, SIG_KILL);
	return 1;
}

/* Ends what pid 1 would take with it. Orphans that come in while others are
 * reaped are met in the next round. */
static void end_tree(void)
{
	long pid;

	if (!adopt)
		return;
	do {
		if (!kill_tree()) {
			if (child > 0)
				CALL2(__NR_kill, -child, SIG_KILL);
			return;
		}
		pid = CALL4(__NR_wait4, -1, 0, __WALL, 0);
		while (pid > 0)
			pid = CALL4(__NR_wait4, -1, 0, WNOHANG | __WALL, 0);
	} while (pid != -ECHILD);
}

static void finish(int code)
{
	end_tree();
	quit(code);
}

static void fail(enum step step, long error)
{
	report(SETUP_FAILED, step << 16 | -error);
	finish(EXIT_SETUP);
}

static void check(enum step step, long result)
{
	if (result < 0)
		fail(step, result);
}

/* Reads a decimal number, -1 included; anything else ends the init. */
static long number(const char *s)
{
	long n = 0;

	if (s[0] == '-' && s[1] == '1' && !s[2])
		return -1;
	if (!*s)
		fail(ARGUMENTS, -EINVAL);
	for (; *s; s++) {
		if (*s < '0' || *s > '9' || n > (__LONG_MAX__ - 9) / 10)
			fail(ARGUMENTS, -EINVAL);
		n = n * 10 + (*s - '0');
	}
	return n;
}

static int is_separator(const char *s)
{
	return s[0] == '-' && s[1] == '-' && !s[2];
}

/* Looks for a program, and returns the place of the "--". */
static int parse_program(long argc, char **argv)
{
	if (argc <= FIXED_ARGS_PROGRAM || is_separator(argv[FIXED_ARGS]))
		return FIXED_ARGS;
	program_fd = number(argv[8]);
	program_last = program_fd + number(argv[9]);
	if (program_fd < 3 + keep_fds || program_last < program_fd)
		fail(ARGUMENTS, -EINVAL);
	return FIXED_ARGS_PROGRAM;
}

static void parse(long argc, char **argv)
{
	long flags;
	int end;

	status_fd = lifeline_fd = program_fd = -1;
	if (argc <= FIXED_ARGS)
		fail(ARGUMENTS, -EINVAL);
	status_fd = number(argv[1]);
	lifeline_fd = number(argv[2]);
	flags = number(argv[3]);
	keep_fds = number(argv[4]);
	limit_processes = number(argv[5]);
	limit_files = number(argv[6]);
	limit_size = number(argv[7]);
	if (flags < 0 || keep_fds < 0)
		fail(ARGUMENTS, -EINVAL);
	if ((status_fd >= 0 && status_fd < 3 + keep_fds) ||
	    (lifeline_fd >= 0 && lifeline_fd < 3 + keep_fds))
		fail(ARGUMENTS, -EINVAL);
	end = parse_program(argc, argv);
	await = flags & FLAG_AWAIT;
	become = await && flags & FLAG_BECOME;
	if (argc < end + (await ? 1 : 3) || !is_separator(argv[end]) || (await && (keep_fds || status_fd < 0)))
		fail(ARGUMENTS, -EINVAL);
	terminal = flags & FLAG_TERMINAL;
	adopt = flags & FLAG_ADOPT;
	scope = adopt && flags & FLAG_SCOPE;
	parked = flags & FLAG_PARK;
	command = argv + end + 1;
}

/* Closes the descriptors from first to last, both included. */
static void close_span(unsigned first, unsigned last)
{
	struct rlimit64 limit;
	long result;

	if (first > last)
		return;
	result = CALL3(__NR_close_range, first, last, 0);
	if (result != -ENOSYS) {
		check(DESCRIPTORS, result);
		return;
	}
	/* Before Linux 5.9: one by one, up to where a descriptor can be. */
	check(DESCRIPTORS, CALL4(__NR_prlimit64, 0, RLIMIT_NOFILE, 0, &limit));
	for (; first <= last && first < limit.rlim_max; first++)
		CALL1(__NR_close, first);
}

/* The first descriptor from this one on that the init keeps, or -1. */
static int next_kept(int from)
{
	int first = -1;

	if (status_fd >= from)
		first = status_fd;
	if (lifeline_fd >= from && (first < 0 || lifeline_fd < first))
		first = lifeline_fd;
	if (program_fd >= 0 && program_last >= from) {
		if (from < program_fd)
			from = program_fd;
		if (first < 0 || from < first)
			first = from;
	}
	return first;
}

static void close_others(void)
{
	int next = 3 + keep_fds, kept;

	while ((kept = next_kept(next)) >= 0) {
		close_span(next, kept - 1);
		next = kept + 1;
	}
	close_span(next, ~0u);
}

/* All signals are blocked and read from a descriptor. Dispositions go back to
 * the default first: a SIGCHLD that a caller ignored would make the kernel reap
 * the command, and its status would be lost. */
static void take_signals(void)
{
	static struct { unsigned long handler, flags, restorer, mask; } standard;
	__u64 all = ~0ull;
	int sig;

	check(SIGNALS, CALL4(__NR_rt_sigprocmask, SIG_BLOCK_MASK, &all, 0, sizeof all));
	for (sig = 1; sig <= SIG_MAX; sig++)
		if (sig != SIG_KILL && sig != SIG_STOP)
			check(SIGNALS, CALL4(__NR_rt_sigaction, sig, &standard, 0, sizeof all));
	signal_fd = CALL4(__NR_signalfd4, -1, &all, sizeof all, SFD_CLOEXEC | SFD_NONBLOCK);
	check(SIGNALS, signal_fd);
}

/* Enters a Landlock domain that signals do not leave. Linux 6.12. */
static long enter_scope(void)
{
	__u64 ruleset[] = { 0, 0, LANDLOCK_SIGNAL_SCOPE };
	long fd, result;

	result = CALL5(__NR_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (result < 0)
		return result;
	fd = CALL3(__NR_landlock_create_ruleset, ruleset, sizeof ruleset, 0);
	if (fd < 0)
		return fd;
	result = CALL2(__NR_landlock_restrict_self, fd, 0);
	CALL1(__NR_close, fd);
	return result;
}

/* A death signal would be for the death of the thread that forked, and would
 * leave those that this process adopted: it has the lifeline alone. */
static void adopt_orphans(void)
{
	check(PROCESS, CALL5(__NR_prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
	if (!scope)
		return;
	check(SCOPE, enter_scope());
	scoped = 1;
}

/* Not dumpable: the command, which has the same user, may not trace the init
 * nor look into its fd, mem or environ in /proc. */
static void protect(void)
{
	/* A death signal is for the thread that forked, and a Go program ends threads
	 * as it likes: with a lifeline that is all there is to watch. */
	if (adopt)
		adopt_orphans();
	else if (lifeline_fd < 0)
		check(PROCESS, CALL2(__NR_prctl, PR_SET_PDEATHSIG, SIG_KILL));
	check(PROCESS, CALL2(__NR_prctl, PR_SET_DUMPABLE, 0));
	self = CALL0(__NR_getpid);
}

static int is_gone(const struct pollfd *p)
{
	return p->revents & (POLLHUP | POLLERR | POLLNVAL);
}

/* Ends the tree if the supervisor died while the sandbox was being made. */
static void check_lifeline(void)
{
	static struct { long sec, nsec; } at_once; /* the kernel writes to it */
	struct pollfd p = { lifeline_fd, 0, 0 };
	long result = CALL5(__NR_ppoll, &p, 1, &at_once, 0, 0);

	check(WAIT, result);
	if (is_gone(&p))
		quit(EXIT_SIGNAL + SIG_KILL);
}

/* An order: this, then SIZE bytes of strings, each with its NUL: the working
 * folder, the path, ARGS arguments and VARIABLES of the environment. STREAMS has a
 * bit for each standard descriptor that comes along with its first byte; the others
 * stay what they are. */
struct order {
	__u32 size, args, variables, streams;
};

/* Receives the head of an order and puts the descriptors in their places. Those
 * there are kept so far, so that none of the new ones has such a number. */
static long take_descriptors(struct order *order)
{
	struct { long length; int level, type, fd[4]; } rights;
	struct { void *base; unsigned long length; } part = { order, sizeof *order };
	struct { void *name; long name_length; void *parts; long n; void *control; long control_length, flags; } message = {
		0, 0, &part, 1, &rights, sizeof rights, 0,
	};
	long result;
	int i, n = 0;

	rights.length = 0;
	do
		result = CALL3(__NR_recvmsg, status_fd, &message, MSG_CLOSE_ON_EXEC);
	while (result == -EINTR);
	if (result <= 0)
		return result;
	for (i = 0; i < 3; i++)
		n += order->streams >> i & 1;
	if (result != sizeof *order || order->streams > 7 || rights.length != (n ? 16 + n * (int)sizeof(int) : 0))
		return -EBADMSG;
	for (i = 0, n = 0; i < 3 && result >= 0; i++) {
		if (!(order->streams >> i & 1))
			continue;
		result = CALL3(__NR_dup3, rights.fd[n], i, 0);
		CALL1(__NR_close, rights.fd[n++]);
	}
	return result < 0 ? result : 1;
}

/* Waits for the order. Without its supervisor there will be none, and the init
 * ends; so it does when the socket is closed, which says that it is not needed. */
static void await_order(struct order *order)
{
	struct pollfd p[2] = { { status_fd, POLLIN, 0 }, { lifeline_fd, 0, 0 } };
	long result;

	do
		result = CALL5(__NR_ppoll, p, 2, 0, 0, 0);
	while (result == -EINTR);
	check(WAIT, result);
	if (lifeline_fd >= 0 && is_gone(&p[1]))
		quit(EXIT_SIGNAL + SIG_KILL);
	result = take_descriptors(order);
	check(ORDER, result);
	if (!result)
		quit(0);
}

/* Reads the strings into memory of their own, and returns where they begin. */
static char *read_strings(const struct order *order, char *into)
{
	long done = 0, n;

	while (done < order->size) {
		n = CALL3(__NR_read, status_fd, into + done, order->size - done);
		if (n == -EINTR)
			continue;
		check(ORDER, n);
		if (!n)
			quit(0);
		done += n;
	}
	if (!order->size || into[order->size - 1])
		fail(ORDER, -EBADMSG);
	return into;
}

/* The string behind this one. */
static char *next_string(char *s, const char *end)
{
	while (s < end && *s)
		s++;
	if (s >= end)
		fail(ORDER, -EBADMSG);
	return s + 1;
}

/* Points list at n strings, ends it with a NULL, and returns what is behind. */
static char *fill_list(char **list, __u32 n, char *s, const char *end)
{
	for (; n; n--) {
		*list++ = s;
		s = next_string(s, end);
	}
	*list = 0;
	return s;
}

/* Room for most orders, which is there before they come. */
static char *ready[2048];

static void make_ready(void)
{
	volatile char *page = (volatile char *)ready;
	unsigned long i;

	for (i = 0; i < sizeof ready; i += 4096)
		page[i] = 0;
}

/* Memory for an order. */
static char **room_for(unsigned long size)
{
	long memory;

	if (size <= sizeof ready)
		return ready;
	memory = call(__NR_mmap, 0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(ORDER, memory);
	return (char **)memory;
}

/* Takes the command over. Everything else has been done before, when nobody
 * waited for it. */
static void take_order(void)
{
	struct order order;
	char **list, *s, *end, *folder;
	unsigned long lists;

	make_ready();
	await_order(&order);
	lists = (3ul + order.args + order.variables) * sizeof *list;
	list = room_for(lists + order.size);
	folder = read_strings(&order, (char *)list + lists);
	end = folder + order.size;
	s = next_string(folder, end);
	command = list;
	environment = list + 2 + order.args;
	s = fill_list(command, 1 + order.args, s, end);
	fill_list(environment, order.variables, s, end);
	check(FOLDER, CALL1(__NR_chdir, folder));
}

/* EPERM: the launcher made the session already. */
static void take_terminal(void)
{
	CALL0(__NR_setsid);
	if (terminal)
		check(TERMINAL, CALL3(__NR_ioctl, 0, TIOCSCTTY, 0));
}

/* The signal for using a terminal from the background is blocked, so this works
 * whoever is in the foreground. It fails only where the terminal is hung up. */
static void set_foreground(int group)
{
	if (terminal)
		CALL3(__NR_ioctl, 0, TIOCSPGRP, &group);
}

/* Tells the init what it is to report, and ends the child. */
static void give_up_with(int pipe, enum record type, int value)
{
	__u32 r[2] = { type, value };

	CALL3(__NR_write, pipe, r, sizeof r);
	quit(EXIT_SETUP);
}

static void give_up(int pipe, enum step step, long error)
{
	give_up_with(pipe, SETUP_FAILED, step << 16 | -error);
}

/* Lowers one limit, never raises it: that would need a privilege. */
static void set_limit(int pipe, int which, long value)
{
	struct rlimit64 limit;
	long result;

	if (value < 0)
		return;
	result = CALL4(__NR_prlimit64, 0, which, 0, &limit);
	if (result >= 0) {
		if (limit.rlim_cur > (__u64)value)
			limit.rlim_cur = value;
		if (limit.rlim_max > (__u64)value)
			limit.rlim_max = value;
		result = CALL4(__NR_prlimit64, 0, which, &limit, 0);
	}
	if (result < 0)
		give_up(pipe, LIMITS, result);
}

/* The command is put into a domain below the init's, from which it can neither
 * signal nor trace the init. Before Landlock's signal scope it can, and what it
 * then leaves behind is out of our hands; it dies itself at least. */
static void step_below(int pipe)
{
	long result = 0;

	CALL2(__NR_prctl, PR_SET_PDEATHSIG, SIG_KILL);
	if (CALL0(__NR_getppid) != self)
		quit(EXIT_SIGNAL + SIG_KILL);
	if (scope)
		result = enter_scope();
	if (result < 0)
		give_up(pipe, SCOPE, result);
}

static void close_program(void)
{
	if (program_fd >= 0)
		close_span(program_fd, program_last);
}

/* Runs the program in the process that becomes the command. What it takes away
 * is taken from the command, and not from the init. */
static void run_program(int pipe)
{
	static struct progress progress;
	struct image *image;
	long result;

	if (program_fd < 0)
		return;
	result = map_image(program_fd, &image);
	if (result < 0)
		give_up(pipe, PROGRAM, result);
	if (interpret(image, &progress))
		give_up_with(pipe, PROGRAM_FAILED, (progress.begun - 1) << 12 | progress.error);
	close_program();
}

/* Executes the command, or returns the errno. Whoever started this program knows
 * already what the command is: the flag, which changes nothing for a path that is
 * not empty, makes the filter let it pass without a notification. */
static long exec_command(void)
{
	long result = CALL5(__NR_execveat, AT_FDCWD, command[0], command + 1, environment, AT_EMPTY_PATH);

	if (result == -ENOSYS) /* qemu's emulation of a user's program has none */
		result = CALL3(__NR_execve, command[0], command + 1, environment);
	return -result;
}

/* The child's side. The group of its own, in the init's session, is what makes
 * Ctrl-Z work: the group has a parent in its session and is not orphaned. */
static void execute(int pipe)
{
	__u64 none = 0;
	int group = CALL0(__NR_getpid);

	CALL2(__NR_setpgid, 0, 0);
	set_foreground(group);
	if (status_fd >= 0)
		CALL1(__NR_close, status_fd);
	if (lifeline_fd >= 0)
		CALL1(__NR_close, lifeline_fd);
	set_limit(pipe, RLIMIT_NPROC, limit_processes);
	set_limit(pipe, RLIMIT_NOFILE, limit_files);
	set_limit(pipe, RLIMIT_FSIZE, limit_size);
	/* With 0 a program that the host pipes its dumps into would still be started, with
	 * the command's memory as its input: 1 is what the kernel takes for none at all. */
	set_limit(pipe, RLIMIT_CORE, 1);
	if (adopt)
		step_below(pipe);
	run_program(pipe);
	CALL4(__NR_rt_sigprocmask, SIG_SET_MASK, &none, 0, sizeof none);
	give_up_with(pipe, EXEC_FAILED, exec_command());
}

/* Executes the command in this process, whose socket closes with that; an error
 * comes through it. In a pid namespace that commands share, signals may have come
 * that were for others, or for all: what came before the order was not for this
 * command. */
static void become_command(void)
{
	static struct signalfd_siginfo s[ROUND];
	__u64 none = 0;
	int i;

	check(DESCRIPTORS, CALL3(__NR_fcntl, status_fd, F_SETFD, FD_CLOEXEC));
	if (lifeline_fd >= 0)
		CALL1(__NR_close, lifeline_fd);
	/* There is an end to it, also where others send signals without one. */
	for (i = 0; i < 64 && CALL3(__NR_read, signal_fd, s, sizeof s) > 0; i++)
		;
	CALL4(__NR_rt_sigprocmask, SIG_SET_MASK, &none, 0, sizeof none);
	report(EXEC_FAILED, exec_command());
	quit(EXIT_SETUP);
}

/* The pipe closes when the command is executed; an error comes through it. A
 * vfork would tell as much, but would leave pid 1 deaf to its lifeline if the
 * child were stopped before it executes. */
static void start(void)
{
	int pipe[2];

	check(PIPE, CALL2(__NR_pipe2, pipe, O_CLOEXEC));
	child = CALL5(__NR_clone, SIG_CHLD, 0, 0, 0, 0);
	check(FORK, child);
	if (!child)
		execute(pipe[1]);
	CALL1(__NR_close, pipe[1]);
	exec_fd = pipe[0];
	close_program();
	CALL2(__NR_setpgid, child, child);
	set_foreground(child);
}

/* The status for a command that the child could not come to execute. */
static int exit_code(enum record type, int value)
{
	if (type != EXEC_FAILED)
		return EXIT_SETUP;
	return value == ENOENT || value == ENOTDIR ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
}

/* Reads the pipe of start. It is called once something can be read from it, or
 * once the child is dead: it never blocks for long. */
static void settle(void)
{
	__u32 r[2];
	long n;

	if (exec_fd < 0)
		return;
	do
		n = CALL3(__NR_read, exec_fd, r, sizeof r);
	while (n == -EINTR);
	CALL1(__NR_close, exec_fd);
	exec_fd = -1;
	if (n != sizeof r) {
		report(STARTED, 0);
		return;
	}
	report(r[0], r[1]);
	finish(exit_code(r[0], r[1]));
}

/* Hands the terminal back. A command that was not stopped may itself have put
 * one of its jobs in the foreground, and that has to stay there. */
static void resume(void)
{
	if (stopped)
		set_foreground(child);
	stopped = 0;
}

static void command_changed(int status)
{
	if ((status & 0xff) == 0x7f) {
		stopped = 1;
		set_foreground(self);
		report(STOPPED, status >> 8 & 0xff);
	} else if (status == 0xffff) {
		resume();
		report(CONTINUED, 0);
	} else {
		settle();
		report(EXITED, status);
		finish(status & 0x7f ? EXIT_SIGNAL + (status & 0x7f) : status >> 8 & 0xff);
	}
}

/* Takes what can be waited for: the command, and orphans, whose parent the kernel
 * makes this process. There may be more than this round takes. */
static void reap(void)
{
	int status, i;
	long pid = 0;

	for (i = 0; i < ROUND; i++) {
		pid = CALL4(__NR_wait4, -1, &status, WNOHANG | WUNTRACED | WCONTINUED | __WALL, 0);
		if (pid <= 0)
			break;
		if (pid == child)
			command_changed(status);
	}
	unreaped = pid > 0;
}

/* What a terminal would send to the foreground goes to the command's group,
 * the rest to the command alone. */
static void forward(int sig)
{
	int target = child;

	if (parked)
		return;
	switch (sig) {
	case SIG_CONT:
		resume();
		/* fall through */
	case SIG_HUP:
	case SIG_INT:
	case SIG_QUIT:
	case SIG_TSTP:
	case SIG_WINCH:
		target = -child;
	}
	CALL2(__NR_kill, target, sig);
}

/* Takes a round of signals; those that are left wake the loop again. One from the
 * init itself is the SIGPIPE of a report that nobody reads. */
static void handle_signals(void)
{
	static struct signalfd_siginfo s[ROUND];
	long n = CALL3(__NR_read, signal_fd, s, sizeof s) / (long)sizeof *s, i;

	for (i = 0; i < n; i++)
		if (s[i].ssi_signo != SIG_CHLD && s[i].ssi_pid != (__u32)self)
			forward(s[i].ssi_signo);
	reap();
}

/* Without its supervisor the sandbox ends. That one is gone when the lifeline
 * ends, or when nobody is left to read the status: a launcher between the two
 * has only that to show. */
static void loop(void)
{
	static struct { long sec, nsec; } at_once;
	struct pollfd p[4];
	long result;

	for (;;) {
		p[0].fd = signal_fd;
		p[1].fd = lifeline_fd;
		p[2].fd = exec_fd;
		p[3].fd = status_fd;
		p[0].events = p[2].events = POLLIN;
		p[1].events = p[3].events = 0;
		result = CALL5(__NR_ppoll, p, 4, unreaped ? &at_once : 0, 0, 0);
		if (result == -EINTR)
			continue;
		check(WAIT, result);
		if ((lifeline_fd >= 0 && is_gone(&p[1])) || (status_fd >= 0 && is_gone(&p[3])))
			finish(EXIT_SIGNAL + SIG_KILL);
		if (exec_fd >= 0 && p[2].revents)
			settle();
		if (p[0].revents || unreaped)
			handle_signals();
	}
}

__attribute__((used, noreturn)) void run(long *stack)
{
	long argc = stack[0];
	char **argv = (char **)(stack + 1);

	environment = argv + argc + 1;
	parse(argc, argv);
	close_others();
	protect();
	take_signals();
	if (lifeline_fd >= 0)
		check_lifeline();
	take_terminal();
	if (await)
		take_order();
	if (become)
		become_command();
	if (parked)
		exec_fd = -1;
	else
		start();
	loop();
	__builtin_unreachable();
}
