/*
 * What the init and the launcher share: signals, exit statuses, and the reports
 * of the init, whose numbers are those of record.go.
 */
enum { SIG_HUP = 1, SIG_INT = 2, SIG_QUIT = 3, SIG_KILL = 9, SIG_CHLD = 17,
       SIG_CONT = 18, SIG_STOP = 19, SIG_TSTP = 20, SIG_WINCH = 28, SIG_MAX = 64 };

enum { SIG_BLOCK_MASK = 0, SIG_SET_MASK = 2 };

/* The types of record, and the steps of a failed preparation. */
enum record { STARTED = 1, EXEC_FAILED, EXITED, STOPPED, CONTINUED, SETUP_FAILED,
	      PROGRAM_FAILED };
enum step { ARGUMENTS = 1, DESCRIPTORS, PROCESS, SIGNALS, TERMINAL, PIPE,
	    FORK, LIMITS, WAIT, SCOPE, PROGRAM, ORDER, FOLDER };

/* The exit status where the command was not run to its end. */
enum { EXIT_SETUP = 125, EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127,
       EXIT_SIGNAL = 128 };
